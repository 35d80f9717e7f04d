/* Durable push: how many records a second does a server acknowledge?
 *
 *   push_bench --port=P [--connections=16] [--batch=100] [--bytes=1024] [--seconds=5] [--records=N]
 *              [--queue=NAME] [--pid=PID] [--ledger=1] [--explicit=0]
 *
 * Closed loop: each connection has one partition and one request on its way. One thread serves all of
 * them, so that the load takes little of the machine it shares with the server. Ends after the
 * seconds, or when N records are acknowledged. Record n of a partition carries the number n.
 *
 * The ledger, after the run: a partition's high watermark must be what was acknowledged of it, and a
 * sample of its records, fetched, must be byte for byte what was sent. --ledger=0 for the bare server,
 * which has no fetch. With --pid the CPU time of that process is printed too; with --explicit=1 each
 * record has a transactionId of its own. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024u
#define VARIETY_BYTES (4u << 20) /* of a partition before its texts repeat: above zstd's window */
#define ANSWER_MAX (1u << 20)    /* an answer takes less than 200 bytes a record */
#define SAMPLES 16u              /* records of a partition that are fetched and compared */

struct bench {
    uint16_t port;
    unsigned connections, batch, bytes, variants;
    uint64_t records_max;
    const char *queue;
    bool explicit_ids;
    int epoll;
    double end;
    uint64_t records, requests;
    struct samples latency;
};

/* A request, and where its records stand in it. */
struct request {
    char *text;
    size_t len;
    uint32_t *payload_at;
    uint32_t *id_at; /* digits of the transactionId */
};

struct connection {
    unsigned id;
    int fd;
    struct request *requests; /* the variants, in turn */
    uint64_t turn;
    size_t sent;
    char *in;
    size_t have, want; /* want 0: the head is not whole */
    double began;
    bool idle;
};

/* --- requests --- */

static void request_make(const struct bench *b, unsigned connection, unsigned variant,
                         struct request *r)
{
    size_t max = 512 + (size_t)b->batch * (b->bytes + 256), at = 256;
    r->text = malloc(max);
    r->payload_at = malloc(b->batch * sizeof(uint32_t));
    r->id_at = malloc(b->batch * sizeof(uint32_t));
    size_t body = at;
    at += (size_t)snprintf(r->text + at, max - at, "{\"items\":[");
    for (unsigned i = 0; i < b->batch; i++) {
        at += (size_t)snprintf(r->text + at, max - at, "%s{\"queue\":\"%s\",\"partition\":\"p%u\"",
                               i == 0 ? "" : ",", b->queue, connection);
        if (b->explicit_ids)
            at += (size_t)snprintf(r->text + at, max - at,
                                   ",\"transactionId\":\"order-000000000000\"");
        r->id_at[i] = (uint32_t)at - 13;
        at += (size_t)snprintf(r->text + at, max - at, ",\"payload\":");
        r->payload_at[i] = (uint32_t)at;
        record_put(r->text + at, b->bytes,
                   (((uint64_t)connection * b->variants + variant) * b->batch + i) << 20);
        at += b->bytes;
        r->text[at++] = '}';
    }
    at += (size_t)snprintf(r->text + at, max - at, "]}");
    char head[256];
    size_t len = (size_t)snprintf(head, sizeof(head),
                                  "POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\n"
                                  "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                                  at - body);
    memcpy(r->text + body - len, head, len); /* the head ends where the body begins */
    memmove(r->text, r->text + body - len, at - body + len);
    r->len = at - body + len;
    for (unsigned i = 0; i < b->batch; i++) {
        r->payload_at[i] -= (uint32_t)(body - len);
        r->id_at[i] -= (uint32_t)(body - len);
    }
}

static struct request *request_of(const struct bench *b, const struct connection *c, uint64_t turn)
{
    return &c->requests[turn % b->variants];
}

static void number_records(const struct bench *b, const struct request *r, uint64_t first)
{
    for (unsigned i = 0; i < b->batch; i++) {
        record_number(r->text + r->payload_at[i], first + i);
        for (uint64_t n = first + i, d = 12; b->explicit_ids && d-- > 0; n /= 10)
            r->text[r->id_at[i] + d] = (char)('0' + n % 10);
    }
}

/* --- the loop --- */

static void watch(const struct bench *b, struct connection *c, int op, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = c};
    epoll_ctl(b->epoll, op, c->fd, &event);
}

static void send_more(const struct bench *b, struct connection *c)
{
    struct request *r = request_of(b, c, c->turn);
    while (c->sent < r->len) {
        ssize_t n = send(c->fd, r->text + c->sent, r->len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            watch(b, c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
            return;
        }
        if (n <= 0)
            bench_die("connection %u was lost while sending", c->id);
        c->sent += (size_t)n;
    }
    watch(b, c, EPOLL_CTL_MOD, EPOLLIN);
}

static void begin(struct bench *b, struct connection *c)
{
    if (bench_now() >= b->end || b->requests * b->batch >= b->records_max) {
        c->idle = true;
        return;
    }
    b->requests++;
    number_records(b, request_of(b, c, c->turn), c->turn * b->batch);
    c->sent = c->have = c->want = 0;
    c->began = bench_now();
    send_more(b, c);
}

static void answered(struct bench *b, struct connection *c)
{
    if (strncmp(c->in + 9, "201", 3) != 0)
        bench_die("answer %.*s", (int)(c->have < 400 ? c->have : 400), c->in);
    samples_add(&b->latency, bench_now() - c->began);
    b->records += b->batch;
    c->turn++;
    begin(b, c);
}

static void receive(struct bench *b, struct connection *c)
{
    ssize_t n = recv(c->fd, c->in + c->have, ANSWER_MAX - c->have, 0);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0)
        bench_die("connection %u was lost", c->id);
    c->have += (size_t)n;
    size_t body, head;
    if (c->want == 0 && (head = bench_head(c->in, c->have, &body)) > 0)
        c->want = head + body;
    if (c->want > ANSWER_MAX)
        bench_die("an answer of %zu bytes", c->want);
    if (c->want > 0 && c->have >= c->want)
        answered(b, c);
}

static void run(struct bench *b, struct connection *all)
{
    struct epoll_event events[CONNECTIONS_MAX];
    for (unsigned i = 0; i < b->connections; i++)
        begin(b, &all[i]);
    for (;;) {
        bool busy = false;
        for (unsigned i = 0; i < b->connections && !busy; i++)
            busy = !all[i].idle;
        if (!busy)
            return;
        int n = epoll_wait(b->epoll, events, CONNECTIONS_MAX, 60000);
        if (n == 0)
            bench_die("no answer for a minute");
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                send_more(b, c);
            if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
                receive(b, c);
        }
    }
}

/* --- the ledger --- */

/* Fetches record `offset` of a partition; its high watermark. */
static uint64_t fetch_and_compare(const struct bench *b, const struct connection *c, int fd,
                                  uint64_t offset, bool *wrong)
{
    char body[256], *answer = NULL;
    int len = snprintf(body, sizeof(body),
                       "{\"entries\":[{\"queue\":\"%s\",\"partition\":\"p%u\",\"offset\":%" PRIu64
                       ",\"maxBytes\":1}]}",
                       b->queue, c->id, offset);
    if (bench_call(fd, "POST", "/api/v1/fetch", body, (size_t)len, &answer) != 200)
        bench_die("fetch: %.400s", answer);
    const char *mark = strstr(answer, "\"highWatermark\":");
    const char *payload = strstr(answer, "\"payload\":");
    if (offset < c->turn * b->batch) {
        struct request *r = request_of(b, c, offset / b->batch);
        number_records(b, r, offset / b->batch * b->batch);
        const char *sent = r->text + r->payload_at[offset % b->batch];
        *wrong = payload == NULL || memcmp(payload + 10, sent, b->bytes) != 0;
        if (*wrong)
            printf("ledger: record %" PRIu64 " of partition p%u is not what was sent\n", offset,
                   c->id);
    }
    uint64_t watermark = mark == NULL ? 0 : strtoull(mark + 16, NULL, 10);
    free(answer);
    return watermark;
}

static bool ledger(const struct bench *b, const struct connection *all)
{
    bool right = true;
    int fd = bench_dial(b->port);
    for (unsigned i = 0; i < b->connections; i++) {
        const struct connection *c = &all[i];
        uint64_t acknowledged = c->turn * b->batch, seed = i;
        for (unsigned s = 0; s < SAMPLES && acknowledged > 0; s++) {
            bool wrong = false;
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            uint64_t offset = s == 0 ? acknowledged - 1 : (seed >> 16) % acknowledged;
            uint64_t watermark = fetch_and_compare(b, c, fd, offset, &wrong);
            if (watermark != acknowledged)
                printf("ledger: partition p%u holds %" PRIu64 " records, %" PRIu64
                       " were acknowledged\n",
                       i, watermark, acknowledged);
            if (wrong || watermark != acknowledged) {
                right = false;
                break; /* one of a partition tells enough */
            }
        }
    }
    close(fd);
    return right;
}

/* --- */

static struct connection *connect_all(struct bench *b)
{
    struct connection *all = calloc(b->connections, sizeof(*all));
    b->epoll = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < b->connections; i++) {
        struct connection *c = &all[i];
        c->id = i;
        c->fd = bench_dial(b->port);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        c->in = malloc(ANSWER_MAX);
        c->requests = calloc(b->variants, sizeof(*c->requests));
        for (unsigned v = 0; v < b->variants; v++)
            request_make(b, i, v, &c->requests[v]);
        watch(b, c, EPOLL_CTL_ADD, EPOLLIN);
    }
    return all;
}

int main(int argc, char **argv)
{
    struct bench b = {
        .port = (uint16_t)bench_number(argc, argv, "port", 0),
        .connections = (unsigned)bench_number(argc, argv, "connections", 16),
        .batch = (unsigned)bench_number(argc, argv, "batch", 100),
        .bytes = (unsigned)bench_number(argc, argv, "bytes", 1024),
        .records_max = bench_number(argc, argv, "records", UINT64_MAX),
        .queue = bench_text(argc, argv, "queue", "bench"),
        .explicit_ids = bench_number(argc, argv, "explicit", 0) != 0,
    };
    uint64_t seconds = bench_number(argc, argv, "seconds", 5);
    int pid = (int)bench_number(argc, argv, "pid", 0);
    bool check = bench_number(argc, argv, "ledger", 1) != 0;
    bench_arguments_end(argc, argv);
    if (b.port == 0 || b.connections == 0 || b.connections > CONNECTIONS_MAX || b.batch == 0 ||
        b.batch > 4000 || b.bytes > 1 << 20)
        bench_die("push_bench: needs --port; at most %u connections, 4000 records a request, 1 MiB"
                  " a record",
                  CONNECTIONS_MAX);
    b.variants = VARIETY_BYTES / (b.batch * b.bytes) + 1;
    if (b.variants > 64 && b.batch == 1)
        b.variants = 64; /* small requests: their variety is of no use to what they measure */
    struct connection *all = connect_all(&b);

    double cpu = bench_process_cpu(pid), own = bench_thread_cpu(), start = bench_now();
    b.end = start + (double)seconds;
    run(&b, all);
    double took = bench_now() - start, rate = (double)b.records / took;
    cpu = bench_process_cpu(pid) - cpu;
    own = bench_thread_cpu() - own;
    bool right = !check || ledger(&b, all);
    printf("push connections=%u batch=%u bytes=%u seconds=%.2f records=%" PRIu64
           " records_per_s=%.0f mb_per_s=%.1f",
           b.connections, b.batch, b.bytes, took, b.records, rate, rate * b.bytes / 1e6);
    samples_print(&b.latency);
    printf(" server_cpu_us=%.2f load_cpu_us=%.2f ledger=%s\n", cpu * 1e6 / (double)b.records,
           own * 1e6 / (double)b.records,
           !check  ? "none"
           : right ? "right"
                   : "WRONG");
    return right ? 0 : 1;
}
