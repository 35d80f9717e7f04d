/* Every metric of this program: one row of one table, from which the exposition and docs/metrics.md
 * come. Who has the figures (api, sink) goes over its part of the ids in their order, writes the
 * family and then its samples: so every family is there, once, in this order. */
#ifndef STATUS_FAMILIES_H
#define STATUS_FAMILIES_H

#include "status/metrics.h"

enum metric_id {
    /* The broker's (spec/broker-api.md 6), always there. */
    FAMILY_UPTIME,
    FAMILY_RESIDENT_MEMORY,
    FAMILY_PUSH_REQUESTS,
    FAMILY_PUSH_MESSAGES,
    FAMILY_POP_REQUESTS,
    FAMILY_POP_MESSAGES,
    FAMILY_ACK_REQUESTS,
    FAMILY_ACK_MESSAGES,
    FAMILY_PARKED_POLLS,
    FAMILY_POP_LAG,
    FAMILY_DLQ_DEPTH,
    FAMILY_KV_OPS,
    FAMILY_KV_DURATION,
    FAMILY_STORAGE_FULL,
    FAMILY_INDEX,
    FAMILY_INFLIGHT,
    FAMILY_PROPOSALS,
    FAMILY_LOG_STORAGE,
    FAMILY_ADMIT,
    FAMILY_CLOCK_AHEAD,
    /* The sink's (spec/sink-status-metrics.md 2; the last one: decisions.md 1), there while a sink
     * runs on this node. */
    FAMILY_SINK_FIRST,
    FAMILY_SINK_LAG = FAMILY_SINK_FIRST,
    FAMILY_SINK_SAFE_LAG,
    FAMILY_SINK_WINDOWS,
    FAMILY_SINK_RECORDS,
    FAMILY_SINK_BYTES,
    FAMILY_SINK_LOST,
    FAMILY_SINK_WINDOW_RECORDS,
    FAMILY_SINK_WINDOW_BYTES,
    FAMILY_SINK_BUFFER,
    FAMILY_SINK_FETCHES,
    FAMILY_SINK_PARTITIONS,
    FAMILY_SINK_REQUESTS,
    FAMILY_SINK_PRECONDITION_LOST,
    FAMILY_SINK_CHECKPOINT_AGE,
    FAMILY_SINK_GIVEN_BACK,
    FAMILY_SINK_QUOTED,
    FAMILY_COUNT
};

const struct metric_family *metric_family(enum metric_id id);

/* docs/metrics.md */
void metrics_doc_put(struct buf *out);

#endif
