/* An S3 endpoint that costs nothing: bodies are thrown away, except small ones, which a GET gives
 * back (the sink reads its manifests).
 *
 *   null_s3
 *
 * PUT, GET, HEAD, DELETE, LIST (always empty) and multipart uploads; nothing is signed, no ETag is
 * a digest. Prints `listening port=N`; at SIGTERM `objects=N parts=N bytes=N`. One thread. */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_MAX (64u << 10)
#define KEPT_MAX (64u << 10) /* bytes of a body that is kept */
#define EVENTS_MAX 64

struct object {
    struct object *next;
    char *key;
    size_t size;
    char *bytes; /* NULL: it was large */
};

struct client {
    int fd;
    char in[HEAD_MAX + KEPT_MAX]; /* head, and a body that fits */
    size_t have, head, body;      /* head 0: not whole; body: announced length */
    size_t dropped;               /* of a body that does not fit */
    bool large;
};

static struct object *objects;
static uint64_t n_objects, n_parts, n_bytes;
static int poller;

static struct object *find(const char *key)
{
    struct object *o = objects;
    while (o != NULL && strcmp(o->key, key) != 0)
        o = o->next;
    return o;
}

static void keep(const char *key, const struct client *c)
{
    struct object *o = find(key);
    if (o == NULL) {
        o = calloc(1, sizeof(*o));
        o->key = strdup(key);
        o->next = objects;
        objects = o;
    }
    free(o->bytes);
    o->bytes = NULL;
    o->size = c->body;
    if (!c->large) {
        o->bytes = malloc(c->body + 1);
        memcpy(o->bytes, c->in + c->head, c->body);
    }
}

/* --- answers --- */

static void answer(struct client *c, const char *status, const char *headers, const char *body,
                   size_t len, bool with_body)
{
    char head[512];
    int n = snprintf(head, sizeof(head),
                     "HTTP/1.1 %s\r\nx-amz-request-id: 0\r\n%sContent-Length: %zu\r\n\r\n", status,
                     headers, len);
    bench_send(c->fd, head, (size_t)n);
    if (with_body)
        bench_send(c->fd, body, len);
}

static void answer_xml(struct client *c, const char *status, const char *xml)
{
    answer(c, status, "Content-Type: application/xml\r\n", xml, strlen(xml), true);
}

/* Of a form that says it is no MD5: those are compared. */
#define ETAG "ETag: \"null\"\r\n"

static void answer_get(struct client *c, const char *key, bool with_body)
{
    const struct object *o = find(key);
    if (o != NULL && (o->bytes != NULL || !with_body))
        answer(c, "200 OK", ETAG, o->bytes, o->size, with_body);
    else if (with_body)
        answer_xml(c, "404 Not Found", "<Error><Code>NoSuchKey</Code></Error>");
    else
        answer(c, "404 Not Found", "", "", 0, false);
}

static void answer_post(struct client *c, const char *query)
{
    if (strstr(query, "uploadId=") != NULL)
        answer_xml(c, "200 OK",
                   "<CompleteMultipartUploadResult><ETag>\"null\"</ETag>"
                   "</CompleteMultipartUploadResult>");
    else
        answer_xml(c, "200 OK",
                   "<InitiateMultipartUploadResult><UploadId>one</UploadId>"
                   "</InitiateMultipartUploadResult>");
}

/* The request is whole. */
static void serve(struct client *c)
{
    char *method = c->in, *target = strchr(method, ' ');
    *target++ = '\0';
    *strchr(target, ' ') = '\0';
    char *query = strchr(target, '?');
    if (query != NULL)
        *query++ = '\0';
    const char *asked = query == NULL ? "" : query;
    if (strcmp(method, "PUT") == 0) {
        n_bytes += c->body;
        if (strstr(asked, "partNumber=") != NULL) {
            n_parts++;
        } else {
            n_objects++;
            keep(target, c);
        }
        answer(c, "200 OK", ETAG, "", 0, false);
    } else if (strcmp(method, "GET") == 0 && strstr(asked, "list-type=") != NULL) {
        answer_xml(c, "200 OK",
                   "<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated>"
                   "</ListBucketResult>");
    } else if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0) {
        answer_get(c, target, method[0] == 'G');
    } else if (strcmp(method, "POST") == 0) {
        answer_post(c, asked);
    } else {
        answer(c, "204 No Content", "", "", 0, false);
    }
    c->have = c->head = c->body = c->dropped = 0;
    c->large = false;
}

/* --- requests --- */

static void head_came(struct client *c)
{
    c->head = bench_head(c->in, c->have, &c->body);
    if (c->head == 0) {
        if (c->have >= HEAD_MAX)
            bench_die("a head of more than %u bytes", HEAD_MAX);
        return;
    }
    c->large = c->body > KEPT_MAX;
    c->dropped = c->large ? c->have - c->head : 0;
    if (memmem(c->in, c->head, "100-continue", 12) != NULL && c->have == c->head)
        bench_send(c->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

static void receive(struct client *c)
{
    static char sink[1 << 20];
    ssize_t n;
    if (c->large)
        n = recv(c->fd, sink, sizeof(sink), 0);
    else
        n = recv(c->fd, c->in + c->have, sizeof(c->in) - c->have, 0);
    if (n <= 0) {
        close(c->fd);
        free(c);
        return;
    }
    if (c->large)
        c->dropped += (size_t)n;
    else
        c->have += (size_t)n;
    if (c->head == 0)
        head_came(c);
    if (c->head > 0 && (c->large ? c->dropped : c->have - c->head) >= c->body)
        serve(c);
}

static int start_listening(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) != 0 || listen(fd, 128) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        bench_die("cannot listen: %s", strerror(errno));
    printf("listening port=%u\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

static void watch(int fd, void *ptr)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = ptr};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

static void accept_one(int listener)
{
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct client *c = calloc(1, sizeof(*c));
    c->fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    watch(fd, c);
}

int main(int argc, char **argv)
{
    bench_arguments_end(argc, argv);
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    int stop = signalfd(-1, &term, SFD_CLOEXEC), listener = start_listening();
    poller = epoll_create1(EPOLL_CLOEXEC);
    watch(listener, &listener);
    watch(stop, &stop);
    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        int n = epoll_wait(poller, events, EVENTS_MAX, -1);
        for (int i = 0; i < n; i++) {
            void *ptr = events[i].data.ptr;
            if (ptr == &stop) {
                printf("objects=%llu parts=%llu bytes=%llu\n", (unsigned long long)n_objects,
                       (unsigned long long)n_parts, (unsigned long long)n_bytes);
                return 0;
            }
            if (ptr == &listener)
                accept_one(listener);
            else
                receive(ptr);
        }
    }
}
