/* HTTP over libmicrohttpd 0.9.75: epoll, a pool of threads, suspended requests.
 *
 * One struct http_request lives from the request line to the end of the answer
 * (http_uri_received, http_completed). The library calls http_on_call() once after the headers, for each piece of the body, and
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
 *   - A connection closed by the library (timeout, stop, reset) calls http_completed() only.
 *   - MHD_stop_daemon() aborts the process while a connection is suspended.
 *
 * Answering from any thread: `state` says whose turn it is. The answering side stores the answer,
 * then exchanges the state to WOKEN; only when it was SUSPENDED does it resume the connection,
 * after which the request belongs to the server's thread again. */
#include "http/internal.h"

#include "base/mem.h"
#include "http/conns.h"
#include "http/framing.h"
#include "http/linger.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>

/* A refused body up to this size is read and dropped, to keep the connection. */
#define DRAIN_MAX (256u * 1024)
/* Of an announced body, reserved at once: its pages are touched only as bytes arrive. */
#define RESERVE_MAX (64u * 1024 * 1024)

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
    return info->socket_context; /* set by http_connection_changed() */
}

/* The library would take the query apart next, and has no answer when its parts do not fit into the
 * connection's pool: the client would wait for ever. We have our copy, so it finds an empty one in
 * its buffer, which it writes to itself behind this callback. */
static void hide_query(const char *uri)
{
    char *mark = uri == NULL ? NULL : strchr((char *)(uintptr_t)uri, '?');
    if (mark != NULL)
        mark[1] = 0;
}

/* The library's URI callback: the raw request target, before it is cut at '?'. */
void *http_uri_received(void *ctx, const char *uri, struct MHD_Connection *connection)
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
    hide_query(uri);
    return r;
}

/* Keeps the path raw: percent-decoding is per segment, the application's business. */
size_t http_keep_escapes(void *ctx, struct MHD_Connection *connection, char *text)
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

enum MHD_Result http_on_call(void *ctx, struct MHD_Connection *connection, const char *url,
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
void http_completed(void *ctx, struct MHD_Connection *connection, void **request,
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

void http_connection_changed(void *ctx, struct MHD_Connection *connection, void **slot,
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
