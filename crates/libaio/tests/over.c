/*
 * Contexts that go over to a ring, and those that stay. Stories as in programs.c.
 */
#include "programs.h"

enum { PREAD, PWRITE, FDSYNC = 3, POLLS = 5 };

/* Nothing of this waits in the original. */
static void story_well(int fd)
{
	static const int operations[] = { PWRITE, PREAD, FDSYNC };
	io_context_t context = 0;
	struct iocb iocbs[16], *list[16];
	struct io_event events[16];
	char path[64];
	int round, at, direct;
	void *place;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	direct = open(path, O_RDWR | O_DIRECT);
	MUST(posix_memalign(&place, 4096, 16 * 4096) == 0 && io_setup(16, &context) == 0);
	for (round = 0; round < 300; round++) {
		int many = round % 2 ? 16 : 1, operation = operations[round / 2 % 3];

		for (at = 0; at < many; at++) {
			list[at] = &iocbs[at];
			prepare(list[at], operation, fd, at);
			if (operation == FDSYNC)
				list[at]->buf = NULL, list[at]->nbytes = 0, list[at]->offset = 0;
			else if (direct >= 0 && round / 6 % 2)
				list[at]->fd = direct, list[at]->buf = (char *)place + at * 4096;
		}
		MUST(io_submit(context, many, list) == many);
		MUST(io_getevents(context, many, many, events, NULL) == many);
		for (at = 0; at < many; at++)
			MUST(events[at].res == (operation == FDSYNC ? 0 : 4096));
		if (operation == PWRITE && direct >= 0 && round / 6 % 2)
			/* So that the next reads find it. */
			MUST(pread(fd, bytes, sizeof(bytes), 0) == sizeof(bytes));
	}
	MUST(io_destroy(context) == 0);
}

enum { BLOCKS = 512 };

static io_context_t shared;
static int taken;

static void *takes(void *own)
{
	struct io_event events[8];
	struct timespec some = { 30, 0 };
	long told, at, least = (long)own;

	while (__atomic_load_n(&taken, __ATOMIC_SEQ_CST) < BLOCKS) {
		told = io_getevents(shared, least, 8, events, &some);
		MUST(told >= 0 && told <= 8);
		for (at = 0; at < told; at++) {
			MUST(events[at].res == 4096 && *(int *)events[at].obj->buf == (int)(long)events[at].data);
			free(events[at].obj->buf);
			free(events[at].obj);
			__atomic_add_fetch(&taken, 1, __ATOMIC_SEQ_CST);
		}
	}
	return NULL;
}

static void make_cold(int fd)
{
	int at;

	for (at = 0; at < BLOCKS; at++)
		MUST(pwrite(fd, bytes, 4096, at * 4096) == 4096);
	MUST(fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
	MUST(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
}

/* Reads of what is not in the cache, while two threads wait for their events: the context goes over under them. */
static void story_over(int fd)
{
	pthread_t threads[2];
	long at;

	for (at = 0; at < BLOCKS; at++) {
		*(int *)bytes = at;
		MUST(pwrite(fd, bytes, 4096, at * 4096) == 4096);
	}
	MUST(fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) == 0);
	MUST(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	MUST(io_setup(64, &shared) == 0);
	for (at = 0; at < 2; at++)
		MUST(pthread_create(&threads[at], NULL, takes, (void *)1L) == 0);
	for (at = 0; at < BLOCKS; at++) {
		struct iocb *iocb = malloc(sizeof(*iocb));
		long told;

		prepare(iocb, PREAD, fd, at);
		iocb->buf = malloc(4096);
		iocb->data = (void *)at;
		while ((told = io_submit(shared, 1, &iocb)) == -EAGAIN)
			usleep(100);
		MUST(told == 1);
	}
	/* Who waits for one more than there are is let go by the last. */
	while (__atomic_load_n(&taken, __ATOMIC_SEQ_CST) < BLOCKS)
		usleep(1000);
	_exit(0);
}

static void *waits_for_one(void *context)
{
	static struct io_event event;

	MUST(io_getevents(context, 1, 1, &event, NULL) == 1);
	return &event;
}

/* A context is due to go over, and does so under a thread that waits when the next request is a poll. */
static void story_poll(int fd)
{
	io_context_t context = 0;
	int bell = eventfd(0, 0);
	unsigned long long one = 1;
	struct iocb poll, read;
	struct io_event event, *told;
	pthread_t thread;
	void *own;
	int at;

	make_cold(fd);
	MUST(io_setup(64, &context) == 0);
	memset(&poll, 0, sizeof(poll));
	poll.opcode = POLLS;
	poll.fd = bell;
	poll.buf = (void *)POLLIN;
	begin(context, &poll);
	/* It stays in flight, so that the reads, which wait, are the kernel's. */
	for (at = 0; at < BLOCKS; at++) {
		prepare(&read, PREAD, fd, at);
		read.buf = bytes;
		begin(context, &read);
		MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.res == 4096);
	}
	MUST(write(bell, &one, 8) == 8);
	MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.obj == &poll);
	MUST(pthread_create(&thread, NULL, waits_for_one, context) == 0);
	usleep(50000);
	poll.data = (void *)42L;
	begin(context, &poll);
	MUST(pthread_join(thread, &own) == 0);
	told = own;
	MUST(told->obj == &poll && told->data == (void *)42L && told->res > 0);
	MUST(io_destroy(context) == 0);
}

/* Reads that wait, where an event is always left: somebody may be about to take it without a call. */
static void story_left(int fd)
{
	io_context_t context = 0;
	struct iocb iocbs[2];
	struct io_event event;
	int at;

	make_cold(fd);
	MUST(io_setup(64, &context) == 0);
	prepare(&iocbs[1], PWRITE, fd, 0);
	begin(context, &iocbs[1]);
	for (at = 0; at < BLOCKS; at++) {
		prepare(&iocbs[at % 2], PREAD, fd, at);
		iocbs[at % 2].buf = bytes;
		begin(context, &iocbs[at % 2]);
		MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.obj == &iocbs[(at + 1) % 2]);
	}
	MUST(io_destroy(context) == 0);
}

static void *goes_on(void *file)
{
	io_context_t context = 0;
	struct io_event event;
	struct iocb read;
	int at, fd = (int)(long)file;

	/* By then the first thread has ended. */
	usleep(100000);
	make_cold(fd);
	MUST(io_setup(64, &context) == 0);
	for (at = 0; at < BLOCKS; at++) {
		prepare(&read, PREAD, fd, at);
		read.buf = bytes;
		begin(context, &read);
		MUST(io_getevents(context, 1, 1, &event, NULL) == 1 && event.res == 4096);
	}
	MUST(io_destroy(context) == 0);
	_exit(0);
}

/* Reads that wait, in a process whose first thread has ended. */
static void story_headless(int fd)
{
	pthread_t thread;

	MUST(pthread_create(&thread, NULL, goes_on, (void *)(long)fd) == 0);
	pthread_exit(NULL);
}

int main(int count, char **arguments)
{
	static const struct story stories[] = {
		{ "well", story_well }, { "over", story_over }, { "poll", story_poll }, { "left", story_left },
		{ "headless", story_headless },
	};

	return tell(stories, sizeof(stories) / sizeof(stories[0]), count, arguments);
}
