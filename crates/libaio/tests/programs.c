/*
 * What programs do that a test inside one process cannot show: fork, exec, exit, closing descriptors, running without io_uring. One story
 * a run, named by the first argument, on the file named by the second. It ends with 0 when all is as libaio has it.
 */
#include "programs.h"

/* Writes a block and reads it back. */
static void round_trip(io_context_t context, int fd)
{
	struct iocb iocb, *list[] = { &iocb };
	struct io_event event;

	memset(bytes, 'a', 4096);
	prepare(&iocb, 1, fd, 0);
	MUST(io_submit(context, 1, list) == 1);
	MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.res == 4096 && event.obj == &iocb);
	memset(bytes, 0, 4096);
	prepare(&iocb, 0, fd, 0);
	MUST(io_submit(context, 1, list) == 1);
	MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.res == 4096);
	MUST(bytes[0] == 'a' && bytes[4095] == 'a');
}

static int well(pid_t child)
{
	int status;

	MUST(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* A child has no contexts, touches none of its parent's, and can make its own. */
static void story_fork(int fd)
{
	io_context_t context = 0;
	struct iocb iocb, *list[] = { &iocb };
	struct io_event event;
	pid_t child;
	int round;

	MUST(io_setup(8, &context) == 0);
	round_trip(context, fd);
	for (round = 0; round < 20; round++) {
		prepare(&iocb, 1, fd, 1);
		MUST(io_submit(context, 1, list) == 1);
		child = fork();
		if (!child) {
			io_context_t own = 0;

			MUST(io_submit(context, 1, list) == -EINVAL);
			MUST(io_getevents(context, 1, 1, &event, NULL) == -EINVAL);
			MUST(io_destroy(context) == -EINVAL);
			MUST(io_setup(8, &own) == 0);
			round_trip(own, fd);
			MUST(io_destroy(own) == 0);
			exit(0);
		}
		MUST(well(child));
		MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.res == 4096);
		round_trip(context, fd);
	}
	MUST(io_destroy(context) == 0);
}

/* What was submitted before exit(3) is in the file. The test looks. */
static void story_exit(int fd)
{
	io_context_t context = 0;
	static char large[1 << 20];
	struct iocb iocbs[64], *list[64];
	int at;

	MUST(io_setup(64, &context) == 0);
	memset(large, 'e', sizeof(large));
	for (at = 0; at < 64; at++) {
		prepare(&iocbs[at], 1, fd, at);
		iocbs[at].buf = large;
		iocbs[at].nbytes = sizeof(large);
		iocbs[at].offset = at * (long long)sizeof(large);
		list[at] = &iocbs[at];
	}
	MUST(io_submit(context, 64, list) == 64);
	exit(0);
}

/* A program may exec with requests in flight; nothing of the library is in the next one. */
static void story_exec(int fd)
{
	io_context_t context = 0;
	struct iocb iocb, *list[] = { &iocb };

	MUST(io_setup(8, &context) == 0);
	round_trip(context, fd);
	prepare(&iocb, 2, fd, 0);
	iocb.buf = NULL;
	iocb.nbytes = 0;
	MUST(io_submit(context, 1, list) == 1);
	execl("/bin/sh", "sh", "-c", "for fd in /proc/self/fd/*; do case $(readlink $fd) in *io_uring*) exit 1;; esac; done", NULL);
	MUST(!"exec");
}

/* A descriptor is closed while a request is in flight, and its number is another file's by then. */
static void story_close(int fd)
{
	io_context_t context = 0;
	struct iocb iocbs[64], *list[64];
	struct io_event events[64];
	char name[] = "/tmp/baio-close.XXXXXX";
	int other = mkstemp(name), own = dup(fd), at;

	MUST(other >= 0 && own >= 0 && unlink(name) == 0);
	MUST(io_setup(64, &context) == 0);
	memset(bytes, 'c', sizeof(bytes));
	for (at = 0; at < 64; at++) {
		prepare(&iocbs[at], 1, own, at);
		list[at] = &iocbs[at];
	}
	MUST(io_submit(context, 64, list) == 64);
	MUST(dup2(other, own) == own);
	MUST(io_getevents(context, 64, 64, events, NULL) == 64);
	for (at = 0; at < 64; at++)
		MUST(events[at].res == 4096);
	MUST(lseek(own, 0, SEEK_END) == 0);
	MUST(io_destroy(context) == 0);
}

/* Twenty descriptors, 64 KiB of lockable memory. */
static void story_little(int fd)
{
	struct rlimit files = { 20, 20 }, memory = { 64 << 10, 64 << 10 };
	io_context_t contexts[30] = { 0 };
	int at;

	MUST(setrlimit(RLIMIT_NOFILE, &files) == 0 && setrlimit(RLIMIT_MEMLOCK, &memory) == 0);
	for (at = 0; at < 30; at++) {
		MUST(io_setup(16, &contexts[at]) == 0);
		round_trip(contexts[at], fd);
	}
	for (at = 0; at < 30; at++)
		MUST(io_destroy(contexts[at]) == 0);
}

/* A filter that knows no io_uring: the kernel's own calls carry the context. */
static void story_seccomp(int fd)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 425, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 427, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };
	io_context_t context = 0;
	sigset_t none;
	struct io_event event;
	struct timespec now = { 0, 0 };

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	MUST(io_setup(8, &context) == 0);
	round_trip(context, fd);
	sigemptyset(&none);
	MUST(io_pgetevents(context, 0, 1, &event, &now, &none) == 0);
	MUST(io_destroy(context) == 0);
}

static volatile sig_atomic_t handled;

static void handler(int signal)
{
	(void)signal;
	handled = 1;
}

/* A handled signal ends a wait; the mask of io_pgetevents says which, atomically; the library's thread takes none. */
static void story_signals(int fd)
{
	struct sigaction action = { .sa_handler = handler };
	io_context_t context = 0;
	struct io_event event;
	struct timespec some = { 0, 20000000 };
	sigset_t usr, none;
	timer_t timer;
	struct sigevent by_signal = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec soon = { { 0, 20000000 }, { 0, 20000000 } };

	sigemptyset(&none);
	sigemptyset(&usr);
	sigaddset(&usr, SIGUSR1);
	MUST(sigaction(SIGUSR1, &action, NULL) == 0);
	MUST(io_setup(8, &context) == 0);
	round_trip(context, fd);

	/* Blocked here, open there: it ends the one wait and not the other. */
	MUST(pthread_sigmask(SIG_BLOCK, &usr, NULL) == 0);
	MUST(raise(SIGUSR1) == 0);
	MUST(io_getevents(context, 1, 1, &event, &some) == 0 && !handled);
	errno = 4711;
	MUST(io_pgetevents(context, 1, 1, &event, NULL, &none) == -EINTR && handled);
	MUST(errno == 4711);
	MUST(pthread_sigmask(SIG_UNBLOCK, &usr, NULL) == 0);

	/* To the process: the only thread that may take it is the one that waits. */
	handled = 0;
	MUST(timer_create(CLOCK_MONOTONIC, &by_signal, &timer) == 0 && timer_settime(timer, 0, &soon, NULL) == 0);
	MUST(io_getevents(context, 1, 1, &event, NULL) == -EINTR && handled);
	MUST(timer_delete(timer) == 0);
	MUST(io_destroy(context) == 0);
}

/* An event fd in an outside loop, as QEMU has it: read, then take from the live ring without a call. */
static void story_loop(int fd)
{
	struct { unsigned id, nr, head, tail, magic, compat, incompat, length; struct io_event events[]; } *ring;
	io_context_t context = 0;
	struct iocb iocb, *list[] = { &iocb };
	int bell = eventfd(0, 0), round;
	unsigned long long count;

	MUST(bell >= 0 && io_setup(8, &context) == 0);
	ring = context;
	for (round = 0; round < 1000; round++) {
		prepare(&iocb, round % 2, fd, round % 64);
		iocb.flags = 1;
		iocb.resfd = bell;
		iocb.data = (void *)(long)round;
		MUST(io_submit(context, 1, list) == 1);
		MUST(read(bell, &count, 8) == 8 && count == 1);
		MUST(__atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) == (ring->head + 1) % ring->nr);
		MUST(ring->events[ring->head].data == iocb.data && ring->events[ring->head].obj == &iocb);
		__atomic_store_n(&ring->head, (ring->head + 1) % ring->nr, __ATOMIC_RELEASE);
	}
	MUST(io_destroy(context) == 0);
}

/* A program that closes what it has not opened loses nothing. */
static void story_closed(int fd)
{
	io_context_t context = 0, other = 0;
	int at;

	MUST(io_setup(8, &context) == 0);
	round_trip(context, fd);
	for (at = 3; at < 64; at++)
		if (at != fd)
			close(at);
	round_trip(context, fd);
	/* Its number may be another ring's now. */
	MUST(io_setup(8, &other) == 0);
	round_trip(context, fd);
	round_trip(other, fd);
	MUST(io_destroy(context) == 0);
	round_trip(other, fd);
	MUST(io_destroy(other) == 0);
}

static void *waits(void *context)
{
	struct io_event event;

	for (;;) {
		io_getevents(context, 1, 1, &event, NULL);
		pthread_testcancel();
	}
	return NULL;
}

/* A thread that waits is cancelled; the context goes on. */
static void story_cancel(int fd)
{
	io_context_t context = 0;
	struct iocb iocb, *list[] = { &iocb };
	pthread_t thread;
	void *told;

	MUST(io_setup(8, &context) == 0);
	MUST(pthread_create(&thread, NULL, waits, context) == 0);
	MUST(pthread_cancel(thread) == 0);
	prepare(&iocb, 1, fd, 0);
	MUST(io_submit(context, 1, list) == 1);
	MUST(pthread_join(thread, &told) == 0 && told == PTHREAD_CANCELED);
	round_trip(context, fd);
	MUST(io_destroy(context) == 0);
}

static void *waits_by_itself(void *context)
{
	struct io_event event;

	errno = 0;
	MUST(syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL) == -1);
	return (void *)(long)errno;
}

/* The library makes a context; the program goes on by system calls, as MariaDB does. Other calls are as they were. */
static void story_calls(int fd)
{
	io_context_t context = NULL;
	struct iocb iocb, *list[1] = { &iocb };
	struct io_event events[2];
	struct timespec none = { 0, 0 };
	sigset_t set;
	struct { sigset_t *mask; size_t bytes; } mask = { &set, 8 };
	pthread_t thread;
	void *told;
	char *place;

	MUST(io_setup(4, &context) == 0);
	for (int at = 0; at < 4; at++) {
		prepare(&iocb, 1, fd, at);
		MUST(syscall(SYS_io_submit, context, 1L, list) == 1);
		sigemptyset(&set);
		if (at % 2)
			MUST(syscall(SYS_io_getevents, context, 1L, 2L, events, NULL) == 1);
		else
			MUST(syscall(SYS_io_pgetevents, context, 1L, 2L, events, NULL, &mask) == 1);
		MUST(events[0].obj == &iocb && events[0].res == 4096);
	}
	MUST(syscall(SYS_io_getevents, context, 0L, 1L, events, &none) == 0);
	errno = 0;
	mask.bytes = 16;
	MUST(syscall(SYS_io_pgetevents, context, 0L, 1L, events, &none, &mask) == -1 && errno == EINVAL);
	errno = 0;
	MUST(syscall(SYS_io_cancel, context, &iocb, events) == -1 && errno == EINVAL);
	errno = 0;
	iocb.fd = -1;
	MUST(syscall(SYS_io_submit, context, 1L, list) == -1 && errno == EBADF);
	errno = 0;
	MUST(syscall(SYS_io_getevents, 4096L, 0L, 1L, events, &none) == -1 && errno == EINVAL);
	/* One of the program's own is none of the library's business. */
	io_context_t own = NULL;
	MUST(syscall(SYS_io_setup, 4L, &own) == 0);
	prepare(&iocb, 1, fd, 4);
	MUST(syscall(SYS_io_submit, own, 1L, list) == 1);
	MUST(syscall(SYS_io_getevents, own, 1L, 1L, events, NULL) == 1 && events[0].res == 4096);
	MUST(io_submit(own, 1, list) == 1 && io_getevents(own, 1, 1, events, NULL) == 1);
	MUST(syscall(SYS_io_destroy, own) == 0);
	errno = 0;
	MUST(syscall(SYS_io_destroy, own) == -1 && errno == EINVAL);

	errno = 0;
	MUST(syscall(SYS_close, -1L) == -1 && errno == EBADF);
	MUST(syscall(SYS_getpid) == getpid());
	place = (char *)syscall(SYS_mmap, NULL, 4096L, 1L, 2L, (long)fd, 4096L);
	MUST(place != (char *)-1 && place[0] == bytes[4096] && place[4095] == bytes[8191]);

	MUST(pthread_create(&thread, NULL, waits_by_itself, context) == 0);
	usleep(20000);
	MUST(syscall(SYS_io_destroy, context) == 0);
	MUST(pthread_join(thread, &told) == 0 && told == (void *)EINVAL);
}

/*
 * The library's thread runs before the signal is blocked: a poll under way has asked for it. If the signal reached it, the process would
 * end, as it does by default.
 */
static void story_signalfd(int fd)
{
	struct iocb iocb, poll, *list[] = { &iocb }, *polls[] = { &poll };
	struct signalfd_siginfo info;
	io_context_t context = NULL;
	struct io_event event;
	sigset_t set;
	int signals;

	MUST(io_setup(4, &context) == 0);
	memset(&poll, 0, sizeof(poll));
	poll.opcode = 5;
	poll.buf = (void *)POLLIN;
	MUST((poll.fd = eventfd(0, EFD_CLOEXEC)) >= 0);
	MUST(io_submit(context, 1, polls) == 1);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	MUST(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	MUST((signals = signalfd(-1, &set, SFD_CLOEXEC)) >= 0);
	for (int at = 0; at < 64; at++) {
		prepare(&iocb, 1, fd, at);
		MUST(io_submit(context, 1, list) == 1);
		MUST(kill(getpid(), SIGUSR1) == 0);
		MUST(read(signals, &info, sizeof(info)) == sizeof(info) && info.ssi_signo == SIGUSR1);
		MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.obj == &iocb && event.res == 4096);
	}
	MUST(io_destroy(context) == 0);
}

static int ends[2];

static void *reads_the_pipe(void *context)
{
	static struct iocb iocb;

	prepare(&iocb, 0, ends[0], 0);
	iocb.offset = 0;
	iocb.nbytes = 1;
	begin(context, &iocb);
	return NULL;
}

static void *destroys(void *context)
{
	return (void *)(long)io_destroy(context);
}

/* While one thread destroys a context, and waits for a read, there is none for another that would. */
static void story_twice(int fd)
{
	io_context_t context = 0;
	pthread_t reader, first;
	void *told;

	(void)fd;
	MUST(pipe(ends) == 0 && io_setup(8, &context) == 0);
	MUST(pthread_create(&reader, NULL, reads_the_pipe, context) == 0);
	usleep(100000);
	MUST(pthread_create(&first, NULL, destroys, context) == 0);
	usleep(100000);
	MUST(io_destroy(context) == -EINVAL);
	MUST(write(ends[1], "x", 1) == 1);
	MUST(pthread_join(reader, NULL) == 0 && pthread_join(first, &told) == 0 && told == NULL);
	MUST(bytes[0] == 'x');
}

int main(int count, char **arguments)
{
	static const struct story stories[] = {
		{ "fork", story_fork }, { "exit", story_exit }, { "exec", story_exec }, { "close", story_close },
		{ "little", story_little }, { "seccomp", story_seccomp }, { "signals", story_signals }, { "loop", story_loop },
		{ "calls", story_calls }, { "cancel", story_cancel }, { "closed", story_closed }, { "signalfd", story_signalfd },
		{ "twice", story_twice },
	};

	return tell(stories, sizeof(stories) / sizeof(stories[0]), count, arguments);
}
