/* An epoll loop of the program's own goes on while a request waits for somebody who does not come: reads of a file and the loop's timer are answered
   beside it. What waits is a read of a FIFO that nobody writes to until the end. Run as: epoll DIRECTORY */
#include "check.h"
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { WAITS = 1, READ = 2, ROUNDS = 20 };

static void watch(int loop, int fd) {
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN, event.data.fd = fd;
    CHECK(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void on(uint32_t kind, uint32_t backend, const char *path, const char *fifo, int writer) {
    baio_link_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options, options.backend = backend;
    baio_link *link;
    baio_file *file, *stream;
    baio_buffer *buffers[2];
    CHECK(baio_link_open(&link, kind, NULL, &options) == 0);
    CHECK(baio_file_open(link, path, BAIO_OPEN_READ, BAIO_MODE_DEFAULT, &file) == 0);
    CHECK(baio_file_open(link, fifo, BAIO_OPEN_READ, BAIO_MODE_DEFAULT, &stream) == 0);
    CHECK(baio_buffer_new(link, 4096, &buffers[0]) == 0 && baio_buffer_new(link, 4096, &buffers[1]) == 0);

    int fd = baio_link_event_fd(link), loop = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    CHECK(fd >= 0 && loop >= 0 && timer >= 0);
    struct itimerspec each = {{0, 1000000}, {0, 1000000}};
    CHECK(timerfd_settime(timer, 0, &each, NULL) == 0);
    watch(loop, fd), watch(loop, timer);

    baio_request waits = ask(BAIO_OP_READ, stream, buffers[0], 0), read_file = ask(BAIO_OP_READ, file, buffers[1], 0);
    waits.tag = WAITS, read_file.tag = READ;
    CHECK(baio_submit(link, &waits, 1, NULL) == 1 && baio_submit(link, &read_file, 1, NULL) == 1);
    int rounds = 0, has_come = 0;
    uint64_t ticks = 0;
    while (!has_come) {
        struct epoll_event events[2];
        int count = epoll_wait(loop, events, 2, 30000);
        /* A ring that any thread may use interrupts its owner's calls, and epoll_wait(2) is not begun again by itself. */
        CHECK(count > 0 || (count < 0 && errno == EINTR));
        for (int i = 0; i < count; i++) {
            uint64_t times;
            if (events[i].data.fd == timer && read(timer, &times, sizeof times) == sizeof times)
                ticks += times;
        }
        baio_outcome outcome;
        while (baio_reap(link, &outcome, 1, 0, 0) == 1) {
            if (outcome.tag == WAITS) {
                CHECK(outcome.result == 4 && rounds == ROUNDS && ticks >= ROUNDS);
                has_come = 1;
                continue;
            }
            CHECK(outcome.tag == READ && outcome.result == 4096 && ((char *)baio_buffer_data(buffers[1]))[4095] == 7);
            if (++rounds < ROUNDS)
                CHECK(baio_submit(link, &read_file, 1, NULL) == 1);
        }
        if (rounds == ROUNDS && ticks >= ROUNDS && writer >= 0) {
            CHECK(write(writer, "late", 4) == 4);
            writer = -1;
        }
    }
    for (int i = 0; i < 2; i++)
        CHECK(baio_buffer_free(buffers[i]) == 0);
    CHECK(baio_file_close(file) == 0 && baio_file_close(stream) == 0 && baio_link_close(link) == 0);
    CHECK(close(loop) == 0 && close(timer) == 0);
}

int main(int argc, char **argv) {
    char path[4096], fifo[4096], bytes[4096];
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/file", argv[1]);
    snprintf(fifo, sizeof fifo, "%s/fifo", argv[1]);
    memset(bytes, 7, sizeof bytes);
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK(file >= 0 && write(file, bytes, sizeof bytes) == sizeof bytes && close(file) == 0);
    CHECK(mkfifo(fifo, 0600) == 0);
    int writer = open(fifo, O_RDWR);
    CHECK(writer >= 0);
    uint32_t backends[] = {BAIO_BACKEND_AUTO, BAIO_BACKEND_THREADS, BAIO_BACKEND_AIO};
    for (int i = 0; i < 3; i++) {
        on(BAIO_LINK_THREAD, backends[i], path, fifo, writer);
        on(BAIO_LINK_SERVICE, backends[i], path, fifo, writer);
    }
    return 0;
}
