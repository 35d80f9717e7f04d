#include "bench.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double bench_now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double bench_thread_cpu(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

double bench_process_cpu(int pid)
{
    clockid_t clock;
    return pid > 0 && clock_getcpuclockid(pid, &clock) == 0 ? seconds_of(clock) : 0;
}

_Noreturn void bench_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

/* --- HTTP --- */

int bench_dial(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        bench_die("nothing listens on port %u", port);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

void bench_send(int fd, const char *ptr, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, ptr, len, MSG_NOSIGNAL);
        if (n <= 0)
            bench_die("the connection was lost");
        ptr += n;
        len -= (size_t)n;
    }
}

size_t bench_head(const char *in, size_t len, size_t *body_out)
{
    static const char name[] = "\r\ncontent-length:";
    const char *end = memmem(in, len, "\r\n\r\n", 4);
    if (end == NULL)
        return 0;
    size_t head = (size_t)(end - in) + 4;
    *body_out = 0;
    for (const char *at = in; (at = memchr(at, '\r', (size_t)(end - at))) != NULL; at++) {
        if (strncasecmp(at, name, sizeof(name) - 1) == 0)
            *body_out = strtoul(at + sizeof(name) - 1, NULL, 10);
    }
    return head;
}

int bench_call(int fd, const char *method, const char *path, const char *body, size_t len,
               char **body_out)
{
    char head[512];
    int n = snprintf(head, sizeof(head),
                     "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n", method,
                     path, len);
    bench_send(fd, head, (size_t)n);
    bench_send(fd, body, len);

    size_t cap = 1 << 16, have = 0, want = SIZE_MAX, body_len = 0, head_len = 0;
    char *in = malloc(cap);
    while (have < want) {
        ssize_t got = recv(fd, in + have, cap - have - 1, 0);
        if (got <= 0)
            bench_die("no answer to %s %s", method, path);
        have += (size_t)got;
        if (want == SIZE_MAX && (head_len = bench_head(in, have, &body_len)) > 0)
            want = head_len + body_len;
        if (want != SIZE_MAX && want >= cap)
            in = realloc(in, cap = want + 1);
        else if (have + 1 == cap)
            in = realloc(in, cap *= 2);
    }
    in[have] = '\0';
    int status = (int)strtol(in + 9, NULL, 10);
    memmove(in, in + head_len, have - head_len + 1);
    *body_out = in;
    return status;
}

/* --- arguments --- */

static uint64_t asked; /* one bit an argument */

const char *bench_text(int argc, char **argv, const char *name, const char *otherwise)
{
    size_t len = strlen(name);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, name, len) == 0 &&
            argv[i][2 + len] == '=') {
            asked |= UINT64_C(1) << i % 64;
            return argv[i] + 3 + len;
        }
    }
    return otherwise;
}

uint64_t bench_number(int argc, char **argv, const char *name, uint64_t otherwise)
{
    const char *text = bench_text(argc, argv, name, NULL);
    char *end = NULL;
    uint64_t n = text == NULL ? otherwise : strtoull(text, &end, 10);
    if (text != NULL && (end == text || *end != '\0'))
        bench_die("--%s=%s is not a number", name, text);
    return n;
}

void bench_arguments_end(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if ((asked >> i % 64 & 1) == 0)
            bench_die("%s: unknown argument %s; the top of its source names them", argv[0],
                      argv[i]);
    }
}

/* --- samples --- */

void samples_add(struct samples *s, double seconds)
{
    if (s->n == s->cap) {
        s->cap = s->cap == 0 ? 4096 : 2 * s->cap;
        s->us = realloc(s->us, s->cap * sizeof(*s->us));
    }
    s->us[s->n++] = (uint32_t)(seconds * 1e6);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void samples_print(struct samples *s)
{
    size_t n = s->n;
    if (n == 0) {
        printf(" p50_us=0 p99_us=0 p999_us=0 max_us=0");
        return;
    }
    qsort(s->us, n, sizeof(*s->us), by_value);
    printf(" p50_us=%u p99_us=%u p999_us=%u max_us=%u", s->us[n / 2], s->us[n - 1 - n / 100],
           s->us[n - 1 - n / 1000], s->us[n - 1]);
}

/* --- records --- */

#define NUMBER_AT 6 /* behind {"n":" */
#define NUMBER_DIGITS 12
#define RECORD_MIN 24 /* the number, and a closing bracket */

static uint64_t random_next(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* One member with its comma, as text of at most `max` bytes. */
static size_t member_put(char *out, size_t max, uint64_t *state)
{
    static const char *const words[] = {"express", "standard", "fragile", "gift",  "return",
                                        "pending", "paid",     "shipped", "Lyon",  "Bergen",
                                        "Turin",   "Porto",    "invoice", "promo", "warehouse"};
    uint64_t r = random_next(state), w = sizeof(words) / sizeof(words[0]);
    switch (r % 5) {
    case 0:
        return (size_t)snprintf(out, max, ",\"sku\":\"A%05u\",\"quantity\":%u,\"price\":%u.%02u",
                                (unsigned)(r >> 8) % 20000, (unsigned)(r >> 24) % 9 + 1,
                                (unsigned)(r >> 32) % 300, (unsigned)(r >> 48) % 100);
    case 1:
        return (size_t)snprintf(out, max, ",\"status\":\"%s\",\"city\":\"%s\",\"tags\":[\"%s\"]",
                                words[(r >> 8) % w], words[(r >> 16) % w], words[(r >> 24) % w]);
    case 2:
        return (size_t)snprintf(out, max, ",\"session\":\"%016llx\"",
                                (unsigned long long)random_next(state));
    case 3:
        return (size_t)snprintf(out, max, ",\"note\":\"%s %s for the %s in %s\"",
                                words[(r >> 8) % w], words[(r >> 16) % w], words[(r >> 24) % w],
                                words[(r >> 32) % w]);
    default:
        return (size_t)snprintf(out, max, ",\"customer\":%u,\"total\":%u.%02u,\"open\":%s",
                                (unsigned)(r >> 8) % 1000000, (unsigned)(r >> 32) % 5000,
                                (unsigned)(r >> 48) % 100, r >> 63 ? "true" : "false");
    }
}

void record_put(char *out, size_t size, uint64_t seed)
{
    static const char fill[] = ",\"-\":\"\"";
    char member[256];
    uint64_t state = seed;
    if (size < RECORD_MIN)
        bench_die("a record of %zu bytes is too small", size);
    size_t at = NUMBER_AT + NUMBER_DIGITS + 1;
    memcpy(out, "{\"n\":\"000000000000\"", at);
    for (;;) {
        size_t len = member_put(member, sizeof(member), &state);
        if (at + len + sizeof(fill) > size) /* room for the fill and the bracket */
            break;
        memcpy(out + at, member, len);
        at += len;
    }
    size_t left = size - 1 - at;
    if (left >= sizeof(fill) - 1) {
        memcpy(out + at, fill, sizeof(fill) - 2);
        memset(out + at + sizeof(fill) - 2, '.', left - (sizeof(fill) - 1));
        out[size - 2] = '"';
    } else {
        memset(out + at, ' ', left);
    }
    out[size - 1] = '}';
}

void record_number(char *record, uint64_t n)
{
    for (unsigned i = NUMBER_DIGITS; i-- > 0; n /= 10)
        record[NUMBER_AT + i] = (char)('0' + n % 10);
}
