/* Log lines (spec/sink.md 20, spec/cluster.md 1.8): one line per event,
 *   <RFC 3339 UTC, microseconds, Z> <LEVEL> <target>: <message> <key=value ...>
 * Values are bare unless they hold a blank or a quote (or are empty), then quoted and
 * backslash-escaped; a line break is written \n inside quotes; other control bytes \xNN.
 * With QUEEN_LOG_JSON=true each line is one JSON object {"timestamp","level","target","message",
 * then the fields}.
 *
 * The base module does no I/O: main installs the writer and the clock. Without a writer lines are
 * dropped. Filter: directives such as "info,queen-s3=debug" (RUST_LOG, else LOG_LEVEL). Any thread.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/buf.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_TRACE };

struct log_field {
    const char *key;
    struct span value;
    bool always_quoted; /* `why` and `error` of the sink's lines */
};

/* Whole line (with its '\n') in one call; may be called from any thread, the callee serialises. */
typedef void (*log_write_fn)(void *ctx, struct span line);
typedef int64_t (*log_clock_fn)(void *ctx); /* wall clock, microseconds */

void log_install(log_write_fn write, log_clock_fn clock, void *ctx, bool json);
/* False (and the filter stays "info") when the directives do not parse. */
bool log_set_filter(struct span directives);
bool log_enabled(enum log_level level, const char *target);

/* target is a constant such as "boot", "queen-s3", "node". */
void log_event(enum log_level level, const char *target, const char *message,
               const struct log_field *fields, size_t n);

/* Incremental form, for lines with mixed field types:
 *   struct log_line l;
 *   log_begin(&l, LOG_INFO, "queen-s3", "window committed");
 *   log_str(&l, "queue", name); log_u64(&l, "k", k); log_end(&l); */
struct log_line {
    struct buf text;
    enum log_level level;
    bool enabled;
};

void log_begin(struct log_line *l, enum log_level level, const char *target, const char *message);
void log_str(struct log_line *l, const char *key, struct span value);
void log_quoted(struct log_line *l, const char *key, struct span value); /* always quoted */
void log_u64(struct log_line *l, const char *key, uint64_t value);
void log_i64(struct log_line *l, const char *key, int64_t value);
void log_f64(struct log_line *l, const char *key,
             double value); /* shortest decimal; 0.0 for zero */
void log_bool(struct log_line *l, const char *key, bool value);
void log_end(struct log_line *l); /* writes and frees */

/* Free-form message, no fields. */
void log_msg(enum log_level level, const char *target, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
