/* A request that gets no answer ends at its deadline, also in a loop that knows only poll(2): nothing else makes its descriptor readable. What
   does not answer is a FIFO that nobody writes to. And what is queued goes out with a reap that finds enough without it. Run as: deadlines DIRECTORY */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

static void on(uint32_t kind, uint32_t backend, const char *fifo) {
    baio_link_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options, options.backend = backend;
    baio_link *link;
    baio_file *file;
    baio_buffer *buffer;
    CHECK(baio_link_open(&link, kind, NULL, &options) == 0 && baio_buffer_new(link, 4096, &buffer) == 0);
    CHECK(baio_file_open(link, fifo, BAIO_OPEN_READ, BAIO_MODE_DEFAULT, &file) == 0);
    int fd = baio_link_event_fd(link);
    CHECK(fd >= 0);
    baio_request request = ask(BAIO_OP_READ, file, buffer, 0);
    request.timeout_ns = 50 * 1000 * 1000, request.tag = 9;
    CHECK(baio_submit(link, &request, 1, NULL) == 1 && baio_buffer_free(buffer) == -EBUSY);
    int count = 0;
    baio_outcome outcome;
    while (count == 0) {
        struct pollfd ready = {fd, POLLIN, 0};
        CHECK(poll(&ready, 1, 30000) == 1);
        count = baio_reap(link, &outcome, 1, 0, 0);
    }
    CHECK(count == 1 && outcome.tag == 9 && outcome.result == -ETIMEDOUT && outcome.message != NULL);
    /* The kernel may still be at the memory: then it is not the caller's any more, and says so. */
    request.timeout_ns = 0;
    CHECK(baio_buffer_data(buffer) != NULL || baio_submit(link, &request, 1, NULL) == -ESTALE);
    CHECK(baio_buffer_free(buffer) == 0 && baio_file_close(file) == 0);
    baio_link_close(link);
}

static void queued(const char *path) {
    baio_link_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options, options.backend = BAIO_BACKEND_SYNC;
    baio_link *link;
    baio_file *file;
    baio_buffer *buffers[3];
    baio_request requests[3];
    baio_ticket first;
    baio_status *status;
    baio_outcome outcome;
    CHECK(baio_link_open(&link, BAIO_LINK_THREAD, NULL, &options) == 0 && baio_status_new(&status) == 0);
    CHECK(baio_file_open(link, path, BAIO_OPEN_WRITE | BAIO_OPEN_CREATE, BAIO_MODE_DEFAULT, &file) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(baio_buffer_new(link, 4096, &buffers[i]) == 0);
        requests[i] = ask(BAIO_OP_WRITE, file, buffers[i], (uint64_t)i * 4096);
    }
    requests[1].status = status;
    CHECK(baio_submit(link, requests, 1, &first) == 1 && baio_submit(link, &requests[1], 1, NULL) == 1);
    CHECK(baio_wait(link, first, NULL) == 4096 && baio_status_get(status) == 4096);
    CHECK(baio_submit(link, &requests[2], 1, NULL) == 1 && baio_file_size(file) == 8192);
    CHECK(baio_reap(link, &outcome, 1, 1, -1) == 1 && outcome.result == 4096);
    struct stat now;
    CHECK(stat(path, &now) == 0 && now.st_size == 12288);
    CHECK(baio_link_close(link) == 0 && baio_file_close(file) == 0 && baio_status_free(status) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(baio_buffer_free(buffers[i]) == 0);
}

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/plain", argv[1]);
    queued(path);
    snprintf(path, sizeof path, "%s/fifo", argv[1]);
    CHECK(mkfifo(path, 0600) == 0);
    int writer = open(path, O_RDWR);
    CHECK(writer >= 0);
    uint32_t backends[] = {BAIO_BACKEND_AUTO, BAIO_BACKEND_THREADS};
    for (int i = 0; i < 2; i++) {
        on(BAIO_LINK_THREAD, backends[i], path);
        on(BAIO_LINK_SERVICE, backends[i], path);
    }
    return 0;
}
