/* How long after a push is its record with a reader that waits for it?
 *
 *   tail_bench --port=P [--seconds=5] [--rate=200] [--bytes=1024] [--queue=NAME]
 *
 * One connection pushes single records at a fixed rate, another one fetches with a long poll from
 * where it is. Two latencies, each from the moment the push is sent: until its answer, and until the
 * record is fetched. The reader checks that offsets come without a gap. */
#include "bench.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct bench {
    uint16_t port;
    uint64_t records;
    const char *queue;
    double *sent; /* by offset */
    struct samples fetched;
    bool gap;
};

/* Counts the records of an answer, which came at `now`. */
static uint64_t take(struct bench *b, const char *answer, uint64_t next, double now)
{
    for (const char *at = answer; (at = strstr(at, "{\"offset\":")) != NULL; at++, next++) {
        if (strtoull(at + 10, NULL, 10) != next || next >= b->records)
            b->gap = true;
        else
            samples_add(&b->fetched, now - b->sent[next]);
    }
    return next;
}

static void *read_all(void *ctx)
{
    struct bench *b = ctx;
    int fd = bench_dial(b->port);
    for (uint64_t next = 0; next < b->records && !b->gap;) {
        char body[256], *answer;
        int len =
            snprintf(body, sizeof(body),
                     "{\"maxWaitMs\":10000,\"entries\":[{\"queue\":\"%s\",\"partition\":\"p\","
                     "\"offset\":%" PRIu64 "}]}",
                     b->queue, next);
        if (bench_call(fd, "POST", "/api/v1/fetch", body, (size_t)len, &answer) != 200)
            bench_die("fetch: %.400s", answer);
        next = take(b, answer, next, bench_now());
        free(answer);
    }
    close(fd);
    return NULL;
}

static void wait_until(double at)
{
    double left = at - bench_now();
    struct timespec pause = {.tv_sec = (time_t)left,
                             .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
    if (left > 0)
        nanosleep(&pause, NULL);
}

static void push(const struct bench *b, int fd, const char *record, size_t bytes)
{
    char head[128], *body = malloc(bytes + 256), *answer;
    int at = snprintf(head, sizeof(head),
                      "{\"items\":[{\"queue\":\"%s\",\"partition\":\"p\",\"payload\":", b->queue);
    memcpy(body, head, (size_t)at);
    memcpy(body + at, record, bytes);
    memcpy(body + (size_t)at + bytes, "}]}", 3);
    if (bench_call(fd, "POST", "/api/v1/push", body, (size_t)at + bytes + 3, &answer) != 201)
        bench_die("push: %.400s", answer);
    free(answer);
    free(body);
}

int main(int argc, char **argv)
{
    uint64_t seconds = bench_number(argc, argv, "seconds", 5);
    uint64_t rate = bench_number(argc, argv, "rate", 200);
    size_t bytes = bench_number(argc, argv, "bytes", 1024);
    struct bench b = {.port = (uint16_t)bench_number(argc, argv, "port", 0),
                      .records = seconds * rate,
                      .queue = bench_text(argc, argv, "queue", "tail")};
    bench_arguments_end(argc, argv);
    if (b.port == 0 || rate == 0 || b.records == 0)
        bench_die("tail_bench: needs --port, and records to push");
    b.sent = calloc(b.records, sizeof(*b.sent));
    char *record = malloc(bytes);
    record_put(record, bytes, 1);
    int fd = bench_dial(b.port);

    struct samples pushed = {0};
    pthread_t reader;
    double start = bench_now();
    for (uint64_t i = 0; i < b.records; i++) {
        wait_until(start + (double)i / (double)rate);
        b.sent[i] = bench_now();
        push(&b, fd, record, bytes);
        samples_add(&pushed, bench_now() - b.sent[i]);
        if (i == 0) /* the queue is there now */
            pthread_create(&reader, NULL, read_all, &b);
    }
    pthread_join(reader, NULL);
    printf("tail what=push rate=%" PRIu64, rate);
    samples_print(&pushed);
    printf("\ntail what=fetch rate=%" PRIu64, rate);
    samples_print(&b.fetched);
    printf(" ledger=%s\n", b.gap || b.fetched.n != b.records ? "WRONG" : "right");
    return b.gap || b.fetched.n != b.records;
}
