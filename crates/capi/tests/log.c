/* Records that were said to be durable are there after the next opening, in order. Run as: log DIRECTORY */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <sys/stat.h>
#include <unistd.h>

/* What waits in memory, and a log that has no more space, are two errors. */
static void full(baio_log *log) {
    static char record[64 << 10];
    int64_t last = 0, appended;
    for (;;) {
        appended = baio_log_append(log, record, sizeof record);
        if (appended == -EAGAIN) {
            CHECK(baio_log_wait(log, (uint64_t)last) == 0);
            continue;
        }
        if (appended < 0) break;
        last = appended;
    }
    CHECK(appended == -ENOSPC && strstr(baio_error_message(), "full") != NULL);
    CHECK(baio_log_wait(log, (uint64_t)last) == 0 && baio_log_truncate(log, (uint64_t)last) > 0);
    CHECK(baio_log_append(log, record, sizeof record) > last);
}

static int64_t size_of(const char *path) {
    struct stat about;
    CHECK(stat(path, &about) == 0);
    return about.st_size;
}

/* A copy has cut it short: it is refused, and gets no zeroes for what it has lost. */
static void cut(baio_link *link, const char *path) {
    baio_file *file;
    baio_log *log;
    CHECK(truncate(path, 3 << 20) == 0);
    CHECK(baio_file_open(link, path, BAIO_OPEN_WRITE, BAIO_MODE_DIRECT, &file) == 0);
    CHECK(baio_log_open_or_create(file, 8 << 20, &log) == -EIO && size_of(path) == 3 << 20);
    CHECK(baio_file_close(file) == 0);
}

static void on(uint32_t kind, const char *path) {
    baio_link *link;
    baio_file *file;
    baio_log *log;
    baio_records *records;
    CHECK(baio_link_open(&link, kind, NULL, NULL) == 0);
    CHECK(baio_file_open(link, path, BAIO_OPEN_WRITE | BAIO_OPEN_CREATE, BAIO_MODE_DIRECT, &file) == 0);
    CHECK(baio_log_open(file, 3, &log) == -EINVAL && baio_log_open(file, BAIO_LOG_OPEN_OR_CREATE, &log) == -ENOSPC);
    CHECK(baio_log_open_or_create(file, 8 << 20, &log) == 0 && size_of(path) == 8 << 20);
    CHECK(baio_log_head_lsn(log) == baio_log_durable_lsn(log));
    int64_t first = baio_log_append(log, "debit", 5), last = baio_log_append(log, "credit", 6);
    CHECK(first > 0 && last > first && baio_log_append(log, NULL, 1) == -EINVAL);
    CHECK(baio_log_wait(log, (uint64_t)last) == 0 && baio_log_durable_lsn(log) > last);
    /* Nobody waits for what nobody has appended; for the next record, only so long. */
    CHECK(baio_log_wait(log, UINT64_MAX) == -EINVAL && baio_log_wait_for(log, UINT64_MAX, -1) == -EINVAL);
    CHECK(baio_log_wait_for(log, (uint64_t)last, 0) == 0);
    CHECK(baio_log_wait_for(log, (uint64_t)baio_log_durable_lsn(log), 1000000) == -ETIMEDOUT);
    CHECK(baio_log_close(log) == 0 && baio_log_close(log) == -EBADF && baio_file_close(file) == 0);

    CHECK(baio_file_open(link, path, BAIO_OPEN_WRITE, BAIO_MODE_DIRECT, &file) == 0);
    CHECK(baio_log_open(file, BAIO_LOG_OPEN_OR_CREATE, &log) == 0 && baio_records_open(log, 0, &records) == 0);
    CHECK(baio_log_head_lsn(log) <= first);
    uint64_t lsn;
    const void *record;
    size_t bytes;
    CHECK(baio_records_next(records, &lsn, &record, &bytes) == 1);
    CHECK((int64_t)lsn == first && bytes == 5 && memcmp(record, "debit", 5) == 0);
    CHECK(baio_records_next(records, &lsn, &record, &bytes) == 1);
    CHECK((int64_t)lsn == last && bytes == 6 && memcmp(record, "credit", 6) == 0);
    CHECK(baio_records_next(records, &lsn, &record, &bytes) == 0);
    CHECK(baio_log_truncate(log, (uint64_t)last) >= first);
    CHECK(baio_records_close(records) == 0 && baio_records_close(records) == -EBADF);
    CHECK(baio_records_open(log, 8, &records) == -ENODATA && baio_records_open(log, 0, &records) == 0);
    CHECK(baio_records_next(records, &lsn, &record, &bytes) == 1 && (int64_t)lsn >= baio_log_head_lsn(log));
    CHECK(baio_records_close(records) == 0);
    full(log);
    CHECK(baio_log_close(log) == 0 && baio_file_close(file) == 0);
    cut(link, path);
    CHECK(baio_link_close(link) == 0);
}

int main(int argc, char **argv) {
    char path[4096];
    CHECK(argc == 2);
    snprintf(path, sizeof path, "%s/thread", argv[1]);
    on(BAIO_LINK_THREAD, path);
    snprintf(path, sizeof path, "%s/service", argv[1]);
    on(BAIO_LINK_SERVICE, path);
    return 0;
}
