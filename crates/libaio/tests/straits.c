/*
 * Where the kernel's AIO has done a thing by the time `io_submit` returns, and io_uring has not: pipes that are full, numbers that are
 * another file's by then, threads that are gone. Stories as in programs.c.
 */
#include "programs.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { PREAD, PWRITE, FDSYNC = 3, PWRITEV = 8 };
enum { LARGE = 1 << 20 };

static void begin(io_context_t context, struct iocb *iocb)
{
	MUST(io_submit(context, 1, &iocb) == 1);
}

static void *counts_letters(void *end)
{
	static long seen[3];
	char part[65536], last = 'A';
	long got, at;

	while ((got = read((int)(long)end, part, sizeof(part))) > 0) {
		for (at = 0; at < got; at++) {
			/* What was written first comes first. */
			MUST(part[at] >= last && part[at] <= 'C');
			last = part[at];
			seen[last - 'A']++;
		}
	}
	return seen;
}

/* Three writes that fill it many times over, the third of a list: all of each, one after the other. */
static void write_through(int in, int out, int together)
{
	io_context_t context = 0;
	struct iocb iocbs[3], *list[] = { &iocbs[0], &iocbs[1], &iocbs[2] };
	char *letters = malloc(3 * LARGE);
	struct iovec parts[2];
	struct io_event events[3];
	pthread_t reader;
	void *told;
	int at;

	MUST(letters && io_setup(8, &context) == 0);
	for (at = 0; at < 3; at++) {
		memset(letters + at * LARGE, 'A' + at, LARGE);
		prepare(list[at], PWRITE, in, 0);
		list[at]->buf = letters + at * LARGE;
		list[at]->nbytes = LARGE;
	}
	parts[0].iov_base = letters + 2 * LARGE;
	parts[0].iov_len = 100;
	parts[1].iov_base = letters + 2 * LARGE + 100;
	parts[1].iov_len = LARGE - 100;
	iocbs[2].opcode = PWRITEV;
	iocbs[2].buf = parts;
	iocbs[2].nbytes = 2;
	MUST(pthread_create(&reader, NULL, counts_letters, (void *)(long)out) == 0);
	if (together)
		MUST(io_submit(context, 3, list) == 3);
	else
		for (at = 0; at < 3; at++)
			begin(context, list[at]);
	MUST(io_getevents(context, 3, 3, events, NULL) == 3);
	for (at = 0; at < 3; at++)
		MUST(events[at].res == LARGE && events[at].obj == list[at]);
	close(in);
	MUST(pthread_join(reader, &told) == 0);
	for (at = 0; at < 3; at++)
		MUST(((long *)told)[at] == LARGE);
	free(letters);
	MUST(io_destroy(context) == 0);
}

static void story_pipe(int fd)
{
	int ends[2];

	(void)fd;
	MUST(pipe(ends) == 0);
	write_through(ends[1], ends[0], 1);
}

static void story_socket(int fd)
{
	int ends[2];

	(void)fd;
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	write_through(ends[1], ends[0], 0);
}

/* A sync that waits for a write outlasts its descriptor. */
static void story_synced(int fd)
{
	io_context_t context = 0;
	struct iocb write, sync, *list[] = { &write, &sync };
	size_t size = 16 << 20;
	char *many = calloc(1, size);
	struct io_event events[2];
	int round, at;

	MUST(many && io_setup(8, &context) == 0);
	for (round = 0; round < 8; round++) {
		int other = dup(fd);

		prepare(&write, PWRITE, other, 0);
		write.buf = many;
		write.nbytes = size;
		memset(&sync, 0, sizeof(sync));
		sync.opcode = FDSYNC;
		sync.fd = other;
		MUST(io_submit(context, 2, list) == 2);
		MUST(close(other) == 0);
		MUST(io_getevents(context, 2, 2, events, NULL) == 2);
		for (at = 0; at < 2; at++)
			MUST(events[at].res == (events[at].obj == &write ? (long)size : 0));
	}
}

static void *waits_for_two(void *context)
{
	struct io_event events[2];

	return (void *)(long)io_getevents(context, 2, 2, events, NULL);
}

/* An event fd is signalled for the first event, also while somebody waits for two. */
static void story_gathering(int fd)
{
	io_context_t context = 0;
	struct iocb one, two;
	int bell = eventfd(0, 0);
	struct pollfd rings = { .fd = bell, .events = POLLIN };
	pthread_t thread;
	void *told;

	MUST(io_setup(8, &context) == 0);
	MUST(pthread_create(&thread, NULL, waits_for_two, context) == 0);
	usleep(50000);
	prepare(&one, PREAD, fd, 0);
	one.flags = 1;
	one.resfd = bell;
	begin(context, &one);
	MUST(poll(&rings, 1, 30000) == 1);
	prepare(&two, PREAD, fd, 1);
	begin(context, &two);
	MUST(pthread_join(thread, &told) == 0 && told == (void *)2);
}

static void *waits_for_any(void *context)
{
	struct io_event event;

	while (io_getevents(context, 1, 1, &event, NULL) == 1)
		MUST(event.res == 4096);
	return NULL;
}

/* A bad descriptor is told by `io_submit`, also while somebody waits for events. */
static void story_bad(int fd)
{
	io_context_t context = 0;
	struct iocb iocb, *list[] = { &iocb };
	pthread_t thread;
	int round;

	MUST(io_setup(8, &context) == 0);
	MUST(pthread_create(&thread, NULL, waits_for_any, context) == 0);
	for (round = 0; round < 500; round++) {
		prepare(&iocb, PREAD, round % 2 ? 999 : fd, 0);
		MUST(io_submit(context, 1, list) == (round % 2 ? -EBADF : 1));
		usleep(200);
	}
	/* Both leave the one who waits alone from here on. */
	_exit(0);
}

static int full[2], another;
static struct iocb late;

static void *writes_and_goes(void *context)
{
	begin(context, &late);
	MUST(dup2(another, full[1]) == full[1]);
	return NULL;
}

/* A write that outlives its thread never goes into the file that has its number by then. */
static void story_remade(int fd)
{
	io_context_t context = 0;
	char block[4096] = { 0 }, precious[] = "precious data...", seen[sizeof(precious)];
	struct io_event event;
	struct timespec limit = { 30, 0 };
	pthread_t thread;

	MUST(pipe(full) == 0 && fcntl(full[1], F_SETFL, O_NONBLOCK) == 0);
	while (write(full[1], block, sizeof(block)) > 0)
		;
	MUST(fcntl(full[1], F_SETFL, 0) == 0 && io_setup(8, &context) == 0);
	prepare(&late, PWRITE, full[1], 0);
	late.nbytes = sizeof(precious);
	another = fd;
	MUST(pwrite(fd, precious, sizeof(precious), 0) == sizeof(precious));
	MUST(pthread_create(&thread, NULL, writes_and_goes, context) == 0);
	MUST(pthread_join(thread, NULL) == 0);
	/* There is room now, and no thread that could write. */
	MUST(read(full[0], block, sizeof(block)) > 0);
	MUST(io_getevents(context, 1, 1, &event, &limit) == 1 && event.res == -ECANCELED);
	MUST(pread(fd, seen, sizeof(seen), 0) == sizeof(seen) && memcmp(seen, precious, sizeof(seen)) == 0);
}

/* A read that nobody answers holds up those of its own pipe, and not those of the next that has its number. */
static void story_reused(int fd)
{
	io_context_t context = 0;
	char letters[3];
	struct iocb reads[3];
	struct io_event event;
	int first[2], second[2], at;

	(void)fd;
	MUST(io_setup(8, &context) == 0 && pipe(first) == 0 && pipe(second) == 0);
	for (at = 0; at < 3; at++) {
		prepare(&reads[at], PREAD, first[0], 0);
		reads[at].buf = letters + at;
		reads[at].nbytes = 1;
	}
	begin(context, &reads[0]);
	begin(context, &reads[1]);
	MUST(dup2(second[0], first[0]) == first[0]);
	begin(context, &reads[2]);
	MUST(write(second[1], "c", 1) == 1);
	MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.obj == &reads[2] && letters[2] == 'c');
	MUST(write(first[1], "ab", 2) == 2);
	for (at = 0; at < 2; at++)
		MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.obj == &reads[at] && letters[at] == 'a' + at);
}

/* What is bad is told also while another of its number waits. */
static void story_behind(int fd)
{
	io_context_t context = 0;
	char letter;
	struct iocb read, *list[] = { &read }, other = { 0 }, *others[] = { &other };
	int ends[2];

	(void)fd;
	MUST(io_setup(8, &context) == 0 && pipe(ends) == 0);
	prepare(&read, PREAD, ends[0], 0);
	read.buf = &letter;
	read.nbytes = 1;
	MUST(io_submit(context, 1, list) == 1);
	other = read;
	MUST(close(ends[0]) == 0);
	MUST(io_submit(context, 1, others) == -EBADF);
	other.opcode = PWRITE;
	MUST(io_submit(context, 1, others) == -EBADF);
	_exit(0);
}

int main(int count, char **arguments)
{
	static const struct story stories[] = {
		{ "pipe", story_pipe }, { "socket", story_socket }, { "synced", story_synced }, { "gathering", story_gathering },
		{ "bad", story_bad }, { "remade", story_remade }, { "reused", story_reused },
		{ "behind", story_behind },
	};

	return tell(stories, sizeof(stories) / sizeof(stories[0]), count, arguments);
}
