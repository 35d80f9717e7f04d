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
#define NODE_CLOCK_ENTRY_EVERY_US 250000 /* decisions.md 12: at most 4 clock entries a second */

/* One entry on its way from the log writer to apply: its commands are its requests, in order. */
struct node_entry {
    uint64_t index;
    int64_t clock;
    uint32_t count;
    uint64_t bytes; /* of its commands */
    struct node_request *first;
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
    struct push_effects effects;
    uint64_t *touched; /* queue ids that the current entry appended to */
    size_t touched_n, touched_cap;
    uint64_t bytes_since_space_check;
    struct {
        node_hook_fn fn;
        void *ctx;
    } hooks[NODE_HOOKS_MAX];
    size_t n_hooks;

    /* An entry failed half-way: the state must never reach the database. Under the state's lock,
     * not the atomic `stopped`, which a checkpoint may have looked at before it waited for that
     * lock. */
    bool half_applied;

    bool ended; /* node_end() was called; its caller's thread */

    struct {
        pthread_mutex_t mutex; /* taken last */
        bool held;             /* the file is there */
        bool impossible;       /* this filesystem reserves nothing */
    } ballast;

    /* Checkpoint thread. */
    int64_t last_checkpoint_mono;
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
    _Atomic uint64_t applied, durable, queued_bytes, applied_bytes;
    _Atomic uint64_t checkpoint_bytes_mark; /* applied_bytes at the last checkpoint */
    _Atomic uint64_t dirty_bytes; /* as of the last entry or checkpoint, for who must not wait */
    _Atomic uint64_t proposals, entries, checkpoints, inflight;
    atomic_bool stopped;
    atomic_bool storage_full; /* the gate is shut */
    atomic_bool space_tight;  /* not enough room for what is on its way; for the moment */

    struct thread *log_thread, *apply_thread, *checkpoint_thread, *scrub_thread;
};

/* node.c */
void node_fail(struct node *n, const char *what, const struct error *error);
void node_complete(struct node *n, struct node_request *r, enum err err);
int64_t node_clock_now_locked(struct node *n);

/* log.c */
void node_log_thread(void *ctx);

/* apply.c */
ERR_CHECK enum err node_replay_entry(void *ctx, const struct wal_entry *entry, struct error *error);
void node_apply_thread(void *ctx);
struct node_log *node_log_add(struct node *n, uint64_t queue_id, struct qlog *log);

/* checkpoint.c */
void node_checkpoint_thread(void *ctx);
ERR_CHECK enum err node_checkpoint(struct node *n, bool *did_out, struct error *error);

/* space.c */

/* Takes over a ballast that is there; gives it up at once where the disk is full. */
void node_ballast_find(struct node *n);
/* The disk is full: shuts the gate and gives the ballast's space back. False when there is none. */
bool node_ballast_drop(struct node *n);

/* scrub.c */
void node_scrub_thread(void *ctx);

/* recover.c */
ERR_CHECK enum err node_recover(struct node *n, struct error *error);

#endif
