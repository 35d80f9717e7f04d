/* Durable push: how many records a second does one broker acknowledge?
 *
 *   push_bench PORT [connections] [records per request] [payload bytes] [seconds]
 *
 * Closed loop over keep-alive connections, one thread and one partition each. Prints records/s,
 * MB/s and latency percentiles, and after the run compares what was acknowledged with each
 * partition's high watermark (the ledger). The limit beside it, from the same run: writes of the
 * same bytes, one fdatasync for each batch that all connections together could have pending, into a
 * preallocated file in the current folder. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 256
#define SAMPLES_MAX 200000

struct bench {
    uint16_t port;
    unsigned connections, batch, bytes, seconds;
    char run[32]; /* queue name of this run */
};

struct worker {
    const struct bench *bench;
    unsigned id;
    pthread_t thread;
    uint64_t requests, records;
    uint32_t *latency_us;
    size_t samples;
    bool failed;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int dial(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static bool send_all(int fd, const char *ptr, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, ptr, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        ptr += n;
        len -= (size_t)n;
    }
    return true;
}

/* Reads one answer with a Content-Length. Returns its status, 0 on failure; body_out (may be NULL)
 * is cut to fit. */
static int read_answer(int fd, char *body_out, size_t body_max)
{
    static _Thread_local char in[1 << 16];
    size_t have = 0, want = 0, head = 0;
    int status = 0;
    while (head == 0 || have < want) {
        size_t keep = head == 0 ? have : 0;
        ssize_t n = recv(fd, in + keep, sizeof(in) - 1 - keep, 0);
        if (n <= 0)
            return 0;
        if (head != 0) {
            have += (size_t)n;
            continue;
        }
        have += (size_t)n;
        in[have] = 0;
        char *end = strstr(in, "\r\n\r\n");
        if (end == NULL)
            continue;
        head = (size_t)(end - in) + 4;
        char *length = strcasestr(in, "content-length:");
        status = (int)strtol(in + 9, NULL, 10);
        want = head + (length == NULL ? 0 : strtoul(length + 15, NULL, 10));
        if (body_out != NULL) {
            size_t len = have - head < body_max - 1 ? have - head : body_max - 1;
            memcpy(body_out, in + head, len);
            body_out[len] = 0;
        }
    }
    return status;
}

static char *make_request(const struct bench *b, unsigned id, size_t *len_out)
{
    size_t max = 512 + (size_t)b->batch * (b->bytes + 160);
    char *body = malloc(max), *request = malloc(max + 256);
    size_t at = (size_t)snprintf(body, max, "{\"items\":[");
    for (unsigned i = 0; i < b->batch; i++) {
        at += (size_t)snprintf(body + at, max - at,
                               "%s{\"queue\":\"%s\",\"partition\":\"p%u\",\"payload\":\"",
                               i == 0 ? "" : ",", b->run, id);
        for (unsigned c = 2; c < b->bytes; c++)
            body[at++] = (char)('a' + (c * 7 + i) % 26);
        at += (size_t)snprintf(body + at, max - at, "\"}");
    }
    at += (size_t)snprintf(body + at, max - at, "]}");
    size_t head = (size_t)snprintf(request, 256,
                                   "POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\n"
                                   "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                                   at);
    memcpy(request + head, body, at);
    free(body);
    *len_out = head + at;
    return request;
}

static void *work(void *ctx)
{
    struct worker *w = ctx;
    size_t len = 0;
    char *request = make_request(w->bench, w->id, &len);
    int fd = dial(w->bench->port);
    double end = now_s() + w->bench->seconds;
    w->failed = fd < 0;
    while (!w->failed && now_s() < end) {
        double start = now_s();
        if (!send_all(fd, request, len) || read_answer(fd, NULL, 0) != 201) {
            w->failed = true;
            break;
        }
        w->requests++;
        w->records += w->bench->batch;
        if (w->samples < SAMPLES_MAX)
            w->latency_us[w->samples++] = (uint32_t)((now_s() - start) * 1e6);
    }
    if (fd >= 0)
        close(fd);
    free(request);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The high watermark of a worker's partition, from an empty fetch. */
static int64_t watermark(const struct bench *b, unsigned id)
{
    char body[256], request[512], answer[4096];
    int n = snprintf(body, sizeof(body),
                     "{\"entries\":[{\"queue\":\"%s\",\"partition\":\"p%u\",\"offset\":0,"
                     "\"maxBytes\":1}]}",
                     b->run, id);
    int fd = dial(b->port);
    if (fd < 0)
        return -1;
    int len = snprintf(request, sizeof(request),
                       "POST /api/v1/fetch HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
                       "\r\n%s",
                       n, body);
    bool good =
        send_all(fd, request, (size_t)len) && read_answer(fd, answer, sizeof(answer)) == 200;
    close(fd);
    char *at = good ? strstr(answer, "\"highWatermark\":") : NULL;
    return at == NULL ? -1 : strtoll(at + 16, NULL, 10);
}

static double limit_records_per_s(const struct bench *b)
{
    size_t size = (size_t)b->connections * b->batch * b->bytes, file_max = 256u << 20;
    size = (size + 4095) & ~(size_t)4095;
    int fd = open("push_bench.tmp", O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    char *block = calloc(1, size < 1 << 20 ? 1 << 20 : size);
    if (fd < 0 || block == NULL)
        return 0;
    for (size_t at = 0; at < file_max; at += 1 << 20)
        (void)!pwrite(fd, block, 1 << 20, (off_t)at);
    fdatasync(fd);
    memset(block, 'x', size);
    double start = now_s();
    uint64_t writes = 0;
    size_t at = 0;
    while (now_s() - start < b->seconds / 2.0 + 0.5) {
        if (at + size > file_max)
            at = 0;
        if (pwrite(fd, block, size, (off_t)at) < 0 || fdatasync(fd) != 0)
            break;
        at += size;
        writes++;
    }
    double seconds = now_s() - start;
    close(fd);
    unlink("push_bench.tmp");
    free(block);
    return (double)writes * b->connections * b->batch / seconds;
}

static unsigned argument(int argc, char **argv, int at, unsigned otherwise)
{
    return argc > at ? (unsigned)strtoul(argv[at], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    struct bench b = {
        .port = (uint16_t)argument(argc, argv, 1, 0),
        .connections = argument(argc, argv, 2, 16),
        .batch = argument(argc, argv, 3, 100),
        .bytes = argument(argc, argv, 4, 1024),
        .seconds = argument(argc, argv, 5, 5),
    };
    if (b.port == 0 || b.connections == 0 || b.connections > CONNECTIONS_MAX || b.batch == 0 ||
        b.bytes < 2 || b.bytes > 1 << 20) {
        fprintf(stderr, "usage: push_bench PORT [connections] [records per request] [payload bytes]"
                        " [seconds]\n");
        return 2;
    }
    snprintf(b.run, sizeof(b.run), "bench-%d", (int)getpid());
    static struct worker workers[CONNECTIONS_MAX];
    double start = now_s();
    for (unsigned i = 0; i < b.connections; i++) {
        workers[i] = (struct worker){.bench = &b, .id = i};
        workers[i].latency_us = malloc(SAMPLES_MAX * sizeof(uint32_t));
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    uint64_t records = 0;
    size_t samples = 0;
    uint32_t *all = malloc((size_t)b.connections * SAMPLES_MAX * sizeof(uint32_t));
    bool failed = false;
    for (unsigned i = 0; i < b.connections; i++) {
        pthread_join(workers[i].thread, NULL);
        records += workers[i].records;
        failed = failed || workers[i].failed;
        memcpy(all + samples, workers[i].latency_us, workers[i].samples * sizeof(uint32_t));
        samples += workers[i].samples;
        free(workers[i].latency_us);
    }
    double seconds = now_s() - start;
    qsort(all, samples, sizeof(*all), by_value);
    double rate = (double)records / seconds, limit = limit_records_per_s(&b);
    printf("push: %u connections x %u records x %u bytes: %.0f records/s, %.1f MB/s, latency us"
           " p50 %u p99 %u max %u\n",
           b.connections, b.batch, b.bytes, rate, rate * b.bytes / 1e6,
           samples ? all[samples / 2] : 0, samples ? all[samples * 99 / 100] : 0,
           samples ? all[samples - 1] : 0);
    printf("limit: write and fdatasync of the same bytes: %.0f records/s; ratio %.2f\n", limit,
           limit > 0 ? rate / limit : 0);
    for (unsigned i = 0; i < b.connections; i++) {
        if (watermark(&b, i) != (int64_t)workers[i].records) {
            printf("ledger: partition p%u holds %lld records, %llu were acknowledged\n", i,
                   (long long)watermark(&b, i), (unsigned long long)workers[i].records);
            failed = true;
        }
    }
    free(all);
    printf("ledger: %s\n", failed ? "WRONG" : "every acknowledged record is there");
    return failed ? 1 : 0;
}
