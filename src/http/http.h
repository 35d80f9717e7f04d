/* Thin layer over libmicrohttpd: requests in, answers out, suspended requests, clients that left.
 *
 * A handler gets a whole request (body read, limits applied) on one of the server's threads and
 * answers now or later, from any thread, exactly once, with http_respond(). A request that was not
 * answered inside the handler is suspended meanwhile. Transport rules: spec/broker-api.md 1.1,
 * decisions.md 25, docs/architecture.md HTTP. */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include "base/buf.h"
#include "base/err.h"

#include <stdatomic.h>

struct http_server;
struct http_request;

enum http_method { HTTP_GET, HTTP_POST, HTTP_PUT, HTTP_DELETE, HTTP_HEAD, HTTP_OTHER };

typedef void (*http_handler_fn)(void *ctx, struct http_request *r);
/* Before the body is read, with its announced length (UINT64_MAX: unknown): true to go on; false
 * after it called http_respond() (which closes the connection, unless the body is small), or
 * http_hold(). */
typedef bool (*http_admit_fn)(void *ctx, struct http_request *r, uint64_t length);

struct http_options {
    const char *address; /* IP; */
    uint16_t port;       /* 0 = any free one */
    unsigned threads;
    size_t body_max;          /* larger: 413 plain text */
    unsigned connections_max; /* src/http/conns.h: who makes room for newcomers */
    http_handler_fn handler;
    http_admit_fn admit; /* may be NULL */
    /* Of an admitted body there are `length` bytes now: true to go on; false after it called
     * http_respond(): the rest is thrown away and the answer given at its end. May be NULL. */
    http_admit_fn arriving;
    /* A request whose body admit() let in, or held, ended before the handler saw it (client left,
     * body too large): gives back what admit() took. May be NULL; a server's thread. */
    http_handler_fn aborted;
    void *ctx;
    unsigned idle_timeout_s;     /* a connection between two requests; 0 = 75 */
    unsigned progress_timeout_s; /* headers; a body or an answer that stands still; 0 = 60 */
    unsigned least_bytes_s;      /* least speed of bodies and answers, over that time; 0 = 1024 */
    size_t answers_max;          /* bytes of answers clients have not taken; 0 = 128 MiB */
};

ERR_CHECK enum err http_server_start(const struct http_options *options, struct http_server **out,
                                     struct error *error);
uint16_t http_server_port(const struct http_server *s);
/* Stops accepting; requests in flight finish. */
void http_server_quiesce(struct http_server *s);
/* Number of requests received and not answered yet. */
size_t http_server_inflight(const struct http_server *s);
/* Waits until the last answers have left (at most 5 s), closes every connection and frees. All
 * requests must have been answered by then or soon: it waits for them. NULL is allowed. Blocks. */
void http_server_stop(struct http_server *s);

enum http_method http_request_method(const struct http_request *r);
struct span http_request_path(const struct http_request *r);  /* raw, without the query */
struct span http_request_query(const struct http_request *r); /* raw, without '?' */
struct span http_request_header(const struct http_request *r,
                                const char *name);           /* empty when absent */
struct span http_request_body(const struct http_request *r); /* valid until it was answered */
/* Looks at the socket now: the client closed it, or at least the half it sends on. Any thread. */
bool http_request_client_gone(const struct http_request *r);
/* Bytes that the answers of all requests together may still take before slow readers hold more
 * memory than they should. What is answered past that is counted too, not refused. */
size_t http_answer_room(const struct http_request *r);
/* Per-request slot of the application. */
void http_request_set_ctx(struct http_request *r, void *ctx);
void *http_request_ctx(const struct http_request *r);

/* Inside admit(), which then returns false: the client keeps its body until http_readmit() has
 * admit() asked again. http_readmit(): any thread, once per hold. */
void http_hold(struct http_request *r);
void http_readmit(struct http_request *r);

struct http_answer {
    unsigned status;
    const char *content_type;             /* NULL: application/json */
    int retry_after;                      /* seconds, 0 = none */
    const char *extra_name, *extra_value; /* one more header, may be NULL */
};

/* Lets fn(ctx, r) run on one of the server's threads, where it must answer before it returns: for
 * answers that take time to write, from threads that have none. Once per request, instead of
 * http_respond(). Any thread. */
void http_resume(struct http_request *r, http_handler_fn fn, void *ctx);
/* Takes the body's memory (body may be NULL or empty). Any thread, once per request; `r` is invalid
 * after. */
void http_respond(struct http_request *r, const struct http_answer *answer, struct buf *body);

#endif
