/* Keeps records in a file, and finds them again: cc log.c $(pkg-config --cflags --libs baio) -o log && ./log FILE [RECORD...]
 * Kill it at any moment: whatever it has called safe is there when it is run again. */
#include <baio.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what) {
    fprintf(stderr, "log: %s: %s\n", what, baio_error_message());
    return 1;
}

/* Prints what earlier runs have left. */
static int show(baio_log *log) {
    baio_records *records;
    const void *record;
    size_t bytes;
    uint64_t lsn;
    int more;
    if (baio_records_open(log, 0, &records) < 0) /* 0: from the oldest that is kept. */
        return fail("read");
    while ((more = baio_records_next(records, &lsn, &record, &bytes)) == 1)
        printf("%llu: %.*s\n", (unsigned long long)lsn, (int)bytes, (const char *)record);
    return baio_records_close(records) < 0 || more < 0 ? fail("read") : 0;
}

static int append(baio_log *log, const char *text) {
    int64_t lsn = baio_log_append(log, text, strlen(text)); /* In memory. It never waits. */
    if (lsn == -ENOSPC) { /* The log is full. This program needs no old records: it gives up all of them. */
        if (baio_log_truncate(log, (uint64_t)baio_log_durable_lsn(log)) < 0)
            return fail("truncate");
        lsn = baio_log_append(log, text, strlen(text));
    }
    if (lsn < 0)
        return fail("append");
    if (baio_log_wait(log, (uint64_t)lsn) < 0) /* On the disk, and everything before it. */
        return fail("wait");
    printf("safe: %s\n", text);
    return 0;
}

int main(int argc, char **argv) {
    baio_link *link;
    baio_file *file;
    baio_log *log;
    if (argc < 2)
        return fprintf(stderr, "usage: log FILE [RECORD...]\n"), 2;
    if (baio_link_open(&link, BAIO_LINK_SERVICE, NULL, NULL) < 0)
        return fail("link");
    if (baio_file_open(link, argv[1], BAIO_OPEN_WRITE | BAIO_OPEN_CREATE, BAIO_MODE_DEFAULT, &file) < 0)
        return fail(argv[1]);
    if (baio_log_open_or_create(file, 1 << 20, &log) < 0) /* A new log has 1 MiB; one that is there keeps its size. */
        return fail(argv[1]);
    int failed = show(log);
    for (int i = 2; i < argc && !failed; i++)
        failed = append(log, argv[i]);
    if (baio_log_close(log) < 0 || baio_file_close(file) < 0 || baio_link_close(link) < 0)
        return fail("close");
    return failed;
}
