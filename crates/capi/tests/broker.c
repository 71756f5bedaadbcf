/* A volume of a broker: segments, requests, syncs, an event descriptor, two links. Run as: broker SOCKET */
#include "check.h"
#include <poll.h>

enum { REQUESTS = 32 };

static const char *socket_;

static baio_link *linked(void) {
    baio_link_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options, options.slots = 64, options.arena_bytes = 1 << 20;
    baio_link *link;
    CHECK(baio_link_open(&link, BAIO_LINK_BROKER, socket_, &options) == 0);
    return link;
}

/* What a link wrote and synced, another one reads. */
static void writes(const char *name) {
    baio_link *link = linked();
    baio_file *segment;
    baio_buffer *buffer;
    CHECK(baio_segment_create(link, name, 1 << 20) == 0);
    CHECK(baio_segment_open(link, name, BAIO_OPEN_WRITE, BAIO_MODE_DEFAULT, &segment) == 0);
    CHECK(baio_file_size(segment) == 1 << 20 && baio_buffer_new(link, 8192, &buffer) == 0);
    memset(baio_buffer_data(buffer), 'b', 8192);
    baio_request request = ask(BAIO_OP_WRITE, segment, buffer, 4096);
    CHECK(baio_run(link, &request, NULL) == 8192);
    request.offset = 65536, request.durable = BAIO_DURABLE_DATA;
    CHECK(baio_run(link, &request, NULL) == 8192);
    baio_request sync = ask(BAIO_OP_SYNC, segment, NULL, 0);
    sync.durable = BAIO_DURABLE_DATA;
    CHECK(baio_run(link, &sync, NULL) == 0);
    /* Only a volume is served. */
    baio_file *file;
    CHECK(baio_file_open(link, socket_, 0, BAIO_MODE_DEFAULT, &file) < 0 && *baio_error_message() != '\0');
    /* Its pages are not shown to other processes. */
    baio_pin *pin;
    baio_pages *pages;
    CHECK(baio_pages_read(segment, 0, 1, &pages) == -EOPNOTSUPP);
    CHECK(baio_pin_new(segment, 0, 0, &pin) == -EOPNOTSUPP && *baio_error_cure() != '\0');
    CHECK(baio_buffer_free(buffer) == 0 && baio_file_close(segment) == 0 && baio_link_close(link) == 0);
}

static void reads_back(const char *name, uint32_t mode) {
    baio_link *link = linked();
    baio_file *segment;
    baio_buffer *buffer;
    CHECK(baio_segment_open(link, name, BAIO_OPEN_READ, mode, &segment) == 0);
    CHECK(baio_buffer_new(link, 16384, &buffer) == 0);
    memset(baio_buffer_data(buffer), 1, 16384);
    baio_request request = ask(BAIO_OP_READ, segment, buffer, 0);
    CHECK(baio_run(link, &request, NULL) == 16384);
    const char *bytes = baio_buffer_data(buffer);
    CHECK(bytes[0] == 0 && bytes[4095] == 0 && bytes[4096] == 'b' && bytes[12287] == 'b' && bytes[12288] == 0);
    request.offset = 65536;
    CHECK(baio_run(link, &request, NULL) == 16384);
    CHECK(bytes == (const char *)baio_buffer_data(buffer) && bytes[0] == 'b' && bytes[8191] == 'b' && bytes[8192] == 0);
    /* It was opened to be read. */
    request.op = BAIO_OP_WRITE;
    CHECK(baio_run(link, &request, NULL) < 0 && strstr(baio_error_message(), name) != NULL);
    CHECK(baio_buffer_free(buffer) == 0 && baio_file_close(segment) == 0 && baio_link_close(link) == 0);
}

/* A loop that knows only poll(2). */
static void by_descriptor(const char *name) {
    baio_link *link = linked();
    baio_file *segment;
    baio_status *status;
    CHECK(baio_segment_open(link, name, BAIO_OPEN_WRITE, BAIO_MODE_DEFAULT, &segment) == 0);
    int fd = baio_link_event_fd(link);
    CHECK(fd >= 0 && baio_status_new(&status) == 0);
    baio_buffer *buffers[REQUESTS];
    baio_request requests[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        CHECK(baio_buffer_new(link, 4096, &buffers[i]) == 0);
        memset(baio_buffer_data(buffers[i]), 'A' + i, 4096);
        requests[i] = ask(BAIO_OP_WRITE, segment, buffers[i], (uint64_t)i * 4096);
        requests[i].tag = (uint64_t)i;
    }
    requests[0].status = status;
    for (int round = 0; round < 20; round++) {
        int seen[REQUESTS] = {0};
        CHECK(baio_submit(link, requests, REQUESTS, NULL) == REQUESTS);
        CHECK(round != 0 || baio_buffer_free(buffers[0]) == -EBUSY);
        for (int ended = 0; ended < REQUESTS;) {
            struct pollfd ready = {fd, POLLIN, 0};
            CHECK(poll(&ready, 1, 30000) == 1);
            baio_outcome outcomes[5];
            int count = baio_reap(link, outcomes, 5, 0, 0);
            CHECK(count >= 0);
            for (int i = 0; i < count; i++, ended++)
                CHECK(outcomes[i].result == 4096 && outcomes[i].tag < REQUESTS && seen[outcomes[i].tag]++ == 0);
        }
    }
    CHECK(baio_status_get(status) == 4096);
    requests[7].op = BAIO_OP_READ, memset(baio_buffer_data(buffers[7]), 0, 4096);
    baio_ticket ticket;
    CHECK(baio_submit(link, &requests[7], 1, &ticket) == 1 && baio_wait(link, ticket, NULL) == 4096);
    CHECK(*(char *)baio_buffer_data(buffers[7]) == 'A' + 7);
    for (int i = 0; i < REQUESTS; i++)
        CHECK(baio_buffer_free(buffers[i]) == 0);
    CHECK(baio_status_free(status) == 0 && baio_file_close(segment) == 0 && baio_link_close(link) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    socket_ = argv[1];
    writes("shared");
    reads_back("shared", BAIO_MODE_DEFAULT);
    reads_back("shared", BAIO_MODE_CACHED);
    by_descriptor("shared");
    baio_link *link = linked();
    CHECK(baio_segment_rename(link, "shared", "kept") == 0 && baio_segment_delete(link, "kept") == 0);
    CHECK(baio_link_close(link) == 0);
    /* By its name; and one that is not served there. */
    baio_link_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options, options.volume = "served";
    CHECK(baio_link_open(&link, BAIO_LINK_BROKER, socket_, &options) == 0 && baio_link_close(link) == 0);
    options.volume = "elsewhere";
    CHECK(baio_link_open(&link, BAIO_LINK_BROKER, socket_, &options) == -ENOENT);
    CHECK(strstr(baio_error_cure(), "leave the name out") != NULL);
    return 0;
}
