/* What docs/api.md says of queues. */
#include "api/request.h"
#include "api/route.h"

#define DEFAULT_I(value) #value
#define DEFAULT_B(value) ((value) != 0 ? "true" : "false")
#define DEFAULT_S(value) ""
#define TYPE_I FIELD_INT
#define TYPE_B FIELD_BOOL
#define TYPE_S FIELD_TEXT
#define MIN_I(value) (value)
#define MIN_B(value) 0
#define MIN_S(value) (value)

#define NO_CONSUMERS "stored; there are no consumers yet"
#define NO_EFFECT "stored, without effect"
#define NOT_BUILT "not built yet: only the default is accepted"

/* One for each row of QUEUE_OPTION_LIST; without it this does not compile. */
#define TEXT_priority NO_EFFECT
#define TEXT_lease_time "seconds; " NO_CONSUMERS
#define TEXT_retry_limit NO_CONSUMERS
#define TEXT_retry_delay NO_EFFECT
#define TEXT_max_size NO_EFFECT "; the answer repeats it as `maxQueueSize`"
#define TEXT_ttl NO_EFFECT
#define TEXT_dead_letter_queue NO_CONSUMERS
#define TEXT_dlq_after_max_retries NO_CONSUMERS
#define TEXT_delayed_processing "seconds; " NO_CONSUMERS
#define TEXT_window_buffer "seconds; " NO_CONSUMERS
#define TEXT_retention_seconds NOT_BUILT
#define TEXT_completed_retention_seconds NOT_BUILT
#define TEXT_retention_enabled NOT_BUILT
#define TEXT_encryption_enabled NOT_BUILT
#define TEXT_max_wait_time_seconds NOT_BUILT
#define TEXT_min_pop_wait_time "clamped to 0..60000; " NO_EFFECT
#define TEXT_dedup_window_seconds                                                                  \
    "how long a `transactionId` is remembered, in seconds; 0: not at all"
#define TEXT_retention_sink_hold NOT_BUILT
#define TEXT_retention_sink_hold_max_seconds NOT_BUILT

static const struct route_field configure_fields[] = {
    {"queue", FIELD_TEXT, FIELD_REQUIRED, 1, NAME_BYTES_MAX - TENANT_TEXT_LEN,
     "made when it is not there"},
    {"mode", FIELD_TEXT, "merge", 0, 0,
     "`merge`: an option that is left out stays as it is; `replace`: it goes back to its default"},
    {"namespace", FIELD_TEXT, NULL, 0, LABEL_BYTES_MAX,
     "a label; also inside `options`, where it wins"},
    {"task", FIELD_TEXT, NULL, 0, LABEL_BYTES_MAX, "a label; also inside `options`, where it wins"},
    {"options", FIELD_OBJECT, NULL, 0, 0,
     "where it is no object, the options are looked for beside `queue`. Null puts one back to its "
     "default; unknown ones are ignored"},
#define OPTION_FIELD(field, name, kind, fallback, min, max)                                        \
    {"options." name, TYPE_##kind,     DEFAULT_##kind(fallback),                                   \
     MIN_##kind(min), MIN_##kind(max), TEXT_##field},
    QUEUE_OPTION_LIST(OPTION_FIELD)
#undef OPTION_FIELD
        {0},
};

static const struct route_answer configure_answers[] = {
    {200, NULL,
     "`configured` (true), `queueId`, `partitionId` (null), `queue`, `namespace`, `task`, "
     "`storage`, and `options` with all of them"},
    {400, "bad_request",
     "not JSON, no queue, another mode, an option of another type, out of range or not built: "
     "nothing was changed"},
    ANSWERS_TOO_LARGE,
    {413, "name_too_long", "the queue's name or a label is too long"},
    ANSWERS_STOPPING,
    ANSWERS_TIMEOUT,
    ANSWERS_FULL,
    ANSWERS_END,
};

const struct route_doc configure_doc = {"Makes a queue, or changes its options.", configure_fields,
                                        configure_answers};

static const struct route_field queue_path_fields[] = {
    {"*", FIELD_TEXT, FIELD_REQUIRED, 0, 0,
     "the rest of the path is the queue's name, percent-encoded; `/` may stand in it as it is"},
    {0},
};

static const struct route_answer queue_delete_answers[] = {
    {200, NULL,
     "`deleted` and `existed` (both true or both false), `queue`, and a `message` when there was "
     "none"},
    ANSWERS_STOPPING,
    ANSWERS_TIMEOUT,
    ANSWERS_END,
};

const struct route_doc queue_delete_doc = {"Deletes a queue with its records.", queue_path_fields,
                                           queue_delete_answers};
