/* The request bodies of the API: JSON to structures, as pure functions (spec/broker-api.md 2-5,
 * spec/kv.md).
 *
 * Everything borrows from the body given or from the request's arena: valid until both are gone. A
 * refusal says what the client is told. */
#ifndef API_REQUEST_H
#define API_REQUEST_H

#include "api/arena.h"
#include "broker/configure.h"
#include "broker/push.h"
#include "json/json.h"
#include "kv/kv.h"

struct refusal {
    unsigned status;
    const char *code;   /* NULL: the body has only "error". KV: the kind */
    const char *reason; /* KV */
    char text[ERROR_TEXT_MAX];
};

/* Fills *refusal and returns ERR_INVALID. */
enum err refuse(struct refusal *refusal, unsigned status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* 400 for a body that is not the JSON it should be: prefix, what the reader found, where. */
enum err refuse_json(struct refusal *refusal, const char *code, const char *prefix,
                     const struct json_reader *in);

#define NAME_BYTES_MAX 447u /* tenant + queue + max(partition, group) */
#define TENANT_TEXT_LEN 36u
/* 413 name_too_long when the names together are too long; other may be empty. */
ERR_CHECK enum err names_check(struct span queue, struct span other, const char *other_field,
                               struct refusal *refusal);

/* Text of a string value, decoded into the arena when it holds escapes. False: it has no UTF-8
 * form. */
bool string_text(const struct json_raw *raw, struct arena *arena, struct span *out);

/* --- query strings --- */

/* The decoded value of a parameter replaces what is in *out; false: it is not there. */
bool query_text(struct span query, const char *name, struct buf *out);
/* Clamped to [min, max]; absent: *out stays. 400 when it is no integer. */
ERR_CHECK enum err query_integer(struct span query, const char *name, int64_t min, int64_t max,
                                 int64_t *out, struct refusal *refusal);

/* --- push --- */

struct push_request {
    struct push_item *items; /* owned; minted ones have no message id yet */
    size_t n, cap;
    struct arena arena;
};

/* depth_max: of a payload (QUEEN_MAX_JSON_DEPTH). The request is to be released in any case. */
ERR_CHECK enum err push_request_parse(struct span body, unsigned depth_max,
                                      struct push_request *out, struct refusal *refusal);
void push_request_deinit(struct push_request *r);

/* --- fetch --- */

#define FETCH_ENTRIES_MAX 1024u
#define FETCH_RECORDS_MAX 10000u /* of one entry */
#define FETCH_BYTES_DEFAULT 1048576
#define FETCH_BYTES_MAX 8388608
#define FETCH_WAIT_MS_MAX 30000
/* Of one answer when the request has no ceiling of its own: an answer is built in memory. */
#define FETCH_TOTAL_BYTES_MAX (64 * 1048576)

struct fetch_entry {
    struct span queue, partition;
    uint64_t offset;
    uint32_t max_bytes;
};

struct fetch_request {
    struct fetch_entry *entries; /* owned */
    size_t n;
    int64_t max_wait_ms;
    uint64_t min_bytes;
    uint64_t total_max; /* top-level maxBytes */
    struct arena arena;
};

ERR_CHECK enum err fetch_request_parse(struct span body, struct fetch_request *out,
                                       struct refusal *refusal);
void fetch_request_deinit(struct fetch_request *r);

/* --- partitions/changed --- */

#define CHANGED_LIMIT_MAX 1000u

struct changed_entry {
    struct span queue;
    bool has_since;
    int64_t since;
    enum { CURSOR_START, CURSOR_AFTER, CURSOR_BAD } cursor;
    uint64_t cursor_queue, cursor_partition; /* ids */
    uint32_t limit;
};

struct changed_request {
    struct changed_entry *entries; /* owned */
    size_t n;
    struct arena arena;
};

ERR_CHECK enum err changed_request_parse(struct span body, struct changed_request *out,
                                         struct refusal *refusal);
void changed_request_deinit(struct changed_request *r);
void changed_cursor_put(struct buf *out, uint64_t queue_id, uint64_t partition_id);

/* --- configure --- */

#define LABEL_BYTES_MAX (NAME_BYTES_MAX - TENANT_TEXT_LEN) /* as a queue's name */

/* The spans of *out point into body and arena. */
ERR_CHECK enum err configure_request_parse(struct span body, struct arena *arena,
                                           struct configure_request *out, struct refusal *refusal);
/* The options object of configure, resources and message detail. */
void queue_options_put(struct json_writer *w, const struct queue_options *o);

/* --- kv --- */

#define KV_KEYS_MAX 1024u /* in one call, unless QUEEN_KV_MAX_KEYS_PER_CALL says otherwise */

struct kv_limits {
    size_t value_max;
    size_t ops_max;
    size_t keys_max;
    unsigned depth_max; /* of a value */
};

struct kv_request {
    struct kv_op *ops; /* owned by the arena */
    size_t n;
    struct arena arena;
};

ERR_CHECK enum err kv_request_parse(struct span body, const struct kv_limits *limits,
                                    struct kv_request *out, struct refusal *refusal);
void kv_request_deinit(struct kv_request *r);

/* One operation on one key. */
struct kv_key_source {
    enum kv_op_type type; /* KV_GET, KV_PUT or KV_DELETE */
    struct span path;     /* what follows /api/v1/kv/, raw */
    struct span query, body;
};

ERR_CHECK enum err kv_key_request_parse(const struct kv_key_source *from,
                                        const struct kv_limits *limits, struct kv_request *out,
                                        struct refusal *refusal);
/* A page of a namespace's rows: one KV_GET_PREFIX, whose prefix may be empty. */
ERR_CHECK enum err kv_list_request_parse(struct span body, const struct kv_limits *limits,
                                         struct kv_request *out, struct refusal *refusal);

#endif
