/* Counts its runs in a segment of a volume: cc segment.c $(pkg-config --cflags --libs baio) -o segment && ./segment VOLUME
 * The volume is a file of 16 MiB, which is made when it is missing. */
#include <baio.h>
#include <errno.h>
#include <stdio.h>

enum { BLOCK = 4096 };

static int fail(const char *what) {
    fprintf(stderr, "segment: %s: %s\n", what, baio_error_message());
    return 1;
}

static int count(baio_link *link, baio_file *segment) {
    baio_buffer *buffer;
    if (baio_buffer_new(link, BLOCK, &buffer) < 0)
        return fail("buffer");

    /* A direct request: offset and length are multiples of the device's block, and the memory of a buffer is. `length` 0 is all of it. */
    baio_request request = {0};
    request.op = BAIO_OP_READ, request.file = segment, request.buffer = buffer;
    if (baio_run(link, &request, NULL) < 0)
        return fail("read");

    uint64_t *runs = baio_buffer_data(buffer); /* A new segment is all zeros. */
    *runs += 1;
    printf("run %llu\n", (unsigned long long)*runs);

    request.op = BAIO_OP_WRITE, request.durable = BAIO_DURABLE_DATA; /* Survives a power cut when the call returns. */
    if (baio_run(link, &request, NULL) < 0)
        return fail("write");
    return baio_buffer_free(buffer) < 0 ? fail("buffer") : 0;
}

int main(int argc, char **argv) {
    baio_format_options options = {0};
    baio_link *link;
    baio_file *segment;
    if (argc != 2)
        return fprintf(stderr, "usage: segment VOLUME\n"), 2;
    options.size = sizeof options, options.size_bytes = 16 << 20;
    int made = baio_format(argv[1], &options);
    if (made < 0 && made != -EEXIST)
        return fail(argv[1]);
    if (baio_link_open(&link, BAIO_LINK_THREAD, argv[1], NULL) < 0) /* From now on this process owns the volume. */
        return fail(argv[1]);
    made = baio_segment_create(link, "runs", 1 << 20);
    if (made < 0 && made != -EEXIST)
        return fail("runs");
    if (baio_segment_open(link, "runs", BAIO_OPEN_WRITE, BAIO_MODE_DEFAULT, &segment) < 0)
        return fail("runs");
    int failed = count(link, segment);
    if (baio_file_close(segment) < 0 || baio_link_close(link) < 0)
        return fail("close");
    return failed;
}
