/*
 * A program that has an `io_submit` of its own, which makes the system call: what it is handed to must not come back here.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int io_setup(int, void **);
int io_getevents(void *, long, long, void *, void *);
long syscall(long number, ...);

int io_submit(void *context, long count, void **list)
{
	return (int)syscall(SYS_io_submit, context, count, list);
}

int main(void)
{
	struct { long data; int key, flags; short opcode, priority; int fd; void *buf; long bytes, offset, more[2]; } read;
	char byte;
	void *context = NULL, *list[] = { &read };
	long event[4];

	memset(&read, 0, sizeof(read));
	read.buf = &byte;
	read.bytes = 1;
	read.fd = 0;
	if (io_setup(8, &context) != 0 || io_submit(context, 1, list) != 1)
		return 1;
	return io_getevents(context, 1, 1, event, NULL) == 1 && event[2] == 0 ? 0 : 1;
}
