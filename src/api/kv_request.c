/* The body of POST /api/v1/kv (spec/kv.md 2, 3, 6).
 *
 * The fields of an operation come in any order, so they are collected as slices first (one slot per
 * known name) and then judged by the operation's rules. Values are stored normalised, numbers of
 * incr as they were written: their arithmetic is decimal. */
#include "api/request.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>

#define BODY_DEPTH 4u           /* containers around a value: object, array, operation */
#define TTL_MAX 200000000000ull /* seconds; keeps expiry times inside four-digit years */
#define NUMBER_LEN_MAX 1024u
#define EXPONENT_DIGITS_MAX 4u
#define PREFIX_LIMIT_DEFAULT 100u
#define PREFIX_LIMIT_MAX 1000u

#define FIELD_LIST(X)                                                                              \
    X(OP, "op")                                                                                    \
    X(NS, "ns")                                                                                    \
    X(KEY, "key")                                                                                  \
    X(KEYS, "keys")                                                                                \
    X(PREFIX, "prefix")                                                                            \
    X(AFTER, "after")                                                                              \
    X(LIMIT, "limit")                                                                              \
    X(KEYS_ONLY, "keysOnly")                                                                       \
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

enum field {
#define FIELD_ENUM(name, text) FIELD_##name,
    FIELD_LIST(FIELD_ENUM)
#undef FIELD_ENUM
        FIELD_COUNT
};

static const char *const field_names[FIELD_COUNT] = {
#define FIELD_NAME(name, text) text,
    FIELD_LIST(FIELD_NAME)
#undef FIELD_NAME
};

struct parse {
    struct kv_request *out;
    const struct kv_limits *limits;
    struct refusal *refusal;
    size_t index;                        /* of the operation at hand */
    size_t keys;                         /* of the call so far */
    struct json_raw fields[FIELD_COUNT]; /* text.ptr NULL: absent */
    struct buf scratch;
};

static enum err bad_body(struct refusal *refusal, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static enum err bad_body(struct refusal *refusal, const char *format, ...)
{
    char text[ERROR_TEXT_MAX / 2];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args); /* cut to fit */
    va_end(args);
    enum err err = refuse(refusal, 400, "kv_bad_request", "%s", text);
    refusal->reason = "kv_bad_body";
    return err;
}

/* Refuses the operation at hand, which the text then names. */
static enum err bad(struct parse *p, const char *reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum err bad(struct parse *p, const char *reason, const char *format, ...)
{
    char text[ERROR_TEXT_MAX / 4];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args); /* cut to fit */
    va_end(args);
    enum err err = refuse(p->refusal, 400, "kv_bad_request", "operation %zu: %s", p->index, text);
    p->refusal->reason = reason;
    return err;
}

static enum err too_large(struct parse *p, const char *reason, const char *text)
{
    enum err err =
        refuse(p->refusal, 413, "payload_too_large", "operation %zu: %s", p->index, text);
    p->refusal->reason = reason;
    return err;
}

static enum err bad_json(const struct json_reader *in, struct refusal *refusal)
{
    return bad_body(refusal, "%s at byte %zu", in->why == NULL ? "not JSON" : in->why, in->at);
}

static const struct json_raw *given(const struct parse *p, enum field field)
{
    return p->fields[field].text.ptr == NULL ? NULL : &p->fields[field];
}

/* As given(), with null as absent. */
static const struct json_raw *given_value(const struct parse *p, enum field field)
{
    const struct json_raw *raw = given(p, field);
    return raw == NULL || raw->type == JSON_NULL ? NULL : raw;
}

/* --- names --------------------------------------------------------------------------------------
 */

static enum err take_ns(struct parse *p, struct kv_op *op)
{
    const struct json_raw *raw = given(p, FIELD_NS);
    if (raw == NULL || raw->type != JSON_STRING || !string_text(raw, &p->out->arena, &op->ns) ||
        !kv_namespace_valid(op->ns))
        return bad(p, "kv_bad_namespace", "ns must match ^[a-z0-9][a-z0-9._-]{0,63}$");
    return ERR_OK;
}

static enum err check_key(struct parse *p, struct span ns, const struct json_raw *raw,
                          struct span *out)
{
    if (raw->type != JSON_STRING)
        return bad(p, "kv_bad_key", "a key must be a string");
    if (!string_text(raw, &p->out->arena, out))
        return bad(p, "kv_bad_key", "the key has an unpaired surrogate escape");
    if (out->len == 0 || memchr(out->ptr, 0, out->len) != NULL)
        return bad(p, "kv_bad_key", "a key has 1..%u bytes and no NUL", KV_KEY_MAX);
    if (out->len > KV_KEY_MAX)
        return bad(p, "kv_bad_key", "the key is %zu bytes; the most is %u", out->len, KV_KEY_MAX);
    if (1 + sizeof(struct tenant_id) + ns.len + 1 + out->len > KV_STORE_KEY_MAX)
        return too_large(p, "kv_key_too_large", "namespace and key together are too long");
    return ERR_OK;
}

static enum err take_key(struct parse *p, struct kv_op *op)
{
    const struct json_raw *raw = given(p, FIELD_KEY);
    if (raw == NULL)
        return bad(p, "kv_bad_key", "key is missing");
    p->keys++;
    return check_key(p, op->ns, raw, &op->key);
}

static enum err take_keys(struct parse *p, struct kv_op *op)
{
    const struct json_raw *raw = given(p, FIELD_KEYS);
    if (raw == NULL || raw->type != JSON_ARRAY)
        return bad(p, "kv_bad_body", "keys must be an array of strings");
    struct span *keys = arena_alloc(&p->out->arena, p->limits->keys_max * sizeof(keys[0]));
    struct json_reader in;
    json_reader_init(&in, raw->text, 2);
    if (json_enter_array(&in) != ERR_OK)
        return bad_json(&in, p->refusal);
    for (;;) {
        struct json_raw key;
        bool more;
        if (json_next_element(&in, &more) != ERR_OK)
            return bad_json(&in, p->refusal);
        if (!more)
            break;
        if (json_take(&in, &key) != ERR_OK)
            return bad(p, "kv_bad_key", "a key must be a string");
        if (++p->keys > p->limits->keys_max)
            return bad(p, "kv_too_many_keys", "more than %zu keys in one call",
                       p->limits->keys_max);
        TRY(check_key(p, op->ns, &key, &keys[op->n_keys]));
        op->n_keys++;
    }
    op->keys = keys;
    return ERR_OK;
}

/* --- numbers and flags --------------------------------------------------------------------------
 */

static enum err take_flag(struct parse *p, enum field field, bool *out)
{
    const struct json_raw *raw = given_value(p, field);
    if (raw == NULL)
        return ERR_OK;
    if (raw->type != JSON_TRUE && raw->type != JSON_FALSE)
        return bad(p, "kv_bad_body", "%s must be a boolean", field_names[field]);
    *out = raw->type == JSON_TRUE;
    return ERR_OK;
}

static enum err take_expect(struct parse *p, struct kv_op *op)
{
    const struct json_raw *raw = given(p, FIELD_EXPECT);
    if (raw == NULL)
        return op->type == KV_CHECK ? bad(p, "kv_bad_expect", "check needs expect") : ERR_OK;
    if (op->type == KV_INCR)
        return bad(p, "kv_bad_expect", "incr takes no expect");
    if (raw->type != JSON_NUMBER || !json_uint64(raw->text, &op->expect))
        return bad(p, "kv_bad_expect", "expect must be 0 or a version");
    if (op->type == KV_PUT_IF_ABSENT && op->expect != 0)
        return bad(p, "kv_bad_expect", "putIfAbsent expects 0 only");
    op->has_expect = true;
    return ERR_OK;
}

static enum err take_expiry(struct parse *p, struct kv_op *op)
{
    const struct json_raw *ttl = given_value(p, FIELD_TTL);
    TRY(take_flag(p, FIELD_FOREVER, &op->forever));
    if ((ttl != NULL) == op->forever)
        return bad(p, "kv_expiry_not_specified", "give exactly one of ttlSeconds and forever:true");
    if (ttl == NULL)
        return ERR_OK;
    if (ttl->type != JSON_NUMBER || !json_uint64(ttl->text, &op->ttl_seconds) ||
        op->ttl_seconds == 0 || op->ttl_seconds > TTL_MAX)
        return bad(p, "kv_bad_ttl", "ttlSeconds must be an integer in 1..%llu", TTL_MAX);
    return ERR_OK;
}

/* Appends the normalised form to the scratch buffer. */
static enum err normalise(struct parse *p, const struct json_raw *raw, const char *name)
{
    struct error why = {0};
    buf_reset(&p->scratch);
    enum err err =
        json_normalise(raw->text, p->limits->depth_max, p->limits->value_max, &p->scratch, &why);
    if (err == ERR_TOO_LARGE)
        return too_large(p, "kv_value_too_large", "the value is too large");
    if (err != ERR_OK)
        return bad(p, "kv_bad_body", "%s: %s", name,
                   why.text[0] == '\0' ? err_text(err) : why.text);
    return ERR_OK;
}

static enum err take_value(struct parse *p, struct kv_op *op)
{
    const struct json_raw *raw = given(p, FIELD_VALUE);
    if (raw == NULL)
        return bad(p, "kv_bad_body", "value is missing");
    TRY(normalise(p, raw, "value"));
    op->value = arena_copy(&p->out->arena, buf_span(&p->scratch));
    return ERR_OK;
}

/* Exact arithmetic on it must stay cheap: a spelling with a far exponent is replaced by its
 * double's. */
static bool far_exponent(struct span number)
{
    for (size_t i = 0; i < number.len; i++) {
        if (number.ptr[i] == 'e' || number.ptr[i] == 'E')
            return number.len - i - 1 > EXPONENT_DIGITS_MAX;
    }
    return false;
}

static enum err take_number(struct parse *p, enum field field, bool *has, struct span *out)
{
    const struct json_raw *raw = given_value(p, field);
    if (raw == NULL)
        return ERR_OK;
    if (raw->type != JSON_NUMBER || raw->text.len > NUMBER_LEN_MAX)
        return bad(p, "kv_bad_body", "%s must be a number", field_names[field]);
    TRY(normalise(p, raw, field_names[field])); /* some double holds it */
    *out = far_exponent(raw->text) ? arena_copy(&p->out->arena, buf_span(&p->scratch)) : raw->text;
    *has = true;
    return ERR_OK;
}

/* --- operations ---------------------------------------------------------------------------------
 */

static enum err take_prefix(struct parse *p, struct kv_op *op)
{
    const struct json_raw *prefix = given_value(p, FIELD_PREFIX);
    const struct json_raw *after = given_value(p, FIELD_AFTER);
    const struct json_raw *limit = given_value(p, FIELD_LIMIT);
    if (prefix == NULL || (prefix->type == JSON_STRING && prefix->text.len == 2))
        return bad(p, "kv_prefix_required", "getPrefix needs a non-empty prefix");
    TRY(check_key(p, op->ns, prefix, &op->key));
    if (after != NULL &&
        (after->type != JSON_STRING || !string_text(after, &p->out->arena, &op->after)))
        return bad(p, "kv_bad_key", "after must be a string");
    int64_t number = PREFIX_LIMIT_DEFAULT;
    if (limit != NULL && (limit->type != JSON_NUMBER || !json_int64(limit->text, &number)))
        return bad(p, "kv_bad_body", "limit must be an integer");
    op->limit = number < 1 ? 1 : number > PREFIX_LIMIT_MAX ? PREFIX_LIMIT_MAX : (uint32_t)number;
    p->keys += op->limit;
    return take_flag(p, FIELD_KEYS_ONLY, &op->keys_only);
}

static enum err take_incr(struct parse *p, struct kv_op *op)
{
    bool has_delta = false;
    TRY(take_number(p, FIELD_DELTA, &has_delta, &op->value));
    if (!has_delta)
        return bad(p, "kv_bad_body", "delta is missing");
    TRY(take_number(p, FIELD_MIN, &op->has_min, &op->min));
    TRY(take_number(p, FIELD_MAX, &op->has_max, &op->max));
    return take_expiry(p, op);
}

static enum err op_type(struct parse *p, enum kv_op_type *out)
{
    static const struct {
        const char *name;
        enum kv_op_type type;
    } table[] = {{"get", KV_GET},
                 {"getMany", KV_GET_MANY},
                 {"getPrefix", KV_GET_PREFIX},
                 {"put", KV_PUT},
                 {"putIfAbsent", KV_PUT_IF_ABSENT},
                 {"delete", KV_DELETE},
                 {"incr", KV_INCR},
                 {"check", KV_CHECK}};
    const struct json_raw *raw = given(p, FIELD_OP);
    for (size_t i = 0;
         raw != NULL && raw->type == JSON_STRING && i < sizeof(table) / sizeof(table[0]); i++) {
        if (json_string_is(raw->text, span_str(table[i].name))) {
            *out = table[i].type;
            return ERR_OK;
        }
    }
    return bad(p, "kv_unknown_op", "op is missing or unknown");
}

static enum err take_op(struct parse *p, struct kv_op *op)
{
    if (given(p, FIELD_TENANT) != NULL || given(p, FIELD_TENANT_ID) != NULL ||
        given(p, FIELD_TENANT_ID_SNAKE) != NULL)
        return bad(p, "kv_tenant_not_an_input", "an operation cannot name a tenant");
    TRY(op_type(p, &op->type));
    TRY(take_ns(p, op));
    switch (op->type) {
    case KV_GET:
        return take_key(p, op);
    case KV_GET_MANY:
        return take_keys(p, op);
    case KV_GET_PREFIX:
        return take_prefix(p, op);
    case KV_PUT:
    case KV_PUT_IF_ABSENT:
        TRY(take_key(p, op));
        TRY(take_value(p, op));
        TRY(take_expiry(p, op));
        break;
    case KV_INCR:
        TRY(take_key(p, op));
        TRY(take_incr(p, op));
        break;
    case KV_DELETE:
    case KV_CHECK:
        TRY(take_key(p, op));
        break;
    }
    TRY(take_expect(p, op));
    return take_flag(p, FIELD_REQUIRED, &op->required);
}

static bool writes_row(const struct kv_op *op)
{
    return op->type == KV_PUT || op->type == KV_PUT_IF_ABSENT || op->type == KV_DELETE ||
           op->type == KV_INCR;
}

static enum err check_unique(struct parse *p)
{
    const struct kv_op *ops = p->out->ops;
    for (size_t i = 0; i < p->out->n; i++) {
        for (size_t j = 0; writes_row(&ops[i]) && j < i; j++) {
            if (writes_row(&ops[j]) && span_eq(ops[i].key, ops[j].key) &&
                span_eq(ops[i].ns, ops[j].ns)) {
                p->index = i;
                return bad(p, "kv_duplicate_key_in_call", "its key is written by operation %zu too",
                           j);
            }
        }
    }
    return ERR_OK;
}

/* --- the body -----------------------------------------------------------------------------------
 */

static void keep_field(struct parse *p, const struct json_raw *key, const struct json_raw *value)
{
    for (enum field i = 0; i < FIELD_COUNT; i++) {
        if (json_string_is(key->text, span_str(field_names[i]))) {
            p->fields[i] = *value;
            return;
        }
    }
}

static enum err parse_op(struct parse *p, struct json_reader *in)
{
    enum json_type type;
    if (json_peek(in, &type) != ERR_OK)
        return bad_json(in, p->refusal);
    if (type != JSON_OBJECT)
        return bad(p, "kv_bad_body", "not an object");
    if (json_enter_object(in) != ERR_OK)
        return bad_json(in, p->refusal);
    memset(p->fields, 0, sizeof(p->fields));
    for (;;) {
        struct json_raw key, value;
        bool more;
        if (json_next_key(in, &key, &more) != ERR_OK)
            return bad_json(in, p->refusal);
        if (!more)
            break;
        if (json_take(in, &value) != ERR_OK)
            return bad_json(in, p->refusal);
        keep_field(p, &key, &value);
    }
    struct kv_op *op = &p->out->ops[p->out->n++];
    TRY(take_op(p, op));
    if (p->keys > p->limits->keys_max)
        return bad(p, "kv_too_many_keys", "more than %zu keys in one call", p->limits->keys_max);
    return ERR_OK;
}

static enum err parse_ops(struct parse *p, struct json_reader *in)
{
    if (json_enter_array(in) != ERR_OK)
        return bad_json(in, p->refusal);
    p->out->n = p->keys = 0; /* of equal keys the last counts */
    p->out->ops = arena_alloc(&p->out->arena, p->limits->ops_max * sizeof(p->out->ops[0]));
    for (p->index = 0;; p->index++) {
        bool more;
        if (json_next_element(in, &more) != ERR_OK)
            return bad_json(in, p->refusal);
        if (!more)
            return check_unique(p);
        if (p->index == p->limits->ops_max)
            return bad(p, "kv_too_many_ops", "more than %zu operations in one call",
                       p->limits->ops_max);
        TRY(parse_op(p, in));
    }
}

/* {"operations": [...]} */
static enum err parse_object(struct parse *p, struct json_reader *in)
{
    bool seen = false;
    if (json_enter_object(in) != ERR_OK)
        return bad_json(in, p->refusal);
    for (;;) {
        struct json_raw key, value;
        enum json_type type;
        bool more;
        if (json_next_key(in, &key, &more) != ERR_OK)
            return bad_json(in, p->refusal);
        if (!more)
            return seen ? ERR_OK : bad_body(p->refusal, "operations is missing");
        if (!json_string_is(key.text, SPAN_LIT("operations"))) {
            if (json_take(in, &value) != ERR_OK)
                return bad_json(in, p->refusal);
            continue;
        }
        if (json_peek(in, &type) != ERR_OK)
            return bad_json(in, p->refusal);
        if (type != JSON_ARRAY)
            return bad_body(p->refusal, "operations must be an array");
        TRY(parse_ops(p, in));
        seen = true;
    }
}

static enum err parse_body(struct parse *p, struct span body)
{
    struct json_reader in;
    enum json_type type;
    json_reader_init(&in, body, p->limits->depth_max + BODY_DEPTH);
    if (json_peek(&in, &type) != ERR_OK)
        return bad_json(&in, p->refusal);
    if (type == JSON_ARRAY)
        TRY(parse_ops(p, &in));
    else if (type == JSON_OBJECT)
        TRY(parse_object(p, &in));
    else
        return bad_body(p->refusal, "neither an array nor an object");
    return json_end(&in) == ERR_OK ? ERR_OK : bad_json(&in, p->refusal);
}

enum err kv_request_parse(struct span body, const struct kv_limits *limits, struct kv_request *out,
                          struct refusal *refusal)
{
    *out = (struct kv_request){0};
    struct parse p = {.out = out, .limits = limits, .refusal = refusal};
    enum err err = parse_body(&p, body);
    buf_deinit(&p.scratch);
    return err;
}

void kv_request_deinit(struct kv_request *r)
{
    arena_deinit(&r->arena);
}
