/*
 * What the programs of this directory have in common: libaio's interface, a request, and a `main` that tells one story.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* As in libaio.h of 0.3.113, which need not be installed. */
typedef void *io_context_t;
struct iocb {
	void *data;
	unsigned key, rw_flags;
	short opcode, priority;
	int fd;
	void *buf;
	unsigned long nbytes;
	long long offset, pad;
	unsigned flags, resfd;
};
struct io_event {
	void *data;
	struct iocb *obj;
	long res, res2;
};
int io_setup(int, io_context_t *);
int io_destroy(io_context_t);
int io_submit(io_context_t, long, struct iocb **);
int io_getevents(io_context_t, long, long, struct io_event *, struct timespec *);
int io_pgetevents(io_context_t, long, long, struct io_event *, struct timespec *, sigset_t *);

#define MUST(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
			_exit(1); \
		} \
	} while (0)

static char bytes[64 * 4096];

static void prepare(struct iocb *iocb, int opcode, int fd, int block)
{
	memset(iocb, 0, sizeof(*iocb));
	iocb->opcode = opcode;
	iocb->fd = fd;
	iocb->buf = bytes + block * 4096;
	iocb->nbytes = 4096;
	iocb->offset = block * 4096LL;
}

static inline void begin(io_context_t context, struct iocb *iocb)
{
	MUST(io_submit(context, 1, &iocb) == 1);
}

struct story { const char *name; void (*tell)(int); };

/* The story that the first argument names, on the file that the second names. */
static int tell(const struct story *stories, size_t many, int count, char **arguments)
{
	size_t at;
	int fd;

	MUST(count == 3);
	alarm(60);
	fd = open(arguments[2], O_RDWR | O_CREAT, 0600);
	MUST(fd >= 0 && pwrite(fd, bytes, sizeof(bytes), 0) == sizeof(bytes));
	for (at = 0; at < many; at++) {
		if (strcmp(stories[at].name, arguments[1]) == 0) {
			stories[at].tell(fd);
			return 0;
		}
	}
	return 2;
}
