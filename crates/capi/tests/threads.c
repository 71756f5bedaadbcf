/* Two threads share a service, a volume and a segment: each writes and reads its own part, and reaps whatever ends. Run as: threads DIRECTORY */
#include "check.h"
#include <pthread.h>

enum { ROUNDS = 500 };

static baio_link *link_;
static baio_file *segment;

static void *work(void *which) {
    uint64_t mine = *(uint64_t *)which;
    baio_buffer *buffer;
    CHECK(baio_buffer_new(link_, 4096, &buffer) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        baio_request request = ask(BAIO_OP_WRITE, segment, buffer, (mine * 16 + (uint64_t)round % 16) * 4096);
        memset(baio_buffer_data(buffer), round + (int)mine, 4096);
        CHECK(baio_run(link_, &request, NULL) == 4096);
        memset(baio_buffer_data(buffer), 0, 4096);
        request.op = BAIO_OP_READ;
        baio_ticket ticket;
        CHECK(baio_submit(link_, &request, 1, &ticket) == 1 && baio_wait(link_, ticket, NULL) == 4096);
        unsigned char *bytes = baio_buffer_data(buffer);
        CHECK(bytes[0] == (unsigned char)(round + (int)mine) && bytes[4095] == bytes[0]);
    }
    baio_request sync = ask(BAIO_OP_SYNC, segment, NULL, 0);
    sync.durable = BAIO_DURABLE_DATA;
    CHECK(baio_run(link_, &sync, NULL) == 0 && baio_buffer_free(buffer) == 0);
    return NULL;
}

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/volume", argv[1]);
    baio_format_options format;
    memset(&format, 0, sizeof format);
    format.size = sizeof format, format.size_bytes = 16 << 20;
    CHECK(baio_format(path, &format) == 0 && baio_format(path, &format) == -EEXIST);
    CHECK(baio_link_open(&link_, BAIO_LINK_SERVICE, path, NULL) == 0);
    CHECK(baio_segment_create(link_, "ours", 1 << 20) == 0 && baio_segment_create(link_, "ours", 1 << 20) == -EEXIST);
    CHECK(baio_segment_resize(link_, "ours", 2 << 20) == 0 && baio_segment_rename(link_, "ours", "shared") == 0);
    CHECK(baio_segment_open(link_, "shared", BAIO_OPEN_WRITE, BAIO_MODE_DEFAULT, &segment) == 0);
    CHECK(baio_file_size(segment) == 2 << 20);
    pthread_t threads[2];
    uint64_t numbers[2] = {0, 1};
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(baio_file_close(segment) == 0 && baio_segment_delete(link_, "shared") == 0);
    CHECK(baio_segment_open(link_, "shared", BAIO_OPEN_READ, BAIO_MODE_DEFAULT, &segment) == -ENOENT);
    CHECK(baio_link_close(link_) == 0);
    return 0;
}
