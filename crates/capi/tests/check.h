/* A claim of a test: says where it does not hold, and what the library said last. */
#include <baio.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(claim)                                                                                         \
    do {                                                                                                     \
        if (!(claim)) {                                                                                      \
            fprintf(stderr, "%s:%d: %s: the last error is: %s\n", __FILE__, __LINE__, #claim, baio_error_message()); \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

/* Asks for one operation on a buffer. */
static inline baio_request ask(uint32_t op, baio_file *file, baio_buffer *buffer, uint64_t offset) {
    baio_request request;
    memset(&request, 0, sizeof request);
    request.op = op, request.file = file, request.buffer = buffer, request.offset = offset;
    return request;
}
