/* What the files of the node module share. Fields are grouped by who may touch them. */
#ifndef NODE_INTERNAL_H
#define NODE_INTERNAL_H

#include "io/pool.h"
#include "node/node.h"
#include "node/replicator.h"

#include <pthread.h>
#include <stdatomic.h>

#define NODE_HOOKS_MAX 4
#define NODE_ENTRIES_PER_WRITE_MAX 64
#define NODE_WRITE_BYTES_MAX (64u << 20) /* then the next entry waits for another write */
#define NODE_SPACE_CHECK_EVERY_US 1000000
#define NODE_SHORT_SAY_EVERY_US 30000000
#define NODE_CLOCK_ENTRY_EVERY_US 250000 /* decisions.md 12: at most 4 clock entries a second */

/* One entry on its way to apply: from the log writer, then its commands are its requests, in
 * order; or found in the log at boot. */
struct node_entry {
    uint64_t index, term;
    int64_t clock;
    uint32_t count;
    uint64_t bytes;     /* of its commands */
    uint64_t log_bytes; /* of those that append to queue logs */
    struct node_request *first;
    struct buf replay; /* found at boot: the whole of it */
    struct node_entry *next;
};

/* A queue's log with the readers that hold it. */
struct node_log {
    uint64_t queue_id;
    struct qlog *log;
    uint32_t refs;  /* readers */
    uint64_t freed; /* index of the entry that freed the queue; 0 while it lives */
    struct node_log *next_doomed;
};

struct node {
    struct node_options options;
    struct disk_file *lock_file;
    struct uuid cluster;
    struct state *state;
    struct qlog_set *logs;
    struct replicator *replicator;
    struct wal *wal; /* owned by the replicator; here for its byte count */

    /* Log-writer thread (or the pumping caller). */
    struct {
        uint64_t next_index;
        struct buf headers; /* entry and command headers of one write */
        struct span *parts;
        size_t parts_cap;
    } log;

    /* Apply thread. */
    struct node_entry *current;  /* taken and not done with: it waits for room */
    struct push_effects effects; /* of the current entry: its runs */
    struct qlog **run_logs;      /* whose each of them is */
    size_t run_logs_cap;
    size_t runs_done;     /* so many are appended */
    struct buf run_names; /* partitions of the others, once the lock was let go */
    uint64_t *touched;    /* queue ids that the current entry appended to */
    size_t touched_n, touched_cap;
    uint64_t bytes_since_space_check;
    struct {
        node_hook_fn fn;
        void *ctx;
    } hooks[NODE_HOOKS_MAX];
    atomic_size_t n_hooks; /* counts one once it is there: entries may come before it */

    /* An entry is applied half-way, for want of room or by a failure: the state must not reach the
     * database. Under the state's lock, not the atomic `stopped`, which a checkpoint may have
     * looked at before it waited for that lock. Apply alone writes it. */
    bool half_applied;

    bool opened;         /* recovery is over */
    bool ended;          /* node_end() was called; its caller's thread */
    uint64_t recover_to; /* the last entry that was found at boot */

    struct {
        pthread_mutex_t mutex; /* taken last */
        bool held;             /* the file is there */
        bool reserve;          /* so is the other one */
        bool impossible;       /* this filesystem reserves nothing */
    } ballast;

    /* Checkpoint thread. */
    int64_t last_checkpoint_mono;
    int64_t last_short_said_mono;
    int64_t last_space_check_mono;

    pthread_mutex_t mutex;
    pthread_cond_t log_wake, apply_wake, checkpoint_wake, space_wake, scrub_wake;
    /* Under mutex. */
    struct {
        struct node_request *pending_first, **pending_last;
        struct node_entry *apply_first, **apply_last;
        int64_t last_clock; /* of the last proposed entry */
        uint32_t last_count;
        int64_t last_mono; /* monotonic time at which last_clock was given */
        bool clock_wanted;
        int64_t last_clock_entry_mono;
        bool closing;  /* no new requests */
        bool log_done; /* the log writer has ended */
        bool apply_done;
        struct error failure;
        struct map64 log_by_queue; /* queue id -> struct node_log */
        struct node_log *doomed;   /* freed queues' logs, destroyed after a checkpoint */
    } shared;

    _Atomic int64_t safe_time;
    _Atomic int64_t kv_expire_next; /* kv_expire_next() of the applied state */
    _Atomic uint64_t applied, durable, queued_bytes, applied_bytes;
    _Atomic uint64_t checkpoint_bytes_mark;     /* applied_bytes at the last freeze */
    _Atomic uint64_t checkpointed_bytes;        /* applied_bytes of the last durable checkpoint */
    _Atomic uint64_t dirty_bytes, active_bytes; /* of the state, for who must not wait */
    _Atomic uint64_t proposals, entries, checkpoints, inflight;
    atomic_bool stopped;
    atomic_bool storage_full; /* the gate is shut */
    atomic_bool space_tight;  /* not enough room for what is on its way; for the moment */
    /* ROOM_ASKED when a write was refused for want of room; each look at the disk counts it down. */
    _Atomic unsigned room_asked;
    /* The disk was full and the ballast is not there again: less is done (space.c). With
     * storage_full, under the ballast's mutex when it is written. */
    atomic_bool emergency;
    atomic_bool checkpoint_wanted; /* at once */
    atomic_bool checkpoint_short;  /* the last one had no room */
    /* As of the last look at the disk. */
    _Atomic uint64_t free_bytes, total_bytes, applied_bytes_then;

    struct thread *log_thread, *apply_thread, *checkpoint_thread, *scrub_thread;
};

/* node.c */
void node_fail(struct node *n, const char *what, const struct error *error);
void node_complete(struct node *n, struct node_request *r, enum err err);
/* A list of them, over next; NULL: none. */
void node_complete_all(struct node *n, struct node_request *first, enum err err);
int64_t node_clock_now_locked(struct node *n);

/* log.c */
void node_log_thread(void *ctx);

/* apply.c */
ERR_CHECK enum err node_replay_entry(void *ctx, const struct wal_entry *found, struct error *error);
void node_apply_thread(void *ctx);
/* Expired KV rows go with entries: asks for one when some are due. Any thread. */
void node_expire_look(struct node *n);
/* Fails what is committed and not applied, at the end. */
void node_drop_entries(struct node *n);
struct node_log *node_log_add(struct node *n, uint64_t queue_id, struct qlog *log);

/* checkpoint.c */
void node_checkpoint_thread(void *ctx);
ERR_CHECK enum err node_checkpoint(struct node *n, bool *did_out, struct error *error);
void node_want_checkpoint(struct node *n);
void node_count_dirty(struct node *n); /* the state's lock is held */
/* There is enough for a checkpoint that it should not wait for its time. Any thread. */
bool node_checkpoint_full(const struct node *n);
/* Bytes on the disk that the next checkpoint may take. */
uint64_t node_checkpoint_need(struct node *n);

/* space.c */

/* Before recovery. Takes over a ballast that is there; gives it up at once where the disk is full.
 * The gate starts shut when the folder was in use and has no whole one. */
void node_ballast_find(struct node *n, bool founded);
/* The disk is full: shuts the gate and gives back the ballast, then what else can be spared. False
 * when nothing is left. */
bool node_make_room(struct node *n);
/* The same for a boot that failed, which may also take the reserve. */
bool node_make_room_for_boot(struct node *n);
/* The state's overlay may hold so much, and starts a checkpoint with so much. */
uint64_t node_dirty_max(const struct node *n);
uint64_t node_dirty_due(const struct node *n);
/* Must `more` bytes of commands that grow storage be refused? */
bool node_space_refuses(struct node *n, uint64_t more);

/* scrub.c */
void node_scrub_thread(void *ctx);

/* recover.c */
ERR_CHECK enum err node_recover(struct node *n, struct error *error);

#endif
