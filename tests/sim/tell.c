/* What a world says: the first thing that is wrong, the lines of its story, and the sinks' own log
 * lines among them. Every line goes into the run's hash: equal runs have equal stories. */
#include "sim/world_internal.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#define LOG_WIDTH 160u /* of a log line in a story */

void world_fail(struct world *w, const char *format, ...)
{
    if (!w->result->ok)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(w->result->why, sizeof(w->result->why), format, args);
    va_end(args);
    w->result->why[strcspn(w->result->why, "\n")] = '\0'; /* a log line ends in one */
    w->result->ok = false;
    world_trace(w, "wrong: %s", w->result->why);
}

static void trace(struct world *w, bool shown, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
static void trace(struct world *w, bool shown, const char *format, va_list args)
{
    char text[300];
    int len = vsnprintf(text, sizeof(text), format, args);
    double virtual_s = (double)(w->clock.mono - w->start_us) / 1e6;
    w->moved = true;
    for (int i = 0; i < len && i < (int)sizeof(text) - 1; i++) /* FNV-1a */
        w->result->trace_hash = (w->result->trace_hash ^ (uint8_t)text[i]) * 0x100000001b3u;
    w->result->trace_hash = (w->result->trace_hash ^ (uint64_t)w->clock.mono) * 0x100000001b3u;
    w->result->trace_hash = (w->result->trace_hash ^ (uint64_t)w->clock.wall) * 0x100000001b3u;
    if (shown)
        printf("%6llu %11.6f s  %s\n", (unsigned long long)w->result->steps, virtual_s, text);
}

void world_trace(struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    trace(w, w->options->trace != TRACE_NONE, format, args);
    va_end(args);
}

void world_detail(struct world *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    trace(w, w->options->trace == TRACE_ALL, format, args);
    va_end(args);
}

/* --- log --- */

static struct {
    struct world *world; /* whose sinks write */
    enum world_trace trace;
} log_lines;

static void log_line(void *ctx, struct span line)
{
    (void)ctx;
    if (log_lines.trace != TRACE_NONE) {
        struct span text = line; /* less its own time, which is the wall clock's */
        const uint8_t *space = memchr(line.ptr, ' ', line.len);
        if (space != NULL)
            text = span_sub(line, (size_t)(space - line.ptr) + 1, line.len);
        bool acting = log_lines.world != NULL && log_lines.world->acting != NULL;
        text.len -= text.len > 0 && text.ptr[text.len - 1] == '\n';
        printf("%24s  | " SPAN_FMT "\n", acting ? log_lines.world->acting->name : "",
               SPAN_ARG(span_sub(text, 0, text.len < LOG_WIDTH ? text.len : LOG_WIDTH)));
    }
    if (log_lines.world != NULL)
        instance_log_line(log_lines.world, line);
}

static int64_t log_clock(void *ctx)
{
    (void)ctx;
    return log_lines.world == NULL ? 0 : log_lines.world->clock.wall;
}

void world_log_install(enum world_trace trace)
{
    log_lines.trace = trace;
    log_install(log_line, log_clock, NULL, false);
}

void world_log_of(struct world *w)
{
    log_lines.world = w;
}
