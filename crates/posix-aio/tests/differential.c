/*
 * One random program of calls after another: `differential SEED COUNT DIRECTORY`. What POSIX or glibc fixes of the answers goes to standard
 * output, and what is in the files at the end as a sum, so that two runs on two libraries can be compared.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUESTS = 12, BLOCK = 512, FILE_BLOCKS = 64 };

static unsigned long long state;

static unsigned draw(unsigned below)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)(state >> 33) % below;
}

static struct aiocb requests[REQUESTS];
static char buffers[REQUESTS][4 * BLOCK];
static int flying[REQUESTS], writes[REQUESTS];
/* A few blocks that cannot be written, with nothing behind them: some kernels move what there is of a length that no memory has. */
static char *edge;
static int in_list;
static int file, appending, reading, pipe_ends[2], socket_ends[2], directory;
static volatile sig_atomic_t signals;

static void handler(int number)
{
	(void)number;
	signals++;
}

static unsigned sum(const void *bytes, size_t count)
{
	const unsigned char *at = bytes;
	unsigned made = 17;

	while (count--)
		made = made * 31 + *at++;
	return made;
}

/* Waits by one of the three ways there are, and tells. */
static void end(int at)
{
	const struct aiocb *list[] = { NULL, &requests[at] };

	if (!flying[at])
		return;
	if (draw(2))
		while (aio_error(&requests[at]) == EINPROGRESS)
			usleep(0);
	while (aio_error(&requests[at]) == EINPROGRESS)
		aio_suspend(list, 2, NULL);
	printf(" end %d: %d %zd", at, aio_error(&requests[at]), aio_return(&requests[at]));
	if (!writes[at])
		printf(" %x", sum(buffers[at], sizeof(buffers[at])));
	printf("\n");
	flying[at] = 0;
}

static void end_all(void)
{
	int at;

	for (at = 0; at < REQUESTS; at++)
		end(at);
}

/* Requests that are in flight at once touch different blocks, or only read: the order of others is nobody's promise. */
static void prepare(int at, int write)
{
	static const long odd[] = { -1, -4096, 1L << 62, 0x7fffffffffffffffL, FILE_BLOCKS * BLOCK - 5, FILE_BLOCKS * BLOCK + 99 };
	int kind = draw(40), byte;

	end(at);
	memset(&requests[at], 0, sizeof(requests[at]));
	requests[at].aio_fildes = file;
	requests[at].aio_offset = (at * 5 + draw(2)) * BLOCK;
	requests[at].aio_nbytes = draw(4 * BLOCK + 1);
	requests[at].aio_buf = buffers[at];
	requests[at].aio_lio_opcode = write ? LIO_WRITE : LIO_READ;
	requests[at].aio_sigevent.sigev_notify = SIGEV_NONE;
	byte = draw(256);
	memset(buffers[at], byte, sizeof(buffers[at]));
	writes[at] = write;
	switch (kind) {
	case 0: requests[at].aio_fildes = -1; break;
	case 1: requests[at].aio_fildes = 900; break;
	case 2: case 14:
		/* The end of the file is known only when nothing is being appended. */
		requests[at].aio_offset = odd[draw(write || in_list ? 4 : 6)];
		if (!in_list)
			end_all();
		break;
	case 3: requests[at].aio_nbytes = draw(2) ? (size_t)-1 : (size_t)1 << 62; requests[at].aio_buf = edge; break;
	case 4: requests[at].aio_nbytes = 0; break;
	case 5: requests[at].aio_reqprio = (int)draw(60) - 20; break;
	case 6: requests[at].aio_fildes = reading; break;
	case 7: requests[at].aio_fildes = directory; break;
	case 8: requests[at].aio_sigevent.sigev_notify = SIGEV_SIGNAL; requests[at].aio_sigevent.sigev_signo = draw(2) ? 500 : -7; break;
	case 9: case 10: requests[at].aio_sigevent.sigev_notify = SIGEV_SIGNAL; requests[at].aio_sigevent.sigev_signo = SIGRTMIN; break;
	case 11: requests[at].aio_buf = (void *)8; requests[at].aio_nbytes = 100; break;
	case 12: if (write && !in_list) { end_all(); requests[at].aio_fildes = appending; } break;
	case 13: requests[at].aio_sigevent.sigev_notify = 77; break;
	}
}

static void submit(int at)
{
	int told;

	prepare(at, draw(2));
	errno = 0;
	told = writes[at] ? aio_write(&requests[at]) : aio_read(&requests[at]);
	flying[at] = 1;
	printf("submit %d: %d %d %d\n", at, told, told ? errno : 0, requests[at].aio_lio_opcode);
}

static void list(void)
{
	struct aiocb *all[REQUESTS];
	struct sigevent event;
	sigset_t block;
	int count = draw(REQUESTS + 1), wait = draw(2), at, told;

	end_all();
	in_list = 1;
	for (at = 0; at < count; at++) {
		all[at] = NULL;
		if (draw(5) == 0)
			continue;
		prepare(at, draw(2));
		if (draw(8) == 0)
			requests[at].aio_lio_opcode = 2 + draw(6);
		all[at] = &requests[at];
		flying[at] = 1;
		writes[at] = 1;
	}
	in_list = 0;
	memset(&event, 0, sizeof(event));
	event.sigev_notify = draw(2) ? SIGEV_NONE : SIGEV_SIGNAL;
	event.sigev_signo = SIGRTMIN;
	/* glibc leaves pointers to its stack behind when a signal ends LIO_WAIT, and crashes on them later. */
	sigemptyset(&block);
	sigaddset(&block, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &block, NULL);
	errno = 0;
	told = lio_listio(draw(30) ? wait ? LIO_WAIT : LIO_NOWAIT : 5, all, count, draw(3) ? &event : NULL);
	printf("list of %d, %d: %d %d\n", count, wait, told, told ? errno : 0);
	sigprocmask(SIG_UNBLOCK, &block, NULL);
	for (at = 0; at < count; at++)
		end(at);
}

static void sync_file(void)
{
	struct aiocb one;
	static const int ways[] = { O_SYNC, O_DSYNC, 0, 99 };
	const struct aiocb *own[] = { &one };
	int told, at;

	memset(&one, 0, sizeof(one));
	one.aio_fildes = draw(10) ? file : draw(2) ? -1 : pipe_ends[1];
	one.aio_sigevent.sigev_notify = SIGEV_NONE;
	one.aio_reqprio = draw(50);
	errno = 0;
	told = aio_fsync(ways[draw(10) ? draw(2) : 2 + draw(2)], &one);
	printf("sync: %d %d %d", told, told ? errno : 0, one.aio_reqprio);
	if (told == 0) {
		while (aio_error(&one) == EINPROGRESS)
			aio_suspend(own, 1, NULL);
		/* What was queued before it has ended; glibc lets it overtake what has a lower priority. */
		for (at = 0; one.aio_fildes == file && at < REQUESTS; at++)
			if (flying[at] && writes[at] && !requests[at].aio_reqprio && requests[at].aio_fildes == file && aio_error(&requests[at]) == EINPROGRESS)
				printf(" %d is late", at);
		printf(" %d %zd", aio_error(&one), aio_return(&one));
	}
	printf("\n");
}

static void stream(void)
{
	struct aiocb one[3];
	char bytes[4] = "", sent[3] = { 'a', 'b', 'c' };
	int use_socket = draw(2), from = use_socket ? socket_ends[0] : pipe_ends[0];
	int to = use_socket ? socket_ends[1] : pipe_ends[1], at, cancels = draw(2);
	const struct aiocb *last[] = { NULL };

	for (at = 0; at < 3; at++) {
		memset(&one[at], 0, sizeof(one[at]));
		one[at].aio_fildes = from;
		one[at].aio_offset = draw(3);
		one[at].aio_nbytes = 1;
		one[at].aio_buf = &bytes[at];
		one[at].aio_sigevent.sigev_notify = SIGEV_NONE;
		printf("stream: %d\n", aio_read(&one[at]));
	}
	/* The first has begun, or is about to: which, is not fixed. The second is held by it. */
	if (cancels) {
		int told = aio_cancel(from, &one[1]);

		printf("cancel: %d %d %zd\n", told, aio_error(&one[1]), aio_return(&one[1]));
		told = aio_cancel(to, &one[0]);
		printf("cancel: %d\n", told);
	}
	if (write(to, sent, cancels ? 2 : 3) < 0)
		abort();
	for (at = 0; at < 3; at++) {
		last[0] = &one[at];
		while (aio_error(&one[at]) == EINPROGRESS)
			aio_suspend(last, 1, NULL);
		printf("stream %d: %d %zd %d\n", at, aio_error(&one[at]), aio_return(&one[at]), bytes[at]);
	}
}

static void odd(void)
{
	struct timespec limit = { 0, draw(2) ? 0 : 100000 };
	const struct aiocb *none[] = { NULL, NULL };
	int at = draw(REQUESTS), told = 0;

	errno = 0;
	switch (draw(6)) {
	case 0: told = aio_suspend(none, -1, &limit); break;
	case 1: told = aio_suspend(none, draw(3), draw(2) ? NULL : &limit); break;
	case 2: told = aio_cancel(-1, NULL); break;
	case 3: end_all(); told = aio_cancel(file, NULL); break;
	case 4: end(at); requests[at].aio_fildes = reading; told = aio_cancel(file, &requests[at]); break;
	case 5: end(at); requests[at].aio_fildes = file; told = aio_cancel(file, &requests[at]); break;
	}
	printf("odd: %d %d\n", told, told < 0 ? errno : 0);
}

static void program(unsigned long long seed)
{
	static char whole[FILE_BLOCKS * BLOCK + 200000];
	ssize_t length;
	int calls, at;

	state = seed * 7919 + 3;
	for (at = 0; at < 4; at++)
		draw(2);
	printf("program %llu\n", seed);
	memset(whole, 'w', FILE_BLOCKS * BLOCK);
	if (ftruncate(file, 0) || pwrite(file, whole, FILE_BLOCKS * BLOCK, 0) != FILE_BLOCKS * BLOCK)
		abort();
	signals = 0;
	for (calls = 3 + draw(20); calls > 0; calls--) {
		switch (draw(12)) {
		case 0: list(); break;
		case 1: sync_file(); break;
		case 2: stream(); break;
		case 3: odd(); break;
		case 4: end_all(); break;
		case 5: case 6: end(draw(REQUESTS)); break;
		default: submit(draw(REQUESTS)); break;
		}
	}
	end_all();
	length = pread(file, whole, sizeof(whole), 0);
	printf("file: %zd %x\n", length, sum(whole, length > 0 ? length : 0));
}

int main(int count, char **arguments)
{
	struct sigaction action;
	unsigned long long seed, last;
	char path[4096];
	long page = sysconf(_SC_PAGESIZE);

	if (count != 4)
		return 2;
	alarm(3000);
	memset(&action, 0, sizeof(action));
	action.sa_handler = handler;
	sigaction(SIGRTMIN, &action, NULL);
	edge = mmap(NULL, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (edge == MAP_FAILED || mprotect(edge + page, page, PROT_NONE))
		return 3;
	edge += page - 4 * BLOCK;
	snprintf(path, sizeof(path), "%s/file", arguments[3]);
	file = open(path, O_RDWR | O_CREAT, 0600);
	appending = open(path, O_RDWR | O_APPEND);
	reading = open(path, O_RDONLY);
	directory = open(arguments[3], O_RDONLY | O_DIRECTORY);
	if (file < 0 || appending < 0 || reading < 0 || directory < 0 || pipe(pipe_ends) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, socket_ends))
		return 3;
	seed = strtoull(arguments[1], NULL, 10);
	for (last = seed + strtoull(arguments[2], NULL, 10); seed < last; seed++)
		program(seed);
	return 0;
}
