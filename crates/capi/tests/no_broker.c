/* A broker that is not there is an error that names the socket and has a cure. Run as: no_broker SOCKET */
#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc == 2);
    baio_link *link = NULL;
    CHECK(baio_link_open(&link, BAIO_LINK_BROKER, argv[1], NULL) == -ENOENT && link == NULL);
    CHECK(strstr(baio_error_message(), argv[1]) != NULL && strstr(baio_error_cure(), "baio serve") != NULL);
    CHECK(strcmp(baio_error_name(), "ENOENT") == 0);
    CHECK(baio_link_open(&link, BAIO_LINK_BROKER, NULL, NULL) == -EINVAL && strstr(baio_error_cure(), "socket") != NULL);
    return 0;
}
