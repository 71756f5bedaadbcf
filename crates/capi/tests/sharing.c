/* Threads that take outcomes from one service at once: none is lost, taken twice or waited for in vain. Run as: sharing DIRECTORY */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { ROUNDS = 500 };

static baio_link *link_;
static baio_file *file;
static atomic_int is_over;
static atomic_long reaped;

static void *reaps(void *unused) {
    (void)unused;
    baio_outcome outcomes[8];
    while (!is_over) {
        int count = baio_reap(link_, outcomes, 8, 1, 1000000);
        CHECK(count >= 0);
        reaped += count;
    }
    return NULL;
}

/* What is run or waited for is the outcome of whoever runs it, also while another reaps. */
static void run_beside_a_reaper(baio_buffer *buffer) {
    pthread_t other;
    is_over = 0;
    reaped = 0;
    CHECK(pthread_create(&other, NULL, reaps, NULL) == 0);
    baio_request write = ask(BAIO_OP_WRITE, file, buffer, 0);
    for (int round = 0; round < ROUNDS; round++)
        CHECK(baio_run(link_, &write, NULL) == 4096);
    is_over = 1;
    CHECK(pthread_join(other, NULL) == 0 && reaped == 0);
}

static void *reaps_one(void *unused) {
    (void)unused;
    baio_outcome outcome;
    return (void *)(long)baio_reap(link_, &outcome, 1, 1, -1);
}

/* Two wait for one request: one gets it, and the other hears that nothing is under way any more. */
static void two_wait_for_one(baio_buffer *buffer) {
    baio_request write = ask(BAIO_OP_WRITE, file, buffer, 0);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[2];
        void *told[2];
        CHECK(baio_submit(link_, &write, 1, NULL) == 1);
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&threads[i], NULL, reaps_one, NULL) == 0);
        for (int i = 0; i < 2; i++)
            CHECK(pthread_join(threads[i], &told[i]) == 0);
        CHECK((long)told[0] + (long)told[1] == 1);
    }
}

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 2);
    alarm(120);
    snprintf(path, sizeof path, "%s/file", argv[1]);
    for (int has_fd = 0; has_fd < 2; has_fd++) {
        baio_buffer *buffer;
        CHECK(baio_link_open(&link_, BAIO_LINK_SERVICE, NULL, NULL) == 0);
        CHECK(!has_fd || baio_link_event_fd(link_) >= 0);
        CHECK(baio_file_open(link_, path, BAIO_OPEN_WRITE | BAIO_OPEN_CREATE, BAIO_MODE_DEFAULT, &file) == 0);
        CHECK(baio_buffer_new(link_, 4096, &buffer) == 0);
        memset(baio_buffer_data(buffer), 1, 4096);
        run_beside_a_reaper(buffer);
        two_wait_for_one(buffer);
        CHECK(baio_buffer_free(buffer) == 0 && baio_file_close(file) == 0 && baio_link_close(link_) == 0);
    }
    return 0;
}
