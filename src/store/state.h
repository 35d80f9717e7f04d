/* The replicated state: a pure function of the entries applied so far.
 *
 * Hot rows (queues, partitions, pins) live in tables of our own; the unbounded kinds (KV rows,
 * dedup rows) in an overlay of what changed since the last checkpoint, above the state database
 * (db.h). The database is written by the checkpoint only (storage rule 3):
 *
 *   state_freeze()      at an entry boundary: active overlay and dirty hot rows become the frozen
 * set; the first change of a frozen dirty row sets its old image aside state_frozen_write  encodes
 * everything frozen into one batch (the caller made the queue logs durable before, and writes the
 * batch synced) state_frozen_done   drops the frozen set (batch durable), or state_frozen_failed()
 * merges it back
 *
 * Reading layers, newest first: active overlay, frozen overlay, database.
 *
 * No clock, no randomness, no I/O but db.h reads. Locking: the owner (node) takes
 * state_write_lock() for a whole entry and state_read_lock() for a read; every function here but
 * the lock calls themselves expects one of them held (writers the write lock), state_frozen_write()
 * takes the read lock itself in short pieces.
 *
 * Rows, one kind byte first (store/state_format.h has the tables):
 *   M meta · Q queue · P partition (queue id, partition id) · N pin · K kv, with E expiry and S size
 *   · D dedup */
#ifndef STORE_STATE_H
#define STORE_STATE_H

#include "base/map.h"
#include "base/omap.h"
#include "base/uuid.h"
#include "store/db.h"

struct tenant_id {
    uint8_t bytes[16];
};

extern const struct tenant_id TENANT_DEFAULT; /* 00000000-0000-0000-0000-000000000001 */

/* Queue options, spec/broker-api.md 3. */
struct queue_options {
    int32_t lease_time, retry_limit, delayed_processing, window_buffer, dedup_window_seconds;
    int32_t retention_seconds, completed_retention_seconds, max_wait_time_seconds;
    int32_t retention_sink_hold_max_seconds; /* 0 when created by a push: reads as 604800 */
    int32_t priority, retry_delay, ttl, max_size, min_pop_wait_time;
    bool dead_letter_queue, dlq_after_max_retries, retention_enabled, encryption_enabled;
    char retention_sink_hold[65];
};

struct partition;
struct qlog;
struct queue_grave;

#define QUEUE_DEDUP_CLASS_MIN 10u
#define QUEUE_DEDUP_CLASS_MAX 31u
#define QUEUE_DEDUP_CLASSES (QUEUE_DEDUP_CLASS_MAX - QUEUE_DEDUP_CLASS_MIN + 1)

struct queue {
    uint64_t id; /* from a counter, never reused */
    struct uuid uuid;
    struct tenant_id tenant;
    struct span name;             /* owned */
    struct span namespace_, task; /* owned */
    struct queue_options options;
    int64_t created_at;
    int64_t last_write_at; /* stamp of the newest push; 0 = none */
    int64_t dedup_floor;   /* dedup looks back no further than this stamp: a raised window */
    uint32_t
        dedup_classes; /* bit per window class that rows were ever written with (broker/dedup.h) */
    /* Class c (index c - QUEUE_DEDUP_CLASS_MIN) holds no rows of this queue with later stamps, once
     * it is no longer the class of the current window; 0 while it is. */
    int64_t dedup_until[QUEUE_DEDUP_CLASSES];
    bool dead; /* deleted, kept while pinned */
    uint32_t pins;
    uint64_t log_length; /* position up to which the queue log belongs to the applied state */
    uint64_t log_start;  /* first position retention has left */
    uint64_t records;    /* retained: of all its partitions. No row has it: counted when loaded */
    struct partition **partitions; /* by creation, which is ascending id; owned */
    size_t partition_count, partition_cap;
    struct qlog *log;         /* node's; NULL until opened. Not part of the state */
    struct queue *next_dirty; /* internal from here on */
    uint8_t dirty;
    uint64_t deleted_epoch,
        gone_epoch;            /* freezes before the deletion and the last pin's end; 0 = not */
    struct queue_grave *grave; /* partitions that wait for state_reap() */
};

struct partition {
    uint64_t id; /* from one counter over the whole broker, never reused */
    struct queue *queue;
    struct span name; /* owned */
    struct uuid uuid;
    uint64_t next_offset; /* the high watermark */
    uint64_t log_start;   /* first retained offset */
    uint64_t log_bytes;   /* of its retained runs in the queue's log */
    int64_t last_write_at, created_at;
    struct partition *next_in_bucket, *next_dirty; /* internal */
    uint32_t hash;
    uint8_t dirty;
};

/* Keeps the records of a window of the sink readable from its intent to its commit (rule 8). */
struct pin {
    struct tenant_id tenant;
    struct span key; /* KV key of the intent row; owned */
    uint64_t queue_id;
    int64_t t_start, t_end;
};

struct state; /* opaque */

struct state_meta {
    struct uuid cluster;
    uint64_t applied;    /* index of the last applied entry */
    uint64_t term;       /* its term */
    int64_t last_clock;  /* its clock */
    uint32_t last_count; /* its number of commands */
    int64_t max_stamp;   /* greatest record stamp */
    uint64_t next_queue_id, next_partition_id;
    uint64_t kv_version; /* last one given */
};

/* Takes db (closed by state_close). An empty database is founded with `cluster`. Loads the hot
 * rows. */
ERR_CHECK enum err state_open(struct db *db, const struct uuid *cluster, struct state **out,
                              struct error *error);
void state_close(struct state *s); /* NULL is allowed */

void state_write_lock(struct state *s);
void state_write_unlock(struct state *s);
void state_read_lock(struct state *s);
void state_read_unlock(struct state *s);

struct state_meta *state_meta(struct state *s); /* writers change it in place */

/* --- queues and partitions --- */

struct queue *state_queue_find(struct state *s, const struct tenant_id *tenant, struct span name);
struct queue *state_queue_by_id(struct state *s, uint64_t id); /* dead but pinned ones too */
/* Copies the strings. The name is not there yet. Counts in next_queue_id. */
struct queue *state_queue_create(struct state *s, const struct tenant_id *tenant, struct span name,
                                 const struct uuid *uuid, int64_t now,
                                 const struct queue_options *options);
void state_queue_set_labels(struct state *s, struct queue *q, struct span namespace_,
                            struct span task);
/* To be called before the first change of q's fields within an entry (sets a frozen image aside).
 */
void state_queue_touch(struct state *s, struct queue *q);
/* O(1): the name is free at once; the rows go in the background and with the next checkpoint. A
 * queue with pins stays readable by id until the last one ends. */
void state_queue_delete(struct state *s, struct queue *q);
/* Ids of queues that are gone for good since the last call (deleted and unpinned), with the applied
 * index that freed each (meta.applied, which moves before the entry's commands): their logs may be
 * destroyed after a durable checkpoint at or above it. The queue struct is already freed; log is
 * what it had. Arrays owned by the caller (mem_free). */
struct state_freed {
    uint64_t queue_id;
    uint64_t index;
    struct qlog *log;
};
size_t state_take_freed(struct state *s, struct state_freed **out);
/* Frees the memory of deleted queues' partitions, at most `budget` of them; true while more are
 * left. Write lock. */
bool state_reap(struct state *s, size_t budget);

/* All live queues of a tenant (all = tenant NULL), sorted by (tenant, name); array owned by the
 * caller. */
size_t state_queue_list(struct state *s, const struct tenant_id *tenant, struct queue ***out);
/* Every queue, dead but pinned ones too, by id; array owned by the caller. For recovery. */
size_t state_queue_list_all(struct state *s, struct queue ***out);
/* Ids of the live queues of a tenant, in no order; array owned by the caller. For walks that let go
 * of the lock on their way. */
size_t state_queue_ids(struct state *s, const struct tenant_id *tenant, uint64_t **out);
size_t state_queue_count(const struct state *s);
uint64_t state_partition_count(const struct state *s);

struct partition *state_partition_find(struct state *s, struct queue *q, struct span name);
struct partition *state_partition_create(struct state *s, struct queue *q, struct span name,
                                         const struct uuid *uuid, int64_t now);
void state_partition_touch(struct state *s, struct partition *p);

/* --- pins --- */

void state_pin_set(struct state *s, const struct tenant_id *tenant, struct span key,
                   uint64_t queue_id, int64_t t_start,
                   int64_t t_end); /* replaces one of this key */
void state_pin_remove(struct state *s, const struct tenant_id *tenant, struct span key);
const struct pin *state_pin_find(struct state *s, const struct tenant_id *tenant, struct span key);
size_t state_pin_list(struct state *s, const struct pin ***out); /* array owned by the caller */

/* --- rows of the unbounded kinds, by full key (kind byte first) --- */

/* Appends the value. ERR_NOT_FOUND; ERR_IO / ERR_CORRUPT from the database stop the node. */
ERR_CHECK enum err state_row_get(struct state *s, struct span key, struct buf *value_out,
                                 struct error *error);
void state_row_put(struct state *s, struct span key, struct span value);
void state_row_delete(struct state *s, struct span key);

/* Merged iteration over the three layers, keys in bytewise order. Valid while the lock is held. */
struct state_iter;
/* Keys from <= key < to; to empty: to the end. Borrows `to` until it is freed. Rows that were deleted
 * are walked over within these bounds only. */
struct state_iter *state_iter_new(struct state *s, struct span from, struct span to);
/* The same; each deleted row that it passes takes one of *steps, which must outlive it. It ends where
 * there are none left. */
struct state_iter *state_iter_new_bounded(struct state *s, struct span from, struct span to,
                                          size_t *steps);
/* It ended for want of steps: state_iter_key() is the deleted row's that it stopped at. */
bool state_iter_spent(struct state_iter *it);
void state_iter_free(struct state_iter *it);
bool state_iter_valid(struct state_iter *it);
struct span state_iter_key(struct state_iter *it);
struct span state_iter_value(struct state_iter *it);
void state_iter_next(struct state_iter *it);
ERR_CHECK enum err state_iter_error(struct state_iter *it, struct error *error);

/* Drops every row with from <= key < to, in the layers above at once and in the database with the
 * next checkpoint (a range delete). For rows that no read would return any more (expired dedup
 * buckets): it changes nothing that can be seen. */
void state_rows_drop(struct state *s, struct span from, struct span to);

/* No row of the expiry index (kind E) has a lesser key; empty: not known. Kept by kv, local, no part
 * of the state. Write lock to change it. */
struct buf *state_kv_cursor(struct state *s);

/* --- checkpoint --- */

size_t state_dirty_bytes(const struct state *s);  /* active and frozen overlay and dirty hot rows */
size_t state_active_bytes(const struct state *s); /* the active ones of these */
/* Write lock held, at an entry boundary; none is frozen. */
void state_freeze(struct state *s);
uint64_t state_frozen_applied(const struct state *s);
/* Appends to the batch: every frozen row and the meta row as of the freeze. */
ERR_CHECK enum err state_frozen_write(struct state *s, struct db_batch *batch, struct error *error);
void state_frozen_done(struct state *s);   /* takes the write lock itself */
void state_frozen_failed(struct state *s); /* takes the write lock itself */
struct db *state_db(struct state *s);

/* Digest of everything (meta, hot rows, overlaid rows in order): equal states have equal digests.
 * For the simulator and tests; costs O(state). */
void state_digest(struct state *s, uint8_t out[32]);

#endif
