/* A loop that knows only poll(2) gets every outcome, on each kind of link and backend. Run as: events DIRECTORY */
#include "check.h"
#include <poll.h>

enum { REQUESTS = 64 };

static void on(uint32_t kind, uint32_t backend, const char *path) {
    baio_link_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options, options.backend = backend;
    baio_link *link;
    baio_file *file;
    baio_status *status;
    CHECK(baio_link_open(&link, kind, NULL, &options) == 0 && baio_status_new(&status) == 0);
    CHECK(baio_status_get(status) == BAIO_IN_FLIGHT);
    CHECK(baio_file_open(link, path, BAIO_OPEN_WRITE | BAIO_OPEN_CREATE, BAIO_MODE_DEFAULT, &file) == 0);
    int fd = baio_link_event_fd(link);
    CHECK(fd >= 0 && baio_link_event_fd(link) == fd);

    baio_buffer *buffers[REQUESTS];
    baio_request requests[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        CHECK(baio_buffer_new(link, 4096, &buffers[i]) == 0);
        requests[i] = ask(BAIO_OP_WRITE, file, buffers[i], (uint64_t)i * 4096);
        requests[i].tag = (uint64_t)i;
    }
    requests[0].status = status;
    int seen[REQUESTS] = {0}, ended = 0;
    CHECK(baio_submit(link, requests, REQUESTS, NULL) == REQUESTS);
    while (ended < REQUESTS) {
        struct pollfd ready = {fd, POLLIN, 0};
        CHECK(poll(&ready, 1, 30000) == 1);
        baio_outcome outcomes[3]; /* Fewer than there may be: what is left keeps the descriptor readable. */
        int count = baio_reap(link, outcomes, 3, 0, 0);
        CHECK(count >= 0);
        for (int i = 0; i < count; i++, ended++) {
            CHECK(outcomes[i].result == 4096 && outcomes[i].tag < REQUESTS);
            CHECK(seen[outcomes[i].tag]++ == 0);
        }
    }
    CHECK(baio_status_get(status) == 4096);
    /* By its ticket as well, and by a wait in the call. */
    baio_outcome last;
    baio_ticket ticket;
    CHECK(baio_submit(link, requests, 1, &ticket) == 1 && baio_wait(link, ticket, &last) == 4096 && last.tag == 0);
    CHECK(baio_submit(link, requests, 2, NULL) == 2);
    for (ended = 0; ended < 2;) {
        int count = baio_reap(link, &last, 1, 1, -1);
        CHECK(count == 1 && last.result == 4096);
        ended += count;
    }
    CHECK(baio_reap(link, &last, 1, 1, -1) == 0);
    for (int i = 0; i < REQUESTS; i++)
        CHECK(baio_buffer_free(buffers[i]) == 0);
    CHECK(baio_status_free(status) == 0 && baio_file_close(file) == 0 && baio_link_close(link) == 0);
}

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/events", argv[1]);
    for (uint32_t backend = BAIO_BACKEND_AUTO; backend <= BAIO_BACKEND_AIO; backend++) {
        on(BAIO_LINK_THREAD, backend, path);
        on(BAIO_LINK_SERVICE, backend, path);
    }
    return 0;
}
