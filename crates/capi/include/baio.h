/*
 * baio: user-level asynchronous block I/O. The C interface, libbaio.so.0.
 *
 * Handles (baio_link, baio_file, ...) are not addresses. A call with a handle that is null, freed, of another kind or of another thread fails.
 * A call that fails gives a negative error number (-ENOSPC); baio_error_message() then says what was asked, of what, why not, and the cure.
 * "Threads: the link's": for a link of kind BAIO_LINK_THREAD the thread that opened it, for others any.
 * Other pointers are checked for null only: texts end with a zero byte, and memory can be read or written as its type says.
 *
 * Sizes, lengths and offsets are in bytes. `length` 0 of a read or write is the whole buffer; of a discard, zero or allocate it is nothing to do;
 * of a truncate an empty file. A read at the end or behind it gives 0, one across it fewer bytes than asked for. A write moves all of its bytes or
 * fails (a pipe or socket may take fewer). Behind the end it makes a file longer; in a segment it is -ENOSPC. A segment has whole blocks: its size is
 * rounded up.
 *
 * A signal ends no call: an interrupted call goes on. Make no call in a signal handler. No call is a cancellation point of threads. A write beyond
 * the limit of file sizes (`ulimit -f`, as it was when the link was opened) fails with -EFBIG, without SIGXFSZ. In a thread that uses a link of kind
 * BAIO_LINK_THREAD, poll(2) and epoll_wait(2) may end with EINTR without a signal: call them again.
 */

#ifndef BAIO_H
#define BAIO_H

#include <stddef.h>
#include <stdint.h>

/**
 * The core is in the caller's thread: no hop. The link, and whatever is opened on it, belongs to the thread that opened it.
 */
#define BAIO_LINK_THREAD 0

/**
 * The core is on a thread of its own: any thread may use the link and whatever is opened on it.
 */
#define BAIO_LINK_SERVICE 1

/**
 * The core is in a broker (`baio serve`), whose socket the path names: any thread may use the link.
 */
#define BAIO_LINK_BROKER 2

/**
 * The best backend that works here; or the one that BAIO_BACKEND names in the environment: auto, sync, threads, aio, uring.
 */
#define BAIO_BACKEND_AUTO 0

/**
 * Blocking system calls.
 */
#define BAIO_BACKEND_SYNC 1

/**
 * Blocking system calls in worker threads.
 */
#define BAIO_BACKEND_THREADS 2

/**
 * Native Linux AIO.
 */
#define BAIO_BACKEND_AIO 3

/**
 * io_uring.
 */
#define BAIO_BACKEND_URING 4

/**
 * Register the arena with the kernel: less work per request, and all of it is pinned at once.
 */
#define BAIO_LINK_REGISTER_ARENA 1

/**
 * Open the volume to read only, beside other readers. In the caller's thread only.
 */
#define BAIO_LINK_READ_ONLY 2

/**
 * To read. The default.
 */
#define BAIO_OPEN_READ 0

/**
 * To write as well as to read.
 */
#define BAIO_OPEN_WRITE 1

/**
 * Make the file when it is missing. Files only.
 */
#define BAIO_OPEN_CREATE 2

/**
 * Make the file; it must not exist. Files only.
 */
#define BAIO_OPEN_EXCLUSIVE 4

/**
 * Truncate the file to 0 bytes. Files only.
 */
#define BAIO_OPEN_TRUNCATE 8

/**
 * Allow requests in other modes than the file's. Files only.
 */
#define BAIO_OPEN_EVERY_MODE 16

/**
 * Of a request: the mode that its file was opened with. When opening: the kernel's cache for a file, direct for a segment.
 */
#define BAIO_MODE_DEFAULT 0

/**
 * Past every cache: offset and length must be multiples of the device's block (4096 always works).
 */
#define BAIO_MODE_DIRECT 1

/**
 * Through baio's page cache, which the link must have.
 */
#define BAIO_MODE_CACHED 2

/**
 * Through the kernel's page cache. Files only.
 */
#define BAIO_MODE_KERNEL 3

/**
 * The same, and dropped from the cache after the request. Files only.
 */
#define BAIO_MODE_UNCACHED 4

/**
 * Not safe before a sync.
 */
#define BAIO_DURABLE_NONE 0

/**
 * The bytes, and what is needed to find them, are safe when the request ends (fdatasync(2)).
 */
#define BAIO_DURABLE_DATA 1

/**
 * All of the inode too (fsync(2)).
 */
#define BAIO_DURABLE_FULL 2

/**
 * Fill `length` bytes of the buffer from `offset`; less at the end of the file.
 */
#define BAIO_OP_READ 1

/**
 * Write `length` bytes of the buffer at `offset`.
 */
#define BAIO_OP_WRITE 2

/**
 * Make every write that completed before this durable.
 */
#define BAIO_OP_SYNC 3

/**
 * Make every write that was submitted before this durable.
 */
#define BAIO_OP_FENCE 4

/**
 * Give back the space of `length` bytes at `offset`: they read as zeros.
 */
#define BAIO_OP_DISCARD 5

/**
 * Make `length` bytes at `offset` read as zeros, and keep their space.
 */
#define BAIO_OP_ZERO 6

/**
 * Make the file `length` bytes long. Files only.
 */
#define BAIO_OP_TRUNCATE 7

/**
 * Reserve space for `length` bytes at `offset`. Files only.
 */
#define BAIO_OP_ALLOCATE 8

/**
 * Make a new log; what the file or segment holds is lost.
 */
#define BAIO_LOG_CREATE 1

/**
 * Open the log, or make one where none was ever made: where there are only zeros, or where an earlier making was cut off.
 */
#define BAIO_LOG_OPEN_OR_CREATE 2

/**
 * Bytes of a page.
 */
#define BAIO_PAGE 4096

/**
 * Make the page zeros, without reading it.
 */
#define BAIO_PIN_ZERO 1

/**
 * The request has not ended, or its end was not collected yet (baio_reap(), baio_wait()).
 */
#define BAIO_IN_FLIGHT INT64_MIN

/**
 * Memory for requests, from the arena of a link.
 */
typedef struct baio_buffer baio_buffer;

/**
 * An open file, device or segment.
 */
typedef struct baio_file baio_file;

/**
 * A way to a core, which does the I/O: in the caller's thread, on a thread of its own, or in a broker.
 */
typedef struct baio_link baio_link;

/**
 * A durable log, which takes up a whole file or segment.
 */
typedef struct baio_log baio_log;

/**
 * Pages that are lent: the page cache's own memory, read-only.
 */
typedef struct baio_pages baio_pages;

/**
 * A page that is held in the page cache.
 */
typedef struct baio_pin baio_pin;

/**
 * Reads the records of a log in their order.
 */
typedef struct baio_records baio_records;

/**
 * A word that says whether a request has ended, and how.
 */
typedef struct baio_status baio_status;

/**
 * Options of a link. Zeros are the defaults, except for `size`.
 */
typedef struct baio_link_options {
  /**
   * sizeof(baio_link_options).
   */
  uint32_t size;
  /**
   * BAIO_BACKEND_...
   */
  uint32_t backend;
  /**
   * Requests in flight at most; 0 for 1024.
   */
  uint32_t slots;
  /**
   * BAIO_LINK_REGISTER_ARENA, BAIO_LINK_READ_ONLY, or 0.
   */
  uint32_t flags;
  /**
   * Bytes of memory for buffers, mapped lazily; 0 for 64 MiB.
   */
  uint64_t arena_bytes;
  /**
   * Bytes of a page cache for requests of mode BAIO_MODE_CACHED; 0 for none.
   */
  uint64_t cache_bytes;
  /**
   * How long a link waits for another broker when its own has ended, in nanoseconds; 0: it does not wait.
   */
  uint64_t reconnect_ns;
  /**
   * Which volume of a broker, by its name; NULL for the only one.
   */
  const char *volume;
} baio_link_options;

/**
 * Options of a new volume. Zeros are the defaults, except for `size`.
 */
typedef struct baio_format_options {
  /**
   * sizeof(baio_format_options).
   */
  uint32_t size;
  /**
   * 1: overwrite whatever is there.
   */
  uint32_t force;
  /**
   * Size of the volume in bytes; 0 takes the file or device as it is.
   */
  uint64_t size_bytes;
  /**
   * Bytes to which it may grow later; 0 for no more than its size.
   */
  uint64_t max_size_bytes;
  /**
   * How many segments it can hold; 0 for one per 1000 blocks.
   */
  uint64_t segments;
  /**
   * Unit of allocation in bytes; 0 for 4096.
   */
  uint32_t block_size;
  /**
   * 0.
   */
  uint32_t reserved;
} baio_format_options;

/**
 * Names a submitted request on its link. Never 0. A number is used again only after a quarter of a million others.
 */
typedef uint64_t baio_ticket;

/**
 * How a request ended.
 */
typedef struct baio_outcome {
  /**
   * The request's tag.
   */
  uint64_t tag;
  /**
   * The ticket that baio_submit() gave.
   */
  baio_ticket ticket;
  /**
   * Bytes moved; or a negative error number.
   */
  int64_t result;
  /**
   * Bytes that were moved, also when an error ended it half-way.
   */
  uint64_t bytes_done;
  /**
   * NULL, or why it failed, with the cure. It belongs to the library, and is valid until this thread's next call of
   * baio_reap(), baio_wait() or baio_run().
   */
  const char *message;
  /**
   * How the kernel did it: BAIO_MODE_DIRECT, BAIO_MODE_KERNEL or BAIO_MODE_UNCACHED; direct also if baio's page cache did it, or if there was nothing to do.
   */
  uint32_t took;
  /**
   * Non-blocking tries that it took.
   */
  uint32_t iterations;
  /**
   * 0.
   */
  uint64_t reserved[2];
} baio_outcome;

/**
 * A request. Set it to zeros first. The library copies it: you may use it again when the call has returned.
 */
typedef struct baio_request {
  /**
   * On what.
   */
  struct baio_file *file;
  /**
   * The memory to write from or read into; NULL for operations that move no bytes. In flight it belongs to the library.
   */
  struct baio_buffer *buffer;
  /**
   * First byte.
   */
  uint64_t offset;
  /**
   * Bytes; 0 for the whole buffer.
   */
  uint64_t length;
  /**
   * BAIO_OP_...
   */
  uint32_t op;
  /**
   * BAIO_MODE_...
   */
  uint32_t mode;
  /**
   * BAIO_DURABLE_...: of a write, a sync, a fence.
   */
  uint32_t durable;
  /**
   * 0.
   */
  uint32_t flags;
  /**
   * It is given up after so many nanoseconds; a write may or may not take effect then. 0: never.
   */
  uint64_t timeout_ns;
  /**
   * Comes back with the outcome.
   */
  uint64_t tag;
  /**
   * A status word that changes when the request ends, or NULL. One request at a time.
   */
  struct baio_status *status;
  /**
   * 0.
   */
  uint64_t reserved[5];
} baio_request;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Takes a buffer of `bytes` bytes from the link's arena; it begins at a multiple of 4096. Its bytes are zeros, or those of an earlier buffer.
 *
 * Owner: the caller owns the buffer, and gives it back by baio_buffer_free().
 * Threads: the link's.
 * Returns: 0 and the buffer in `*buffer`; or a negative error number: -ENOBUFS when the arena is used up.
 */
int baio_buffer_new(struct baio_link *link,
                    size_t bytes,
                    struct baio_buffer **buffer);

/**
 * Where the bytes of a buffer are: always at the same place. While a request has the buffer they are the library's. If you write them
 * then, anything may reach the device; if you read them, you may read anything.
 *
 * Threads: the link's.
 * Returns: the address; NULL while a request has the buffer, and after an error: see baio_error_message().
 */
void *baio_buffer_data(struct baio_buffer *buffer);

/**
 * How many bytes it has.
 *
 * Threads: the link's.
 * Returns: bytes, or a negative error number.
 */
int64_t baio_buffer_size(struct baio_buffer *buffer);

/**
 * Gives a buffer back.
 *
 * Owner: the buffer is gone. While a request has it nothing happens: -EBUSY.
 * Threads: the link's.
 * Returns: 0, or a negative error number.
 */
int baio_buffer_free(struct baio_buffer *buffer);

/**
 * Opens a file or device by its path. `flags` are BAIO_OPEN_... or 0. `mode` is for requests that name none. It blocks.
 *
 * Owner: the caller owns the file, and gives it back by baio_file_close().
 * Threads: the link's.
 * Returns: 0 and the file in `*file`; or a negative error number.
 */
int baio_file_open(struct baio_link *link,
                   const char *path,
                   uint32_t flags,
                   uint32_t mode,
                   struct baio_file **file);

/**
 * Opens a segment of the caller's own by its name. `flags` is BAIO_OPEN_READ or BAIO_OPEN_WRITE. It blocks.
 *
 * Owner: the caller owns it, and gives it back by baio_file_close().
 * Threads: the link's.
 * Returns: 0 and the segment in `*file`; or a negative error number.
 */
int baio_segment_open(struct baio_link *link, const char *name, uint32_t flags, uint32_t mode, struct baio_file **file);

/**
 * Closes a file or segment. Requests under way on it go on, and it is closed when they have ended.
 *
 * Owner: the handle is gone.
 * Threads: the link's.
 * Returns: 0, or a negative error number when it is no open file.
 */
int baio_file_close(struct baio_file *file);

/**
 * The size of a file or segment now. It blocks.
 *
 * Threads: the link's.
 * Returns: bytes, or a negative error number.
 */
int64_t baio_file_size(struct baio_file *file);

/**
 * Opens a link: to the volume at `path`, which this process then owns; without a path for plain files; or to the broker whose socket is at
 * `path`. `options` may be NULL.
 *
 * Owner: the caller owns the link, and gives it back by baio_link_close().
 * Threads: any. A link of kind BAIO_LINK_THREAD belongs to the thread that called.
 * Returns: 0 and the link in `*link`; or a negative error number.
 */
int baio_link_open(struct baio_link **link,
                   uint32_t kind,
                   const char *path,
                   const struct baio_link_options *options);

/**
 * Closes a link. It waits for requests under way, but cancels reads, since a read of a pipe may never end. It writes what the page cache
 * has not written yet, and marks the volume as closed. Outcomes that were not taken are lost; the buffers of these requests are the
 * caller's again.
 *
 * Owner: the link is gone, also after an error, unless the caller may not close it (-EBADF, -EPERM, -EINVAL). Handles of its files, buffers
 * and logs must still be given back by their own calls; all other calls on them fail.
 * Threads: the link's, before it ends (in atexit(3) the main thread has ended: -ESRCH). No other call on the link may be under way.
 * Returns: 0, or a negative error number: the next open then heals the volume.
 */
int baio_link_close(struct baio_link *link);

/**
 * Makes a volume in a file or device. `options` may be NULL.
 *
 * Threads: any. It blocks.
 * Returns: 0, or a negative error number: -EEXIST when something is there already and `force` was not asked for.
 */
int baio_format(const char *path, const struct baio_format_options *options);

/**
 * A descriptor for poll(2), select(2) or epoll(7) that is readable when there may be outcomes to be taken, and once a link to a service has ended:
 * call baio_reap() then. Do nothing else with it: the library reads it. From this call on baio_submit() also submits what it queues.
 *
 * Owner: the library; it is closed with the link. Each call gives the same one.
 * Threads: the link's.
 * Returns: the descriptor, or a negative error number.
 */
int baio_link_event_fd(struct baio_link *link);

/**
 * Why the last call of this thread failed: what was asked, of what, at which offset, what the system said, what was needed,
 * and the cure, in one line. "" if none has failed.
 *
 * Owner: the library; it is valid until this thread's next call that fails.
 * Threads: any; each has its own.
 * Returns: never NULL.
 */
const char *baio_error_message(void);

/**
 * The name of the same error: "ENOSPC". Some have no number in errno: "ENOTVOLUME", "ECORRUPT", "EINDETERMINATE", "EPOISONED".
 *
 * Owner, threads, returns: as baio_error_message().
 */
const char *baio_error_name(void);

/**
 * What to do about the same error; "" where nothing general can be said.
 *
 * Owner, threads, returns: as baio_error_message().
 */
const char *baio_error_cure(void);

/**
 * The version of the library that the program runs with: "0.2.0".
 *
 * Owner: the library. Threads: any. Returns: never NULL.
 */
const char *baio_version(void);

/**
 * Opens the log of a whole file or segment, after recovery. With BAIO_LOG_OPEN_OR_CREATE it makes one where none was ever made: a process that is
 * killed at any step calls this again. With BAIO_LOG_CREATE it makes one, and what was there is lost. To make a log in a file, the file must
 * have its size already; baio_log_open_or_create() gives it one. It blocks.
 *
 * Owner: the caller owns the log, and gives it back by baio_log_close(). The file may be closed before.
 * Threads: the link's.
 * Returns: 0 and the log in `*log`; or a negative error number.
 */
int baio_log_open(struct baio_file *file,
                  uint32_t flags,
                  struct baio_log **log);

/**
 * As baio_log_open() with BAIO_LOG_OPEN_OR_CREATE; begin a program with this. When it makes a log, it makes a file that is shorter than `file_bytes`
 * as long. A log that is there keeps its size, and one that a copy has cut short is refused. A segment has its size, and `file_bytes` has no
 * effect. It blocks.
 *
 * Owner: the caller owns the log, and gives it back by baio_log_close(). The file may be closed before.
 * Threads: the link's.
 * Returns: 0 and the log in `*log`; or a negative error number.
 */
int baio_log_open_or_create(struct baio_file *file,
                            uint64_t file_bytes,
                            struct baio_log **log);

/**
 * Appends a record of up to 16758648 bytes. It never waits: the record is in memory, and is safe when baio_log_wait() returns 0.
 *
 * Owner: the library copies the bytes; they are the caller's again when the call returns.
 * Threads: the link's.
 * Returns: the LSN of the record, or a negative error number: -EAGAIN when there is no room in memory (wait for a record that was appended);
 * -ENOSPC only when the log is full (give up records by baio_log_truncate()); when the device is full, the log fails with -EIO.
 */
int64_t baio_log_append(struct baio_log *log,
                        const void *record,
                        size_t bytes);

/**
 * Waits until the record with this LSN is durable, with all before it.
 *
 * Threads: the link's. Threads that wait on a service are woken together.
 * Returns: 0, or a negative error number: then the record may or may not be there after the next opening.
 */
int baio_log_wait(struct baio_log *log, uint64_t lsn);

/**
 * The same for `timeout_ns` nanoseconds at most; with a negative time it waits without a limit.
 *
 * Threads: the link's.
 * Returns: 0; -ETIMEDOUT when it is not durable by then, and it may become so later; or a negative error number, as baio_log_wait().
 */
int baio_log_wait_for(struct baio_log *log, uint64_t lsn, int64_t timeout_ns);

/**
 * Every record below this LSN is durable. It does not wait.
 *
 * Threads: the link's.
 * Returns: an LSN, or a negative error number.
 */
int64_t baio_log_durable_lsn(struct baio_log *log);

/**
 * The LSN of the oldest record that is kept. It does not wait.
 *
 * Threads: the link's.
 * Returns: an LSN, or a negative error number.
 */
int64_t baio_log_head_lsn(struct baio_log *log);

/**
 * Gives up the records before this LSN, so that their space can be used again. It blocks.
 *
 * Threads: the link's.
 * Returns: the oldest LSN that is kept, or a negative error number.
 */
int64_t baio_log_truncate(struct baio_log *log, uint64_t lsn);

/**
 * Closes a log: what was appended becomes durable, and the log is marked as closed. It blocks. Readers of it fail from now on.
 *
 * Owner: the log is gone, also after an error.
 * Threads: the link's.
 * Returns: 0, or a negative error number.
 */
int baio_log_close(struct baio_log *log);

/**
 * Begins to read a log: the records from this LSN on, or from the first after it; with 0 from the oldest that is kept. Records that
 * baio_log_truncate() gave up cannot be read: -ENODATA here, or with the first record if they are given up meanwhile.
 *
 * Owner: the caller owns the reader, and gives it back by baio_records_close().
 * Threads: the link's.
 * Returns: 0 and the reader in `*records`; or a negative error number.
 */
int baio_records_open(struct baio_log *log,
                      uint64_t from,
                      struct baio_records **records);

/**
 * The next record: its LSN, where its bytes are, how many. It blocks while they are read.
 *
 * Owner: the bytes belong to the reader, and are valid until its next record, or until it is closed.
 * Threads: the link's; one at a time for each reader.
 * Returns: 1; 0 at the durable end (ask again later); or a negative error number.
 */
int baio_records_next(struct baio_records *records, uint64_t *lsn, const void **record, size_t *bytes);

/**
 * Gives a reader back.
 *
 * Owner: the reader is gone, and the bytes of its last record.
 * Threads: the link's.
 * Returns: 0, or a negative error number.
 */
int baio_records_close(struct baio_records *records);

/**
 * Holds a page of 4 KiB in the page cache of the file's link: number 0 is the first. `flags` is BAIO_PIN_ZERO or 0. It blocks while the page is read; one that
 * is in the cache costs no I/O. If all pages of the cache are held it has no room: free pins that are not needed.
 *
 * Owner: the caller owns the pin, and gives it back by baio_pin_free(). The file may be closed before.
 * Threads: the link's.
 * Returns: 0 and the pin in `*pin`; or a negative error number: -EOPNOTSUPP over a broker.
 */
int baio_pin_new(struct baio_file *file,
                 uint64_t page,
                 uint32_t flags,
                 struct baio_pin **pin);

/**
 * Copies `bytes` bytes at `offset` of a page that is held to `to`, as they are at one moment.
 *
 * Threads: the link's.
 * Returns: 0, or a negative error number: -ESTALE when the segment was deleted or resized.
 */
int baio_pin_read(struct baio_pin *pin, size_t offset, void *to, size_t bytes);

/**
 * Changes `bytes` bytes at `offset` of a page that is held, at one moment. The page is written later, by the cleaner or for a sync. `lsn` is the
 * LSN of the log record for this change: the page is not written before the log is durable up to it (baio_file_set_log(),
 * baio_link_set_durable_lsn()). It is 0 for a change that is not logged. With 0 the call waits while the page cannot be changed. With an LSN it fails
 * with -EAGAIN instead and changes nothing, since it might wait for a log that only the caller makes durable.
 *
 * Owner: the library copies the bytes.
 * Threads: the link's.
 * Returns: 0, or a negative error number: -EBADF for a file that was opened to read.
 */
int baio_pin_write(struct baio_pin *pin,
                   size_t offset,
                   const void *from,
                   size_t bytes,
                   uint64_t lsn);

/**
 * Gives a held page back to the cache.
 *
 * Owner: the pin is gone.
 * Threads: the link's.
 * Returns: 0, or a negative error number.
 */
int baio_pin_free(struct baio_pin *pin);

/**
 * Reads `count` pages of 4 KiB, 1 to 16, without a copy: the page cache lends its own memory. Writes to these pages
 * meanwhile go to a copy, so the lent bytes do not change. It blocks while they are read; pages that are in the cache cost no I/O.
 *
 * Owner: the caller owns the loan, and gives it back by baio_pages_free(). The file may be closed before.
 * Threads: the link's.
 * Returns: 0 and the loan in `*pages`; or a negative error number: -EOPNOTSUPP over a broker.
 */
int baio_pages_read(struct baio_file *file,
                    uint64_t first,
                    uint64_t count,
                    struct baio_pages **pages);

/**
 * Where the bytes of a lent page are: 0 is the first of the loan. They must not be written.
 *
 * Owner: the library; they are valid until baio_pages_free(), also after the link was closed.
 * Threads: the link's. The bytes themselves may be read by any.
 * Returns: the address of 4096 bytes; NULL after an error: see baio_error_message().
 */
const void *baio_pages_data(struct baio_pages *pages, size_t nth);

/**
 * Gives lent pages back.
 *
 * Owner: the loan is gone, and the bytes of its pages.
 * Threads: the link's.
 * Returns: 0, or a negative error number.
 */
int baio_pages_free(struct baio_pages *pages);

/**
 * For a log of your own: says that it is durable up to and including this LSN. Pages whose last change has this LSN or an earlier one may now be
 * written. It never goes back.
 *
 * Threads: the link's.
 * Returns: 0, or a negative error number.
 */
int baio_link_set_durable_lsn(struct baio_link *link,
                              uint64_t lsn);

/**
 * From now on pages of the file that are changed with an LSN (baio_pin_write()) wait for this log, which must be of the same link: each is written
 * once the record with its LSN is durable.
 *
 * Threads: the link's.
 * Returns: 0, or a negative error number.
 */
int baio_file_set_log(struct baio_file *file,
                      struct baio_log *log);

/**
 * Submits what is queued, waits until at least `min` requests have ended, and takes the outcomes of at most `max`, in the order in which they
 * ended. It returns earlier after `timeout_ns` nanoseconds (negative: no limit), and when nothing is under way any more. With `min` 0 it
 * does not wait. `outcomes` has room for `max`.
 *
 * Owner: the buffers of these requests are the caller's again. Messages are the library's: see baio_outcome.
 * Threads: the link's. Several may reap one link of a service: each outcome is given once.
 * Returns: how many outcomes, or a negative error number.
 */
int baio_reap(struct baio_link *link,
              struct baio_outcome *outcomes,
              size_t max,
              size_t min,
              int64_t timeout_ns);

/**
 * Submits what is queued, waits for the end of one request, and takes its outcome. `outcome` may be NULL.
 *
 * Owner: the request's buffer is the caller's again.
 * Threads: the link's.
 * Returns: the result of the request: bytes, or a negative error number, of it or of the call: -ESTALE when its outcome was taken already.
 */
int64_t baio_wait(struct baio_link *link,
                  baio_ticket ticket,
                  struct baio_outcome *outcome);

/**
 * Queues `count` requests, in this order. They are submitted together by the next baio_reap() or baio_wait(), or when many are queued; at
 * once if the link has an event descriptor. `tickets` may be NULL; else it has room for `count`.
 *
 * Owner: the library has the buffer of each until its outcome is taken. `requests` is the caller's again when the call returns.
 * Threads: the link's.
 * Returns: how many were taken, the first ones; baio_error_message() says why not the next. A negative error number when the first was not:
 * -EAGAIN when every slot is taken.
 */
int baio_submit(struct baio_link *link,
                const struct baio_request *requests,
                size_t count,
                baio_ticket *tickets);

/**
 * Asks that a request end early, if that is possible. It still has an outcome: take it.
 *
 * Threads: the link's.
 * Returns: 0; -ESTALE when its outcome was taken already; or another negative error number.
 */
int baio_cancel(struct baio_link *link, baio_ticket ticket);

/**
 * Submits one request and waits for its end. `outcome` may be NULL.
 *
 * Owner: the request's buffer is the caller's again.
 * Threads: the link's.
 * Returns: the result of the request: bytes, or a negative error number, of it or of the call; baio_error_message() has the text of both.
 */
int64_t baio_run(struct baio_link *link,
                 const struct baio_request *request,
                 struct baio_outcome *outcome);

/**
 * Makes a private segment of the caller's own. It blocks until the segment is durable.
 *
 * Threads: the link's.
 * Returns: 0, or a negative error number: -EEXIST, -ENOSPC, -EDQUOT.
 */
int baio_segment_create(struct baio_link *link, const char *name, uint64_t size_bytes);

/**
 * Changes the size of a segment of the caller's own; open handles see it at once. It blocks.
 *
 * Threads: the link's.
 * Returns: 0, or a negative error number.
 */
int baio_segment_resize(struct baio_link *link, const char *name, uint64_t size_bytes);

/**
 * Renames a segment of the caller's own; open handles stay valid. It blocks.
 *
 * Threads: the link's.
 * Returns: 0, or a negative error number.
 */
int baio_segment_rename(struct baio_link *link, const char *old_name, const char *new_name);

/**
 * Changes the permissions of a segment of the caller's own: nine bits, as of a file. Open handles keep their rights. It blocks.
 *
 * Threads: the link's.
 * Returns: 0, or a negative error number.
 */
int baio_segment_chmod(struct baio_link *link, const char *name, uint32_t mode);

/**
 * Gives a segment of `owner` to `new_owner` and `new_group`; `UINT32_MAX` leaves either as it is, as in chown(2). Only uid 0 may give
 * a segment to another owner, whose quota is charged and who must have no segment of that name. Its owner may name a group that he is in. It blocks.
 *
 * Threads: the link's.
 * Returns: 0, or a negative error number: -EACCES, -EEXIST, -EDQUOT.
 */
int baio_segment_chown(struct baio_link *link,
                       uint32_t owner,
                       const char *name,
                       uint32_t new_owner,
                       uint32_t new_group);

/**
 * Deletes a segment of the caller's own when the requests under way on it have ended. It blocks.
 *
 * Threads: the link's.
 * Returns: 0, or a negative error number.
 */
int baio_segment_delete(struct baio_link *link, const char *name);

/**
 * Makes a status word, for one request at a time.
 *
 * Owner: the caller owns it, and gives it back by baio_status_free().
 * Threads: any.
 * Returns: 0 and the word in `*status`; or a negative error number.
 */
int baio_status_new(struct baio_status **status);

/**
 * Whether its request has ended, and how. The word changes in a call of baio_reap() or baio_wait(). A thread that sees that a read has ended also
 * sees its bytes, but the buffer is the library's until the outcome is taken.
 *
 * Threads: any.
 * Returns: BAIO_IN_FLIGHT, also before the first request; bytes; or a negative error number, of the request or of this call.
 */
int64_t baio_status_get(struct baio_status *status);

/**
 * Gives a status word back. A request under way goes on without it.
 *
 * Owner: the word is gone.
 * Threads: any.
 * Returns: 0, or a negative error number.
 */
int baio_status_free(struct baio_status *status);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BAIO_H */
