/*
 * Three functions have two forms: the one of LIBAIO_0.4, and the one of LIBAIO_0.1 for programs that were linked against that. A version
 * of a symbol is a directive to the assembler, in the file that defines it; hence C, and nothing in it but calls of the Rust functions.
 */
#include <time.h>

struct iocb;
struct io_event {
	void *data;
	struct iocb *obj;
	long res;
	long res2;
};

int baio_cancel(void *ctx, struct iocb *iocb, struct io_event *event);
int baio_getevents(void *ctx, long min_nr, long nr, struct io_event *events, struct timespec *timeout);
int baio_queue_wait(void *ctx, struct timespec *timeout);

#define VERSION(function, name, version) __asm__(".symver " #function "," #name version)

int baio_cancel_0_4(void *ctx, struct iocb *iocb, struct io_event *event)
{
	return baio_cancel(ctx, iocb, event);
}
VERSION(baio_cancel_0_4, io_cancel, "@@LIBAIO_0.4");

int baio_cancel_0_1(void *ctx, struct iocb *iocb)
{
	struct io_event event;

	return baio_cancel(ctx, iocb, &event);
}
VERSION(baio_cancel_0_1, io_cancel, "@LIBAIO_0.1");

int baio_getevents_0_4(void *ctx, long min_nr, long nr, struct io_event *events, struct timespec *timeout)
{
	return baio_getevents(ctx, min_nr, nr, events, timeout);
}
VERSION(baio_getevents_0_4, io_getevents, "@@LIBAIO_0.4");

int baio_getevents_0_1(void *ctx, long nr, struct io_event *events, const struct timespec *timeout)
{
	struct timespec copy;

	if (timeout)
		copy = *timeout;
	return baio_getevents(ctx, 1, nr, events, timeout ? &copy : 0);
}
VERSION(baio_getevents_0_1, io_getevents, "@LIBAIO_0.1");

int baio_queue_wait_0_4(void *ctx, struct timespec *timeout)
{
	return baio_queue_wait(ctx, timeout);
}
VERSION(baio_queue_wait_0_4, io_queue_wait, "@@LIBAIO_0.4");

int baio_queue_wait_0_1(void *ctx, struct timespec *timeout)
{
	struct timespec copy;

	if (timeout)
		copy = *timeout;
	return baio_queue_wait(ctx, timeout ? &copy : 0);
}
VERSION(baio_queue_wait_0_1, io_queue_wait, "@LIBAIO_0.1");
