/*
 * What the programs of this directory have in common: a request, waiting for it, a handler, and a `main` that tells one story.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); \
			_exit(1); \
		} \
	} while (0)

static char bytes[64 * 4096];

static struct aiocb request(int fd, long offset, size_t count, void *buffer)
{
	struct aiocb made;

	memset(&made, 0, sizeof(made));
	made.aio_fildes = fd;
	made.aio_offset = offset;
	made.aio_nbytes = count;
	made.aio_buf = buffer;
	made.aio_sigevent.sigev_notify = SIGEV_NONE;
	return made;
}

static ssize_t wait_for(struct aiocb *one)
{
	const struct aiocb *list[] = { one };

	while (aio_error(one) == EINPROGRESS)
		MUST(aio_suspend(list, 1, NULL) == 0 || errno == EINTR);
	return aio_error(one) == 0 ? aio_return(one) : -aio_error(one);
}

/* Writes a block and reads it back. */
static void round_trip(int fd)
{
	struct aiocb one;

	memset(bytes, 'a', 4096);
	one = request(fd, 0, 4096, bytes);
	MUST(aio_write(&one) == 0 && wait_for(&one) == 4096);
	memset(bytes, 0, 4096);
	one = request(fd, 0, 4096, bytes);
	MUST(aio_read(&one) == 0 && wait_for(&one) == 4096);
	MUST(bytes[0] == 'a' && bytes[4095] == 'a');
}

static volatile sig_atomic_t handled;
static volatile int handled_value, handled_code, handled_status;
static struct aiocb *asked;

static void handler(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	handled_value = info->si_value.sival_int;
	handled_code = info->si_code;
	if (asked)
		handled_status = aio_error(asked);
	handled++;
}

static void handle(int number)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = handler;
	action.sa_flags = SA_SIGINFO;
	MUST(sigaction(number, &action, NULL) == 0);
}

struct story {
	const char *name;
	void (*tell)(int);
};

/* The story named by the first argument, on the file named by the second. */
static int tell(const struct story *stories, int count, char **arguments)
{
	int fd;

	MUST(count == 3);
	alarm(30);
	fd = open(arguments[2], O_RDWR | O_CREAT, 0600);
	MUST(fd >= 0 && pwrite(fd, bytes, sizeof(bytes), 0) == sizeof(bytes));
	for (; stories->name; stories++) {
		if (strcmp(stories->name, arguments[1]) == 0) {
			stories->tell(fd);
			return 0;
		}
	}
	return 2;
}
