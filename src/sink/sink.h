/* The sink of one node: manager, tenant sinks, queue tasks (spec/sink.md), over the node's log and
 * a bucket.
 *
 * Layers: task.h is the pure queue task (events in, actions out: no clock, randomness, I/O);
 * placement.h the pure presence and fair-share rules; sink.c the driver that carries actions out on
 * the node, the bucket and an executor, on threads named queen-s3. In manual mode (simulator) there
 * are no threads: sink_pump(). */
#ifndef SINK_SINK_H
#define SINK_SINK_H

#include "node/node.h"
#include "s3/bucket.h"
#include "sink/lake.h"
#include "sink/settings.h"

struct sink;

struct sink_options {
    struct node *node;                         /* borrowed */
    struct clock *clock;                       /* borrowed */
    struct entropy *entropy;                   /* borrowed */
    struct executor *executor;                 /* blocking work: builds, scans. Borrowed */
    struct bucket *bucket;                     /* takes; NULL when the settings have no sink */
    const struct sink_boot_settings *settings; /* borrowed, outlives the sink */
    const char *spool_dir;
    bool manual;
    /* Fires a crash point: abort() in production; a simulator records it and stops pumping. */
    void (*crash)(void *ctx, enum sink_crash_point point);
    void *crash_ctx;
};

ERR_CHECK enum err sink_start(const struct sink_options *options, struct sink **out,
                              struct error *error);
/* SIGTERM: begins the drain. Any thread, once. */
void sink_drain(struct sink *s);
/* Waits until drained or until `deadline_mono_us`; in the last min(1 s, grace/4) transfers are
 * cancelled and leases and presence given back (decisions.md 16). True when everything drained by
 * itself. */
bool sink_wait(struct sink *s, int64_t deadline_mono_us);
bool sink_drained(const struct sink *s);
/* While the node is there: after node_end(), in manual mode also when none of the sink's calls of
 * the node and jobs are out any more; then the node goes on without it. NULL is allowed. */
void sink_free(struct sink *s);
/* Simulator: drops everything as a crash would, behind node_abandon(). */
void sink_abandon(struct sink *s);

/* The value of "s3" in GET /status (sink-status-metrics.md 1). */
void sink_status_put(struct sink *s, struct buf *out);
/* The queen_s3_* families (sink-status-metrics.md 2 and decisions.md:
 * queen_s3_records_quoted_total, family 16). */
void sink_metrics_put(struct sink *s, struct buf *out);

/* Manual mode: one step; next_wake_out: mono us of the next timer (INT64_MAX none). */
bool sink_pump(struct sink *s, int64_t *next_wake_out);

#endif
