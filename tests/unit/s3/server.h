/* A TCP server that answers by script: what arrives is parsed just enough to know where a request
 * ends, the answers are bytes. Requests take the steps of the script in the order in which their
 * heads arrive; connections are threads. */
#ifndef TESTS_UNIT_S3_SERVER_H
#define TESTS_UNIT_S3_SERVER_H

#include "base/buf.h"

struct step {
    const char *answer; /* NULL: none */
    size_t len;         /* of the answer; 0: strlen */
    bool head_only;     /* answers without reading the body */
    bool close;         /* then closes */
    unsigned before_ms; /* waits before it answers; cut short by server_stop() */
    const char *late;   /* sent late_ms after the answer */
    unsigned late_ms;
    bool echo_authorization; /* the answer's body is the Authorization header, with status 403 */
};

struct seen {
    char *head; /* request line and headers */
    struct buf body;
    unsigned connection; /* from 0 */
};

struct server;

/* steps are borrowed. A request beyond them is answered 599. */
struct server *server_start(const struct step *steps, size_t n);
unsigned server_port(const struct server *s);
/* Requests so far, and the i-th of them: valid until server_stop(), whole once answered. */
size_t server_requests(struct server *s);
const struct seen *server_seen(struct server *s, size_t i);
unsigned server_connections(struct server *s);
/* Waits until n heads have arrived, or n late texts were sent. */
void server_wait(struct server *s, size_t n);
void server_wait_late(struct server *s, unsigned n);
void server_stop(struct server *s);

#endif
