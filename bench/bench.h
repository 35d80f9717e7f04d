/* What the benchmarks share: a clock, HTTP over plain sockets, records, percentiles.
 *
 * Nothing here is of the product: a benchmark must not get faster or slower with what it measures. */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

double bench_now(void);        /* seconds, monotonic */
double bench_thread_cpu(void); /* CPU seconds of this thread */

/* CPU seconds that a process has used, its threads that ended included; 0 when there is none. */
double bench_process_cpu(int pid);

/* A connection to a port of this machine; ends the program when there is none. */
int bench_dial(uint16_t port);
void bench_send(int fd, const char *ptr, size_t len);

/* One call on a blocking connection. Returns the status; *body_out (to be freed) ends in a NUL. */
int bench_call(int fd, const char *method, const char *path, const char *body, size_t len,
               char **body_out);

/* The end of a message's head in what came so far, 0 when it is not there yet. *body_out: the length
 * of the body it announces. */
size_t bench_head(const char *in, size_t len, size_t *body_out);

_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* An argument `--name=value` of main; otherwise when it is not there. bench_arguments_end() refuses
 * those that nobody asked for. */
uint64_t bench_number(int argc, char **argv, const char *name, uint64_t otherwise);
const char *bench_text(int argc, char **argv, const char *name, const char *otherwise);
void bench_arguments_end(int argc, char **argv);

/* --- samples of a latency, in microseconds --- */

struct samples {
    uint32_t *us;
    size_t n, cap;
};

void samples_add(struct samples *s, double seconds);
/* " p50_us=… p99_us=… p999_us=… max_us=…" to standard output. Sorts. */
void samples_print(struct samples *s);

/* --- records --- */

/* Writes a JSON object of exactly `size` bytes, 24 at least, that compresses about as well as the
 * events of a shop do. It begins with {"n":"<12 digits>", see record_number(). */
void record_put(char *out, size_t size, uint64_t seed);
void record_number(char *record, uint64_t n);

#endif
