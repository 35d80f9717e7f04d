/* The queue task's insides, shared by task.c (stepping, KV channel, end of a run), task_claim.c,
 * task_restore.c, task_fill.c and task_commit.c. */
#ifndef SINK_TASK_INTERNAL_H
#define SINK_TASK_INTERNAL_H

#include "sink/lease.h"
#include "sink/task.h"
#include "sink/window.h"

/* Where a task is in its life. Up to PHASE_END it runs nothing; task_go() says what each phase
 * does. */
enum phase {
    PHASE_LOOK, /* who holds the lease? */
    PHASE_TURN, /* free: waiting for this node's turn */
    PHASE_HELD, /* another node's: waiting to look again */
    PHASE_WAIT, /* a run ended: waiting to claim again */
    PHASE_END,
    PHASE_CLAIM,
    PHASE_TAKE,
    PHASE_RESTORE,
    PHASE_FIND,      /* does the queue exist? */
    PHASE_START,     /* makes T0 durable */
    PHASE_LIST,      /* checkpoints */
    PHASE_LOAD,      /* the newest usable one */
    PHASE_REDO_LOOK, /* was the upload of the open intent finished? */
    PHASE_PROBE,     /* is the next window's manifest there already? a foreign lake */
    PHASE_FILL,
    PHASE_SCAN,
    PHASE_INTENT,
    PHASE_BUILD,
    PHASE_LOOK_AGAIN, /* redo: the manifest once more before the first PUT */
    PHASE_PUT,
    PHASE_MANIFEST,
    PHASE_COMMIT,
    PHASE_PROBE_NEXT,       /* foreign lake, whenever a checkpoint is due */
    PHASE_CHECKPOINT_SINCE, /* no checkpoint was loaded: where did the window behind the last begin? */
    PHASE_CHECKPOINT_BUILD,
    PHASE_CHECKPOINT_PUT,
    PHASE_SUSPECT_REFRESH, /* before a lake is called foreign */
    PHASE_SUSPECT_READ,
    PHASE_RELEASE_LOOK,
    PHASE_RELEASE,
};

enum run_end {
    END_DRAINED,
    END_RELEASED, /* drained for a hand-off */
    END_FENCED,
    END_MISSING,
    END_FAILED,
    END_CRASHED,
    END_PANICKED,
};

#define TASK_MISSING_WAIT_US 5000000
#define TASK_FAILED_WAIT_US 60000000
#define TASK_RELEASE_US 10000000     /* a release is retried this long, then the row expires */
#define TASK_STOPPING_WAIT_US 250000 /* waits are cut to this while stopping */
#define TASK_DRAIN_WEIGHT (1u << 20) /* a drain closes a window holding this much */
#define TASK_DRAIN_LAG_US 10000000   /* or one that is this far behind */
#define TASK_BACKOFF_US 1000000
#define TASK_BACKOFF_MAX_US 60000000
#define TASK_CHECKPOINT_ATTEMPTS 3
#define TASK_SUSPECT_ROUNDS 3

struct sink_task {
    /* Fixed at creation. */
    struct span tenant, writer;
    const struct sink_settings *settings;
    const struct sink_node_settings *node;
    struct buf queue;
    struct buf key_lease, key_intent, key_committed;
    struct lake_spec spec; /* of today's settings */
    struct window_rules rules;
    int64_t ttl_us;

    /* The step. */
    const struct sink_event *event;
    struct sink_actions *out;
    uint64_t rng;
    uint64_t last_op;

    /* Life. */
    enum phase phase;
    bool stopping, giving_back, cut;
    bool quiet;        /* missing was logged: say nothing until the queue is there */
    int64_t timer_us;  /* monotonic; 0 none */
    unsigned attempts; /* failures of the phase's step so far */
    struct lease lease;
    bool lease_unknown; /* a refresh may have been applied without an answer */
    int64_t refresh_us; /* monotonic time of the next refresh */
    int64_t found_us, jitter_us, cooldown_us;
    unsigned claim_failures;
    enum run_end end;
    int64_t release_until_us, release_wait_us;

    /* KV channel: one batch in flight. */
    uint64_t kv_op;
    enum sink_kv_purpose kv_purpose, kv_waiting;
    bool kv_abandoned; /* the answer in flight is of no interest any more */
    bool kv_unknown;   /* an earlier attempt of this batch may have been applied */
    enum sink_kv_purpose kv_verifying;
    struct span kv_keys[3];
    struct buf value_lease, value_row;

    uint64_t io_op; /* the other operation in flight; 0 none */

    /* The run. */
    uint64_t queue_id; /* 0 unknown */
    uint64_t log_end;
    bool passed;       /* a look found the queue in this run */
    int64_t safe_time; /* closing clock: of the last look */
    uint64_t k;        /* last committed */
    bool has_committed;
    int64_t committed_t_end;
    uint64_t committed_version, intent_version;
    bool redo;
    bool has_t0;
    int64_t t0;
    uint64_t intent_queue_id;
    int64_t checkpoint_since; /* stamps from here on are in no checkpoint yet */
    uint64_t since_k;         /* but the start of this window is still to be looked up; 0 none */
    uint64_t checkpoint_k, checkpoint_rows;
    struct qlog_near near; /* of the checkpoint that was loaded: lies below t_prev */
    struct buf listed;     /* newest usable checkpoint key found so far; last key of the page */
    struct buf list_after;
    uint64_t listed_k; /* its window; 0 none */
    struct buf suspicion;
    unsigned suspect_rounds;
    struct window window;
    bool due_wanted; /* the fill waits for records or for the clock */

    /* The window in flight. */
    struct lake_window current;
    struct buf current_text; /* strings of current.spec and the writer */
    struct span current_writer;
    struct sink_built built;
    uint64_t commit_records, commit_bytes, commit_quoted;
    struct buf key, manifest, manifest_key;

    struct sink_row row;
    struct buf text; /* of notes */
};

static inline int64_t task_now(const struct sink_task *t)
{
    return t->event->mono_us;
}

static inline struct span task_queue(const struct sink_task *t)
{
    return buf_span(&t->queue);
}

static inline struct span task_sink(const struct sink_task *t)
{
    return span_str(t->settings->sink);
}

static inline bool task_draining(const struct sink_task *t)
{
    return t->stopping || t->giving_back;
}

/* task.c */
uint64_t task_random(struct sink_task *t);
int64_t task_jitter(struct sink_task *t, int64_t max_us);
struct sink_action *task_act(struct sink_task *t, enum sink_action_type type);
/* An action of the non-KV channel: its answer is awaited. */
struct sink_action *task_operate(struct sink_task *t, enum sink_action_type type);
struct sink_note *task_note(struct sink_task *t, enum sink_note_type type);
void task_enter(struct sink_task *t, enum phase phase);
void task_go(struct sink_task *t);               /* carries out the phase's step (again) */
void task_wait(struct sink_task *t, int64_t us); /* then task_go() */
void task_retry(struct sink_task *t);            /* after the backoff, or Retry-After exactly */
/* lastError = prefix + text; returns the stored message. */
struct span task_error(struct sink_task *t, const char *prefix, struct span text);
void task_end(struct sink_task *t, enum run_end end, struct span why);
void task_drained(struct sink_task *t); /* the drain has nothing left to do */
void task_failed(struct sink_task *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void task_state(struct sink_task *t, enum sink_row_state state);
/* False, and the run ends as panicked, when an invariant of ours does not hold. */
bool task_check(struct sink_task *t, bool holds, const char *what);
/* Fires the crash point when it is the armed one: true, and nothing more happens. */
bool task_crash(struct sink_task *t, enum sink_crash_point point);
void task_complete_through(struct sink_task *t, int64_t us);

/* task_kv.c */
void task_kv(struct sink_task *t, enum sink_kv_purpose purpose);
void task_kv_answer(struct sink_task *t);
/* The lease row is ours at this version; the next refresh is a third of the TTL away. */
void task_lease_written(struct sink_task *t, uint64_t version);
void task_kv_refresh_if_due(struct sink_task *t);
/* The step failed, it is tried again or ends the run: true when it was not applied (or may not have
 * been). */
bool task_kv_failed(struct sink_task *t, const char *prefix);
const struct kv_row *task_kv_row(const struct kv_result *result, struct span key);

/* task_claim.c */
void task_claim_begin(struct sink_task *t);
void task_claim_answer(struct sink_task *t, enum sink_kv_purpose purpose);
void task_release_answer(struct sink_task *t, enum sink_kv_purpose purpose);

/* task_restore.c */
void task_restore_begin(struct sink_task *t);
void task_restore_answer(struct sink_task *t, enum sink_kv_purpose purpose);
void task_restore_queue(struct sink_task *t);   /* PHASE_FIND */
void task_restore_started(struct sink_task *t); /* PHASE_START */
void task_restore_bucket(struct sink_task *t);  /* LIST, LOAD, REDO_LOOK, PROBE */
void task_restore_checkpoint(struct sink_task *t);
void task_suspect(struct sink_task *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
enum manifest_verdict { MANIFEST_MATCHES, MANIFEST_OTHER, MANIFEST_FOREIGN };
enum manifest_verdict task_manifest_compare(struct sink_task *t, struct span body);

/* task_fill.c */
void task_fill_queue(struct sink_task *t);
void task_fill_scanned(struct sink_task *t);
void task_fill_force(struct sink_task *t);
bool task_drain_closes(const struct sink_task *t, bool *aged_out);
void task_fill_drain(struct sink_task *t);

/* task_commit.c */
void task_window_begin(struct sink_task *t, int64_t t_start, int64_t t_end);
void task_window_redo(struct sink_task *t, const struct sink_intent *intent);
void task_window_today(struct sink_task *t, uint64_t k, int64_t t_start, int64_t t_end);
void task_intent_fill(const struct sink_task *t, struct sink_intent *out);
void task_intent_done(struct sink_task *t);
void task_build(struct sink_task *t);
void task_built(struct sink_task *t);
void task_put_object(struct sink_task *t);
void task_put_manifest(struct sink_task *t);
void task_commit_begin(struct sink_task *t);
void task_commit_done(struct sink_task *t);
void task_commit_from_manifest(struct sink_task *t, uint64_t records, uint64_t bytes);
void task_commit_bucket(
    struct sink_task *t); /* LOOK_AGAIN, PUT, MANIFEST, PROBE_NEXT, CHECKPOINT_* */
void task_checkpoint_built(struct sink_task *t);

#endif
