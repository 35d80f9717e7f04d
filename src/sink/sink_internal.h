/* The driver's insides, shared by sink.c (start and end), sink_slot.c (slots, timers, ops),
 * sink_run.c (run queue, workers), sink_ops.c (carrying actions out), sink_jobs.c (blocking jobs),
 * probe.c (the bucket's state), sink_unit.c (presence, listing), board.c (status) and sink_metrics.c.
 *
 * Everything of struct sink below "under lock" is; a task is stepped under the lock too (a step is
 * pure and short), its actions are carried out without it, by the one thread that runs its slot.
 * Lock order: nothing of the node or the bucket is called under the lock. */
#ifndef SINK_SINK_INTERNAL_H
#define SINK_SINK_INTERNAL_H

#include "base/map.h"
#include "io/pool.h"
#include "sink/bucket_hint.h"
#include "sink/lease.h"
#include "sink/sink.h"
#include "sink/sink_log.h"
#include "sink/task.h"
#include "status/metrics.h"

#include <pthread.h>
#include <stdatomic.h>

#define SINK_HEADS_PER_SCAN 512u     /* of one qlog_scan() call */
#define SINK_RUNS_PER_JOB 262144u    /* of one scan job: others want the executor too */
#define SINK_BUILD_INDEX (64u << 20) /* bytes of run positions held by a build */
/* Compressed bytes of one object held in memory, beyond that in the spool. All objects together hold
 * at most QUEEN_S3_MEMORY_MB, so that a bucket that is down costs disk, not memory; then each holds
 * only SINK_HELD_MIN. */
#define SINK_HELD_BYTES (64u << 20)
#define SINK_HELD_MIN (64u << 10)
#define SINK_MANIFEST_MAX (64u << 20)
#define SINK_CHECKPOINT_MAX (256u << 20)
#define SINK_CLOCK_EVERY_US 250000 /* a wanted clock entry is asked for again after this long */
#define SINK_READ_AGAIN_US                                                                         \
    50000 /* a KV read that met a due row, when no entry was applied meanwhile */
#define SINK_READ_TRIES_MAX 200u

/* A built object: the slot holds it until its window is committed, an upload in flight as long as
 * that takes. */
struct built {
    struct sink *sink;
    unsigned refs; /* under lock */
    uint64_t held; /* its share of the sink's `held_bytes` */
    struct lake_object object;
};

/* What is pending for a slot, in the order in which a task is told. */
enum slot_pending {
    SLOT_START = 1,
    SLOT_CUT = 2,
    SLOT_STOP = 4,
    SLOT_GIVE_BACK = 8,
    SLOT_FORCE = 16,
    SLOT_WAKE = 32,  /* the task's timer */
    SLOT_CLOCK = 64, /* the moment to ask for a clock entry */
};

struct op;

struct slot {
    struct sink *sink;
    struct buf name;
    struct sink_task *task;
    /* Under lock. */
    unsigned pending; /* enum slot_pending */
    bool appended;
    bool queued, running;
    struct slot *next_run;
    struct op *inbox_first, **inbox_last;
    struct sink_wishes wishes;
    int64_t wake_us, ask_us; /* monotonic; INT64_MAX none */
    size_t timer_at;         /* place in the timer heap, from 1; 0 = not in it */
    bool counted, owned, ever_owned, ended, forced;
    uint64_t buffered;
    uint64_t build_op, checkpoint_op; /* the latest ones: an older one's result is of a run that
                                         ended */
    struct built *built;
    struct buf checkpoint;
    uint64_t fetch_ok, fetch_error, quoted;
};

enum op_kind {
    OP_KV,
    OP_LOOK_UP,
    OP_SCAN,
    OP_BUILD,
    OP_CHECKPOINT,
    OP_BUCKET,
    OP_ATTEMPT,
    /* of the unit (slot NULL): */
    OP_PROBE,
    OP_PROBE_LIST,
    OP_BEAT,
    OP_BEAT_PAGE,
    OP_PRESENCE_LOOK,
    OP_PRESENCE_DELETE,
};

/* One operation, from its action to the end of the step that takes its answer. */
struct op {
    struct sink *sink;
    struct slot *slot; /* NULL: the unit's */
    enum op_kind kind;
    uint64_t number;
    struct op *next;                   /* inbox. Under lock */
    struct op *alive_next, **alive_at; /* all ops of the sink. Under lock */
    int64_t safe_time;                 /* read before anything else */
    enum err err;
    struct error error;
    int64_t retry_after_us;
    /* KV */
    struct node_request request;
    bool is_read;
    unsigned tries;
    struct kv_op read;
    struct span read_keys[3];
    struct kv_result result;
    enum sink_kv_outcome outcome;
    /* bucket */
    struct bucket_request bucket;
    struct buf key, bytes, after;
    struct buf told; /* the error of the last attempt, with what to do about it */
    struct built *built;
    bool is_checkpoint;
    uint64_t rows, k;
    int64_t t_end;
    struct qlog_near near;
    /* jobs and look-ups */
    struct sink_action action;
    struct sink_scanned scanned;
    struct sink_built summary;
    bool found;
    uint64_t queue_id, partitions, log_end;
};

struct request_count {
    const char *op; /* bucket_attempt_label() */
    unsigned code;
    uint64_t count;
};

struct sink_counters {
    struct metrics_histogram window_records, window_bytes;
    struct request_count *requests; /* sorted by op label, then code as text */
    size_t n_requests;
    uint64_t precondition_lost, given_back;
};

enum unit_phase { UNIT_PROBE, UNIT_RUN, UNIT_LEAVE, UNIT_ENDED };

struct sink {
    /* Fixed. */
    struct sink_options options;
    const struct sink_settings *settings; /* NULL: no sink is configured */
    const struct sink_node_settings *node;
    struct tenant_id tenant;
    struct buf tenant_text, writer;
    int64_t ttl_us, started_us;
    struct sink_log log;
    struct thread **threads;
    size_t n_threads;
    atomic_bool cancel; /* of builds: the grace is over, or the sink goes */
    /* The hook's fast path. */
    _Atomic int64_t clock_next; /* smallest broker time a task waits for */
    _Atomic unsigned append_watchers;

    pthread_mutex_t lock;
    pthread_cond_t wake; /* workers */
    pthread_cond_t idle; /* sink_wait() */
    /* Under lock. */
    bool draining, cut, closing, crashed;
    struct slot **slots; /* sorted by name */
    size_t n_slots, cap_slots;
    struct slot *run_first, **run_last;
    struct slot **timers; /* heap, from 1 */
    size_t n_timers, cap_timers;
    struct map64 watchers; /* queue id -> slot that waits for appends */
    uint32_t counts, held;
    size_t ended; /* slots whose task is over */
    uint64_t buffered;
    uint64_t held_bytes; /* of built objects, and what running builds may come to */
    struct op *alive;
    unsigned jobs; /* at the executor */
    struct sink_counters counters;
    struct {
        enum unit_phase phase;
        bool running;
        struct op *inbox_first, **inbox_last;
        bool in_flight;  /* probe, beat or leave */
        int64_t next_us; /* of the probe, of the next beat, of the leave's retry */
        int64_t list_us; /* next listing; INT64_MAX none */
        unsigned failures;
        uint32_t nodes; /* counted so far over the pages of a beat */
        struct lease presence;
        bool presence_written;
        int64_t leave_until_us;
        struct placement placement;
        struct buf key, prefix;
        uint64_t rng;
    } unit;
    struct {
        int reachable; /* -1 not probed */
        struct buf error;
        bool logged;        /* the error: once at least, or left out for the limit */
        int64_t checked_at; /* wall; 0 never */
        int64_t tried_us;   /* the same moment, monotonic */
        bool has_answered;  /* anything, with an HTTP status */
    } bucket;
    struct {
        bool again;         /* one that is not the start's is on its way */
        bool bare;          /* the HEAD gave no reason: a LIST is asked */
        bool no_reason_yet; /* nor did anything before it */
        unsigned head_code; /* of the HEAD before the LIST */
        struct buf head_error;
        struct bucket_clue head_clue;
        enum bucket_cause cause; /* of the last failure */
    } probe;
    struct op *rereads; /* KV reads that wait for a clock entry */
    int64_t reread_us;
    bool entry_applied; /* since the last reread */
};

/* sink_run.c */
void sink_entry_applied(void *ctx, uint64_t queue_id); /* the node's hook */
void sink_worker(void *ctx);

/* sink_slot.c */
int64_t sink_now(const struct sink *s);
void sink_slot_poke(struct sink *s, struct slot *slot, unsigned pending); /* locked */
struct slot *sink_slot_find(struct sink *s, struct span name);            /* locked */
void sink_slot_add(struct sink *s, struct span name);                     /* locked */
void sink_slot_timer(struct sink *s, struct slot *slot);                  /* locked */
bool sink_tasks_ended(const struct sink *s); /* and none of their jobs is out; locked */
void sink_slot_enqueue(struct sink *s, struct slot *slot); /* locked */
int64_t sink_slot_due(const struct slot *slot);
void sink_slot_free(struct slot *slot);
struct op *sink_op_new(struct sink *s, struct slot *slot, enum op_kind kind, uint64_t number);
void sink_op_free(struct op *op);       /* takes the lock */
void sink_op_release(struct op *op);    /* locked, or nobody is left; no longer in the list */
void sink_op_done(struct op *op);       /* the answer is there: takes the lock. Any thread */
void sink_built_unref(struct built *b); /* locked */

/* sink_ops.c: not locked */
void sink_carry_out(struct slot *slot, const struct sink_actions *actions);
void sink_op_event(struct op *op, struct sink_event *event); /* locked; pure */
void sink_kv_submit(struct op *op, const struct kv_op *ops, size_t n);
void sink_kv_read(struct op *op);
void sink_bucket_submit(struct op *op);

/* sink_jobs.c: executor */
void sink_job_submit(struct op *op, void (*job)(void *ctx));
void sink_job_scan(void *ctx);
void sink_job_build(void *ctx);
void sink_job_checkpoint(void *ctx);
void sink_job_load_checkpoint(void *ctx);

/* sink_unit.c */
void sink_unit_init(struct sink *s);
void sink_unit_deinit(struct sink *s);
int64_t sink_unit_due(const struct sink *s); /* monotonic time of its next work; locked */
void sink_unit_run(struct sink *s);          /* locked; lets go of the lock meanwhile */

/* probe.c */
enum probe_result { PROBE_SUCCEEDED, PROBE_FAILED, PROBE_ASKS };
/* Takes the lock. op->told gets the error and what to do about it; empty after a success. False of an
 * upload's ABORT, which is only counted: it comes after a failure, which it is not to hide. */
bool sink_bucket_attempt(struct op *op, unsigned code, struct span error);
void sink_probe_begin(struct sink *s); /* locked; lets go of the lock meanwhile */
enum probe_result sink_probe_answer(struct sink *s, const struct op *op); /* the same */

/* sink_metrics.c */
void sink_counters_init(struct sink_counters *c);
void sink_counters_deinit(struct sink_counters *c);
void sink_counters_request(struct sink_counters *c, const char *op, unsigned code);

/* board.c */
struct sink_health {
    bool ok;
    size_t queues;
    struct span queue; /* when not ok: borrowed from the slot */
    int64_t stale_ms, limit_ms;
};
void sink_health(const struct sink *s, int64_t now_us, struct sink_health *out); /* locked */

#endif
