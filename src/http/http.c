/* HTTP over libmicrohttpd 0.9.75: epoll, a pool of threads, suspended requests.
 *
 * One struct http_request lives from the request line (uri_received) to the end of the answer
 * (completed). The library calls `on_call` once after the headers, for each piece of the body, and
 * once more at its end; that last call is where the application's handler runs. Facts of the
 * library this file rests on (its connection.c):
 *
 *   - An answer queued in the first call, while a body is still to come, closes the connection. So
 * a refusal of a small body is kept back and its body thrown away, and the connection lives on; a
 * large one is answered at once. During the body nothing can be queued at all.
 *   - Suspended in the first call, it makes that call again when it is resumed: so admission can
 * hold a request whose body is still on the client's side.
 *   - A suspended connection is not read: a client that left is seen by asking
 * (http_request_client_gone), or when the answer is written.
 *   - A connection closed by the library (timeout, stop, reset) calls `completed` only.
 *   - MHD_stop_daemon() aborts the process while a connection is suspended.
 *
 * Answering from any thread: `state` says whose turn it is. The answering side stores the answer,
 * then exchanges the state to WOKEN; only when it was SUSPENDED does it resume the connection,
 * after which the request belongs to the server's thread again. */
#include "http/http.h"

#include "base/mem.h"
#include "http/acceptor.h"
#include "http/conns.h"
#include "http/framing.h"
#include "http/linger.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Of the library, per connection: larger headers are 431. */
#define CONNECTION_MEMORY (16u * 1024)
#define IDLE_TIMEOUT_S 75
#define PROGRESS_TIMEOUT_S 60
#define LEAST_BYTES_S 1024
#define ANSWERS_MAX (128u * 1024 * 1024)
/* A refused body up to this size is read and dropped, to keep the connection. */
#define DRAIN_MAX (256u * 1024)
/* Of an announced body, reserved at once: its pages are touched only as bytes arrive. */
#define RESERVE_MAX (64u * 1024 * 1024)
#define STOP_WAIT_MS 5000 /* for answers that are still being written when the server stops */

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

/* --- requests -----------------------------------------------------------------------------------
 */

static void split_uri(struct http_request *r, struct span uri)
{
    static const char scheme[] = "http://";
    if (span_starts_with(uri, span_str(scheme))) { /* absolute form, RFC 9112 3.2.2 */
        const uint8_t *slash = memchr(uri.ptr + 7, '/', uri.len - 7);
        uri = slash == NULL ? SPAN_LIT("/") : span_make(slash, uri.len - (size_t)(slash - uri.ptr));
    }
    const uint8_t *mark = uri.len == 0 ? NULL : memchr(uri.ptr, '?', uri.len);
    size_t path_len = mark == NULL ? uri.len : (size_t)(mark - uri.ptr);
    r->path = span_sub(uri, 0, path_len);
    r->query = mark == NULL ? (struct span){NULL, 0} : span_sub(uri, path_len + 1, uri.len);
}

static struct http_conn *conn_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info->socket_context; /* set by connection_changed() */
}

/* The library's URI callback: the raw request target, before it is cut at '?'. */
static void *uri_received(void *ctx, const char *uri, struct MHD_Connection *connection)
{
    size_t len = uri == NULL ? 0 : strlen(uri);
    struct http_request *r = mem_new(sizeof(*r) + len + 1);
    if (len > 0)
        memcpy(r->uri, uri, len);
    r->server = ctx;
    r->connection = connection;
    r->target = uri;
    r->conn = conn_of(connection);
    http_conn_set_phase(r->conn, CONN_HEADERS);
    split_uri(r, span_make(r->uri, len));
    return r;
}

/* Keeps the path raw: percent-decoding is per segment, the application's business. */
static size_t keep_escapes(void *ctx, struct MHD_Connection *connection, char *text)
{
    (void)ctx;
    (void)connection;
    return strlen(text);
}

static void request_free(struct http_request *r)
{
    if (r->response != NULL)
        MHD_destroy_response(r->response);
    atomic_fetch_sub(&r->server->answers, r->answer_bytes);
    buf_deinit(&r->body);
    mem_free(r);
}

static enum http_method method_of(const char *name)
{
    static const struct {
        const char *name;
        enum http_method method;
    } table[] = {{"GET", HTTP_GET},
                 {"POST", HTTP_POST},
                 {"PUT", HTTP_PUT},
                 {"DELETE", HTTP_DELETE},
                 {"HEAD", HTTP_HEAD}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strcmp(name, table[i].name) == 0)
            return table[i].method;
    }
    return HTTP_OTHER;
}

/* --- answers ------------------------------------------------------------------------------------
 */

static struct MHD_Response *make_response(struct http_server *s, const struct http_answer *answer,
                                          struct buf *body)
{
    struct MHD_Response *response;
    if (body != NULL && body->len > 0) {
        response =
            MHD_create_response_from_buffer_with_free_callback(body->len, body->ptr, mem_free);
        if (response != NULL)
            *body = BUF_INIT;
    } else {
        response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    }
    ASSERT(response != NULL); /* out of memory only */
    buf_deinit(body);
    const char *type = answer->content_type == NULL ? "application/json" : answer->content_type;
    if (answer->status != 204)
        (void)MHD_add_response_header(response, "Content-Type",
                                      type); /* fails for bad names only */
    if (answer->retry_after > 0) {
        char text[16];
        (void)snprintf(text, sizeof(text), "%d", answer->retry_after); /* fits */
        (void)MHD_add_response_header(response, "Retry-After", text);
    }
    if (answer->extra_name != NULL)
        (void)MHD_add_response_header(response, answer->extra_name, answer->extra_value);
    if (atomic_load(&s->quiescing))
        (void)MHD_add_response_header(response, "Connection", "close");
    return response;
}

/* Gives the request back to the server's thread. `r` may be gone when this returns. */
static void wake(struct http_request *r)
{
    struct MHD_Connection *connection = r->connection;
    if (atomic_exchange(&r->turn, TURN_WOKEN) == TURN_SUSPENDED)
        MHD_resume_connection(connection);
}

void http_respond(struct http_request *r, const struct http_answer *answer, struct buf *body)
{
    ASSERT(r->response == NULL);
    struct http_server *s = r->server;
    r->answer_bytes = body == NULL ? 0 : body->cap;
    atomic_fetch_add(&s->answers, r->answer_bytes);
    r->response = make_response(s, answer, body);
    r->status = answer->status;
    if (r->phase == PHASE_DISPATCHED) {
        buf_deinit(&r->body);
        atomic_fetch_sub(&s->unanswered, 1);
    }
    wake(r);
}

void http_resume(struct http_request *r, http_handler_fn fn, void *ctx)
{
    ASSERT(r->phase == PHASE_DISPATCHED);
    r->resumed_ctx = ctx;
    r->resumed = fn;
    wake(r);
}

/* Hands the stored answer to the library. */
static enum MHD_Result send_answer(struct http_request *r)
{
    http_conn_set_phase(r->conn, CONN_ANSWER);
    enum MHD_Result result = MHD_queue_response(r->connection, r->status, r->response);
    MHD_destroy_response(r->response); /* the library holds its own reference */
    r->response = NULL;
    return result;
}

static void run_resumed(struct http_request *r)
{
    http_handler_fn fn = r->resumed;
    r->resumed = NULL;
    fn(r->resumed_ctx, r);
    ASSERT(r->response != NULL);
}

void http_hold(struct http_request *r)
{
    ASSERT(r->phase != PHASE_DISPATCHED);
    r->held = true;
}

void http_readmit(struct http_request *r)
{
    wake(r);
}

/* Suspends the connection, unless the other side was faster. */
static void suspend(struct http_request *r)
{
    struct MHD_Connection *connection = r->connection;
    int open = TURN_OPEN;
    MHD_suspend_connection(connection);
    if (!atomic_compare_exchange_strong(&r->turn, &open, TURN_SUSPENDED))
        MHD_resume_connection(connection);
}

/* Takes the request as far as it goes on this thread: an answer queued, or suspended. */
static enum MHD_Result drive(struct http_request *r)
{
    if (atomic_load(&r->turn) == TURN_WOKEN) {
        if (r->response == NULL)
            run_resumed(r);
        return send_answer(r);
    }
    suspend(r);
    return MHD_YES;
}

/* --- the library's callbacks --------------------------------------------------------------------
 */

static void refuse(struct http_request *r, unsigned status, const char *text)
{
    struct buf body = BUF_INIT;
    buf_puts(&body, text);
    http_respond(r, &(struct http_answer){.status = status, .content_type = "text/plain"}, &body);
}

static const char *const too_large = "request body is too large\n";

/* Refused before its body: the answer is stored. Queued at once, which closes the connection,
 * unless the body is small and under way. */
static enum MHD_Result refuse_body(struct http_request *r, const struct http_framing *f)
{
    r->unread = true;
    bool waits = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Expect") != NULL;
    if (waits || f->length > DRAIN_MAX)
        return send_answer(r);
    r->phase = PHASE_DRAIN;
    http_conn_set_phase(r->conn, CONN_BODY);
    r->unread = false;
    return MHD_YES;
}

/* admit() is asked again, or never will be. */
static void end_hold(struct http_request *r)
{
    r->held = false;
    atomic_store(&r->turn, TURN_OPEN);
    atomic_fetch_sub(&r->server->unanswered, 1);
}

/* The request is out of this thread's hands until admit() is to be asked again. */
static enum MHD_Result wait_for_admission(struct http_request *r)
{
    r->phase = PHASE_HEADERS; /* this call comes again */
    http_conn_set_phase(r->conn, CONN_HANDLED);
    atomic_fetch_add(&r->server->unanswered, 1);
    suspend(r);
    return MHD_YES;
}

static enum MHD_Result headers_received(struct http_request *r, const char *method,
                                        const char *version)
{
    struct http_server *s = r->server;
    if (r->held)
        end_hold(r);
    r->method = method_of(method);
    struct http_framing f = http_framing_read(r->connection, span_str(r->uri), r->target, version);
    r->phase = PHASE_BODY;
    if (f.wrong != NULL) {
        r->unread = true;
        refuse(r, 400, f.wrong);
        return send_answer(r);
    }
    http_conn_set_phase(r->conn, f.has_body ? CONN_BODY : CONN_HANDLED);
    if (!f.has_body)
        return MHD_YES;
    if (!f.chunked && f.length > s->options.body_max) {
        r->phase = PHASE_DRAIN;
        refuse(r, 413, too_large);
        return refuse_body(r, &f);
    }
    if (s->options.admit != NULL && !s->options.admit(s->options.ctx, r, f.length))
        return r->held ? wait_for_admission(r) : refuse_body(r, &f);
    r->admitted = true;
    if (!f.chunked)
        buf_reserve(&r->body, f.length < RESERVE_MAX ? (size_t)f.length : RESERVE_MAX);
    return MHD_YES;
}

/* A body that goes no further is thrown away, and its answer given at its end. */
static bool take_piece(struct http_request *r, const char *piece, size_t len)
{
    const struct http_options *o = &r->server->options;
    if (buf_try_append(&r->body, piece, len, o->body_max) != ERR_OK) {
        r->phase = PHASE_DRAIN;
        refuse(r, 413, too_large);
        return false;
    }
    r->phase = PHASE_DRAIN; /* as which the answer of a refusal counts */
    if (o->arriving != NULL && !o->arriving(o->ctx, r, r->body.len))
        return false;
    r->phase = PHASE_BODY;
    return true;
}

static enum MHD_Result body_piece(struct http_request *r, const char *piece, size_t *size)
{
    struct http_server *s = r->server;
    size_t len = *size;
    *size = 0;
    if (r->phase == PHASE_BODY) {
        if (take_piece(r, piece, len))
            return MHD_YES;
        buf_deinit(&r->body);
    }
    r->dropped += len;
    return r->dropped <= s->options.body_max + DRAIN_MAX ? MHD_YES : MHD_NO; /* NO closes */
}

static enum MHD_Result body_complete(struct http_request *r)
{
    struct http_server *s = r->server;
    if (r->phase == PHASE_DRAIN)
        return send_answer(r);
    r->phase = PHASE_DISPATCHED;
    http_conn_set_phase(r->conn, CONN_HANDLED);
    atomic_fetch_add(&s->inflight, 1);
    atomic_fetch_add(&s->unanswered, 1);
    s->options.handler(s->options.ctx, r);
    return drive(r);
}

static enum MHD_Result on_call(void *ctx, struct MHD_Connection *connection, const char *url,
                               const char *method, const char *version, const char *piece,
                               size_t *piece_size, void **request)
{
    (void)ctx;
    (void)connection;
    (void)url;
    struct http_request *r = *request;
    if (r == NULL)
        return MHD_NO;
    switch (r->phase) {
    case PHASE_HEADERS:
        return headers_received(r, method, version);
    case PHASE_BODY:
    case PHASE_DRAIN:
        return *piece_size > 0 ? body_piece(r, piece, piece_size) : body_complete(r);
    case PHASE_DISPATCHED:
        return drive(r);
    }
    return MHD_NO;
}

/* The library closes the connection after this; the socket stays open in another thread's hands. */
static void let_linger(struct http_server *s, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    int fd = info == NULL ? -1 : fcntl(info->connect_fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0)
        http_linger_take(s->linger, fd);
}

/* The library answers malformed and overlong headers and chunks itself, and closes. */
static bool cut_by_library(const struct http_request *r, enum MHD_RequestTerminationCode code)
{
    return (r->phase == PHASE_HEADERS || r->phase == PHASE_BODY) &&
           code == MHD_REQUEST_TERMINATED_WITH_ERROR;
}

/* The answer has left, or the connection is lost. */
static void completed(void *ctx, struct MHD_Connection *connection, void **request,
                      enum MHD_RequestTerminationCode code)
{
    struct http_server *s = ctx;
    struct http_request *r = *request;
    *request = NULL;
    if (r == NULL)
        return;
    if (r->phase == PHASE_DISPATCHED) {
        r->connection = NULL;
        if (r->resumed != NULL)
            run_resumed(r); /* it renders for nobody, and lets go of what it holds */
        atomic_fetch_sub(&s->inflight, 1);
    } else if (r->admitted || r->held) {
        if (r->held)
            end_hold(r);
        if (s->options.aborted != NULL)
            s->options.aborted(s->options.ctx, r);
    }
    bool lingers =
        code == MHD_REQUEST_TERMINATED_COMPLETED_OK ? r->unread : cut_by_library(r, code);
    if (lingers)
        let_linger(s, connection);
    else if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        http_conn_set_phase(r->conn, CONN_IDLE); /* else it is closed, and not looked at again */
    request_free(r);
}

static void connection_changed(void *ctx, struct MHD_Connection *connection, void **slot,
                               enum MHD_ConnectionNotificationCode code)
{
    struct http_server *s = ctx;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *slot = http_conn_open(s->conns, info->connect_fd);
        return;
    }
    int unread = 0;
    if (http_conn_phase(*slot) == CONN_IDLE && ioctl(info->connect_fd, FIONREAD, &unread) == 0 &&
        unread > 0) /* a request line without an end was answered */
        let_linger(s, connection);
    http_conn_close(s->conns, *slot);
}

/* --- the server ---------------------------------------------------------------------------------
 */

static struct MHD_Daemon *start_daemon(struct http_server *s)
{
    const struct http_options *o = &s->options;
    /* A pool of one is not a pool: the library wants two threads at least for that option. */
    struct MHD_OptionItem pool[] = {
        {o->threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, (intptr_t)o->threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET, 0,
        NULL, NULL, on_call, s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_CONNECTION_LIMIT, 2 * o->connections_max + o->threads, /* ours comes first */
        MHD_OPTION_CONNECTION_TIMEOUT, o->idle_timeout_s, MHD_OPTION_NOTIFY_CONNECTION,
        connection_changed, s, MHD_OPTION_NOTIFY_COMPLETED, completed, s,
        MHD_OPTION_URI_LOG_CALLBACK, uri_received, s, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes,
        NULL, MHD_OPTION_ARRAY, pool, MHD_OPTION_END);
}

static void or_default(unsigned *option, unsigned value)
{
    if (*option == 0)
        *option = value;
}

static struct http_conns *make_conns(const struct http_options *o)
{
    const struct http_conns_options options = {.max = o->connections_max,
                                               .idle_s = o->idle_timeout_s,
                                               .progress_s = o->progress_timeout_s,
                                               .least_bytes_s = o->least_bytes_s};
    return http_conns_new(&options);
}

static bool answers_press(void *ctx)
{
    const struct http_server *s = ctx;
    return atomic_load(&s->answers) >= s->options.answers_max;
}

static void server_free(struct http_server *s)
{
    http_linger_free(s->linger);
    http_conns_free(s->conns);
    mem_free(s);
}

enum err http_server_start(const struct http_options *options, struct http_server **out,
                           struct error *error)
{
    struct http_server *s = mem_new(sizeof(*s));
    s->options = *options;
    or_default(&s->options.idle_timeout_s, IDLE_TIMEOUT_S);
    or_default(&s->options.progress_timeout_s, PROGRESS_TIMEOUT_S);
    or_default(&s->options.least_bytes_s, LEAST_BYTES_S);
    if (s->options.answers_max == 0)
        s->options.answers_max = ANSWERS_MAX;
    int listen_fd = -1;
    enum err err = http_listen(options->address, options->port, &listen_fd, &s->port, error);
    if (err != ERR_OK) {
        mem_free(s);
        return err;
    }
    sigset_t all,
        before; /* signals are the main thread's: the library's threads inherit the mask */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    s->conns = make_conns(&s->options);
    s->linger = http_linger_new();
    s->daemon = start_daemon(s);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (s->daemon == NULL) {
        (void)close(listen_fd);
        server_free(s);
        return error_set(error, ERR_IO, "the HTTP server did not start: %s",
                         strerrordesc_np(errno));
    }
    const struct http_acceptor_options acceptor = {.listen_fd = listen_fd,
                                                   .daemon = s->daemon,
                                                   .conns = s->conns,
                                                   .linger = s->linger,
                                                   .pressed = answers_press,
                                                   .ctx = s};
    s->acceptor = http_acceptor_start(&acceptor);
    *out = s;
    return ERR_OK;
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

void http_server_quiesce(struct http_server *s)
{
    if (atomic_exchange(&s->quiescing, true))
        return;
    http_acceptor_stop(s->acceptor);
}

size_t http_server_inflight(const struct http_server *s)
{
    return atomic_load(&s->inflight);
}

static void sleep_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    (void)nanosleep(&pause, NULL);
}

void http_server_stop(struct http_server *s)
{
    if (s == NULL)
        return;
    http_server_quiesce(s);
    while (atomic_load(&s->unanswered) > 0)
        sleep_ms(1);
    for (unsigned waited = 0; atomic_load(&s->inflight) > 0 && waited < STOP_WAIT_MS; waited++)
        sleep_ms(1);
    MHD_stop_daemon(s->daemon);
    server_free(s);
}

/* --- what handlers see --------------------------------------------------------------------------
 */

enum http_method http_request_method(const struct http_request *r)
{
    return r->method;
}

struct span http_request_path(const struct http_request *r)
{
    return r->path;
}

struct span http_request_query(const struct http_request *r)
{
    return r->query;
}

struct span http_request_header(const struct http_request *r, const char *name)
{
    const char *value = r->connection == NULL
                            ? NULL
                            : MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
    return value == NULL ? (struct span){NULL, 0} : span_trim(span_str(value));
}

struct span http_request_body(const struct http_request *r)
{
    return buf_span(&r->body);
}

size_t http_answer_room(const struct http_request *r)
{
    size_t max = r->server->options.answers_max, taken = atomic_load(&r->server->answers);
    return taken < max ? max - taken : 0;
}

bool http_request_client_gone(const struct http_request *r)
{
    if (r->connection == NULL)
        return true;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info == NULL)
        return true;
    struct pollfd look = {.fd = info->connect_fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void http_request_set_ctx(struct http_request *r, void *ctx)
{
    r->ctx = ctx;
}

void *http_request_ctx(const struct http_request *r)
{
    return r->ctx;
}
