/* Copies a file with 32 requests in flight: cc copy.c $(pkg-config --cflags --libs baio) -o copy && ./copy FROM TO */
#include <baio.h>
#include <stdio.h>
#include <sys/stat.h>

enum { DEPTH = 32, CHUNK = 256 << 10 };

static int fail(const char *what) {
    fprintf(stderr, "copy: %s: %s\n", what, baio_error_message());
    return 1;
}

static int copy(baio_link *link, const char *from_path, const char *to_path) {
    baio_file *from, *to;
    if (baio_file_open(link, from_path, BAIO_OPEN_READ, BAIO_MODE_DEFAULT, &from) < 0)
        return fail(from_path);
    if (baio_file_open(link, to_path, BAIO_OPEN_WRITE | BAIO_OPEN_CREATE | BAIO_OPEN_TRUNCATE, BAIO_MODE_DEFAULT, &to) < 0)
        return fail(to_path);
    int64_t size = baio_file_size(from);
    if (size < 0)
        return fail("size");

    /* One request for each buffer: a read becomes the write of the same bytes, and that the next read. The tag says whose it is. */
    baio_request requests[DEPTH] = {{0}};
    uint64_t next = 0;
    int in_flight = 0;
    for (; in_flight < DEPTH && next < (uint64_t)size; in_flight++, next += CHUNK) {
        baio_request *request = &requests[in_flight];
        request->op = BAIO_OP_READ, request->file = from, request->offset = next, request->tag = (uint64_t)in_flight;
        if (baio_buffer_new(link, CHUNK, &request->buffer) < 0)
            return fail("buffer");
    }
    int buffers = in_flight;
    if (baio_submit(link, requests, (size_t)in_flight, NULL) != in_flight)
        return fail("submit");
    while (in_flight > 0) {
        baio_outcome ended[DEPTH];
        int count = baio_reap(link, ended, DEPTH, 1, -1);
        if (count < 0)
            return fail("reap");
        for (int i = 0; i < count; i++) {
            baio_request *request = &requests[ended[i].tag];
            if (ended[i].result < 0)
                return fprintf(stderr, "copy: %s\n", ended[i].message), 1;
            if (request->op == BAIO_OP_READ && ended[i].result > 0) {
                request->op = BAIO_OP_WRITE, request->file = to, request->length = (uint64_t)ended[i].result;
            } else if (next < (uint64_t)size) {
                request->op = BAIO_OP_READ, request->file = from, request->length = 0, request->offset = next;
                next += CHUNK;
            } else {
                in_flight--;
                continue;
            }
            if (baio_submit(link, request, 1, NULL) != 1)
                return fail("submit");
        }
    }
    baio_request sync = {0};
    sync.op = BAIO_OP_SYNC, sync.file = to, sync.durable = BAIO_DURABLE_DATA;
    if (baio_run(link, &sync, NULL) < 0)
        return fail("sync");
    for (int i = 0; i < buffers; i++)
        baio_buffer_free(requests[i].buffer);
    baio_file_close(from), baio_file_close(to);
    return 0;
}

int main(int argc, char **argv) {
    struct stat from, to;
    if (argc != 3)
        return fprintf(stderr, "usage: copy FROM TO\n"), 2;
    if (!stat(argv[1], &from) && !stat(argv[2], &to) && from.st_dev == to.st_dev && from.st_ino == to.st_ino)
        return fprintf(stderr, "copy: %s and %s are one file\n", argv[1], argv[2]), 1;
    baio_link *link;
    if (baio_link_open(&link, BAIO_LINK_THREAD, NULL, NULL) < 0)
        return fail("link");
    int failed = copy(link, argv[1], argv[2]);
    return (baio_link_close(link) < 0 ? fail("close") : 0) || failed;
}
