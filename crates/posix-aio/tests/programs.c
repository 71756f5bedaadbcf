/*
 * What programs do with POSIX AIO. One story a run, named by the first argument, on the file named by the second. It ends with 0 when all
 * is as POSIX says and glibc does.
 */
#include "programs.h"

#ifdef OLD
/* As a program has it that was linked before glibc 2.34. */
__asm__(".symver aio_read,aio_read@GLIBC_2.2.5");
__asm__(".symver aio_write,aio_write@GLIBC_2.2.5");
__asm__(".symver aio_error,aio_error@GLIBC_2.2.5");
__asm__(".symver aio_return,aio_return@GLIBC_2.2.5");
__asm__(".symver aio_suspend,aio_suspend@GLIBC_2.2.5");
#endif

static void story_signal(int fd)
{
	struct aiocb one;
	siginfo_t info;
	sigset_t set;
	int at;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	MUST(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	for (at = 0; at < 100; at++) {
		one = request(fd, 0, 4096, bytes);
		one.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
		one.aio_sigevent.sigev_signo = SIGRTMIN;
		one.aio_sigevent.sigev_value.sival_int = at;
		MUST((at & 1 ? aio_write(&one) : aio_read(&one)) == 0);
		while (sigwaitinfo(&set, &info) < 0)
			MUST(errno == EINTR);
		MUST(info.si_code == SI_ASYNCIO && info.si_value.sival_int == at && info.si_pid == getpid());
		MUST(aio_error(&one) == 0 && aio_return(&one) == 4096);
	}
}

static void story_handler(int fd)
{
	struct aiocb one;
	int at;

	handle(SIGUSR1);
	for (at = 1; at <= 200; at++) {
		one = request(fd, 0, 4096, bytes);
		one.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
		one.aio_sigevent.sigev_signo = SIGUSR1;
		one.aio_sigevent.sigev_value.sival_int = at;
		asked = &one;
		MUST(aio_read(&one) == 0);
		while (handled < at)
			(void)aio_error(&one);
		MUST(handled_code == SI_ASYNCIO && handled_value == at && handled_status == 0);
	}
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int called, called_value;
static size_t called_stack;
static sigset_t called_mask;

static void function(union sigval value)
{
	pthread_attr_t own;

	pthread_mutex_lock(&lock);
	MUST(pthread_getattr_np(pthread_self(), &own) == 0);
	MUST(pthread_attr_getstacksize(&own, &called_stack) == 0);
	pthread_attr_destroy(&own);
	pthread_sigmask(SIG_BLOCK, NULL, &called_mask);
	called_value = value.sival_int;
	called++;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
}

static void await_calls(int count)
{
	pthread_mutex_lock(&lock);
	while (called < count)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void story_thread(int fd)
{
	pthread_attr_t attributes;
	struct aiocb one;
	int at;

	MUST(pthread_attr_init(&attributes) == 0);
	MUST(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
	MUST(pthread_attr_setstacksize(&attributes, 16 << 20) == 0);
	for (at = 1; at <= 50; at++) {
		one = request(fd, 0, 4096, bytes);
		one.aio_sigevent.sigev_notify = SIGEV_THREAD;
		one.aio_sigevent.sigev_notify_function = function;
		one.aio_sigevent.sigev_notify_attributes = at & 1 ? &attributes : NULL;
		one.aio_sigevent.sigev_value.sival_int = at;
		MUST(aio_read(&one) == 0);
		await_calls(at);
		MUST(aio_error(&one) == 0 && aio_return(&one) == 4096);
		MUST(called_value == at && !sigismember(&called_mask, SIGUSR1));
		if (at & 1)
			MUST(called_stack >= 16 << 20); /* more than others have, which may be used again */
	}
}

static void story_suspend(int fd)
{
	struct timespec limit = { 0, 20000000 };
	struct aiocb one, two;
	const struct aiocb *list[] = { NULL, &one, NULL };
	const struct aiocb *none[] = { NULL, NULL };
	struct sigaction action;
	int ends[2];

	round_trip(fd);
	MUST(pipe(ends) == 0);
	one = request(ends[0], 0, 1, bytes);
	MUST(aio_read(&one) == 0 && aio_error(&one) == EINPROGRESS);
	MUST(aio_suspend(list, 3, &limit) == -1 && errno == EAGAIN);
	limit.tv_nsec = 0;
	MUST(aio_suspend(list, 3, &limit) == -1 && errno == EAGAIN);
	MUST(aio_suspend(list, -1, NULL) == -1 && errno == EINVAL);
	MUST(aio_suspend(none, 2, NULL) == 0);
	memset(&action, 0, sizeof(action));
	action.sa_sigaction = handler;
	action.sa_flags = SA_SIGINFO;
	MUST(sigaction(SIGALRM, &action, NULL) == 0);
	ualarm(20000, 0);
	MUST(aio_suspend(list, 3, NULL) == -1 && errno == EINTR);
	alarm(60);
	two = request(ends[1], 0, 1, "x");
	MUST(aio_write(&two) == 0);
	MUST(aio_suspend(list, 3, NULL) == 0 && wait_for(&one) == 1 && bytes[0] == 'x');
	MUST(aio_suspend(list, 3, NULL) == 0 && wait_for(&two) == 1);
}

static void story_cancel(int fd)
{
	struct aiocb one, two, three;
	int ends[2], other = dup(fd);

	MUST(pipe(ends) == 0);
	one = request(ends[0], 0, 1, bytes);
	two = request(ends[0], 0, 1, bytes + 1);
	three = request(ends[0], 0, 1, bytes + 2);
	handle(SIGUSR1);
	three.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
	three.aio_sigevent.sigev_signo = SIGUSR1;
	MUST(aio_read(&one) == 0 && aio_read(&two) == 0 && aio_read(&three) == 0);
	usleep(20000); /* glibc's thread has to have begun */
	MUST(aio_cancel(ends[0], &one) == AIO_NOTCANCELED);
	MUST(aio_cancel(ends[0], &two) == AIO_CANCELED);
	MUST(aio_error(&two) == ECANCELED && aio_return(&two) == -1 && handled == 0);
	MUST(aio_cancel(ends[0], NULL) == AIO_NOTCANCELED);
	MUST(aio_error(&three) == ECANCELED && aio_return(&three) == -1);
	while (!handled)
		usleep(100);
	MUST(write(ends[1], "abc", 3) == 3 && wait_for(&one) == 1 && bytes[0] == 'a');
	MUST(aio_cancel(ends[0], &one) == AIO_ALLDONE && aio_cancel(ends[0], NULL) == AIO_ALLDONE);
	MUST(aio_cancel(ends[1], &one) == -1 && errno == EINVAL);
	MUST(close(other) == 0 && aio_cancel(other, NULL) == -1 && errno == EBADF);
}

static void story_list(int fd)
{
	struct aiocb all[8];
	struct aiocb *list[9];
	struct sigevent event;
	int at;

	for (at = 0; at < 8; at++) {
		all[at] = request(fd, at * 4096, 4096, bytes + at * 4096);
		all[at].aio_lio_opcode = at & 1 ? LIO_WRITE : LIO_READ;
		list[at] = &all[at];
	}
	list[8] = NULL;
	all[7].aio_lio_opcode = LIO_NOP;
	all[7].aio_fildes = -1;
	MUST(lio_listio(LIO_WAIT, list, 9, NULL) == 0);
	for (at = 0; at < 7; at++)
		MUST(aio_error(&all[at]) == 0 && aio_return(&all[at]) == 4096);
	all[3].aio_fildes = -1;
	MUST(lio_listio(LIO_WAIT, list, 9, NULL) == -1 && errno == EIO && aio_error(&all[3]) == EBADF);
	all[3].aio_fildes = fd;
	memset(&event, 0, sizeof(event));
	event.sigev_notify = SIGEV_THREAD;
	event.sigev_notify_function = function;
	event.sigev_value.sival_int = 9;
	MUST(lio_listio(LIO_NOWAIT, list, 9, &event) == 0);
	await_calls(1);
	MUST(called_value == 9);
	for (at = 0; at < 7; at++)
		MUST(aio_error(&all[at]) == 0 && aio_return(&all[at]) == 4096);
	/* Nothing to do is told as well. */
	MUST(lio_listio(LIO_NOWAIT, list, 0, &event) == 0);
	await_calls(2);
	all[2].aio_reqprio = 99;
	MUST(lio_listio(LIO_NOWAIT, list, 9, &event) == -1 && errno == EINVAL);
	await_calls(3);
	MUST(lio_listio(7, list, 9, NULL) == -1 && errno == EINVAL);
}

/* A write that is held, by one that a full pipe holds, and a sync after it: neither may end before. */
static void story_sync(int fd)
{
	struct aiocb writes[64], sync;
	int round, at;

	for (round = 0; round < 20; round++) {
		for (at = 0; at < 64; at++) {
			writes[at] = request(fd, at * 4096, 4096, bytes + at * 4096);
			MUST(aio_write(&writes[at]) == 0);
		}
		sync = request(fd, 0, 0, NULL);
		MUST(aio_fsync(round & 1 ? O_SYNC : O_DSYNC, &sync) == 0);
		while (aio_error(&sync) == EINPROGRESS)
			;
		for (at = 0; at < 64; at++)
			MUST(aio_error(&writes[at]) == 0 && aio_return(&writes[at]) == 4096);
		MUST(aio_error(&sync) == 0 && aio_return(&sync) == 0);
	}
	MUST(aio_fsync(7, &sync) == -1 && errno == EINVAL);
	sync = request(-1, 0, 0, NULL);
	MUST(aio_fsync(O_SYNC, &sync) == -1 && errno == EBADF);
}

static void story_append(int fd)
{
	static struct aiocb all[1000];
	static int numbers[1000];
	int at;

	MUST(ftruncate(fd, 0) == 0 && fcntl(fd, F_SETFL, O_APPEND) == 0);
	for (at = 0; at < 1000; at++) {
		numbers[at] = at;
		all[at] = request(fd, 0, sizeof(int), &numbers[at]);
		MUST(aio_write(&all[at]) == 0);
	}
	for (at = 0; at < 1000; at++)
		MUST(wait_for(&all[at]) == sizeof(int));
	for (at = 0; at < 1000; at++) {
		int found;

		MUST(pread(fd, &found, sizeof(found), at * sizeof(int)) == sizeof(found) && found == at);
	}
}

/* Reads of a socket that have to wait get what comes in the order of the calls; so do writes to a pipe that is full. */
enum { RWF_WITHOUT_SIGNAL = 0x100 };

static void story_stream(int fd)
{
	struct iovec byte = { .iov_base = "b", .iov_len = 1 };
	struct aiocb reads[50];
	int ends[2], at;

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	for (at = 0; at < 50; at++) {
		reads[at] = request(ends[0], 5, 1, bytes + at);
		MUST(aio_read(&reads[at]) == 0);
	}
	for (at = 0; at < 50; at++) {
		char byte = at;

		MUST(write(ends[1], &byte, 1) == 1);
	}
	for (at = 0; at < 50; at++)
		MUST(wait_for(&reads[at]) == 1 && bytes[at] == at);
	MUST(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 4096) > 0);
	for (at = 0; at < 50; at++) {
		memset(bytes + at * 4096, at, 4096);
		reads[at] = request(ends[1], 0, 4096, bytes + at * 4096);
		MUST(aio_write(&reads[at]) == 0);
	}
	for (at = 0; at < 50 * 4096;) {
		char part[4096];
		ssize_t got = read(ends[0], part, sizeof(part)), each;

		for (each = 0; each < got; each++, at++)
			MUST(part[each] == at / 4096);
	}
	/* Whoever is told EPIPE gets no signal: one would end us. Before Linux 6.18 there is no such write (docs/program/drop-ins.md). */
	if (pwritev2(fd, &byte, 1, 0, RWF_WITHOUT_SIGNAL) < 0)
		signal(SIGPIPE, SIG_IGN);
	wait_for(&reads[49]);
	MUST(close(ends[0]) == 0);
	reads[0] = request(ends[1], 0, 1, bytes);
	MUST(aio_write(&reads[0]) == 0 && wait_for(&reads[0]) == -EPIPE);
}

static int well(pid_t child)
{
	int status;

	MUST(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void story_fork(int fd)
{
	struct aiocb one;
	pid_t child;
	int round;

	round_trip(fd);
	for (round = 0; round < 20; round++) {
		one = request(fd, 4096, 4096, bytes);
		MUST(aio_write(&one) == 0);
		child = fork();
		if (!child) {
			alarm(60);
			/* glibc's would wait for threads that only its parent has. */
			if (getenv("LD_PRELOAD")) {
				MUST(aio_suspend((const struct aiocb *[]){ &one }, 1, NULL) == 0);
				round_trip(fd);
			}
			exit(0);
		}
		MUST(well(child) && wait_for(&one) == 4096);
	}
}

static void story_exec(int fd)
{
	struct aiocb one;
	pid_t child = fork();
	int ends[2];

	if (!child) {
		round_trip(fd);
		MUST(pipe(ends) == 0);
		one = request(ends[0], 0, 1, bytes);
		MUST(aio_read(&one) == 0);
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	MUST(well(child));
	round_trip(fd);
}

static void story_exit(int fd)
{
	static struct aiocb all[64];
	static int ends[2];
	static struct aiocb never;
	char *big = malloc(64 << 20);
	pid_t child;
	int at;

	memset(big, 'e', 64 << 20);
	MUST(ftruncate(fd, 0) == 0);
	child = fork();
	if (!child) {
		for (at = 0; at < 64; at++) {
			all[at] = request(fd, (long)at << 20, 1 << 20, big + ((long)at << 20));
			MUST(aio_write(&all[at]) == 0);
		}
		MUST(pipe(ends) == 0);
		never = request(ends[0], 0, 1, bytes);
		MUST(aio_read(&never) == 0);
		exit(0);
	}
	MUST(well(child));
}

static void story_close(int fd)
{
	struct aiocb all[64];
	int at, own;

	for (at = 0; at < 64; at++) {
		own = dup(fd);
		memset(bytes + at * 4096, 'c', 4096);
		all[at] = request(own, at * 4096, 4096, bytes + at * 4096);
		MUST(aio_write(&all[at]) == 0);
		if (aio_error(&all[at]) != EINPROGRESS || getenv("LD_PRELOAD"))
			MUST(close(own) == 0);
	}
	for (at = 0; at < 64; at++)
		MUST(wait_for(&all[at]) == 4096);
}

static void *submits(void *argument)
{
	MUST(aio_read(argument) == 0);
	return NULL;
}

static void story_ended(int fd)
{
	struct aiocb one;
	pthread_t thread;
	int ends[2], round;

	(void)fd;
	MUST(pipe(ends) == 0);
	for (round = 0; round < 20; round++) {
		one = request(ends[0], 0, 1, bytes);
		MUST(pthread_create(&thread, NULL, submits, &one) == 0 && pthread_join(thread, NULL) == 0);
		MUST(aio_error(&one) == EINPROGRESS);
		MUST(write(ends[1], "y", 1) == 1 && wait_for(&one) == 1 && bytes[0] == 'y');
	}
}

static void story_poll(int fd)
{
	struct aiocb all[32];
	int round, at;

	for (round = 0; round < 50; round++) {
		for (at = 0; at < 32; at++) {
			all[at] = request(fd, at * 4096, 4096, bytes + at * 4096);
			MUST((round & 1 ? aio_read(&all[at]) : aio_write(&all[at])) == 0);
		}
		for (at = 0; at < 32; at++) {
			while (aio_error(&all[at]) == EINPROGRESS)
				;
			MUST(aio_return(&all[at]) == 4096);
		}
	}
}

static void *suspends(void *argument)
{
	const struct aiocb *list[] = { argument };

	while (aio_suspend(list, 1, NULL) < 0)
		;
	return NULL;
}

static void story_cancelled(int fd)
{
	struct aiocb one;
	pthread_t thread;
	int ends[2];
	void *result;

	MUST(pipe(ends) == 0);
	one = request(ends[0], 0, 1, bytes);
	MUST(aio_read(&one) == 0);
	MUST(pthread_create(&thread, NULL, suspends, &one) == 0);
	usleep(10000);
	MUST(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
	MUST(write(ends[1], "z", 1) == 1 && wait_for(&one) == 1);
	round_trip(fd);
}

/* Requests that all have to wait, more than are handed to the kernel at once, and one that must not wait for them. */
static void story_many(int fd)
{
	static struct aiocb all[3000];
	int at;

	for (at = 0; at < 3000; at++) {
		all[at] = request(fd, 4096 * (at % 64), 4096, bytes + 4096 * (at % 64));
		MUST(aio_write(&all[at]) == 0);
	}
	for (at = 2999; at >= 0; at--)
		MUST(wait_for(&all[at]) == 4096);
}

static void read_much(int fd, int closes)
{
	enum { LARGE = 64 << 20, ROUNDS = 20 };
	char *many = malloc(LARGE);
	const struct aiocb *list[1];
	int round, later = 0;

	MUST(many);
	memset(many, 'l', LARGE);
	MUST(pwrite(fd, many, LARGE, 0) == LARGE);
	for (round = 0; round < ROUNDS; round++) {
		int other = dup(fd);
		struct aiocb one = request(other, 0, LARGE, many);

		memset(many, 0, LARGE);
		MUST(aio_read(&one) == 0);
		later += aio_error(&one) == EINPROGRESS;
		if (closes)
			MUST(close(other) == 0);
		list[0] = &one;
		while (aio_error(&one) == EINPROGRESS)
			aio_suspend(list, 1, NULL);
		MUST(aio_error(&one) == 0 && aio_return(&one) == LARGE && many[0] == 'l' && many[LARGE - 1] == 'l');
		if (!closes)
			MUST(close(other) == 0);
	}
	/* Each, unless a busy machine has let the thread wait. */
	MUST(later > 0);
	MUST(ftruncate(fd, 4096) == 0);
	free(many);
}

/* A long read of what is in the cache does not hold up who asks for it. */
static void story_long(int fd)
{
	read_much(fd, 0);
}

/* It has begun, and outlives its descriptor. */
static void story_outlives(int fd)
{
	read_much(fd, 1);
}

enum { LONGS = 32, LONG = 4 << 20 };

static struct aiocb longs[LONGS];

static void *submits_longs(void *argument)
{
	int at;

	(void)argument;
	for (at = 0; at < LONGS; at++)
		MUST(aio_read(&longs[at]) == 0);
	MUST(close(longs[0].aio_fildes) == 0);
	return NULL;
}

/* They outlive their thread too, with their descriptor closed: what had not begun is begun again. */
static void story_leaves(int fd)
{
	char *many = malloc(LONG);
	pthread_t thread;
	int round, at, other;

	MUST(many);
	memset(many, 'l', LONG);
	MUST(pwrite(fd, many, LONG, 0) == LONG);
	for (round = 0; round < 10; round++) {
		other = dup(fd);
		for (at = 0; at < LONGS; at++)
			longs[at] = request(other, 0, LONG, many);
		MUST(pthread_create(&thread, NULL, submits_longs, NULL) == 0 && pthread_join(thread, NULL) == 0);
		for (at = 0; at < LONGS; at++)
			MUST(wait_for(&longs[at]) == LONG);
	}
	MUST(ftruncate(fd, 4096) == 0);
	free(many);
}

/*
 * The library's thread runs before the signal is blocked: somebody is to be told of the first request. If the signal reached it, the
 * process would end, as it does by default.
 */
static void story_signalfd(int fd)
{
	struct signalfd_siginfo info;
	struct aiocb one;
	sigset_t set;
	int signals;

	MUST(signal(SIGUSR2, SIG_IGN) != SIG_ERR);
	one = request(fd, 0, 4096, bytes);
	one.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
	one.aio_sigevent.sigev_signo = SIGUSR2;
	MUST(aio_write(&one) == 0 && wait_for(&one) == 4096);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	MUST(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	MUST((signals = signalfd(-1, &set, SFD_CLOEXEC)) >= 0);
	for (int at = 0; at < 64; at++) {
		one = request(fd, at * 4096L, 4096, bytes);
		MUST(aio_write(&one) == 0);
		MUST(kill(getpid(), SIGUSR1) == 0);
		MUST(read(signals, &info, sizeof(info)) == sizeof(info) && info.ssi_signo == SIGUSR1);
		MUST(wait_for(&one) == 4096);
	}
}

int main(int count, char **arguments)
{
	static const struct story stories[] = {
		{ "signal", story_signal }, { "handler", story_handler }, { "thread", story_thread },
		{ "suspend", story_suspend }, { "cancel", story_cancel }, { "list", story_list }, { "sync", story_sync },
		{ "append", story_append }, { "stream", story_stream }, { "fork", story_fork }, { "exec", story_exec },
		{ "exit", story_exit }, { "close", story_close }, { "ended", story_ended }, { "poll", story_poll }, { "leaves", story_leaves },
		{ "cancelled", story_cancelled }, { "many", story_many }, { "long", story_long },
		{ "outlives", story_outlives }, { "signalfd", story_signalfd }, { NULL, NULL },
	};

	return tell(stories, count, arguments);
}
