/* A child that was forked, a thread that is cancelled, and closing over a read that never ends. Run as: process DIRECTORY */
#include "check.h"
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static baio_file *file;
static baio_buffer *buffer;

/* The link is its parent's: every call says so, and none waits. It ends by exit, which must leave the volume alone. */
static void in_a_child(baio_link *link) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        baio_link *own;
        baio_outcome outcome;
        baio_request write = ask(BAIO_OP_WRITE, file, buffer, 0);
        alarm(20);
        CHECK(baio_run(link, &write, NULL) == -ECHILD && strstr(baio_error_message(), "forked"));
        CHECK(baio_submit(link, &write, 1, NULL) == -ECHILD && baio_reap(link, &outcome, 1, 1, -1) == -ECHILD);
        CHECK(baio_file_close(file) == -ECHILD && baio_link_close(link) == -ECHILD);
        CHECK(baio_link_open(&own, BAIO_LINK_THREAD, NULL, NULL) == -ECHILD);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void on(uint32_t kind, const char *path) {
    baio_link *link;
    CHECK(baio_link_open(&link, kind, NULL, NULL) == 0);
    CHECK(baio_file_open(link, path, BAIO_OPEN_WRITE | BAIO_OPEN_CREATE, BAIO_MODE_DEFAULT, &file) == 0);
    CHECK(baio_buffer_new(link, 4096, &buffer) == 0);
    baio_request write = ask(BAIO_OP_WRITE, file, buffer, 0);
    CHECK(baio_run(link, &write, NULL) == 4096);
    in_a_child(link);
    CHECK(baio_run(link, &write, NULL) == 4096);
    CHECK(baio_buffer_free(buffer) == 0 && baio_file_close(file) == 0 && baio_link_close(link) == 0);
}

static baio_link *service;

static void *calls(void *unused) {
    (void)unused;
    /* Cancelled from here on: the calls go on to their end, and the thread ends after them. */
    CHECK(pthread_cancel(pthread_self()) == 0);
    baio_request write = ask(BAIO_OP_WRITE, file, buffer, 0);
    CHECK(baio_run(service, &write, NULL) == 4096);
    CHECK(baio_buffer_free(buffer) == 0 && baio_file_close(file) == 0 && baio_link_close(service) == 0);
    pthread_testcancel();
    return service;
}

static void a_thread_is_cancelled(const char *path) {
    pthread_t thread;
    void *told;
    CHECK(baio_link_open(&service, BAIO_LINK_SERVICE, NULL, NULL) == 0);
    CHECK(baio_file_open(service, path, BAIO_OPEN_WRITE | BAIO_OPEN_CREATE, BAIO_MODE_DEFAULT, &file) == 0);
    CHECK(baio_buffer_new(service, 4096, &buffer) == 0);
    CHECK(pthread_create(&thread, NULL, calls, NULL) == 0);
    CHECK(pthread_join(thread, &told) == 0 && told == PTHREAD_CANCELED);
}

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 2);
    alarm(60);
    snprintf(path, sizeof path, "%s/file", argv[1]);
    /* No child yet, and no link: this one may use the library itself. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        baio_link *own;
        CHECK(baio_link_open(&own, BAIO_LINK_THREAD, NULL, NULL) == 0 && baio_link_close(own) == 0);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    on(BAIO_LINK_THREAD, path);
    on(BAIO_LINK_SERVICE, path);
    a_thread_is_cancelled(path);
    return 0;
}
