/*
 * Where the kernel's AIO has done a thing by the time `io_submit` returns, or refuses it, and a ring might not: pipes, descriptors that are
 * closed, addresses that are not there. Stories as in programs.c.
 */
#include "programs.h"
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/utsname.h>

enum { PREAD, PWRITE, FSYNC, FDSYNC, PREADV = 7, PWRITEV = 8 };
enum { LARGE = 1 << 20 };

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

/* What io_submit has done is there for who asks and does not wait. */
static void story_soon(int fd)
{
	io_context_t context = 0;
	struct iocb iocb;
	struct io_event event;
	struct timespec now = { 0, 0 };
	int round;

	MUST(io_setup(8, &context) == 0);
	for (round = 0; round < 200; round++) {
		prepare(&iocb, round % 2 ? PREAD : PWRITE, fd, round / 2 % 64);
		begin(context, &iocb);
		MUST(io_getevents(context, 0, 1, &event, round % 3 ? &now : NULL) == 1 && event.res == 4096);
	}
	MUST(io_destroy(context) == 0);
}

/* An empty pipe that is open with O_NONBLOCK says EAGAIN; an epoll cannot be read; neither keeps io_destroy. */
static void story_nothing(int fd)
{
	io_context_t context = 0;
	struct iocb iocb, *list[] = { &iocb };
	struct io_event event;
	int ends[2];

	(void)fd;
	MUST(io_setup(8, &context) == 0 && pipe2(ends, O_NONBLOCK) == 0);
	prepare(&iocb, PREAD, ends[0], 0);
	begin(context, &iocb);
	MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.res == -EAGAIN);
	prepare(&iocb, PREAD, epoll_create1(0), 0);
	MUST(io_submit(context, 1, list) == -EINVAL);
	begin(context, (prepare(&iocb, PREAD, ends[0], 0), &iocb));
	MUST(io_destroy(context) == 0);
}

/* EFAULT: the place of a context, a list, a request, a list of memory. */
static void story_addresses(int fd)
{
	io_context_t context = 0, *constant;
	struct iocb iocb, *list[] = { &iocb }, *nowhere[] = { (void *)64 };
	char *gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	MUST(gone != MAP_FAILED);
	MUST(io_setup(8, (io_context_t *)gone) == -EFAULT && io_setup(8, (io_context_t *)8) == -EFAULT);
	constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(constant != MAP_FAILED && io_setup(8, constant) == -EFAULT);
	MUST(io_setup(8, &context) == 0);
	MUST(io_submit(context, 1, (struct iocb **)gone) == -EFAULT);
	MUST(io_submit(context, 1, (struct iocb **)64) == -EFAULT);
	MUST(io_submit(context, 1, nowhere) == -EFAULT);
	nowhere[0] = (struct iocb *)gone;
	MUST(io_submit(context, 1, nowhere) == -EFAULT);
	prepare(&iocb, PREADV, fd, 0);
	iocb.buf = gone;
	iocb.nbytes = 2;
	MUST(io_submit(context, 1, list) == -EFAULT);
	iocb.opcode = PWRITEV;
	MUST(io_submit(context, 1, list) == -EFAULT);
	MUST(io_destroy(context) == 0);
}

/* An event fd at its greatest count: nobody waits for room in it. */
static void story_brimful(int fd)
{
	io_context_t context = 0;
	unsigned long long most = -2ULL;
	int blocking;

	MUST(io_setup(8, &context) == 0);
	for (blocking = 0; blocking < 2; blocking++) {
		int bell = eventfd(0, blocking ? 0 : EFD_NONBLOCK);
		struct pollfd rings = { .fd = bell, .events = POLLIN };
		struct io_event event;
		struct iocb iocb;

		MUST(write(bell, &most, 8) == 8);
		prepare(&iocb, PWRITE, fd, 0);
		iocb.flags = 1;
		iocb.resfd = bell;
		begin(context, &iocb);
		MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.res == 4096);
		MUST(poll(&rings, 1, 0) == 1);
		MUST(close(bell) == 0);
	}
	MUST(io_destroy(context) == 0);
}

static void write_down(int fd, const char *what, long told)
{
	char line[100];
	int length = snprintf(line, sizeof(line), "%s %ld\n", what, told);

	MUST(write(fd, line, length) == length);
}

/* A request by itself: what io_submit says, and the event. */
static void answer(io_context_t context, int fd, const char *what, struct iocb *iocb)
{
	struct io_event event = { 0 };
	struct iocb *list[] = { iocb };
	long told = io_submit(context, 1, list);

	write_down(fd, what, told);
	if (told == 1) {
		MUST(io_getevents(context, 1, 1, &event, NULL) == 1);
		write_down(fd, "event", event.res);
	}
}

static void story_answers(int fd)
{
	io_context_t context = 0;
	char name[] = "/tmp/baio-answers.XXXXXX";
	int other = mkstemp(name), flags[] = { 2, 4, 8, 16, 32, 48, 1 << 30 };
	struct iocb iocb;
	unsigned at;

	MUST(other >= 0 && unlink(name) == 0 && io_setup(8, &context) == 0);
	for (at = 0; at < sizeof(flags) / sizeof(flags[0]); at++) {
		prepare(&iocb, PWRITE, other, 0);
		iocb.rw_flags = flags[at];
		answer(context, fd, "write with flags", &iocb);
		iocb.opcode = PREAD;
		answer(context, fd, "read with flags", &iocb);
	}
	prepare(&iocb, PREAD, other, 0);
	iocb.buf = (void *)0xffff800000000000;
	answer(context, fd, "read to an address of the kernel's", &iocb);
	iocb.opcode = PWRITE;
	answer(context, fd, "write from one", &iocb);
	iocb.buf = NULL;
	answer(context, fd, "write from nowhere", &iocb);
	prepare(&iocb, PREAD, open("/tmp", O_RDONLY | O_DIRECTORY), 0);
	answer(context, fd, "read of a directory", &iocb);
	prepare(&iocb, PREAD, open("/dev/null", O_RDWR), 0);
	answer(context, fd, "read of nothing", &iocb);
	iocb.nbytes = 0;
	iocb.buf = NULL;
	for (at = 2; at < 7; at++) {
		iocb.opcode = at;
		answer(context, fd, "an operation on it", &iocb);
	}
	MUST(io_destroy(context) == 0);
}

/* mremap(2) of the live ring: the context goes by its new address. */
static void story_moved(int fd)
{
	io_context_t context = 0;
	struct { unsigned id, nr, head, tail; } *ring;
	size_t size;
	char *place;
	struct iocb iocb;
	struct io_event event;

	MUST(io_setup(8, &context) == 0);
	ring = context;
	size = (32 + ring->nr * 32UL + 4095) & ~4095UL;
	place = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(place != MAP_FAILED && mremap(context, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
	prepare(&iocb, PWRITE, fd, 0);
	begin((io_context_t)place, &iocb);
	MUST(io_getevents((io_context_t)place, 1, 1, &event, NULL) == 1 && event.res == 4096);
	MUST(io_destroy((io_context_t)place) == 0);
}

/* A daemon closes its standard streams, makes a context, and puts something else in their place. */
static void story_daemon(int fd)
{
	io_context_t context = 0;
	struct iocb iocb;
	struct io_event event;
	int own = fcntl(fd, F_DUPFD, 10), at;

	MUST(own >= 10);
	for (at = 0; at < 3; at++)
		close(at);
	if (io_setup(8, &context) != 0)
		_exit(2);
	for (at = 0; at < 2; at++) {
		prepare(&iocb, at ? PREAD : PWRITE, own, 0);
		iocb.flags = 1;
		iocb.resfd = eventfd(0, 0);
		begin(context, &iocb);
		if (io_getevents(context, 1, 1, &event, NULL) != 1 || event.res != 4096)
			_exit(3);
		close(iocb.resfd);
	}
	int null = open("/dev/null", O_RDWR);
	for (at = 0; at < 3; at++)
		if (dup2(null, at) != at)
			_exit(4);
	for (at = 0; at < 100; at++) {
		prepare(&iocb, at % 2 ? PREAD : PWRITE, own, at / 2);
		struct iocb *list[] = { &iocb };
		if (io_submit(context, 1, list) != 1)
			_exit(5);
		if (io_getevents(context, 1, 1, &event, NULL) != 1 || event.res != 4096)
			_exit(6);
	}
	_exit(io_destroy(context) == 0 ? 0 : 7);
}

enum { ROW = 16 };

static struct iocb row[ROW];
static int had, taken;

/* Takes the events of all, and prepares the first of the row anew as soon as it has ended. */
static void *takes_the_first(void *context)
{
	struct timespec now = { 0, 0 };
	struct iocb own;
	struct io_event events[8];
	long told, at, left = 0;

	while (!__atomic_load_n(&had, __ATOMIC_SEQ_CST) || left > 0) {
		/* Who submits moves what has ended. */
		if (left == 0) {
			prepare(&own, PWRITE, row[0].fd, 1);
			begin(context, &own);
			left++;
		}
		told = io_getevents(context, 0, 8, events, &now);
		MUST(told >= 0);
		for (at = 0; at < told; at++) {
			left -= events[at].obj == &own;
			if (events[at].obj == &row[0]) {
				__atomic_store_n(&row[0].flags, 0, __ATOMIC_SEQ_CST);
				__atomic_store_n(&had, 1, __ATOMIC_SEQ_CST);
			} else if (events[at].obj != &own) {
				__atomic_add_fetch(&taken, 1, __ATOMIC_SEQ_CST);
			}
		}
	}
	return NULL;
}

/* A request is the program's again when its event is there, also while the call that has submitted it goes on. */
static void story_ended(int fd)
{
	io_context_t context = 0;
	struct iocb *list[ROW];
	char *many = calloc(1, LARGE);
	struct io_event event;
	pthread_t thread;
	int round, at;

	MUST(many && io_setup(64, &context) == 0);
	for (round = 0; round < 8; round++) {
		had = taken = 0;
		for (at = 0; at < ROW; at++) {
			list[at] = &row[at];
			prepare(list[at], PWRITE, fd, 0);
			row[at].buf = many;
			row[at].nbytes = at ? LARGE : 4096;
		}
		row[0].flags = 1;
		row[0].resfd = eventfd(0, 0);
		MUST(pthread_create(&thread, NULL, takes_the_first, context) == 0);
		MUST(io_submit(context, ROW, list) == ROW);
		MUST(pthread_join(thread, NULL) == 0);
		MUST(row[0].flags == 0);
		for (; taken < ROW - 1; taken++)
			MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.res == LARGE);
		close((int)row[0].resfd);
	}
	MUST(io_destroy(context) == 0);
}

/* A filter that forbids process_vm_readv(2): what the program passes is there all the same. */
static void story_forbidden(int fd)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };
	struct iovec parts[] = { { bytes, 1000 }, { bytes + 1000, 3096 } };
	static const int operations[] = { PWRITE, PREAD, PWRITEV, PREADV };
	io_context_t context = 0;
	struct iocb iocb;
	struct io_event event;
	int at;

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	MUST(io_setup(8, &context) == 0);
	for (at = 0; at < 4; at++) {
		prepare(&iocb, operations[at], fd, 0);
		if (at >= 2)
			iocb.buf = parts, iocb.nbytes = 2;
		begin(context, &iocb);
		MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.res == 4096);
	}
	MUST(io_destroy(context) == 0);
}

/* A file that is closed when its sync has ended is closed: its lock is free. */
static void story_released(int fd)
{
	struct utsname system;
	unsigned major, minor;
	io_context_t context = 0;
	struct iocb iocb;
	struct io_event event;
	char name[64];
	int round, own, tries;

	/* From Linux 5.18 to 6.3 the kernel takes a second for it (docs/program/drop-ins.md, "Descriptors"). */
	MUST(uname(&system) == 0 && sscanf(system.release, "%u.%u", &major, &minor) == 2);
	if (major * 100 + minor >= 518 && major * 100 + minor < 604)
		return;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	MUST(io_setup(8, &context) == 0);
	for (round = 0; round < 4; round++) {
		MUST((own = open(name, O_RDWR)) >= 0 && flock(own, LOCK_EX) == 0);
		MUST(flock(fd, LOCK_EX | LOCK_NB) < 0);
		prepare(&iocb, FSYNC, own, 0);
		iocb.buf = NULL, iocb.nbytes = 0;
		begin(context, &iocb);
		MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.res == 0);
		close(own);
		/* The kernel may let go a moment after the event. */
		for (tries = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; tries++)
			MUST(tries < 50 && usleep(10000) == 0);
		MUST(flock(fd, LOCK_UN) == 0);
	}
	MUST(io_destroy(context) == 0);
}

/* Without a duplicate an event fd would be signalled before its event is there. On a ring of ours alone. */
static void story_scarce(int fd)
{
	io_context_t context = 0;
	struct iocb iocb, *list[] = { &iocb };
	int bell = eventfd(0, 0), next;
	struct rlimit before, scarce;
	unsigned long long count;
	struct io_event event;

	MUST(bell >= 0 && io_setup(8, &context) == 0);
	MUST((next = dup(fd)) > bell && close(next) == 0);
	MUST(getrlimit(RLIMIT_NOFILE, &before) == 0);
	scarce = before;
	scarce.rlim_cur = next;
	MUST(setrlimit(RLIMIT_NOFILE, &scarce) == 0);
	prepare(&iocb, PWRITE, fd, 0);
	iocb.flags = 1;
	iocb.resfd = bell;
	MUST(io_submit(context, 1, list) == -EAGAIN);
	/* Room for the duplicate, and not for what it is compared with. */
	scarce.rlim_cur = next + 1;
	MUST(setrlimit(RLIMIT_NOFILE, &scarce) == 0);
	MUST(io_submit(context, 1, list) == -EAGAIN);
	MUST(setrlimit(RLIMIT_NOFILE, &before) == 0);
	begin(context, &iocb);
	MUST(read(bell, &count, 8) == 8 && count == 1);
	MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.obj == &iocb && event.res == 4096);
	MUST(io_destroy(context) == 0);
}

int main(int count, char **arguments)
{
	static const struct story stories[] = {
		{ "pipe", story_pipe }, { "socket", story_socket }, { "synced", story_synced }, { "gathering", story_gathering },
		{ "bad", story_bad }, { "soon", story_soon }, { "nothing", story_nothing }, { "addresses", story_addresses },
		{ "brimful", story_brimful }, { "answers", story_answers }, { "moved", story_moved }, { "daemon", story_daemon },
		{ "ended", story_ended }, { "forbidden", story_forbidden }, { "released", story_released },
		{ "scarce", story_scarce },
	};

	return tell(stories, sizeof(stories) / sizeof(stories[0]), count, arguments);
}
