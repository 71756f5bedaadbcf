/* Requests through baio's page cache, pages that are held and changed in place, and pages that are lent. Run as: pins DIRECTORY */
#include "check.h"

static baio_link *linked(uint32_t kind, const char *path, uint64_t cache_bytes) {
    baio_link_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options, options.cache_bytes = cache_bytes;
    baio_link *link;
    CHECK(baio_link_open(&link, kind, path, &options) == 0);
    return link;
}

/* The byte at an offset, past the cache. */
static int on_device(baio_link *link, baio_file *segment, baio_buffer *buffer, uint64_t offset) {
    baio_request request = ask(BAIO_OP_READ, segment, buffer, offset);
    request.mode = BAIO_MODE_DIRECT;
    CHECK(baio_run(link, &request, NULL) == (int64_t)baio_buffer_size(buffer));
    return *(unsigned char *)baio_buffer_data(buffer);
}

static void on(uint32_t kind, const char *path) {
    baio_link *link = linked(kind, path, 64 * BAIO_PAGE);
    baio_file *segment, *reads;
    baio_buffer *buffer;
    CHECK(baio_segment_create(link, "pages", 1 << 20) == 0 && baio_buffer_new(link, BAIO_PAGE, &buffer) == 0);
    CHECK(baio_segment_open(link, "pages", BAIO_OPEN_WRITE, BAIO_MODE_CACHED, &segment) == 0);
    CHECK(baio_segment_open(link, "pages", BAIO_OPEN_READ, BAIO_MODE_CACHED, &reads) == 0);

    /* Cached: any offset and length, also for a request that says so itself; after a sync it is on the device. */
    memset(baio_buffer_data(buffer), 'c', BAIO_PAGE);
    baio_request request = ask(BAIO_OP_WRITE, segment, buffer, 3 * BAIO_PAGE + 1);
    request.length = 100;
    baio_outcome outcome;
    CHECK(baio_run(link, &request, &outcome) == 100 && outcome.took == BAIO_MODE_DIRECT);
    request.mode = BAIO_MODE_DIRECT;
    CHECK(baio_run(link, &request, NULL) == -EINVAL);
    request.mode = BAIO_MODE_CACHED, request.op = BAIO_OP_READ, memset(baio_buffer_data(buffer), 0, BAIO_PAGE);
    CHECK(baio_run(link, &request, NULL) == 100 && *(char *)baio_buffer_data(buffer) == 'c');
    baio_request sync = ask(BAIO_OP_SYNC, segment, NULL, 0);
    sync.mode = BAIO_MODE_CACHED, sync.durable = BAIO_DURABLE_DATA;
    CHECK(baio_run(link, &sync, NULL) == 0);

    /* A page that is held: read, changed, seen by a cached read, safe after a sync. */
    baio_pin *pin, *other, *readonly;
    char bytes[BAIO_PAGE];
    CHECK(baio_pin_new(segment, 3, 0, &pin) == 0);
    CHECK(baio_pin_read(pin, 0, bytes, BAIO_PAGE) == 0 && bytes[0] == 0 && bytes[1] == 'c' && bytes[101] == 0);
    CHECK(baio_pin_write(pin, BAIO_PAGE - 2, "pq", 2, 0) == 0 && baio_pin_write(pin, 0, "x", 1, 0) == 0);
    request.offset = 3 * BAIO_PAGE, request.length = BAIO_PAGE;
    CHECK(baio_run(link, &request, NULL) == BAIO_PAGE);
    CHECK(memcmp(baio_buffer_data(buffer), "xcc", 3) == 0);
    CHECK(memcmp((char *)baio_buffer_data(buffer) + BAIO_PAGE - 2, "pq", 2) == 0);
    CHECK(baio_pin_new(segment, 4, BAIO_PIN_ZERO, &other) == 0 && baio_pin_write(other, 0, "z", 1, 0) == 0);
    CHECK(baio_run(link, &sync, NULL) == 0);
    CHECK(on_device(link, segment, buffer, 3 * BAIO_PAGE) == 'x' && on_device(link, segment, buffer, 4 * BAIO_PAGE) == 'z');

    /* What does not lie in a page, what may only be read, wrong handles. */
    CHECK(baio_pin_write(pin, BAIO_PAGE - 1, "ab", 2, 0) == -EINVAL && baio_pin_read(pin, (size_t)-1, bytes, 2) == -EINVAL);
    CHECK(baio_pin_read(pin, 0, bytes, BAIO_PAGE + 1) == -EINVAL && baio_pin_read(pin, 0, NULL, 1) == -EINVAL);
    CHECK(baio_pin_new(segment, 1 << 20, 0, &readonly) < 0 && baio_pin_new(segment, 0, 2, &readonly) == -EINVAL);
    CHECK(baio_pin_new(reads, 3, 0, &readonly) == 0 && baio_pin_write(readonly, 0, "no", 2, 0) < 0);
    CHECK(baio_pin_read(readonly, 0, bytes, 3) == 0 && memcmp(bytes, "xcc", 3) == 0);
    CHECK(baio_pin_free(readonly) == 0 && baio_pin_free(readonly) == -EBADF && baio_pin_free(NULL) == -EINVAL);
    CHECK(baio_pin_read((baio_pin *)(void *)segment, 0, bytes, 1) == -EBADF);

    /* Lent: the page's own bytes, as they were. Who writes meanwhile writes a copy. */
    baio_pages *pages;
    CHECK(baio_pages_read(reads, 3, 2, &pages) == 0);
    const char *lent = baio_pages_data(pages, 0);
    CHECK(lent != NULL && memcmp(lent, "xcc", 3) == 0 && *(const char *)baio_pages_data(pages, 1) == 'z');
    CHECK(baio_pin_write(pin, 0, "y", 1, 0) == 0 && baio_pin_read(pin, 0, bytes, 1) == 0 && bytes[0] == 'y' && lent[0] == 'x');
    CHECK(baio_pages_data(pages, 2) == NULL && baio_pages_read(reads, 0, 17, &pages) < 0 && baio_pages_read(reads, 0, 0, &pages) < 0);
    CHECK(lent[0] == 'x' && baio_pages_data(pages, 0) == lent);

    /* Under an LSN a page is not written before the log is durable so far: a sync waits until then. */
    CHECK(baio_pin_write(other, 0, "l", 1, 10) == 0);
    baio_ticket ticket;
    CHECK(baio_submit(link, &sync, 1, &ticket) == 1);
    CHECK(baio_reap(link, &outcome, 1, 1, 20000000) == 0);
    CHECK(baio_link_set_durable_lsn(link, 10) == 0 && baio_wait(link, ticket, NULL) == 0);
    CHECK(on_device(link, segment, buffer, 4 * BAIO_PAGE) == 'l');

    /* A pin outlives its file, not its segment; a loan outlives its link. */
    CHECK(baio_file_close(segment) == 0 && baio_pin_read(pin, 0, bytes, 1) == 0 && bytes[0] == 'y');
    CHECK(baio_file_close(reads) == 0 && baio_segment_delete(link, "pages") == 0);
    CHECK(baio_pin_read(pin, 0, bytes, 1) == -ESTALE && baio_pin_free(pin) == 0 && baio_pin_free(other) == 0);
    CHECK(baio_buffer_free(buffer) == 0 && baio_link_close(link) == 0);
    CHECK(lent[0] == 'x' && baio_pages_free(pages) == 0 && baio_pages_free(pages) == -EBADF);

    /* Without a cache all of this is an error. */
    link = linked(kind, path, 0);
    CHECK(baio_segment_create(link, "bare", 1 << 20) == 0);
    CHECK(baio_segment_open(link, "bare", BAIO_OPEN_READ, BAIO_MODE_DEFAULT, &segment) == 0);
    CHECK(baio_pin_new(segment, 0, 0, &pin) < 0 && *baio_error_message() && baio_pages_read(segment, 0, 1, &pages) < 0);
    CHECK(baio_file_close(segment) == 0 && baio_segment_delete(link, "bare") == 0 && baio_link_close(link) == 0);
}

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/volume", argv[1]);
    baio_format_options format;
    memset(&format, 0, sizeof format);
    format.size = sizeof format, format.size_bytes = 16 << 20;
    CHECK(baio_format(path, &format) == 0);
    on(BAIO_LINK_THREAD, path);
    on(BAIO_LINK_SERVICE, path);
    return 0;
}
