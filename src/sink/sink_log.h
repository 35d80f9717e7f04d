/* The sink's log lines (spec/sink.md 20): operators grep them, text and field order are interface.
 * Failures that can repeat fast are limited to one line per kind and interval, with the count of
 * those left out. Any thread. */
#ifndef SINK_SINK_LOG_H
#define SINK_SINK_LOG_H

#include "base/log.h"
#include "sink/task.h"

#include <pthread.h>

#define SINK_LOG_TARGET "queen-s3"

enum sink_log_limit {
    LIMIT_CLAIM,
    LIMIT_KV,
    LIMIT_PUT,
    LIMIT_GET,
    LIMIT_SCAN,
    LIMIT_BUILD,
    LIMIT_BUCKET,
    LIMIT_PRESENCE,
    LIMIT_COUNT
};

struct sink_log {
    pthread_mutex_t lock;
    struct {
        int64_t next_us;
        uint64_t suppressed;
    } limits[LIMIT_COUNT];
};

void sink_log_init(struct sink_log *l);
void sink_log_deinit(struct sink_log *l);
void sink_log_note(struct sink_log *l, struct span queue, const struct sink_note *note,
                   int64_t now_us);
void sink_log_crash(enum sink_crash_point point);
void sink_log_crash_between_parts(void);
void sink_log_bucket_down(struct sink_log *l, const struct sink_settings *s, struct span error,
                          int64_t now_us);
void sink_log_presence(struct sink_log *l, struct span error, int64_t now_us);

#endif
