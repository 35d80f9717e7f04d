/* What the files of the state share. */
#ifndef STORE_STATE_INTERNAL_H
#define STORE_STATE_INTERNAL_H

#include "store/state.h"

#include <pthread.h>

/* Bits of queue.dirty and partition.dirty. A dirty row is on exactly one intrusive list: the frozen
 * one or the active one, told apart by the parity of the epoch in which it was put there, so that a
 * freeze need not visit it. */
enum {
    DIRTY_LISTED = 1,
    DIRTY_PARITY = 2,  /* of the epoch, while listed */
    DIRTY_CHANGED = 4, /* frozen, and changed since: its frozen row was set aside */
    DIRTY_REAPED =
        8, /* partition of a deleted queue, out of the table; freed when it leaves its list */
};

struct range {
    struct buf from, to; /* [from, to) */
};

struct range_list {
    struct range *at;
    size_t n, cap;
};

struct id_list {
    uint64_t *at;
    size_t n, cap;
};

/* What changed since a checkpoint. Rows win over the layer's own drops, which hide the layers
 * below. */
struct layer {
    struct omap *rows;
    /* First eight bytes, as a number, of the least and the greatest dedup key in rows: a push looks
     * for each of its ids in many old buckets, and the overlay holds none but the newest. */
    uint64_t dedup_low, dedup_high;
    struct range_list drops;
    struct queue *queues;                          /* lists over next_dirty */
    struct partition *partitions, *last_partition; /* new ones are in the order of their keys */
    size_t hot_count;                              /* on the two lists */
    struct id_list dead_ids;                       /* queues whose P rows go */
    struct id_list gone_ids;                       /* queues whose Q row goes */
};

struct queue_grave {
    struct queue *queue;
    struct partition **partitions; /* not reaped yet: [0, n) */
    size_t n;
    size_t left; /* partition structs that still exist */
    bool linked; /* on state.graves */
    struct queue_grave *next;
};

/* Linear hashing (Litwin 1980): grows by one bucket at a time, so that no insert ever pays for all.
 */
struct partition_table {
    struct partition **buckets;
    size_t n, cap; /* n buckets in use */
    size_t base;   /* largest power of two <= n */
    size_t count;
};

struct state {
    struct db *db;
    pthread_rwlock_t lock;
    struct state_meta meta;
    struct map names; /* tenant and name -> live queue */
    struct map64 ids; /* id -> queue, live or dead and pinned */
    struct map pins;  /* tenant and key -> pin */
    struct partition_table table;
    bool loading;             /* the table is made when all partitions are there */
    size_t queue_count;       /* live */
    uint64_t partition_count; /* of live queues */
    uint64_t epoch;           /* 1 + number of freezes */
    struct layer active;
    struct layer frozen;
    bool is_frozen;
    bool is_finishing; /* the batch is durable: images are not needed any more */
    struct state_meta frozen_meta;
    struct buf
        images; /* frozen rows that changed since: le32 key length, le32 value length, both */
    struct queue_grave *graves;
    struct state_freed *freed;
    size_t freed_count, freed_cap;
    struct buf kv_cursor;
};

/* state_codec.c. Encoders append. Decoders return ERR_CORRUPT. */
void state_meta_encode(const struct state_meta *m, struct buf *value);
ERR_CHECK enum err state_meta_decode(struct span value, struct state_meta *out);
void state_queue_key(uint64_t id, struct buf *key);
void state_queue_encode(const struct queue *q, struct buf *value);
/* Into a zeroed queue; strings are copied. */
ERR_CHECK enum err state_queue_decode(struct span key, struct span value, struct queue *q);
void state_partition_key(uint64_t queue_id, uint64_t id, struct buf *key);
void state_partition_encode(const struct partition *p, struct buf *value);
void state_pin_key(const struct tenant_id *tenant, struct span key, struct buf *out);

/* state_tables.c */
/* Ends loading: makes the table of partitions in one go, sized for them. */
void state_loaded(struct state *s);
void state_queue_attach(struct state *s, struct queue *q); /* into the maps, when loaded */
struct partition *state_partition_attach(struct state *s, struct queue *q, uint64_t id,
                                         struct span name);
ERR_CHECK enum err state_pin_attach(struct state *s, struct span row_key, struct span value);
void state_queue_free(struct queue *q); /* with its partitions */
void state_queue_release(struct state *s, struct queue *q);
void state_partition_release(struct state *s, struct partition *p); /* of a dead queue */
void state_tables_deinit(struct state *s);
void id_list_add(struct id_list *list, uint64_t id);

/* state_rows.c */
struct layer state_layer_new(void);
void state_layer_put(struct layer *layer, const struct omap_row *row);
void state_layer_drop(struct layer *layer, struct span from, struct span to);
/* Is key in one of the ranges? end_out: that range's end. */
bool state_drops_hide(const struct range_list *drops, struct span key, struct span *end_out);
void state_drops_deinit(struct range_list *drops);

/* state_checkpoint.c */
void state_layer_deinit(struct layer *layer);

#endif
