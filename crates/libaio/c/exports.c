/*
 * What only C and assembler can say.
 *
 * Three functions have two forms: the one of LIBAIO_0.4, and the one of LIBAIO_0.1 for programs that were linked against that. A version
 * of a symbol is a directive to the assembler, in the file that defines it; hence C, and nothing in it but calls of the Rust functions.
 *
 * Some programs make a context by the library and go on by syscall(2): MariaDB waits so (tpool/aio_libaio.cc). The kernel knows no context
 * of ours. So on x86-64 the library has a `syscall` of its own, which programs find before that of the C library, since this comes last
 * among what they are linked with. It takes the five calls on contexts to the library, which hands those that are not ours to the kernel.
 * All others go as the C library would make them: nothing but registers.
 */
#include <errno.h>
#include <signal.h>
#include <time.h>

struct iocb;
struct io_event {
	void *data;
	struct iocb *obj;
	long res;
	long res2;
};

int baio_cancel(void *ctx, struct iocb *iocb, struct io_event *event);
int baio_getevents(void *ctx, long min_nr, long nr, struct io_event *events, struct timespec *timeout);
int baio_queue_wait(void *ctx, struct timespec *timeout);

#define VERSION(function, name, version) __asm__(".symver " #function "," #name version)

int baio_cancel_0_4(void *ctx, struct iocb *iocb, struct io_event *event)
{
	return baio_cancel(ctx, iocb, event);
}
VERSION(baio_cancel_0_4, io_cancel, "@@LIBAIO_0.4");

int baio_cancel_0_1(void *ctx, struct iocb *iocb)
{
	struct io_event event;

	return baio_cancel(ctx, iocb, &event);
}
VERSION(baio_cancel_0_1, io_cancel, "@LIBAIO_0.1");

int baio_getevents_0_4(void *ctx, long min_nr, long nr, struct io_event *events, struct timespec *timeout)
{
	return baio_getevents(ctx, min_nr, nr, events, timeout);
}
VERSION(baio_getevents_0_4, io_getevents, "@@LIBAIO_0.4");

int baio_getevents_0_1(void *ctx, long nr, struct io_event *events, const struct timespec *timeout)
{
	struct timespec copy;

	if (timeout)
		copy = *timeout;
	return baio_getevents(ctx, 1, nr, events, timeout ? &copy : 0);
}
VERSION(baio_getevents_0_1, io_getevents, "@LIBAIO_0.1");

int baio_queue_wait_0_4(void *ctx, struct timespec *timeout)
{
	return baio_queue_wait(ctx, timeout);
}
VERSION(baio_queue_wait_0_4, io_queue_wait, "@@LIBAIO_0.4");

int baio_queue_wait_0_1(void *ctx, struct timespec *timeout)
{
	struct timespec copy;

	if (timeout)
		copy = *timeout;
	return baio_queue_wait(ctx, timeout ? &copy : 0);
}
VERSION(baio_queue_wait_0_1, io_queue_wait, "@LIBAIO_0.1");

#ifdef __x86_64__
int io_submit(void *ctx, long nr, struct iocb **iocbs);
int io_destroy(void *ctx);
int io_pgetevents(void *ctx, long min_nr, long nr, struct io_event *events, struct timespec *timeout, sigset_t *mask);

/* struct __aio_sigset, fs/aio.c */
struct aio_sigset {
	sigset_t *mask;
	unsigned long bytes;
};

/* From asm/unistd_64.h, as below. */
enum { IO_DESTROY = 207, IO_GETEVENTS, IO_SUBMIT, IO_CANCEL, IO_PGETEVENTS = 333 };

__attribute__((used, visibility("hidden"))) long baio_call_on_context(long number, void *ctx, long second, long third,
								       void *fourth, void *fifth, struct aio_sigset *sixth)
{
	int told = -EINVAL;

	switch (number) {
	case IO_DESTROY:
		told = io_destroy(ctx);
		break;
	case IO_GETEVENTS:
		told = baio_getevents(ctx, second, third, fourth, fifth);
		break;
	case IO_SUBMIT:
		told = io_submit(ctx, second, (struct iocb **)third);
		break;
	case IO_CANCEL:
		told = baio_cancel(ctx, (struct iocb *)second, (struct io_event *)third);
		break;
	case IO_PGETEVENTS:
		/* The kernel's set has 64 bits. */
		if (!sixth || !sixth->mask || sixth->bytes == 8)
			told = io_pgetevents(ctx, second, third, fourth, fifth, sixth ? sixth->mask : 0);
		break;
	}
	if (told >= 0)
		return told;
	errno = -told;
	return -1;
}

__asm__(".text\n"
	".p2align 4\n"
	".type syscall, @function\n"
	"syscall:\n"
	".cfi_startproc\n"
	"	endbr64\n"
	"	leaq	-207(%rdi), %rax\n"
	"	cmpq	$3, %rax\n"
	"	jbe	baio_call_on_context\n"
	"	cmpq	$333, %rdi\n"
	"	je	baio_call_on_context\n"
	"	movq	%rdi, %rax\n"
	"	movq	%rsi, %rdi\n"
	"	movq	%rdx, %rsi\n"
	"	movq	%rcx, %rdx\n"
	"	movq	%r8, %r10\n"
	"	movq	%r9, %r8\n"
	"	movq	8(%rsp), %r9\n"
	"	syscall\n"
	"	cmpq	$-4095, %rax\n"
	"	jae	1f\n"
	"	ret\n"
	"1:	negl	%eax\n"
	"	pushq	%rax\n"
	".cfi_adjust_cfa_offset 8\n"
	"	call	__errno_location@PLT\n"
	"	popq	%rcx\n"
	".cfi_adjust_cfa_offset -8\n"
	"	movl	%ecx, (%rax)\n"
	"	movq	$-1, %rax\n"
	"	ret\n"
	".cfi_endproc\n"
	".size syscall, .-syscall\n"
	".globl syscall\n");
#endif
