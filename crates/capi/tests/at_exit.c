/* A link of kind BAIO_LINK_THREAD has gone with its thread: the main one ends before the handlers of atexit(3), which are told so. Each
 * failure there has its own texts, as before. */
#include "check.h"

static baio_link *opened;

/* Not by CHECK: that would exit once more. */
static void too_late(void) {
    baio_link *another;
    int closed = baio_link_close(opened);
    int says_so = strstr(baio_error_message(), "has ended") != NULL && strstr(baio_error_cure(), "atexit") != NULL;
    int null = baio_link_close(NULL);
    int says_another = strstr(baio_error_message(), "null") != NULL && strcmp(baio_error_name(), "EINVAL") == 0;
    /* Before it looks for the volume. */
    int opens = baio_link_open(&another, BAIO_LINK_THREAD, "/no/such/volume", NULL);
    if (closed != -ESRCH || !says_so || null != -EINVAL || !says_another || opens != -ESRCH) {
        fprintf(stderr, "at exit: closed: %d, opened: %d, the last error is: %s\n", closed, opens, baio_error_message());
        _Exit(1);
    }
}

int main(void) {
    CHECK(atexit(too_late) == 0);
    CHECK(baio_link_open(&opened, BAIO_LINK_THREAD, NULL, NULL) == 0);
    CHECK(baio_link_close(NULL) == -EINVAL);
    return 0;
}
