/* The table of metric families, and the document made from it. */
#include "status/families.h"

#include "base/err.h"

#define NOT_SERVED "0: no such request is served yet."

static const struct metric_family families[FAMILY_COUNT] = {
    [FAMILY_UPTIME] = {.name = "queen_uptime_seconds",
                       .type = METRIC_GAUGE,
                       .help = "Seconds since this process started serving."},
    [FAMILY_RESIDENT_MEMORY] = {.name = "queen_process_resident_memory_bytes",
                                .type = METRIC_GAUGE,
                                .help = "Resident memory of this process."},
    [FAMILY_PUSH_REQUESTS] = {.name = "queen_process_push_requests_total",
                              .type = METRIC_COUNTER,
                              .help = "Push requests received by this node."},
    [FAMILY_PUSH_MESSAGES] = {.name = "queen_process_push_messages_total",
                              .type = METRIC_COUNTER,
                              .help = "Messages of answered pushes, duplicates included."},
    [FAMILY_POP_REQUESTS] = {.name = "queen_process_pop_requests_total",
                             .type = METRIC_COUNTER,
                             .help = "Pop requests received by this node.",
                             .note = NOT_SERVED},
    [FAMILY_POP_MESSAGES] = {.name = "queen_process_pop_messages_total",
                             .type = METRIC_COUNTER,
                             .help = "Messages of answered pops.",
                             .note = NOT_SERVED},
    [FAMILY_ACK_REQUESTS] = {.name = "queen_process_ack_requests_total",
                             .type = METRIC_COUNTER,
                             .help = "Ack requests received by this node.",
                             .note = NOT_SERVED},
    [FAMILY_ACK_MESSAGES] = {.name = "queen_process_ack_messages_total",
                             .type = METRIC_COUNTER,
                             .help = "Messages of answered acks.",
                             .note = NOT_SERVED},
    [FAMILY_PARKED_POLLS] = {.name = "queen_parked_long_polls",
                             .type = METRIC_GAUGE,
                             .help = "Reads that wait on this node."},
    [FAMILY_POP_LAG] = {.name = "queen_queue_pop_lag_milliseconds",
                        .type = METRIC_GAUGE,
                        .labels = {"queue", "stat"},
                        .help = "From a message's push to its delivery.",
                        .note = "`stat` is `avg` or `max`. No samples: nothing is popped yet."},
    [FAMILY_DLQ_DEPTH] = {.name = "queen_dlq_depth_by_queue",
                          .type = METRIC_GAUGE,
                          .labels = {"queue"},
                          .help = "Dead letters of a queue.",
                          .note = "No samples: there are no dead letters yet."},
    [FAMILY_KV_OPS] = {.name = "queen_kv_ops_total",
                       .type = METRIC_COUNTER,
                       .labels = {"op"},
                       .help = "KV operations of answered calls."},
    [FAMILY_KV_DURATION] = {.name = "queen_kv_op_duration_milliseconds",
                            .type = METRIC_HISTOGRAM,
                            .help = "From a KV call's arrival to its answer."},
    [FAMILY_STORAGE_FULL] = {.name = "queen_raft_storage_full",
                             .type = METRIC_GAUGE,
                             .help = "1 while writes that grow storage are refused."},
    [FAMILY_INDEX] = {.name = "queen_raft_index",
                      .type = METRIC_GAUGE,
                      .labels = {"kind"},
                      .help = "Places in the replicated log.",
                      .note =
                          "`kind`: `log` (written), `committed`, `applied`, `durable` (the last "
                          "checkpoint)."},
    [FAMILY_INFLIGHT] = {.name = "queen_raft_inflight",
                         .type = METRIC_GAUGE,
                         .help = "Commands submitted and not applied yet."},
    [FAMILY_PROPOSALS] = {.name = "queen_raft_proposals_total",
                          .type = METRIC_COUNTER,
                          .help = "Commands submitted."},
    [FAMILY_LOG_STORAGE] = {.name = "queen_raft_log_storage",
                            .type = METRIC_GAUGE,
                            .labels = {"kind"},
                            .help = "Bytes of the log and of changes not checkpointed yet.",
                            .note =
                                "`kind`: `wal` (files of the log), `dirty` (changes in memory)."},
    [FAMILY_ADMIT] = {.name = "queen_raft_admit_total",
                      .type = METRIC_COUNTER,
                      .labels = {"outcome"},
                      .help = "Pushes by admission.",
                      .note =
                          "`outcome`: `admitted`, `overloaded` (answered 429); and `held`, those "
                          "that had to wait for one of the two."},
    [FAMILY_CLOCK_AHEAD] = {.name = "queen_clock_ahead_seconds",
                            .type = METRIC_GAUGE,
                            .help = "By how much the log's clock leads the wall clock."},

    [FAMILY_SINK_LAG] = {.name = "queen_s3_lag_seconds",
                         .type = METRIC_GAUGE,
                         .labels = {"queue"},
                         .help = "safeTime minus completeThrough on the owning node.",
                         .note = "Only while this node runs the queue."},
    [FAMILY_SINK_SAFE_LAG] = {.name = "queen_s3_safe_lag_seconds",
                              .type = METRIC_GAUGE,
                              .help = "The node's wall clock minus its safeTime.",
                              .note = "Only while this node runs a queue."},
    [FAMILY_SINK_WINDOWS] = {.name = "queen_s3_windows_committed_total",
                             .type = METRIC_COUNTER,
                             .labels = {"queue"},
                             .help = "Windows committed."},
    [FAMILY_SINK_RECORDS] = {.name = "queen_s3_records_written_total",
                             .type = METRIC_COUNTER,
                             .labels = {"queue"},
                             .help = "Records in committed windows."},
    [FAMILY_SINK_BYTES] = {.name = "queen_s3_bytes_written_total",
                           .type = METRIC_COUNTER,
                           .labels = {"queue", "format"},
                           .help = "Bytes of the objects of committed windows, compressed.",
                           .note = "`format`: `jsonl`."},
    [FAMILY_SINK_LOST] = {.name = "queen_s3_records_lost_total",
                          .type = METRIC_COUNTER,
                          .labels = {"queue"},
                          .help = "Records gone before the sink read them.",
                          .note = "0: retention is not built yet, so nothing is lost."},
    [FAMILY_SINK_WINDOW_RECORDS] = {.name = "queen_s3_window_records",
                                    .type = METRIC_HISTOGRAM,
                                    .help = "Records per window."},
    [FAMILY_SINK_WINDOW_BYTES] = {.name = "queen_s3_window_bytes",
                                  .type = METRIC_HISTOGRAM,
                                  .help = "Object bytes per window."},
    [FAMILY_SINK_BUFFER] = {.name = "queen_s3_buffer_bytes",
                            .type = METRIC_GAUGE,
                            .help = "Buffered weight over all sinks."},
    [FAMILY_SINK_FETCHES] = {.name = "queen_s3_fetch_calls_total",
                             .type = METRIC_COUNTER,
                             .labels = {"queue", "result"},
                             .help = "Read calls of the sink.",
                             .note = "`result`: `ok` or `error`, each there from its first call "
                                     "on."},
    [FAMILY_SINK_PARTITIONS] = {.name = "queen_s3_discovery_partitions",
                                .type = METRIC_GAUGE,
                                .labels = {"queue"},
                                .help = "Partitions of the queue.",
                                .note = "Only while this node runs the queue."},
    [FAMILY_SINK_REQUESTS] = {.name = "queen_s3_s3_requests_total",
                              .type = METRIC_COUNTER,
                              .labels = {"op", "code"},
                              .help = "Requests to the bucket, every attempt; code 0 is no answer.",
                              .note = "Each pair is there from its first request on."},
    [FAMILY_SINK_PRECONDITION_LOST] = {.name = "queen_s3_commit_precondition_lost_total",
                                       .type = METRIC_COUNTER,
                                       .help = "KV batches rolled back by a lost precondition."},
    [FAMILY_SINK_CHECKPOINT_AGE] =
        {.name = "queen_s3_checkpoint_age_windows",
         .type = METRIC_GAUGE,
         .labels = {"queue"},
         .help = "Committed window minus the window of the last checkpoint.",
         .note = "Only while this node runs the queue, from its first checkpoint on."},
    [FAMILY_SINK_GIVEN_BACK] = {.name = "queen_s3_queues_given_back_total",
                                .type = METRIC_COUNTER,
                                .help = "Queues handed off by the rebalancer."},
    [FAMILY_SINK_QUOTED] =
        {.name = "queen_s3_records_quoted_total",
         .type = METRIC_COUNTER,
         .labels = {"queue"},
         .help = "Records whose payload common readers cannot parse, written as a JSON string.",
         .note = "There from the first such record on."},
};

const struct metric_family *metric_family(enum metric_id id)
{
    ASSERT(id < FAMILY_COUNT);
    return &families[id];
}

/* --- the document --- */

static void put_row(struct buf *out, const struct metric_family *f)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    buf_printf(out, "| `%s` | %s |", f->name, types[f->type]);
    for (size_t i = 0; i < metric_labels(f); i++)
        buf_printf(out, "%s `%s`", i == 0 ? "" : ",", f->labels[i]);
    buf_printf(out, " | %s%s%s |\n", f->help, f->note == NULL ? "" : " ",
               f->note == NULL ? "" : f->note);
}

static void put_rows(struct buf *out, enum metric_id from, enum metric_id to)
{
    buf_puts(out, "| Metric | Type | Labels | What it says |\n|---|---|---|---|\n");
    for (enum metric_id id = from; id < to; id++)
        put_row(out, &families[id]);
}

void metrics_doc_put(struct buf *out)
{
    buf_puts(out,
             "# Metrics\n\n"
             "`GET /metrics/prometheus`, in the text format 0.0.4. Each node answers for itself. "
             "`# HELP` and `# TYPE` of a\nfamily are there also while it has no sample, and the "
             "order is the one below. Counters start at 0 with the\nprocess. Values of labels are "
             "escaped (`\\\\`, `\\\"`, `\\n`). (Generated: `make docs`.)\n\n"
             "## The broker\n\n");
    put_rows(out, 0, FAMILY_SINK_FIRST);
    buf_puts(out,
             "\n## The sink\n\n"
             "There while `QUEEN_S3_EMBEDDED` is true. A queue's counters are there once this node "
             "ran it, and stay when another\nnode takes it; its gauges go with it.\n\n");
    put_rows(out, FAMILY_SINK_FIRST, FAMILY_COUNT);
}
