/* The queue task: everything one sink does for one queue, as a pure state machine (spec/sink.md 5,
 * 7-18).
 *
 * sink_task_step(task, event, out) takes one event and says what to do next. The task reads no
 * clock, draws no randomness (its PRNG is seeded at creation) and does no I/O; the driver (sink.c)
 * carries the actions out and brings each answer back as an event with the action's number. Beside
 * actions there are standing wishes (sink_task_wishes): the timer, the broker time and the appends
 * the task wants to be woken for; they hold until the next step.
 *
 * At most one KV batch and one other operation are in flight per task. An answer with a number that
 * is not awaited any more (of a run that ended) changes nothing. */
#ifndef SINK_TASK_H
#define SINK_TASK_H

#include "kv/kv.h"
#include "s3/bucket.h"
#include "sink/lake.h"
#include "sink/placement.h"
#include "sink/settings.h"

struct sink_task;

/* state in the status rows, in the words of sink-status-metrics.md. */
enum sink_row_state {
    SINK_ROW_CLAIMING,
    SINK_ROW_HELD,
    SINK_ROW_RESTORING,
    SINK_ROW_FILLING,
    SINK_ROW_INTENT,
    SINK_ROW_UPLOAD,
    SINK_ROW_COMMIT,
    SINK_ROW_DRAINED,
    SINK_ROW_FENCED,
    SINK_ROW_FAILED,
    SINK_ROW_MISSING,
    SINK_ROW_CRASHED,
    SINK_ROW_RELEASED,
};

const char *sink_row_state_name(enum sink_row_state state);

/* One row of "queues" in the status: the task keeps it current. */
struct sink_row {
    struct span name;
    enum sink_row_state state;
    bool owned_here;
    struct buf held_by; /* empty = null */
    uint64_t k;         /* last committed window known */
    bool has_t_end;
    int64_t t_end;
    bool has_complete;
    int64_t complete_through;
    bool has_safe_time;
    int64_t safe_time;
    bool redo;
    uint64_t buffered, partitions;
    uint64_t windows, records, bytes; /* committed here since the sink started */
    bool has_error;
    int64_t error_at; /* wall */
    struct buf error;
    /* For health and metrics: */
    bool failed_here; /* the last run failed here, and nobody else was seen with the queue since */
    int64_t taken_us; /* monotonic time this node took the queue */
    bool has_lag;     /* a lag was reported since */
    int64_t lag_us;
    int64_t lag_at_us; /* monotonic time of the report */
    bool has_discovery;
    bool has_checkpoint;
    uint64_t checkpoint_k;
};

/* max(0, safeTime - completeThrough); false while either is unknown. */
bool sink_row_lag(const struct sink_row *row, int64_t *lag_us_out);

struct sink_task_options {
    struct span queue;                     /* raw name; copied */
    struct span tenant;                    /* uuid text; borrowed for ever */
    const struct sink_settings *settings;  /* borrowed for ever */
    const struct sink_node_settings *node; /* borrowed for ever */
    struct span writer;                    /* of today's settings; borrowed for ever */
    uint64_t seed;
};

struct sink_task *sink_task_new(const struct sink_task_options *options);
void sink_task_free(struct sink_task *t); /* NULL is allowed */
const struct sink_row *sink_task_row(const struct sink_task *t);

/* --- events --- */

enum sink_event_type {
    SINK_EVENT_START,      /* once, first */
    SINK_EVENT_WAKE,       /* something wished for may have come: timer, broker time, append */
    SINK_EVENT_KV,         /* answer of SINK_DO_KV */
    SINK_EVENT_QUEUE,      /* answer of SINK_DO_LOOK_UP */
    SINK_EVENT_SCANNED,    /* answer of SINK_DO_SCAN */
    SINK_EVENT_BUILT,      /* answer of SINK_DO_BUILD */
    SINK_EVENT_CHECKPOINT, /* answer of SINK_DO_BUILD_CHECKPOINT */
    SINK_EVENT_BUCKET,     /* answer of SINK_DO_PUT_*, SINK_DO_GET_*, SINK_DO_LIST */
    SINK_EVENT_ATTEMPT,    /* an attempt inside a bucket operation failed, the operation goes on */
    SINK_EVENT_STOP,       /* drain and end */
    SINK_EVENT_GIVE_BACK,  /* drain and let another node have it */
    SINK_EVENT_FORCE,      /* memory: close the window that is being filled */
    SINK_EVENT_CUT,        /* the grace is over: give the lease back and end */
};

enum sink_kv_outcome {
    SINK_KV_OK,
    SINK_KV_LOST,      /* a required precondition lost: nothing was written */
    SINK_KV_RETRIABLE, /* certainly not applied */
    SINK_KV_UNKNOWN,   /* may have been applied */
    SINK_KV_TERMINAL,
};

struct sink_scanned {
    uint64_t from;     /* where the scan began, after seeking */
    uint64_t position; /* where it ended: everything before it is in the sums */
    uint64_t records, weight;
    int64_t first_stamp;
    bool next_known; /* a run lies at `position` */
    int64_t next_stamp;
    bool
        at_limit; /* everything below the limit was seen (end of the log, or next_stamp >= limit) */
    bool size_reached; /* stopped because of weight_max */
};

/* What the built object of the window is; the driver holds the bytes until the next build or the
 * run's end. */
struct sink_built {
    uint64_t size, records, partitions, quoted;
    uint8_t sha256[SHA256_SIZE];
    int64_t min_ts, max_ts;
};

struct sink_event {
    enum sink_event_type type;
    int64_t mono_us, wall_us;
    int64_t safe_time; /* of this node, read before anything else the event carries; 0 = nothing
                          applied */
    struct placement_view placement;
    bool appended; /* WAKE: records were appended to the queue */
    uint64_t op;   /* number of the action this answers */
    struct span error;
    int64_t retry_after_us; /* -1 = none */
    union {
        struct {
            enum sink_kv_outcome outcome;
            const struct kv_result *result; /* OK, LOST */
        } kv;
        struct {
            bool found;
            uint64_t id, partitions, log_end;
        } queue;
        struct {
            enum err err;
            struct sink_scanned out;
        } scanned;
        struct {
            enum err err; /* ERR_NOT_FOUND: no log of that queue id */
            struct sink_built out;
        } built;
        struct {
            enum err err;
            uint64_t rows;
            uint64_t k; /* of one that was loaded, as the rest */
            int64_t t_end;
            struct qlog_near near; /* a record of it; partition_id 0: none that is known here */
        } checkpoint;
        struct {
            enum bucket_outcome outcome;
            struct span body;        /* GET */
            const struct span *keys; /* LIST */
            size_t n_keys;
            bool truncated;
        } bucket;
    };
};

/* --- actions --- */

enum sink_action_type {
    SINK_DO_KV,
    SINK_DO_LOOK_UP, /* the queue by name */
    SINK_DO_SCAN,
    SINK_DO_BUILD,
    SINK_DO_BUILD_CHECKPOINT,
    SINK_DO_PUT_OBJECT,     /* the built object */
    SINK_DO_PUT_CHECKPOINT, /* the built checkpoint */
    SINK_DO_PUT,            /* bytes: the manifest */
    SINK_DO_GET,
    SINK_DO_LIST,
    SINK_DO_CRASH,
    SINK_DO_NOTE,
};

/* What operators are told, and what the metrics count (sink_log.c, sink_metrics.c). */
enum sink_note_type {
    SINK_NOTE_STARTING,
    SINK_NOTE_OWNED,
    SINK_NOTE_HELD,    /* another node owns it; only when it changes */
    SINK_NOTE_CHANGED, /* the last window was written with other settings */
    SINK_NOTE_RESTORED,
    SINK_NOTE_FROM_MANIFEST,
    SINK_NOTE_COMMITTED,
    SINK_NOTE_SHUTTING_DOWN,
    SINK_NOTE_DRAINED,
    SINK_NOTE_RELEASED, /* a hand-off is done */
    SINK_NOTE_MISSING,
    SINK_NOTE_FENCED,
    SINK_NOTE_LEASE_LOST,
    SINK_NOTE_PRECONDITION_LOST, /* an intent or commit batch rolled back: counted */
    SINK_NOTE_STOPPED,           /* failed: why, retry */
    SINK_NOTE_PANICKED,
    SINK_NOTE_REFRESH_FAILED,
    SINK_NOTE_CLAIM_FAILED,
    SINK_NOTE_KV_FAILED,
    SINK_NOTE_PUT_FAILED,
    SINK_NOTE_GET_FAILED,
    SINK_NOTE_SCAN_FAILED,
    SINK_NOTE_BUILD_FAILED,
    SINK_NOTE_RELEASE_FAILED,
    SINK_NOTE_BAD_POINTER,
    SINK_NOTE_CHECKPOINT_UNREADABLE,
    SINK_NOTE_CHECKPOINT_NOT_WRITTEN,
    SINK_NOTE_CHECKPOINT_NOT_LISTED,
};

struct sink_note {
    enum sink_note_type type;
    struct span text; /* error, why, holder, key: valid until the next step */
    uint64_t k, records, bytes, quoted;
    uint64_t checkpoint_k, positions;
    int64_t t_end, lag_us, retry_us;
    uint64_t buffered;
    bool aged, closing, redo;
    const char *state;
};

/* What a KV batch is for (the table of sink.md 4). */
enum sink_kv_purpose {
    SINK_KV_NONE,
    SINK_KV_LOOK,
    SINK_KV_CLAIM,
    SINK_KV_TAKE, /* over from an earlier life of this instance */
    SINK_KV_REFRESH,
    SINK_KV_RESTORE,
    SINK_KV_START, /* T0 of start=latest */
    SINK_KV_INTENT,
    SINK_KV_COMMIT,
    SINK_KV_VERIFY, /* what became of a batch of unknown outcome */
    SINK_KV_SUSPECT_REFRESH,
    SINK_KV_SUSPECT_READ,
    SINK_KV_RELEASE_LOOK,
    SINK_KV_RELEASE,
};

#define SINK_KV_OPS_MAX 2

struct sink_action {
    enum sink_action_type type;
    uint64_t op; /* number that the answer carries */
    union {
        struct {
            enum sink_kv_purpose purpose;
            struct kv_op ops[SINK_KV_OPS_MAX]; /* what they borrow is valid until the next step */
            size_t n;
        } kv;
        struct {
            uint64_t queue_id;
            bool seek; /* from the first run with stamp >= seek_stamp; else from `position` */
            int64_t seek_stamp;
            struct qlog_near near; /* for the seek; partition_id 0: none */
            uint64_t position;
            int64_t limit;       /* stop at the first run with stamp >= limit */
            uint64_t weight_max; /* stop behind the push with which the weight reached this */
        } scan;
        struct {
            uint64_t queue_id;
            struct lake_window window; /* borrows from the task until the answer */
            uint64_t from, to;         /* 0, 0: find by stamp */
            struct qlog_near near;     /* to find by; partition_id 0: none */
        } build;
        struct {
            uint64_t queue_id, k;
            int64_t since, t_end; /* partitions with records of [since, t_end) */
        } checkpoint;
        struct {
            struct span key, bytes; /* until the next step */
            const char *content_type;
        } put; /* PUT_OBJECT, PUT_CHECKPOINT, PUT */
        struct {
            struct span key;    /* until the next step */
            bool is_checkpoint; /* the driver parses it: a found one is answered by
                                   SINK_EVENT_CHECKPOINT */
        } get;
        struct {
            struct span prefix, start_after;
        } list;
        enum sink_crash_point crash;
        struct sink_note note;
    };
};

#define SINK_ACTIONS_MAX 24

struct sink_actions {
    struct sink_action items[SINK_ACTIONS_MAX];
    size_t n;
};

/* Any thread, one at a time per task. out is overwritten. */
void sink_task_step(struct sink_task *t, const struct sink_event *event, struct sink_actions *out);

struct sink_wishes {
    int64_t timer_us; /* monotonic; INT64_MAX none */
    /* Wake when safeTime reached this, and on a quiet broker make it get there: ask for a clock
     * entry when the moment has come (decisions.md 12). WINDOW_NEVER none. */
    int64_t clock_us;
    bool append; /* wake when records were appended to queue_id */
    uint64_t queue_id;
    bool counts; /* runs or is claiming: counts in the node's claim load */
    bool ended;  /* no more events */
};

void sink_task_wishes(const struct sink_task *t, struct sink_wishes *out);

#endif
