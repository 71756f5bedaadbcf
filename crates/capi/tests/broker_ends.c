/* A broker ends while a program has requests on its link: they end, and what the caller owns is the caller's. It says a line when it is ready,
   and goes on when standard input says that the broker has ended. Run as: broker_ends SOCKET */
#include "check.h"

enum { REQUESTS = 8 };

int main(int argc, char **argv) {
    CHECK(argc == 2);
    baio_link *link;
    baio_file *segment;
    baio_buffer *buffers[REQUESTS], *idle;
    baio_request requests[REQUESTS];
    CHECK(baio_link_open(&link, BAIO_LINK_BROKER, argv[1], NULL) == 0);
    CHECK(baio_segment_create(link, "lost", 1 << 20) == 0 && baio_buffer_new(link, 4096, &idle) == 0);
    CHECK(baio_segment_open(link, "lost", BAIO_OPEN_WRITE, BAIO_MODE_DEFAULT, &segment) == 0);
    for (int i = 0; i < REQUESTS; i++) {
        CHECK(baio_buffer_new(link, 4096, &buffers[i]) == 0);
        requests[i] = ask(BAIO_OP_WRITE, segment, buffers[i], (uint64_t)i * 4096);
    }
    CHECK(baio_submit(link, requests, REQUESTS, NULL) == REQUESTS);
    puts("ready");
    fflush(stdout);
    char line[64];
    CHECK(fgets(line, sizeof line, stdin) != NULL);

    /* They may have reached it or not; each has one outcome, and its buffer can be freed, also where the memory is lost. */
    baio_outcome outcomes[REQUESTS];
    for (int ended = 0; ended < REQUESTS;) {
        int count = baio_reap(link, outcomes, REQUESTS, 1, -1);
        CHECK(count > 0);
        for (int i = 0; i < count; i++, ended++)
            CHECK(outcomes[i].result == 4096 || (outcomes[i].result < 0 && outcomes[i].message != NULL));
    }
    for (int i = 0; i < REQUESTS; i++)
        CHECK(baio_buffer_free(buffers[i]) == 0);

    /* Nobody is there any more: a request that is taken ends with an error, and a call that is refused says why. */
    requests[0].buffer = idle;
    CHECK(baio_run(link, &requests[0], NULL) < 0 && *baio_error_message() != '\0');
    CHECK(baio_buffer_new(link, 4096, &buffers[0]) < 0 && *baio_error_cure() != '\0');
    CHECK(baio_segment_create(link, "more", 4096) < 0 && *baio_error_message() != '\0');
    CHECK(baio_link_close(link) < 0 && *baio_error_message() != '\0' && baio_link_close(link) == -EBADF);
    CHECK(baio_buffer_free(idle) == 0 && baio_file_close(segment) == 0);
    return 0;
}
