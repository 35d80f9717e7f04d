/* The node: drives the log (WAL), applies committed entries to the state and the queue logs,
 * checkpoints and recovers. The one place that says what is durable before what; the rules are at
 * the top of node.c.
 *
 * Threads (production): log writer, apply, checkpoint. In manual mode (simulator, tests) there are
 * none: the caller pumps node_pump_*(), and every completion runs inside a pump. */
#ifndef NODE_NODE_H
#define NODE_NODE_H

#include "broker/configure.h"
#include "broker/push.h"
#include "io/clock.h"
#include "io/disk.h"
#include "kv/kv.h"
#include "store/state.h"

struct node;

struct node_options {
    struct disk *disk; /* rooted at QUEEN_RAFT_DIR; borrowed */
    /* Opens the state database; called once, after the lock is held. */
    enum err (*open_db)(void *ctx, struct db **out, struct error *error);
    void *db_ctx;
    struct clock *clock;     /* borrowed */
    struct entropy *entropy; /* borrowed */
    bool manual;
    uint64_t wal_segment_bytes;
    uint64_t segment_bytes;
    uint64_t durable_every_ms, durable_every_bytes;
    uint64_t entry_max_bytes;
    uint32_t batch_max_commands;
    uint64_t batch_max_bytes;
    uint64_t dirty_max_bytes; /* bound of the state's overlay; half of it starts a checkpoint */
    unsigned log_handles_max; /* queue-log files kept open */
    double disk_high_pct, disk_low_pct;
    uint64_t ballast_bytes; /* kept back for a full disk, at most a tenth of it; 0 = none */
    /* What the log holds and the disk has no room for is applied when there is room, instead of
     * refusing the boot with ERR_NO_SPACE. */
    bool open_behind;
};

void node_options_default(struct node_options *o);

/* How large the state database's write buffers may be, two of them in memory, for a disk and the
 * ballast that is wanted there; at most `most`. */
uint64_t node_write_buffer_bytes(struct disk *disk, uint64_t ballast_bytes, uint64_t most);

/* Opens, recovers and (unless manual) starts the threads. Boot refusals come as one sentence in
 * *error. */
ERR_CHECK enum err node_open(const struct node_options *options, struct node **out,
                             struct error *error);
/* Orderly end: fails what is still queued with ERR_STOPPED, ends the threads, final checkpoint.
 * After it no hook and no done callback of an earlier request is called any more, new requests fail
 * at once and reads still work: owners of hooks are freed between this and node_close(). NULL is
 * allowed, a second call does nothing. */
void node_end(struct node *n);
/* node_end() if that was not called, then frees. NULL is allowed. */
void node_close(struct node *n);
/* Simulator: drops everything in memory without writing anything, as a crash would. */
void node_abandon(struct node *n);

/* --- commands --- */

struct node_request;
/* Called exactly once per request, on the apply thread (or the log writer's for failures). Must not
 * block. */
typedef void (*node_done_fn)(struct node_request *r);

/* Embedded in the caller's own request; lives until done was called. */
struct node_request {
    enum command_type type;
    struct buf body; /* encoded command; owned by the request, released by the caller after done */
    node_done_fn done;
    void *ctx;
    /* Pushes and growing KV writes of clients: refused with ERR_STORAGE_FULL while the disk gate is
     * shut. The sink's own rows, deletes and configuration are not (decisions.md 20). */
    bool grows_storage;
    /* Filled before done: */
    enum err err; /* ERR_OK: applied and durable. ERR_STORAGE_FULL, ERR_STOPPED, ERR_TOO_LARGE */
    int64_t now;  /* the command's clock: its stamp */
    union {
        struct push_result push;
        struct configure_result configure;
        bool existed; /* COMMAND_QUEUE_DELETE */
        struct kv_result kv;
    };
    struct node_request *next; /* internal */
};

void node_request_deinit(struct node_request *r); /* body and result */
/* Any thread, never blocks. */
void node_submit(struct node *n, struct node_request *r);
uint64_t node_queued_bytes(const struct node *n); /* submitted and not yet applied, for admission */
/* Writes that grow storage are refused now: the gate (decisions.md 20). */
bool node_storage_full(const struct node *n);
/* No clock entries are made while there is no ballast: who would wait for one takes what is
 * applied as it is. */
bool node_clock_paused(const struct node *n);
/* A boot on a full disk has not applied yet all that was acknowledged before it: a read would miss
 * some of it. */
bool node_is_behind(const struct node *n);
/* Asks for an empty clock entry now; coalesced, at most 4 a second (else it is made as soon as
 * allowed). */
void node_request_clock_entry(struct node *n);
/* The clock an entry would get if it were made now. */
int64_t node_clock_estimate(struct node *n);
/* How long until the estimate reaches `us`, in microseconds of monotonic time; 0 when it has. */
int64_t node_clock_wait_us(struct node *n, int64_t us);

/* --- reads of the applied state. Any thread --- */

int64_t node_safe_time(const struct node *n);  /* 0 before anything was applied */
struct state *node_read_begin(struct node *n); /* read lock */
void node_read_end(struct node *n);
/* Keeps the queue's log from being destroyed while it is read. NULL when the id is unknown. */
struct qlog *node_log_ref(struct node *n, uint64_t queue_id);
void node_log_unref(struct node *n, struct qlog *log);

/* A reader found damage in a queue log: the node stops, naming it (storage rule 4). Any thread. */
void node_damaged(struct node *n, const struct error *error);

/* Called on the apply thread after an entry was published, once per queue it appended to, and once
 * with queue_id 0 for every entry. Up to 4 hooks, added by one thread; one that is
 * added late misses what was applied before it. Must not block. */
typedef void (*node_hook_fn)(void *ctx, uint64_t queue_id);
void node_add_hook(struct node *n, node_hook_fn fn, void *ctx);
/* Takes it away again: in manual mode, or after node_end(). */
void node_remove_hook(struct node *n, node_hook_fn fn, void *ctx);

struct node_status {
    bool stopped; /* a storage failure: role "stopped", /health 503 */
    char failure[ERROR_TEXT_MAX];
    uint64_t term, applied, committed, logged, durable; /* durable: the checkpoint's index */
    uint64_t proposals, entries, checkpoints, inflight;
    uint64_t wal_bytes, dirty_bytes;
    double clock_ahead_seconds;
    bool storage_full;
    struct uuid cluster;
};

void node_status(struct node *n, struct node_status *out);

/* --- manual mode: each does one step and returns whether it did anything --- */

bool node_pump_log(struct node *n);        /* one WAL write of everything queued */
bool node_pump_apply(struct node *n);      /* one committed entry; false also when it must wait */
bool node_pump_checkpoint(struct node *n); /* one whole checkpoint */
bool node_pump_checkpoint_due(struct node *n);
void node_pump_scrub(struct node *n); /* reads every queue log through */
void node_pump_space(struct node *n); /* the disk gate's look, at most once a second */

#endif
