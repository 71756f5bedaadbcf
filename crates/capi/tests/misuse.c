/* Wrong handles, sizes and orders are errors with a text, and never a crash. Run as: misuse DIRECTORY */
#include "check.h"
#include <pthread.h>

static int says(const char *word) { return strstr(baio_error_message(), word) != NULL; }

static void *from_another_thread(void *link) {
    CHECK(baio_link_close(link) == -EPERM && says("another thread") && says("BAIO_LINK_SERVICE"));
    return NULL;
}

static void on(uint32_t kind, const char *path) {
    baio_link *link, *other;
    baio_file *file, *of_other;
    baio_buffer *buffer;
    CHECK(baio_link_open(&link, kind, NULL, NULL) == 0);
    CHECK(baio_link_open(&other, kind, NULL, NULL) == 0);
    uint32_t flags = BAIO_OPEN_WRITE | BAIO_OPEN_CREATE;
    CHECK(baio_file_open(link, path, flags, BAIO_MODE_DEFAULT, &file) == 0);
    CHECK(baio_file_open(other, path, flags, BAIO_MODE_DEFAULT, &of_other) == 0);
    CHECK(baio_buffer_new(link, 4096, &buffer) == 0 && baio_buffer_size(buffer) == 4096);
    memset(baio_buffer_data(buffer), 7, 4096);

    /* Null, other kinds, nonsense. */
    CHECK(baio_file_size(NULL) == -EINVAL && says("null"));
    CHECK(baio_file_size((baio_file *)(void *)buffer) == -EBADF && says("another kind"));
    CHECK(baio_file_size((baio_file *)(void *)&file) == -EBADF && says("not a handle of baio"));
    CHECK(baio_buffer_data(NULL) == NULL);
    CHECK(baio_file_open(link, NULL, 0, 0, &file) == -EINVAL && baio_file_open(link, path, 0, 0, NULL) == -EINVAL);
    CHECK(baio_file_open(link, path, 1u << 30, 0, &of_other) == -EINVAL);
    CHECK(baio_submit(link, NULL, 1, NULL) == -EINVAL && baio_submit(link, NULL, 0, NULL) == 0);

    /* Structures that say more than is known, or less than there must be. */
    struct { baio_link_options known; uint64_t more; } options;
    memset(&options, 0, sizeof options);
    baio_link *never;
    CHECK(baio_link_open(&never, kind, NULL, &options.known) == -EINVAL && says("sizeof"));
    options.known.size = sizeof options, options.more = 1;
    CHECK(baio_link_open(&never, kind, NULL, &options.known) == -E2BIG && says("newer"));
    options.more = 0, options.known.backend = 99;
    CHECK(baio_link_open(&never, kind, NULL, &options.known) == -EINVAL);
    options.known.backend = BAIO_BACKEND_THREADS;
    options.known.slots = 0xffffffff;
    CHECK(baio_link_open(&never, kind, NULL, &options.known) == -EINVAL && says("262144"));
    options.known.slots = 0, options.known.reconnect_ns = 1;
    CHECK(baio_link_open(&never, kind, NULL, &options.known) == -EINVAL && says("broker"));
    options.known.reconnect_ns = 0, options.known.volume = "main";
    CHECK(baio_link_open(&never, kind, NULL, &options.known) == -EINVAL && says("broker"));
    options.known.volume = NULL;
    baio_format_options format;
    memset(&format, 0, sizeof format);
    format.size = sizeof format, format.reserved = 1;
    CHECK(baio_format(path, &format) == -EINVAL && says("reserved"));
    format.reserved = 0, format.force = 2;
    CHECK(baio_format(path, &format) == -EINVAL && says("force"));
    CHECK(baio_link_open(&never, kind, NULL, &options.known) == 0 && baio_link_close(never) == 0);

    /* Requests that cannot be. */
    baio_request write = ask(BAIO_OP_WRITE, file, buffer, 0);
    write.length = 4097;
    CHECK(baio_run(link, &write, NULL) == -EINVAL && says("4097"));
    write.length = 0, write.reserved[4] = 1;
    CHECK(baio_run(link, &write, NULL) == -EINVAL && says("reserved"));
    write.reserved[4] = 0, write.op = 99;
    CHECK(baio_run(link, &write, NULL) == -EINVAL);
    write.op = BAIO_OP_WRITE, write.file = of_other;
    CHECK(baio_run(link, &write, NULL) == -EXDEV && says("another link"));
    write.file = file, write.buffer = NULL;
    CHECK(baio_run(link, &write, NULL) == -EINVAL);
    write.buffer = buffer;

    /* The buffer of a request under way is the library's. */
    baio_ticket ticket;
    CHECK(baio_submit(link, &write, 1, &ticket) == 1 && ticket != 0);
    CHECK(baio_buffer_free(buffer) == -EBUSY && baio_buffer_data(buffer) == NULL && says("baio_wait"));
    CHECK(baio_submit(link, &write, 1, NULL) == -EBUSY);
    CHECK(baio_wait(link, ticket, NULL) == 4096 && baio_buffer_data(buffer) != NULL);
    CHECK(baio_wait(link, ticket, NULL) == -ESTALE && baio_cancel(link, ticket) == -ESTALE);

    /* What the device refuses says where, and what is needed. */
    baio_file *missing;
    CHECK(baio_file_open(link, "/nowhere/at/all", 0, 0, &missing) == -ENOENT && says("/nowhere/at/all"));
    CHECK(strcmp(baio_error_name(), "ENOENT") == 0);
    baio_file *reads;
    baio_outcome ended;
    CHECK(baio_file_open(link, path, 0, 0, &reads) == 0);
    write.file = reads, write.offset = 512, write.tag = 5;
    CHECK(baio_run(link, &write, &ended) == -EBADF && ended.tag == 5 && says("at 512"));
    CHECK(strstr(ended.message, "at 512") != NULL && baio_buffer_data(buffer) != NULL);

    /* A link that closes ends what is under way, and gives the buffers back. */
    write.file = file;
    CHECK(baio_submit(link, &write, 1, NULL) == 1 && baio_link_close(link) == 0);
    CHECK(baio_buffer_data(buffer) != NULL && baio_buffer_free(buffer) == 0);
    CHECK(baio_buffer_free(buffer) == -EBADF && says("freed"));
    CHECK(baio_link_close(link) == -EBADF && baio_submit(link, &write, 1, NULL) == -EBADF);
    CHECK(baio_file_size(file) < 0 && baio_file_close(file) == 0 && baio_file_close(file) == -EBADF);
    CHECK(baio_file_close(reads) == 0);

    /* A place that is used again is not the old handle. */
    baio_buffer *more[16];
    for (int i = 0; i < 16; i++)
        CHECK(baio_buffer_new(other, 4096, &more[i]) == 0 && more[i] != buffer);
    CHECK(baio_buffer_data(buffer) == NULL && baio_buffer_free(buffer) == -EBADF);
    for (int i = 0; i < 16; i++)
        CHECK(baio_buffer_free(more[i]) == 0);
    if (kind == BAIO_LINK_THREAD) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, from_another_thread, other) == 0 && pthread_join(thread, NULL) == 0);
    }
    CHECK(baio_file_close(of_other) == 0 && baio_link_close(other) == 0);
}

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/misuse", argv[1]);
    CHECK(*baio_error_message() == '\0' && *baio_version() != '\0');
    on(BAIO_LINK_THREAD, path);
    on(BAIO_LINK_SERVICE, path);
    return 0;
}
