/* Configuring and deleting queues (spec/broker-api.md 3, 11). Options are merged by the serving
 * thread from the request alone into "set", "reset" and "keep" per option, so that apply decides on
 * the state it finds. */
#ifndef BROKER_CONFIGURE_H
#define BROKER_CONFIGURE_H

#include "store/command.h"
#include "store/state.h"

/* One row per option: field, JSON name, kind (I int, B bool, S string), default, min, max. */
#define QUEUE_OPTION_LIST(X)                                                                       \
    X(priority, "priority", I, 0, INT32_MIN, INT32_MAX)                                            \
    X(lease_time, "leaseTime", I, 300, INT32_MIN, INT32_MAX)                                       \
    X(retry_limit, "retryLimit", I, 3, INT32_MIN, INT32_MAX)                                       \
    X(retry_delay, "retryDelay", I, 1000, INT32_MIN, INT32_MAX)                                    \
    X(max_size, "maxSize", I, 0, INT32_MIN, INT32_MAX)                                             \
    X(ttl, "ttl", I, 3600, INT32_MIN, INT32_MAX)                                                   \
    X(dead_letter_queue, "deadLetterQueue", B, 1, 0, 1)                                            \
    X(dlq_after_max_retries, "dlqAfterMaxRetries", B, 1, 0, 1)                                     \
    X(delayed_processing, "delayedProcessing", I, 0, 0, INT32_MAX)                                 \
    X(window_buffer, "windowBuffer", I, 0, 0, INT32_MAX)                                           \
    X(retention_seconds, "retentionSeconds", I, 0, 0, INT32_MAX)                                   \
    X(completed_retention_seconds, "completedRetentionSeconds", I, 0, 0, INT32_MAX)                \
    X(retention_enabled, "retentionEnabled", B, 0, 0, 1)                                           \
    X(encryption_enabled, "encryptionEnabled", B, 0, 0, 1)                                         \
    X(max_wait_time_seconds, "maxWaitTimeSeconds", I, 0, 0, INT32_MAX)                             \
    X(min_pop_wait_time, "minPopWaitTime", I, 0, INT32_MIN, INT32_MAX)                             \
    X(dedup_window_seconds, "dedupWindowSeconds", I, 3600, 0, INT32_MAX)                           \
    X(retention_sink_hold, "retentionSinkHold", S, 0, 0, 64)                                       \
    X(retention_sink_hold_max_seconds, "retentionSinkHoldMaxSeconds", I, 604800, 60, 31536000)

enum queue_option {
#define QUEUE_OPTION_ENUM(field, name, kind, def, min, max) QUEUE_OPTION_##field,
    QUEUE_OPTION_LIST(QUEUE_OPTION_ENUM)
#undef QUEUE_OPTION_ENUM
        QUEUE_OPTION_COUNT
};

struct configure_request {
    struct tenant_id tenant;
    struct span queue;
    struct queue_options options; /* values of the options in `set` */
    uint32_t set;                 /* bit per option given with a value */
    uint32_t reset;               /* bit per option given as null, or left out with mode replace */
    bool namespace_set, task_set;
    struct span namespace_, task;
};

void queue_options_default(struct queue_options *o);  /* configure's */
void queue_options_implicit(struct queue_options *o); /* of a queue created by a push */
/* First and second dot-separated part of the name. */
void queue_labels_from_name(struct span name, struct span *namespace_out, struct span *task_out);

void configure_encode(struct buf *out, const struct configure_request *r);
void queue_delete_encode(struct buf *out, const struct tenant_id *tenant, struct span queue);

struct configure_result {
    struct uuid queue_uuid;
    struct queue_options options;
    struct buf namespace_, task; /* owned */
};

void configure_result_deinit(struct configure_result *r);

ERR_CHECK enum err configure_apply(struct state *s, struct apply_context *at, struct span body,
                                   struct configure_result *result, struct error *error);
/* existed_out may be NULL. */
ERR_CHECK enum err queue_delete_apply(struct state *s, struct apply_context *at, struct span body,
                                      bool *existed_out, struct error *error);

#endif
