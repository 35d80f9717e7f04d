/* One attempt over libcurl. What it sees to beyond a plain transfer (each was seen of a server):
 *
 * - a refusal that stands unread in the socket when sending the body fails (EPIPE) is read before
 *   the socket is closed, and is the answer; over TLS only the session can read it, right when
 *   the failure is told;
 * - a connection that the server closed, or left bytes in, after the request before is not used: it
 *   is looked at right before sending, and a reused one that ends without a byte of an answer is
 *   reported as stale, not as a failure of the store;
 * - after a HEAD or an error the connection is not used again: some servers send bytes that do not
 *   belong there;
 * - an answer whose head is not complete is no answer, though libcurl may call it one.
 *
 * The request target and all headers are ours, byte for byte, as they were signed. */
#include "s3/s3_transfer.h"

#include "base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#define UPLOAD_BUFFER_BYTES (256L << 10)
#define HEAD_MAX (256u << 10)  /* bytes of an answer's head, those before it (1xx) and a trailer */
#define DROPPED_MAX (4u << 20) /* bytes of a body that nobody wants; then the connection goes */
#define IDLE_MAX_S 50L         /* idle connections are not used after that: servers close at 60 */
#define LATE_MAX (16u << 10)

long s3_body_read(const struct s3_body *body, uint64_t at, void *out, size_t len)
{
    if (len > body->size - at)
        len = (size_t)(body->size - at);
    if (body->fd < 0) {
        memcpy(out, body->bytes.ptr + body->from + at, len);
        return (long)len;
    }
    ssize_t n;
    do {
        n = pread(body->fd, out, len, (off_t)(body->from + at));
    } while (n < 0 && errno == EINTR);
    return n > 0 ? (long)n : n < 0 ? -errno : -EIO; /* it is shorter than it was */
}

/* ---- Sockets ---- */

static void sockets_add(struct s3_sockets *s, int fd)
{
    if (s->n == s->cap) {
        s->cap = s->cap == 0 ? 64 : 2 * s->cap;
        s->fds = mem_grow(s->fds, s->cap * sizeof(*s->fds));
    }
    s->fds[s->n++] = fd;
}

void s3_sockets_remove(struct s3_sockets *s, int fd)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->fds[i] == fd) {
            s->fds[i] = s->fds[--s->n];
            return;
        }
    }
}

static int local_port_of(int fd)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)&address, &len) != 0)
        return -1;
    if (address.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&address)->sin_port);
    if (address.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    return -1;
}

/* The socket bound to that port; -1 when there is none, or more than one (to different servers). */
static int socket_at(const struct s3_sockets *s, int local_port)
{
    int found = -1;
    for (size_t i = 0; i < s->n; i++) {
        if (local_port_of(s->fds[i]) != local_port)
            continue;
        if (found >= 0)
            return -1;
        found = s->fds[i];
    }
    return found;
}

static int on_socket(void *ctx, curl_socket_t fd, curlsocktype purpose)
{
    (void)purpose;
    sockets_add(ctx, fd);
    return CURL_SOCKOPT_OK;
}

/* ---- Callbacks ---- */

static size_t on_read(char *out, size_t size, size_t count, void *ctx)
{
    struct s3_transfer *t = ctx;
    if (t->at == t->body->size || size * count == 0)
        return 0;
    long n = s3_body_read(t->body, t->at, out, size * count);
    if (n <= 0) {
        t->body_errno = (int)-n;
        return CURL_READFUNC_ABORT;
    }
    t->at += (uint64_t)n;
    if (t->at == t->body->size) /* a store may think about it for long */
        (void)curl_easy_setopt(t->easy, CURLOPT_LOW_SPEED_LIMIT, 0L); /* known option */
    return (size_t)n;
}

/* libcurl sends again what it sent over a connection that turned out to be dead. */
static int on_seek(void *ctx, curl_off_t offset, int origin)
{
    struct s3_transfer *t = ctx;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > t->body->size)
        return CURL_SEEKFUNC_FAIL;
    t->at = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

static size_t on_header(char *line, size_t size, size_t count, void *ctx)
{
    struct s3_transfer *t = ctx;
    t->head_bytes += size * count;
    if (t->head_bytes > HEAD_MAX)
        return 0; /* libcurl keeps every line, and knows no end of a trailer */
    if (t->answer.head_done)
        return size * count; /* a trailer says nothing */
    s3_answer_header(&t->answer, span_make(line, size * count));
    if (t->answer.head_done && (t->answer.code >= 300 || t->call == S3_HEAD))
        (void)curl_easy_setopt(t->easy, CURLOPT_FORBID_REUSE, 1L); /* known option */
    return size * count;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *ctx)
{
    struct s3_transfer *t = ctx;
    struct buf *body = &t->answer.body;
    size_t len = size * count;
    if (t->answer.code < 300 && (t->call == S3_GET || t->call == S3_LIST)) {
        t->too_large = buf_try_append(body, bytes, len, t->keep_max) != ERR_OK;
        return t->too_large ? 0 : len;
    }
    size_t room = S3_ANSWER_KEPT - body->len;
    size_t kept = len < room ? len : room;
    buf_append(body, bytes, kept);
    t->dropped += len - kept;
    return t->dropped > DROPPED_MAX ? 0 : len;
}

static void read_late_tls(struct s3_transfer *t)
{
    struct curl_tlssessioninfo *session = NULL;
    uint8_t bytes[4096];
    int n;
    if (curl_easy_getinfo(t->easy, CURLINFO_TLS_SSL_PTR, &session) != CURLE_OK || session == NULL ||
        session->backend != CURLSSLBACKEND_OPENSSL || session->internals == NULL)
        return;
    while (t->late.len < LATE_MAX && (n = SSL_read(session->internals, bytes, sizeof(bytes))) > 0)
        buf_append(&t->late, bytes, (size_t)n);
    ERR_clear_error(); /* the end of the bytes is one */
}

/* libcurl throws bytes behind an answer away, which may be half of what is coming, and uses the
 * connection again; and it closes a TLS session that does not take more of a body, whatever stands
 * in it unread. Only its messages tell, while the session is still there. */
static int on_message(CURL *easy, curl_infotype type, char *text, size_t len, void *ctx)
{
    static const char *const messages[] = {"Excess found", "Leftovers after chunking"};
    static const char cannot_send[] = "SSL_write";
    struct s3_transfer *t = ctx;
    if (type == CURLINFO_TEXT && t->answer.code == 0 &&
        memmem(text, len, cannot_send, sizeof(cannot_send) - 1) != NULL)
        read_late_tls(t);
    for (size_t i = 0; type == CURLINFO_TEXT && i < sizeof(messages) / sizeof(messages[0]); i++) {
        if (span_starts_with(span_make(text, len), span_str(messages[i])))
            (void)curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L); /* known option */
    }
    return 0;
}

/* Nothing may stand in a connection that is to be used again. */
static bool is_clean(int fd)
{
    uint8_t byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

static int on_connected(void *ctx, char *remote_ip, char *local_ip, int remote_port, int local_port)
{
    struct s3_transfer *t = ctx;
    long connects = 0;
    (void)remote_ip;
    (void)local_ip;
    (void)remote_port;
    (void)curl_easy_getinfo(t->easy, CURLINFO_NUM_CONNECTS, &connects);
    t->fd = socket_at(t->sockets, local_port);
    t->reused = connects == 0;
    t->stale = t->reused && (t->fd < 0 || !is_clean(t->fd));
    return t->stale ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

/* ---- Begin ---- */

/* Every option is known to the libcurl that the build found, and its strings are copied: what is
 * left to fail is memory. */
#define SET(easy, option, value) ASSERT(curl_easy_setopt((easy), (option), (value)) == CURLE_OK)

static void add_header(struct s3_transfer *t, const char *line)
{
    struct curl_slist *list = curl_slist_append(t->headers, line);
    ASSERT(list != NULL);
    t->headers = list;
}

static void set_headers(struct s3_transfer *t)
{
    const char *line = (const char *)t->wire.headers.ptr;
    const char *end = line + t->wire.headers.len;
    for (; line < end; line += strlen(line) + 1)
        add_header(t, line);
    add_header(t, "Accept:"); /* no header that we did not sign; Content-Length is libcurl's */
    add_header(t, "Expect:");
    SET(t->easy, CURLOPT_HTTPHEADER, t->headers);
}

static void set_method(struct s3_transfer *t)
{
    SET(t->easy, CURLOPT_URL, (const char *)t->wire.url.ptr);
    SET(t->easy, CURLOPT_REQUEST_TARGET, (const char *)t->wire.target.ptr);
    SET(t->easy, CURLOPT_CUSTOMREQUEST, t->wire.method);
    SET(t->easy, CURLOPT_NOBODY, t->call == S3_HEAD ? 1L : 0L);
    if (!s3_call_has_body(t->call))
        return;
    SET(t->easy, CURLOPT_UPLOAD, 1L);
    SET(t->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)t->body->size);
    SET(t->easy, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER_BYTES);
    SET(t->easy, CURLOPT_READFUNCTION, on_read);
    SET(t->easy, CURLOPT_READDATA, t);
    SET(t->easy, CURLOPT_SEEKFUNCTION, on_seek);
    SET(t->easy, CURLOPT_SEEKDATA, t);
}

static void set_connection(struct s3_transfer *t, const struct s3_transfer_setup *setup)
{
    SET(t->easy, CURLOPT_PROTOCOLS_STR, setup->https ? "https" : "http");
    SET(t->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(t->easy, CURLOPT_PROXY, ""); /* none, whatever the environment says */
    SET(t->easy, CURLOPT_NOSIGNAL, 1L);
    SET(t->easy, CURLOPT_QUICK_EXIT, 1L); /* a name that does not resolve holds nobody up */
    SET(t->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    SET(t->easy, CURLOPT_MAXAGE_CONN, IDLE_MAX_S);
    SET(t->easy, CURLOPT_FRESH_CONNECT, t->fresh ? 1L : 0L);
    SET(t->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)setup->connect_timeout_ms);
    SET(t->easy, CURLOPT_TIMEOUT_MS, (long)setup->timeout_ms);
    SET(t->easy, CURLOPT_LOW_SPEED_LIMIT, t->body->size > 0 ? 1L : 0L);
    SET(t->easy, CURLOPT_LOW_SPEED_TIME, (long)setup->stall_s);
    SET(t->easy, CURLOPT_CA_CACHE_TIMEOUT, 0L); /* new authorities hold at once */
    if (setup->ca_file != NULL)
        SET(t->easy, CURLOPT_CAINFO, setup->ca_file);
    if (setup->ca_dir != NULL)
        SET(t->easy, CURLOPT_CAPATH, setup->ca_dir);
    SET(t->easy, CURLOPT_PREREQFUNCTION, on_connected);
    SET(t->easy, CURLOPT_PREREQDATA, t);
    SET(t->easy, CURLOPT_SOCKOPTFUNCTION, on_socket);
    SET(t->easy, CURLOPT_SOCKOPTDATA, setup->sockets);
    SET(t->easy, CURLOPT_CLOSESOCKETFUNCTION, setup->close_socket);
    SET(t->easy, CURLOPT_CLOSESOCKETDATA, setup->close_ctx);
}

void s3_transfer_begin(struct s3_transfer *t, enum s3_call call, const struct s3_body *body,
                       const struct s3_transfer_setup *setup)
{
    ASSERT(t->easy == NULL);
    t->easy = curl_easy_init();
    ASSERT(t->easy != NULL);
    t->call = call;
    t->body = body;
    t->sockets = setup->sockets;
    t->at = 0;
    t->keep_max = setup->keep_max;
    t->dropped = t->head_bytes = 0;
    t->fd = -1;
    t->reused = t->stale = t->too_large = false;
    t->body_errno = 0;
    t->text[0] = '\0';
    t->silence = BUCKET_ANSWERED;
    buf_reset(&t->late);
    s3_answer_reset(&t->answer);

    set_method(t);
    set_headers(t);
    set_connection(t, setup);
    SET(t->easy, CURLOPT_ERRORBUFFER, t->text);
    SET(t->easy, CURLOPT_VERBOSE, 1L);
    SET(t->easy, CURLOPT_DEBUGFUNCTION, on_message);
    SET(t->easy, CURLOPT_DEBUGDATA, t);
    SET(t->easy, CURLOPT_HEADERFUNCTION, on_header);
    SET(t->easy, CURLOPT_HEADERDATA, t);
    SET(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    SET(t->easy, CURLOPT_WRITEDATA, t);
}

/* ---- End ---- */

void s3_transfer_drain(struct s3_transfer *t)
{
    uint8_t bytes[4096];
    ssize_t n;
    while (t->late.len < LATE_MAX && (n = recv(t->fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
        buf_append(&t->late, bytes, (size_t)n);
}

/* Did a connection that was used before end without a byte of an answer to this request? */
static bool is_stale(const struct s3_transfer *t, CURLcode result)
{
    if (!t->reused || t->fresh || t->answer.code != 0)
        return false;
    return result == CURLE_SEND_ERROR || result == CURLE_RECV_ERROR ||
           result == CURLE_GOT_NOTHING ||
           result == CURLE_UNSUPPORTED_PROTOCOL || /* bytes that are no HTTP */
           result == CURLE_WEIRD_SERVER_REPLY;
}

/* The certificate was refused: by OpenSSL, which says why, or for its name, by libcurl. */
static enum bucket_silence certificate_trouble(const struct s3_transfer *t)
{
    long verdict = 0;
    (void)curl_easy_getinfo(t->easy, CURLINFO_SSL_VERIFYRESULT, &verdict);
    switch (verdict) {
    case X509_V_OK:
    case X509_V_ERR_UNSPECIFIED: /* what libcurl starts with, and leaves when it is the name */
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return BUCKET_CERT_NAME;
    case X509_V_ERR_CERT_NOT_YET_VALID:
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return BUCKET_CERT_TIME;
    default:
        return BUCKET_CERT_AUTHORITY;
    }
}

static enum bucket_silence timeout_trouble(const struct s3_transfer *t)
{
    curl_off_t named = 0, ready = 0;
    long port = 0; /* of ours: there is a connection, though perhaps no TLS on it yet */
    (void)curl_easy_getinfo(t->easy, CURLINFO_NAMELOOKUP_TIME_T, &named);
    (void)curl_easy_getinfo(t->easy, CURLINFO_LOCAL_PORT, &port);
    (void)curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &ready);
    if (named == 0)
        return BUCKET_NO_NAME;
    if (port <= 0)
        return BUCKET_NO_CONNECTION;
    return ready == 0 ? BUCKET_NOT_TLS : BUCKET_SLOW;
}

static enum bucket_silence silence_of(const struct s3_transfer *t, CURLcode result)
{
    switch (result) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_URL_MALFORMAT: /* a bucket before an IP address */
        return BUCKET_NO_NAME;
    case CURLE_COULDNT_CONNECT:
        return BUCKET_REFUSED;
    case CURLE_OPERATION_TIMEDOUT:
        return timeout_trouble(t);
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        return BUCKET_CLOSED;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        return BUCKET_NOT_HTTP;
    case CURLE_SSL_CONNECT_ERROR:
        return BUCKET_NOT_TLS;
    case CURLE_PEER_FAILED_VERIFICATION:
        return certificate_trouble(t);
    case CURLE_SSL_CACERT_BADFILE:
        return BUCKET_CERT_UNREADABLE;
    default:
        return BUCKET_SILENT;
    }
}

static enum s3_ending ending(struct s3_transfer *t, CURLcode result)
{
    struct s3_answer *a = &t->answer;
    if (t->stale)
        return S3_ENDED_STALE;
    if (a->head_done && (a->code >= 300 || result == CURLE_OK || t->too_large))
        return S3_ENDED_ANSWERED;
    t->silence = silence_of(t, result);
    if (result == CURLE_OK) {
        t->silence = BUCKET_CLOSED;
        (void)snprintf(t->text, sizeof(t->text), "the connection was closed in the answer's head");
        return S3_ENDED_FAILED;
    }
    if (t->late.len > 0 && a->code == 0 && s3_answer_parse_raw(a, buf_span(&t->late)) &&
        a->code >= 300)
        return S3_ENDED_ANSWERED;
    if (is_stale(t, result))
        return S3_ENDED_STALE;
    if (t->body_errno != 0) {
        t->silence = BUCKET_SILENT; /* not the bucket's fault */
        (void)snprintf(t->text, sizeof(t->text), "read the object's spool file: %s",
                       strerrordesc_np(t->body_errno));
    } else if (t->head_bytes > HEAD_MAX || t->dropped > DROPPED_MAX) {
        t->silence = BUCKET_NOT_HTTP;
        (void)snprintf(t->text, sizeof(t->text), "the answer's %s has no end",
                       t->head_bytes > HEAD_MAX ? "head" : "body");
    } else if (t->text[0] == '\0') {
        (void)snprintf(t->text, sizeof(t->text), "%s", curl_easy_strerror(result));
    }
    return S3_ENDED_FAILED;
}

enum s3_ending s3_transfer_end(struct s3_transfer *t, CURLcode result, bool *body_sent_out)
{
    curl_off_t sent = 0;
    (void)curl_easy_getinfo(t->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    *body_sent_out = !s3_call_has_body(t->call) || (uint64_t)sent >= t->body->size;
    enum s3_ending how = ending(t, result);
    s3_transfer_drop(t);
    return how;
}

void s3_transfer_drop(struct s3_transfer *t)
{
    curl_easy_cleanup(t->easy); /* NULL is allowed */
    curl_slist_free_all(t->headers);
    t->easy = NULL;
    t->headers = NULL;
    t->fd = -1;
}

void s3_transfer_deinit(struct s3_transfer *t)
{
    s3_transfer_drop(t);
    s3_wire_deinit(&t->wire);
    s3_answer_deinit(&t->answer);
    buf_deinit(&t->late);
}
