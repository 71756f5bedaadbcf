/*
 * Programs that go where it is narrow: several that wait, little of everything, descriptors that are closed under requests, handlers that
 * wait themselves or do not come back. One story a run, as in programs.c.
 */
#include "programs.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void *suspends(void *argument)
{
	const struct aiocb *list[] = { argument };

	while (aio_suspend(list, 1, NULL) < 0)
		;
	return NULL;
}

static void *reads_often(void *argument)
{
	int fd = *(int *)argument, round;
	char own[4096];

	for (round = 0; round < 2000; round++) {
		struct aiocb one = request(fd, 4096 * (round % 64), 4096, own);

		MUST(aio_read(&one) == 0 && wait_for(&one) == 4096);
	}
	return NULL;
}

static void story_waiters(int fd)
{
	struct aiocb never, signals;
	pthread_t all[8];
	int ends[2], at;

	/* One that sleeps all the time leads most of it. */
	MUST(pipe(ends) == 0);
	never = request(ends[0], 0, 1, bytes);
	MUST(aio_read(&never) == 0);
	for (at = 0; at < 8; at++)
		MUST(pthread_create(&all[at], NULL, at ? reads_often : suspends, at ? (void *)&fd : (void *)&never) == 0);
	handle(SIGUSR2);
	for (at = 0; at < 200; at++) {
		signals = request(fd, 0, 4096, bytes);
		signals.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
		signals.aio_sigevent.sigev_signo = SIGUSR2;
		MUST(aio_read(&signals) == 0 && wait_for(&signals) == 4096);
	}
	for (at = 1; at < 8; at++)
		MUST(pthread_join(all[at], NULL) == 0);
	MUST(write(ends[1], "n", 1) == 1 && pthread_join(all[0], NULL) == 0 && aio_return(&never) == 1);
}

static void *lists(void *argument)
{
	struct aiocb *list[] = { argument };

	MUST(lio_listio(LIO_WAIT, list, 1, NULL) == 0);
	return NULL;
}

/* The helper leads, since somebody is to be told of another request, and has to wake who waits for a list. */
static void story_led(int fd)
{
	struct aiocb told, awaited;
	int kept[2], ends[2];
	pthread_t thread;

	(void)fd;
	MUST(pipe(kept) == 0 && pipe(ends) == 0);
	handle(SIGUSR1);
	told = request(kept[0], 0, 1, bytes);
	told.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
	told.aio_sigevent.sigev_signo = SIGUSR1;
	MUST(aio_read(&told) == 0);
	usleep(20000);
	awaited = request(ends[0], 0, 1, bytes + 1);
	awaited.aio_lio_opcode = LIO_READ;
	MUST(pthread_create(&thread, NULL, lists, &awaited) == 0);
	usleep(20000);
	MUST(write(ends[1], "l", 1) == 1);
	MUST(pthread_join(thread, NULL) == 0 && bytes[1] == 'l' && handled == 0);
	MUST(write(kept[1], "k", 1) == 1 && wait_for(&told) == 1);
}

static void story_little(int fd)
{
	struct rlimit memory = { 65536, 65536 }, descriptors = { 20, 20 };

	MUST(setrlimit(RLIMIT_MEMLOCK, &memory) == 0 && setrlimit(RLIMIT_NOFILE, &descriptors) == 0);
	round_trip(fd);
	while (dup(fd) >= 0)
		;
	round_trip(fd);
}

/* From now on these system calls fail. */
static void forbid(unsigned lowest, unsigned highest, unsigned error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, lowest, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, highest, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static void story_seccomp(int fd)
{
	struct aiocb one, *list[] = { &one };

	/* The three calls of io_uring. */
	forbid(425, 427, EPERM);
	round_trip(fd);
	one = request(fd, 0, 4096, bytes);
	MUST(lio_listio(LIO_WAIT, list, 1, NULL) == 0 && aio_return(&one) == 4096);
	MUST(aio_fsync(O_SYNC, &one) == 0 && wait_for(&one) == 0);
	MUST(aio_cancel(fd, NULL) == AIO_ALLDONE);
}

/* More reads that wait than glibc has threads, unless aio_init has asked for more. */
static void story_init(int fd)
{
	enum { READS = 32 };
	struct aioinit many = { .aio_threads = 2 * READS, .aio_num = 2 * READS };
	static struct aiocb all[READS];
	int ends[READS][2], at;

	forbid(425, 427, EPERM);
	aio_init(&many);
	for (at = 0; at < READS; at++) {
		MUST(pipe(ends[at]) == 0);
		all[at] = request(ends[at][0], 0, 1, bytes + at);
		MUST(aio_read(&all[at]) == 0);
	}
	MUST(write(ends[READS - 1][1], "i", 1) == 1 && wait_for(&all[READS - 1]) == 1);
	round_trip(fd);
}

/* Where statx(2) is forbidden the library knows its files all the same. */
static void story_blind(int fd)
{
	static const unsigned errors[] = { ENOSYS, EPERM };
	struct aiocb one;
	int ends[2], at;

	for (at = 0; at < 2; at++) {
		forbid(SYS_statx, SYS_statx, errors[at]);
		round_trip(fd);
		MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
		one = request(ends[1], 7, 1, bytes);
		MUST(aio_write(&one) == 0 && wait_for(&one) == 1);
		MUST(close(ends[0]) == 0 && close(ends[1]) == 0);
	}
}

/* The ring's descriptor among them. */
static void story_closed(int fd)
{
	struct aiocb one;
	int at;

	round_trip(fd);
	for (at = 3; at < 100; at++)
		if (at != fd)
			close(at);
	one = request(fd, 0, 4096, bytes);
	MUST(aio_read(&one) == 0);
	wait_for(&one);
	round_trip(fd);
}

static void *counts_letters(void *end)
{
	static long seen[2];
	char part[65536], last = 'A';
	long got, at;

	memset(seen, 0, sizeof(seen));
	while ((got = read((int)(long)end, part, sizeof(part))) > 0) {
		for (at = 0; at < got; at++) {
			MUST(part[at] >= last && part[at] <= 'B');
			last = part[at];
			seen[last - 'A']++;
		}
	}
	return seen;
}

/* Two writes that fill it many times over: all of each, one after the other. */
static void write_through(int in, int out)
{
	size_t size = 1 << 20;
	char *letters = malloc(2 * size);
	struct aiocb one, two;
	pthread_t reader;
	void *told;

	MUST(letters != NULL);
	memset(letters, 'A', size);
	memset(letters + size, 'B', size);
	one = request(in, 0, size, letters);
	two = request(in, 0, size, letters + size);
	MUST(aio_write(&one) == 0 && aio_write(&two) == 0);
	MUST(pthread_create(&reader, NULL, counts_letters, (void *)(long)out) == 0);
	MUST(wait_for(&one) == (ssize_t)size && wait_for(&two) == (ssize_t)size);
	close(in);
	MUST(pthread_join(reader, &told) == 0);
	MUST(((long *)told)[0] == (long)size && ((long *)told)[1] == (long)size);
	free(letters);
}

static void story_streams(int fd)
{
	int ends[2];

	(void)fd;
	MUST(pipe(ends) == 0);
	write_through(ends[1], ends[0]);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	write_through(ends[1], ends[0]);
}

static struct { pthread_t self; pid_t number; } sleeper;

/* proc_pid_stat(5) */
static int sleeps(pid_t thread)
{
	char name[64], line[512];
	FILE *told;
	int does;

	snprintf(name, sizeof name, "/proc/self/task/%d/stat", (int)thread);
	MUST((told = fopen(name, "r")) != NULL && fgets(line, sizeof line, told) != NULL);
	does = strstr(line, ") S ") != NULL;
	fclose(told);
	return does;
}

static void *interrupts(void *unused)
{
	int seen = 0;

	(void)unused;
	/* It may sleep for a moment on its way to aio_suspend: for a lock, or for a page. */
	while (seen < 5) {
		usleep(20000);
		seen = sleeps(sleeper.number) ? seen + 1 : 0;
	}
	MUST(pthread_kill(sleeper.self, SIGUSR1) == 0);
	return NULL;
}

/* A signal for this thread, when it sleeps in aio_suspend. */
static void interrupt_later(void)
{
	pthread_t sender;

	sleeper.self = pthread_self();
	sleeper.number = (pid_t)syscall(SYS_gettid);
	MUST(pthread_create(&sender, NULL, interrupts, NULL) == 0 && pthread_detach(sender) == 0);
}

static int first[2], second[2];
static struct aiocb below, above;
static char letter[2];
static sigjmp_buf out;

static void waits_itself(int number)
{
	const struct aiocb *list[] = { &above };
	struct timespec limit = { 20, 0 };

	(void)number;
	MUST(write(second[1], "x", 1) == 1);
	MUST(aio_suspend(list, 1, &limit) == 0 && aio_error(&above) == 0);
	MUST(write(first[1], "x", 1) == 1);
}

/* A handler that has interrupted aio_suspend may call it. */
static void story_nested(int fd)
{
	(void)fd;
	MUST(pipe(first) == 0 && pipe(second) == 0 && signal(SIGUSR1, waits_itself) != SIG_ERR);
	below = request(first[0], 0, 1, letter);
	above = request(second[0], 0, 1, letter + 1);
	MUST(aio_read(&below) == 0 && aio_read(&above) == 0);
	interrupt_later();
	MUST(wait_for(&below) == 1);
}

static void goes_elsewhere(int number)
{
	(void)number;
	siglongjmp(out, 1);
}

/* Out of aio_suspend by way of a handler: this thread goes on, and so do others. */
static void story_jump(int fd)
{
	const struct aiocb *list[] = { &below };
	pthread_t other;

	(void)fd;
	MUST(pipe(first) == 0 && pipe(second) == 0 && signal(SIGUSR1, goes_elsewhere) != SIG_ERR);
	below = request(first[0], 0, 1, letter);
	MUST(aio_read(&below) == 0);
	interrupt_later();
	if (!sigsetjmp(out, 1)) {
		aio_suspend(list, 1, NULL);
		MUST(!"it ended without a result");
	}
	above = request(second[0], 0, 1, letter + 1);
	MUST(aio_read(&above) == 0 && write(second[1], "x", 1) == 1);
	MUST(pthread_create(&other, NULL, suspends, &above) == 0);
	MUST(pthread_join(other, NULL) == 0 && aio_error(&above) == 0);
	MUST(write(first[1], "x", 1) == 1 && wait_for(&below) == 1);
}

/*
 * A write has begun when aio_write returns, whoever moves results, and also to a socket at an offset: closing the descriptor harms it no more,
 * nor a sync. Ours alone: glibc's thread may come later.
 */
static void story_begun(int fd)
{
	struct aiocb never, one;
	pthread_t leader;
	int ends[2], round, own;
	char got;

	MUST(pipe(first) == 0);
	never = request(first[0], 0, 1, letter);
	MUST(aio_read(&never) == 0 && pthread_create(&leader, NULL, suspends, &never) == 0);
	for (round = 0; round < 500; round++) {
		MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
		one = request(ends[1], 7, 1, bytes);
		MUST(aio_write(&one) == 0 && close(ends[1]) == 0);
		MUST(wait_for(&one) == 1 && read(ends[0], &got, 1) == 1 && close(ends[0]) == 0);
		MUST((own = dup(fd)) >= 0);
		one = request(own, 7, 1, bytes);
		MUST(aio_write(&one) == 0 && close(own) == 0 && wait_for(&one) == 1);
		if (round % 10) /* a device may take long to flush */
			continue;
		MUST((own = dup(fd)) >= 0);
		one = request(own, 0, 0, NULL);
		MUST(aio_fsync(O_DSYNC, &one) == 0 && close(own) == 0 && wait_for(&one) == 0);
	}
	MUST(write(first[1], "n", 1) == 1 && pthread_join(leader, NULL) == 0 && aio_return(&never) == 1);
}

static int another;

static void *writes_and_goes(void *one)
{
	MUST(aio_write(one) == 0);
	MUST(dup2(another, first[1]) == first[1]);
	return NULL;
}

/* A write that outlives its thread never goes into the file that has its number by then. Ours alone: glibc's thread lives on. */
static void story_remade(int fd)
{
	char block[4096] = { 0 }, precious[] = "precious data...", seen[sizeof(precious)];
	pthread_t thread;

	MUST(pipe(first) == 0 && fcntl(first[1], F_SETFL, O_NONBLOCK) == 0);
	while (write(first[1], block, sizeof(block)) > 0)
		;
	MUST(fcntl(first[1], F_SETFL, 0) == 0);
	MUST(pwrite(fd, precious, sizeof(precious), 0) == sizeof(precious));
	another = fd;
	above = request(first[1], 0, sizeof(precious), block);
	MUST(pthread_create(&thread, NULL, writes_and_goes, &above) == 0 && pthread_join(thread, NULL) == 0);
	/* There is room now, and no thread that could write. */
	MUST(read(first[0], block, sizeof(block)) > 0);
	MUST(wait_for(&above) == -ECANCELED);
	MUST(pread(fd, seen, sizeof(seen), 0) == sizeof(seen) && memcmp(seen, precious, sizeof(seen)) == 0);
}

/* What the kernel still reads is under way, also when the ring's descriptor is gone. Ours alone. */
static void story_lent(int fd)
{
	int at;

	MUST(pipe(first) == 0);
	below = request(first[0], 0, 1, letter);
	MUST(aio_read(&below) == 0);
	for (at = 3; at < 100; at++)
		if (at != fd && at != first[0] && at != first[1])
			close(at);
	/* The first finds it gone; those after it have another. */
	above = request(fd, 0, 4096, bytes);
	MUST(aio_read(&above) == 0);
	wait_for(&above);
	round_trip(fd);
	MUST(aio_error(&below) == EINPROGRESS);
	MUST(write(first[1], "x", 1) == 1 && wait_for(&below) == 1 && letter[0] == 'x');
}

/* Of a pipe that nobody reads exit(3) waits for no write, also when its descriptor is closed. */
static void story_unread(int fd)
{
	static struct aiocb never;
	time_t began = time(NULL);
	int ends[2], status;
	pid_t child = fork();

	(void)fd;
	if (!child) {
		MUST(pipe(ends) == 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
		while (write(ends[1], bytes, sizeof(bytes)) > 0)
			;
		MUST(fcntl(ends[1], F_SETFL, 0) == 0);
		never = request(ends[1], 0, 1, bytes);
		MUST(aio_write(&never) == 0);
		usleep(20000); /* glibc's thread has to have begun */
		MUST(close(ends[1]) == 0);
		exit(0);
	}
	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	MUST(time(NULL) - began < 15);
}

int main(int count, char **arguments)
{
	static const struct story stories[] = {
		{ "waiters", story_waiters }, { "led", story_led }, { "little", story_little },
		{ "seccomp", story_seccomp }, { "closed", story_closed }, { "streams", story_streams },
		{ "nested", story_nested }, { "jump", story_jump }, { "remade", story_remade },
		{ "lent", story_lent }, { "blind", story_blind }, { "begun", story_begun },
		{ "unread", story_unread }, { "init", story_init }, { NULL, NULL },
	};

	return tell(stories, count, arguments);
}
