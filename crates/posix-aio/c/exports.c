/*
 * The two functions that sleep. POSIX makes them places where a thread may be cancelled, and a thread that is cancelled unwinds its
 * stack: that must not go through Rust. So they sleep in Rust, and are cancelled here. And the second names of all, for programs with
 * 64-bit offsets: one function under two names, since both have the same request.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* What crates/posix-aio/src/abi.rs believes. */
_Static_assert(sizeof(struct aiocb) == 168, "size");
_Static_assert(offsetof(struct aiocb, aio_lio_opcode) == 4, "aio_lio_opcode");
_Static_assert(offsetof(struct aiocb, aio_reqprio) == 8, "aio_reqprio");
_Static_assert(offsetof(struct aiocb, aio_buf) == 16, "aio_buf");
_Static_assert(offsetof(struct aiocb, aio_nbytes) == 24, "aio_nbytes");
_Static_assert(offsetof(struct aiocb, aio_sigevent) == 32, "aio_sigevent");
_Static_assert(offsetof(struct aiocb, __next_prio) == 96, "__next_prio");
_Static_assert(offsetof(struct aiocb, __error_code) == 112, "__error_code");
_Static_assert(offsetof(struct aiocb, __return_value) == 120, "__return_value");
_Static_assert(offsetof(struct aiocb, aio_offset) == 128, "aio_offset");
_Static_assert(sizeof(struct sigevent) == 64, "sigevent");
_Static_assert(offsetof(struct sigevent, sigev_signo) == 8, "sigev_signo");
_Static_assert(offsetof(struct sigevent, sigev_notify) == 12, "sigev_notify");
_Static_assert(offsetof(struct sigevent, sigev_notify_function) == 16, "sigev_notify_function");
_Static_assert(offsetof(struct sigevent, sigev_notify_attributes) == 24, "sigev_notify_attributes");
_Static_assert(LIO_READ == 0 && LIO_WRITE == 1 && LIO_NOP == 2 && LIO_WAIT == 0 && LIO_NOWAIT == 1, "operations");
_Static_assert(AIO_CANCELED == 0 && AIO_NOTCANCELED == 1 && AIO_ALLDONE == 2, "answers");

int baio_suspend(const struct aiocb *const list[], int count, const struct timespec *limit, uint64_t *until);
int baio_listio(int mode, struct aiocb *const list[], int count, struct sigevent *event);

int aio_suspend(const struct aiocb *const list[], int count, const struct timespec *restrict limit)
{
	uint64_t until = 0;
	int result;

	/* It sleeps for a tenth of a second at most, and says 1 when that was not enough. */
	do {
		pthread_testcancel();
		result = baio_suspend(list, count, limit, &until);
	} while (result > 0);
	if (result < 0)
		pthread_testcancel();
	return result;
}

int lio_listio(int mode, struct aiocb *const list[restrict], int count, struct sigevent *restrict event)
{
	int result = baio_listio(mode, list, count, event);

	if (result < 0 && mode == LIO_WAIT)
		pthread_testcancel();
	return result;
}

#define SAME(result, name, parameters) result name##64 parameters __attribute__((alias(#name)))

SAME(int, aio_suspend, (const struct aiocb64 *const list[], int count, const struct timespec *restrict limit));
SAME(int, lio_listio, (int mode, struct aiocb64 *const list[restrict], int count, struct sigevent *restrict event));
