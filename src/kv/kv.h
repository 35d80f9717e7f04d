/* The key-value store (spec/kv.md): operations, encoding of a write call as one command, apply, and
 * reads. Pure over store/state.h. The sink's leases, intents and pointers are rows of it. */
#ifndef KV_KV_H
#define KV_KV_H

#include "store/command.h"
#include "store/state.h"

#define KV_VALUE_MAX 65536u
#define KV_KEY_MAX 512u
#define KV_STORE_KEY_MAX                                                                           \
    511u /* tenant (16) + namespace + 0 + key + kind byte must fit: kv_key_too_large */
#define KV_OPS_MAX 256u
#define KV_READ_BYTES_MAX (4u * 1024 * 1024)
/* Rows that the reads of a call look at one after another, expired and deleted ones included: about
 * ten milliseconds, in which nothing is applied. A getPrefix that needs more gives a shorter page. */
#define KV_READ_STEPS_MAX 10000u

enum kv_op_type {
    KV_GET,
    KV_GET_MANY,
    KV_GET_PREFIX,
    KV_PUT,
    KV_PUT_IF_ABSENT,
    KV_DELETE,
    KV_INCR,
    KV_CHECK
};
#define KV_OP_TYPES (KV_CHECK + 1)
const char *kv_op_name(enum kv_op_type type); /* of the wire: "get", ... "check" */

/* Pins belong to rows of this namespace: a KV_DELETE in another one ends no pin. */
#define KV_PIN_NAMESPACE "queen-s3"

/* What a put of the sink does beside writing its row (not on the wire of POST /api/v1/kv). */
enum kv_pin { KV_PIN_NONE, KV_PIN_SET, KV_PIN_CLEAR };

struct kv_op {
    enum kv_op_type type;
    struct span ns, key; /* key: also the prefix of KV_GET_PREFIX */
    struct span *keys;   /* KV_GET_MANY */
    size_t n_keys;
    struct span value; /* normalised JSON (json_normalise); delta of KV_INCR as JSON number */
    bool forever;
    uint64_t ttl_seconds; /* when not forever */
    bool has_expect;
    uint64_t expect;
    bool required;
    struct span after; /* KV_GET_PREFIX */
    uint32_t limit;
    bool keys_only;
    bool with_expired;     /* in kv_read() only: rows that expired and are still there, too */
    bool has_min, has_max; /* KV_INCR */
    struct span min, max;  /* JSON numbers */
    /* KV_PIN_SET: the row is an intent: lost with KV_REASON_QUEUE unless pin_queue_id is the live
     * id of pin_queue in this tenant; applying it pins [t_start, t_end). KV_PIN_CLEAR: ends the pin
     * of pin_key. */
    enum kv_pin pin;
    struct span pin_queue, pin_key;
    uint64_t pin_queue_id;
    int64_t pin_t_start, pin_t_end;
};

enum kv_reason {
    KV_REASON_NONE,
    KV_REASON_EXISTS,
    KV_REASON_ABSENT,
    KV_REASON_VERSION,
    KV_REASON_LIMIT,
    KV_REASON_TYPE,
    KV_REASON_QUEUE
};
const char *kv_reason_text(enum kv_reason reason); /* "exists", ... "queue" */

struct kv_row {
    struct span key, value; /* borrow from the result's bytes */
    uint64_t version;
    int64_t expires_at; /* 0 = never */
    int64_t updated_at;
    bool expired; /* with_expired */
};

struct kv_op_result {
    enum kv_op_type type;
    bool found;   /* KV_GET */
    bool applied; /* writes and check */
    enum kv_reason reason;
    struct kv_row row;   /* get, writes (see kv.md 3.2 for what it holds); row.version 0 and empty
                            value = none */
    struct kv_row *rows; /* getMany, getPrefix; owned by the result */
    size_t n_rows;
    struct span *missing;
    size_t n_missing;
    bool truncated;
    bool has_next;
    struct span next_after;
};

struct kv_result {
    bool aborted; /* a required operation lost: nothing was written, ops is empty */
    uint32_t failed_index;
    enum kv_reason failed_reason;
    struct kv_row failed_row; /* current live value and version */
    struct kv_op_result *ops; /* in request order */
    size_t n;
    struct buf bytes; /* what the rows point into (addresses are fixed up at the end) */
};

void kv_result_deinit(struct kv_result *r);

bool kv_has_write(const struct kv_op *ops, size_t n); /* writes and check */
/* Appends the body of a COMMAND_KV. */
void kv_encode(struct buf *out, const struct tenant_id *tenant, const struct kv_op *ops, size_t n);
/* Evaluates in the order of kv.md 3.3. result NULL on replay. Deleting or replacing a row whose key
 * has a pin by KV_DELETE ends that pin (storage rule 8). */
ERR_CHECK enum err kv_apply(struct state *s, struct apply_context *at, struct span body,
                            struct kv_result *result, struct error *error);
/* A call with reads only, judged at `now` (read lock held). *due_out: a row met here had an expiry
 * in (now, estimate]: the caller commits a clock entry and reads again. */
ERR_CHECK enum err kv_read(struct state *s, const struct tenant_id *tenant, const struct kv_op *ops,
                           size_t n, int64_t now, int64_t estimate, struct kv_result *result,
                           bool *due_out, struct error *error);
/* Checks of kv.md 2 that need no state. */
bool kv_namespace_valid(struct span ns);
/* A JSON number of at most KV_NUMBER_MAX bytes that a double holds: what delta, min and max of
 * KV_INCR must be. */
#define KV_NUMBER_MAX 1024u
bool kv_number_valid(struct span text);

/* Removes up to `limit` of the rows that expired at or before `now`, the earliest first. A part of
 * applying: how many are there is the same on every node. */
ERR_CHECK enum err kv_expire(struct state *s, int64_t now, size_t limit, struct error *error);
/* Of every entry, beside what each call of it removes: about a millisecond. Changing it changes
 * what an entry does. */
#define KV_EXPIRE_PER_ENTRY 512u
/* No row expires before this; INT64_MAX: none at all. INT64_MIN before kv_expire_find() or the first
 * kv_expire(). */
int64_t kv_expire_next(struct state *s);
/* Finds that time out after the state was opened. Write lock. */
ERR_CHECK enum err kv_expire_find(struct state *s, struct error *error);

/* Rows that are there, those that expired and were not removed yet included. */
struct kv_size {
    uint64_t rows;
    uint64_t bytes; /* of their keys and values */
};

/* Of one namespace; empty: of all of the tenant's. O(1). */
ERR_CHECK enum err kv_size(struct state *s, const struct tenant_id *tenant, struct span ns,
                           struct kv_size *out, struct error *error);

typedef void (*kv_namespace_fn)(void *ctx, struct span ns, const struct kv_size *size);
/* Calls fn for up to `limit` namespaces that have rows, in byte order behind *after, and sets *after
 * to where it got. *more_out: go on from there, with another hold of the lock. */
ERR_CHECK enum err kv_namespaces(struct state *s, const struct tenant_id *tenant, struct buf *after,
                                 size_t limit, kv_namespace_fn fn, void *ctx, bool *more_out,
                                 struct error *error);

#endif
