/* What the files of kv share. */
#ifndef KV_KV_INTERNAL_H
#define KV_KV_INTERNAL_H

#include "kv/kv.h"

#define KV_CALL_OPS_MAX 65536u /* decoder's bound; the API refuses far earlier */

/* A decoded write call. Spans borrow from the body; the arrays are owned. */
struct kv_call {
    struct tenant_id tenant;
    struct kv_op *ops;
    size_t n;
};

/* kv_codec.c */
ERR_CHECK enum err kv_decode(struct span body, struct kv_call *out);
void kv_call_deinit(struct kv_call *call);
bool kv_op_single(enum kv_op_type type); /* of one key */
bool kv_op_writes(enum kv_op_type type); /* writes and check */

struct kv_tally;

/* kv_row.c: a row as it is stored. */
struct kv_stored {
    bool live; /* there is a row and it has not expired */
    uint64_t version;
    int64_t expires_at, updated_at;
    struct buf value;
    struct { /* the row that the state has, live or not */
        bool there;
        int64_t expires_at;
        uint32_t bytes; /* of key and value */
    } stored;
};

void kv_key_make(struct buf *out, const struct tenant_id *tenant, struct span ns, struct span key);
/* The least key behind all that begin with `prefix`, which is not all 0xff. */
void kv_key_behind(struct buf *out, struct span prefix);
/* expires_out may be NULL: expiry of the row found, live or not; 0 = none. Replaces *out. */
ERR_CHECK enum err kv_row_load(struct state *s, struct span key, int64_t now, struct kv_stored *out,
                               int64_t *expires_out, struct error *error);
ERR_CHECK enum err kv_row_decode(struct span value, struct kv_row *out); /* all but the key */
/* With its place in the expiry index; *tally takes what that does to the size. */
ERR_CHECK enum err kv_row_store(struct state *s, struct span key, const struct kv_stored *row,
                                struct kv_tally *tally);
/* Adds the row to the expiry index (kv_expire.c), or takes it out. */
void kv_expiry_put(struct state *s, struct span key, int64_t expires_at, uint32_t bytes);
void kv_expiry_remove(struct state *s, struct span key, int64_t expires_at);

/* kv_size.c: changes of a namespace's size, gathered while rows of the same one follow each other.
 * Once begun it has to be ended, also after an error. */
struct kv_tally {
    struct state *s;
    struct buf key; /* of the namespace's row, kind S */
    int64_t rows, bytes;
    struct error *error;
};

/* key: of the KV row. */
ERR_CHECK enum err kv_tally_add(struct kv_tally *t, struct span key, int64_t rows, int64_t bytes);
ERR_CHECK enum err kv_tally_end(struct kv_tally *t); /* writes and frees */
int64_t kv_expiry(const struct kv_op *op, int64_t now);

/* kv_result.c: while a result is built its spans hold offsets into `bytes` instead of pointers. */
void kv_result_begin(struct kv_result *r, const struct kv_op *ops, size_t n);
struct span kv_result_keep(struct kv_result *r, struct span bytes);
void kv_result_row(struct kv_result *r, struct kv_row *row, struct span key,
                   const struct kv_stored *stored);
void kv_result_end(struct kv_result *r); /* turns offsets into pointers */
void kv_result_empty(struct kv_result *r);

/* kv_read.c */
struct kv_reader {
    struct state *s;
    struct tenant_id tenant;
    int64_t now, estimate;
    bool due; /* met a row that expires in (now, estimate] */
    size_t bytes;
    size_t steps; /* rows it may still look at */
    struct kv_result *result;
    struct error *error;
};

ERR_CHECK enum err kv_read_op(struct kv_reader *r, const struct kv_op *op,
                              struct kv_op_result *result);

/* kv_number.c: adds the JSON numbers exactly. Appends the sum to *out as a 64-bit integer where it
 * is one, else as the nearest double. KV_REASON_LIMIT beyond min or max (empty: none) or where no
 * double reaches; KV_REASON_TYPE when `current` is not a number. */
enum kv_reason kv_number_add(struct span current, struct span delta, struct span min,
                             struct span max, struct buf *out);

#endif
