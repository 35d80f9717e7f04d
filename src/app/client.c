/* The HTTP client of the subcommands. It trusts the broker it talks to no further than it must: an
 * answer is read up to ANSWER_MAX and needs a status line and a length. */
#include "app/client.h"

#include "base/mem.h"

#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MAX                                                                                 \
    (256u * 1024 * 1024) /* bytes; a push of 64 MiB of tiny items is answered in this */
#define READ_SIZE 65536u

struct client {
    int fd;
    char *host; /* as in the URL, for the Host header */
    struct buf in;
};

/* Splits http://host[:port]; the host of an IPv6 literal loses its brackets in *name_out. */
static bool parse_url(struct span url, struct span *authority_out, struct span *name_out,
                      struct span *port_out)
{
    struct span scheme = SPAN_LIT("http://");
    if (!span_starts_with(url, scheme))
        return false;
    struct span rest = span_sub(url, scheme.len, url.len);
    while (rest.len > 0 && rest.ptr[rest.len - 1] == '/')
        rest.len--;
    if (rest.len == 0 || memchr(rest.ptr, '/', rest.len) != NULL)
        return false;
    *authority_out = *name_out = rest;
    *port_out = SPAN_LIT("80");
    size_t colon = rest.len;
    for (size_t i = rest.len; i > 0 && rest.ptr[i - 1] != ']'; i--) {
        if (rest.ptr[i - 1] == ':')
            colon = i - 1;
    }
    if (colon < rest.len) {
        *name_out = span_sub(rest, 0, colon);
        *port_out = span_sub(rest, colon + 1, rest.len);
    }
    if (name_out->len > 2 && name_out->ptr[0] == '[')
        *name_out = span_sub(*name_out, 1, name_out->len - 1);
    return name_out->len > 0 && port_out->len > 0;
}

static int connect_any(const struct addrinfo *list)
{
    int fd = -1;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0)
            continue;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
            return fd;
        int saved = errno;
        (void)close(fd);
        errno = saved;
    }
    return -1;
}

enum err client_open(struct span url, struct client **out, struct error *error)
{
    struct span authority, name, port;
    if (!parse_url(url, &authority, &name, &port))
        return error_set(error, ERR_INVALID, SPAN_FMT " is not http://host:port", SPAN_ARG(url));
    char *host = span_dup(name), *service = span_dup(port);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    enum err err = ERR_OK;
    int fd = -1, failed = getaddrinfo(host, service, &hints, &list);
    if (failed != 0)
        err = error_set(error, ERR_IO, SPAN_FMT ": %s", SPAN_ARG(url), gai_strerror(failed));
    else if ((fd = connect_any(list)) < 0)
        err = error_set(error, ERR_IO, SPAN_FMT ": %s", SPAN_ARG(url), strerror(errno));
    if (list != NULL)
        freeaddrinfo(list);
    mem_free(host);
    mem_free(service);
    if (err != ERR_OK)
        return err;
    struct client *c = mem_new(sizeof(*c));
    *c = (struct client){.fd = fd, .host = span_dup(authority)};
    *out = c;
    return ERR_OK;
}

void client_close(struct client *c)
{
    if (c == NULL)
        return;
    (void)close(c->fd);
    mem_free(c->host);
    buf_deinit(&c->in);
    mem_free(c);
}

static enum err send_all(struct client *c, struct span bytes, struct error *error)
{
    while (bytes.len > 0) {
        ssize_t n = send(c->fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(error, ERR_IO, "sending: %s", strerror(errno));
        bytes = span_sub(bytes, (size_t)n, bytes.len);
    }
    return ERR_OK;
}

static enum err read_more(struct client *c, struct error *error)
{
    if (c->in.len > ANSWER_MAX)
        return error_set(error, ERR_TOO_LARGE, "the answer is too large");
    buf_reserve(&c->in, READ_SIZE);
    ssize_t n;
    do
        n = recv(c->fd, c->in.ptr + c->in.len, READ_SIZE, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return error_set(error, ERR_IO, "receiving: %s", strerror(errno));
    if (n == 0)
        return error_set(error, ERR_IO, "the broker closed the connection");
    c->in.len += (size_t)n;
    return ERR_OK;
}

/* Bytes of the head with its blank line; 0 while it is not complete. */
static size_t head_size(struct span in)
{
    const uint8_t *end = in.len == 0 ? NULL : memmem(in.ptr, in.len, "\r\n\r\n", 4);
    return end == NULL ? 0 : (size_t)(end - in.ptr) + 4;
}

/* Value of a header; empty when absent. */
static struct span head_field(struct span head, struct span name)
{
    while (head.len > 0) {
        const uint8_t *end = memmem(head.ptr, head.len, "\r\n", 2);
        size_t len = end == NULL ? head.len : (size_t)(end - head.ptr);
        struct span line = span_sub(head, 0, len);
        if (line.len > name.len && line.ptr[name.len] == ':' &&
            span_eq_nocase(span_sub(line, 0, name.len), name))
            return span_trim(span_sub(line, name.len + 1, line.len));
        head = span_sub(head, len + (end == NULL ? 0 : 2), head.len);
    }
    return (struct span){0};
}

static enum err read_answer(struct client *c, unsigned *status_out, struct buf *answer,
                            struct error *error)
{
    size_t head = 0;
    while ((head = head_size(buf_span(&c->in))) == 0)
        TRY(read_more(c, error));
    struct span text = span_sub(buf_span(&c->in), 0, head);
    uint64_t status = 0, length = 0;
    if (text.len < 12 || !span_starts_with(text, SPAN_LIT("HTTP/1.")) ||
        !span_parse_u64(span_sub(text, 9, 12), &status))
        return error_set(error, ERR_IO, "the answer is not HTTP");
    if (!span_parse_u64(head_field(text, SPAN_LIT("content-length")), &length) ||
        length > ANSWER_MAX)
        return error_set(error, ERR_IO, "the answer has no usable length");
    while (c->in.len < head + length)
        TRY(read_more(c, error));
    buf_reset(answer);
    buf_append(answer, c->in.ptr + head, length);
    memmove(c->in.ptr, c->in.ptr + head + length, c->in.len - head - length);
    c->in.len -= head + length;
    *status_out = (unsigned)status;
    return ERR_OK;
}

enum err client_post(struct client *c, const char *path, struct span body, unsigned *status_out,
                     struct buf *answer, struct error *error)
{
    struct buf head = BUF_INIT;
    buf_printf(&head,
               "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n\r\n",
               path, c->host, body.len);
    enum err err = send_all(c, buf_span(&head), error);
    if (err == ERR_OK)
        err = send_all(c, body, error);
    buf_deinit(&head);
    TRY(err);
    return read_answer(c, status_out, answer, error);
}
