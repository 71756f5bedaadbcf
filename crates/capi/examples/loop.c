/* Reads a file in a loop of its own, beside a timer: cc loop.c $(pkg-config --cflags --libs baio) -o loop && ./loop FILE
 * The same descriptor goes into epoll(7), GLib, libuv or asyncio. */
#include <baio.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { DEPTH = 8, CHUNK = 64 << 10 };

static int fail(const char *what) {
    fprintf(stderr, "loop: %s: %s\n", what, baio_error_message());
    return 1;
}

static int sum(baio_link *link, baio_file *file, int timer) {
    int64_t size = baio_file_size(file);
    int event = baio_link_event_fd(link); /* From now on baio_submit() submits at once. */
    if (size < 0 || event < 0)
        return fail("begin");

    baio_request requests[DEPTH] = {{0}};
    uint64_t next = 0, total = 0, ticks = 0;
    int in_flight = 0;
    for (; in_flight < DEPTH && next < (uint64_t)size; in_flight++, next += CHUNK) {
        baio_request *request = &requests[in_flight];
        request->op = BAIO_OP_READ, request->file = file, request->offset = next, request->tag = (uint64_t)in_flight;
        if (baio_buffer_new(link, CHUNK, &request->buffer) < 0)
            return fail("buffer");
    }
    int buffers = in_flight;
    if (baio_submit(link, requests, (size_t)in_flight, NULL) != in_flight)
        return fail("submit");

    while (in_flight > 0) {
        struct pollfd watched[2] = {{event, POLLIN, 0}, {timer, POLLIN, 0}};
        if (poll(watched, 2, -1) < 0 && errno != EINTR)
            return perror("poll"), 1;
        uint64_t times;
        if ((watched[1].revents & POLLIN) && read(timer, &times, sizeof times) == sizeof times)
            ticks += times; /* What else the loop has to do. */

        baio_outcome ended[DEPTH];
        int count = baio_reap(link, ended, DEPTH, 0, 0); /* Takes what has ended, and does not wait. */
        if (count < 0)
            return fail("reap");
        for (int i = 0; i < count; i++) {
            baio_request *request = &requests[ended[i].tag];
            if (ended[i].result < 0)
                return fprintf(stderr, "loop: %s\n", ended[i].message), 1;
            const unsigned char *bytes = baio_buffer_data(request->buffer);
            for (int64_t at = 0; at < ended[i].result; at++)
                total += bytes[at];
            if (next >= (uint64_t)size) {
                in_flight--;
                continue;
            }
            request->offset = next, next += CHUNK;
            if (baio_submit(link, request, 1, NULL) != 1)
                return fail("submit");
        }
    }
    printf("sum %llu\n", (unsigned long long)total);
    fprintf(stderr, "the timer ticked %llu times meanwhile\n", (unsigned long long)ticks);
    for (int i = 0; i < buffers; i++)
        baio_buffer_free(requests[i].buffer);
    return 0;
}

int main(int argc, char **argv) {
    struct itimerspec each = {{0, 1000000}, {0, 1000000}};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    baio_link *link;
    baio_file *file;
    if (argc != 2)
        return fprintf(stderr, "usage: loop FILE\n"), 2;
    if (timer < 0 || timerfd_settime(timer, 0, &each, NULL) < 0)
        return perror("timer"), 1;
    if (baio_link_open(&link, BAIO_LINK_THREAD, NULL, NULL) < 0)
        return fail("link");
    if (baio_file_open(link, argv[1], BAIO_OPEN_READ, BAIO_MODE_DEFAULT, &file) < 0)
        return fail(argv[1]);
    int failed = sum(link, file, timer);
    baio_file_close(file);
    return (baio_link_close(link) < 0 ? fail("close") : 0) || failed;
}
