/* What the parsers of KV calls share: the fields of an operation, in whatever order they come, as
 * slices, and the rules of each (spec/kv.md 2, 3). */
#ifndef API_KV_FIELDS_H
#define API_KV_FIELDS_H

#include "api/request.h"

#define KV_NAMESPACE_PATTERN "^[a-z0-9][a-z0-9._-]{0,63}$"

#define KV_FIELD_LIST(X)                                                                           \
    X(OP, "op")                                                                                    \
    X(NS, "ns")                                                                                    \
    X(NAMESPACE, "namespace")                                                                      \
    X(KEY, "key")                                                                                  \
    X(KEYS, "keys")                                                                                \
    X(PREFIX, "prefix")                                                                            \
    X(AFTER, "after")                                                                              \
    X(LIMIT, "limit")                                                                              \
    X(KEYS_ONLY, "keysOnly")                                                                       \
    X(WITH_EXPIRED, "includeExpired")                                                              \
    X(VALUE, "value")                                                                              \
    X(TTL, "ttlSeconds")                                                                           \
    X(FOREVER, "forever")                                                                          \
    X(EXPECT, "expect")                                                                            \
    X(REQUIRED, "required")                                                                        \
    X(DELTA, "delta")                                                                              \
    X(MIN, "min")                                                                                  \
    X(MAX, "max")                                                                                  \
    X(TENANT, "tenant")                                                                            \
    X(TENANT_ID, "tenantId")                                                                       \
    X(TENANT_ID_SNAKE, "tenant_id")

enum kv_field {
#define FIELD_ENUM(name, text) KV_FIELD_##name,
    KV_FIELD_LIST(FIELD_ENUM)
#undef FIELD_ENUM
        KV_FIELD_COUNT
};

struct kv_parse {
    struct kv_request *out;
    const struct kv_limits *limits;
    struct refusal *refusal;
    bool alone;                             /* the call is one operation, which needs no number */
    size_t index;                           /* of the operation at hand */
    size_t keys;                            /* of the call so far */
    struct json_raw fields[KV_FIELD_COUNT]; /* text.ptr NULL: absent */
    struct buf scratch;
};

/* Refusals: of the whole call, of the operation at hand (which the text then names), of one that is
 * too large (413), of a body that is not JSON. */
enum err kv_refuse_body(struct refusal *refusal, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
enum err kv_refuse(struct kv_parse *p, const char *reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum err kv_refuse_size(struct kv_parse *p, const char *reason, const char *text);
enum err kv_refuse_json(const struct json_reader *in, struct refusal *refusal);

/* Reads the object that comes next into p->fields. */
ERR_CHECK enum err kv_fields_read(struct kv_parse *p, struct json_reader *in);
const struct json_raw *kv_given(const struct kv_parse *p, enum kv_field field); /* NULL: absent */
/* As kv_given(), with null as absent. */
const struct json_raw *kv_given_value(const struct kv_parse *p, enum kv_field field);

/* Each takes its fields into *op, or refuses. Keys count in p->keys. */
ERR_CHECK enum err kv_check_tenant(struct kv_parse *p); /* that none is named */
ERR_CHECK enum err kv_take_ns(struct kv_parse *p, enum kv_field field, struct kv_op *op);
ERR_CHECK enum err kv_take_key(struct kv_parse *p, struct kv_op *op);
ERR_CHECK enum err kv_take_keys(struct kv_parse *p, struct kv_op *op);
ERR_CHECK enum err kv_take_prefix(struct kv_parse *p, bool may_be_empty, struct kv_op *op);
ERR_CHECK enum err kv_take_page(struct kv_parse *p, struct kv_op *op); /* after, limit, keysOnly */
ERR_CHECK enum err kv_take_value(struct kv_parse *p, struct kv_op *op);
ERR_CHECK enum err kv_take_expiry(struct kv_parse *p, struct kv_op *op);
ERR_CHECK enum err kv_take_expect(struct kv_parse *p, struct kv_op *op);
ERR_CHECK enum err kv_take_flag(struct kv_parse *p, enum kv_field field, bool *out);
ERR_CHECK enum err kv_take_number(struct kv_parse *p, enum kv_field field, bool *has,
                                  struct span *out);
/* Length and NUL bytes of a key that is UTF-8. */
ERR_CHECK enum err kv_check_key(struct kv_parse *p, struct span ns, struct span key);

#endif
