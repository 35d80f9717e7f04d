/* What the two halves of the server share: the server itself (server.c) and the life of a request
 * (http.c). */
#ifndef HTTP_INTERNAL_H
#define HTTP_INTERNAL_H

#include "http/http.h"

#include <microhttpd.h>

enum phase {
    PHASE_HEADERS,    /* on_call has not seen it yet */
    PHASE_BODY,       /* collecting */
    PHASE_DRAIN,      /* refused: the body is thrown away, the answer is ready */
    PHASE_DISPATCHED, /* the handler has it or had it */
};

enum turn { TURN_OPEN, TURN_SUSPENDED, TURN_WOKEN };

struct http_server {
    struct MHD_Daemon *daemon;
    struct http_linger *linger;
    struct http_conns *conns;
    struct http_acceptor *acceptor;
    uint16_t port;
    struct http_options options;
    atomic_bool quiescing;
    atomic_size_t inflight;   /* dispatched, answer not written to its end */
    atomic_size_t unanswered; /* dispatched, http_respond() not called yet */
    atomic_size_t answers;    /* bytes of bodies whose clients have not taken all of them */
};

struct http_request {
    struct http_server *server;
    struct MHD_Connection *connection; /* NULL once the library gave it up */
    struct http_conn *conn;
    const char *target; /* where the library has `uri`; only to compare */
    enum http_method method;
    enum phase phase;
    bool admitted; /* options.admit said yes to a body */
    bool unread;   /* answered before its body was read */
    bool held;     /* http_hold() was called, admit() not asked again yet */
    struct span path, query;
    struct buf body;
    size_t dropped; /* bytes of a refused body thrown away */
    void *ctx;
    atomic_int turn;
    /* Written by the answering side before it exchanges `turn`. */
    struct MHD_Response *response;
    size_t answer_bytes; /* counted in server->answers */
    unsigned status;
    http_handler_fn resumed;
    void *resumed_ctx;
    char uri[]; /* raw */
};

/* The library's callbacks; ctx is the server. */
void *http_uri_received(void *ctx, const char *uri, struct MHD_Connection *connection);
size_t http_keep_escapes(void *ctx, struct MHD_Connection *connection, char *text);
enum MHD_Result http_on_call(void *ctx, struct MHD_Connection *connection, const char *url,
                             const char *method, const char *version, const char *piece,
                             size_t *piece_size, void **request);
void http_completed(void *ctx, struct MHD_Connection *connection, void **request,
                    enum MHD_RequestTerminationCode code);
void http_connection_changed(void *ctx, struct MHD_Connection *connection, void **slot,
                             enum MHD_ConnectionNotificationCode code);

#endif
