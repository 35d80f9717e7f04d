/* Log lines to standard output. */
#include "app/process.h"

#include "base/log.h"
#include "io/clock.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void write_line(void *ctx, struct span line)
{
    (void)ctx;
    pthread_mutex_lock(&lock);
    while (line.len > 0) {
        ssize_t n = write(STDOUT_FILENO, line.ptr, line.len);
        if (n < 0 && errno != EINTR)
            break; /* nobody reads: the line is lost, the broker goes on */
        if (n > 0)
            line = span_sub(line, (size_t)n, line.len);
    }
    pthread_mutex_unlock(&lock);
}

static int64_t wall_clock(void *ctx)
{
    (void)ctx;
    return clock_wall_us(clock_real());
}

void output_install(bool json)
{
    log_install(write_line, wall_clock, NULL, json);
}
