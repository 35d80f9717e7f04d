/* Fields of KV calls.
 *
 * Values are stored normalised; numbers of incr stay as they were written: their arithmetic is
 * decimal. */
#include "api/kv_fields.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>

#define TTL_MAX 200000000000ull /* seconds; keeps expiry times inside four-digit years */
#define NUMBER_LEN_MAX 1024u
#define EXPONENT_DIGITS_MAX 4u
#define PREFIX_LIMIT_DEFAULT 100u
#define PREFIX_LIMIT_MAX 1000u
#define PLACE_MAX 40

static const char *const field_names[KV_FIELD_COUNT] = {
#define FIELD_NAME(name, text) text,
    KV_FIELD_LIST(FIELD_NAME)
#undef FIELD_NAME
};

enum err kv_refuse_body(struct refusal *refusal, const char *format, ...)
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

/* "operation 3: ", in the caller's storage. */
static const char *place(const struct kv_parse *p, char *text, size_t size)
{
    if (p->alone)
        text[0] = 0;
    else
        (void)snprintf(text, size, "operation %zu: ", p->index); /* fits */
    return text;
}

enum err kv_refuse(struct kv_parse *p, const char *reason, const char *format, ...)
{
    char text[ERROR_TEXT_MAX / 4], where[PLACE_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args); /* cut to fit */
    va_end(args);
    enum err err =
        refuse(p->refusal, 400, "kv_bad_request", "%s%s", place(p, where, sizeof(where)), text);
    p->refusal->reason = reason;
    return err;
}

enum err kv_refuse_size(struct kv_parse *p, const char *reason, const char *text)
{
    char where[PLACE_MAX];
    enum err err =
        refuse(p->refusal, 413, "payload_too_large", "%s%s", place(p, where, sizeof(where)), text);
    p->refusal->reason = reason;
    return err;
}

enum err kv_refuse_json(const struct json_reader *in, struct refusal *refusal)
{
    return kv_refuse_body(refusal, "%s at byte %zu", in->why == NULL ? "not JSON" : in->why,
                          in->at);
}

const struct json_raw *kv_given(const struct kv_parse *p, enum kv_field field)
{
    return p->fields[field].text.ptr == NULL ? NULL : &p->fields[field];
}

/* As kv_given(), with null as absent. */
const struct json_raw *kv_given_value(const struct kv_parse *p, enum kv_field field)
{
    const struct json_raw *raw = kv_given(p, field);
    return raw == NULL || raw->type == JSON_NULL ? NULL : raw;
}

/* --- names --------------------------------------------------------------------------------------
 */

enum err kv_take_ns(struct kv_parse *p, enum kv_field field, struct kv_op *op)
{
    const struct json_raw *raw = kv_given(p, field);
    if (raw == NULL || raw->type != JSON_STRING || !string_text(raw, &p->out->arena, &op->ns) ||
        !kv_namespace_valid(op->ns))
        return kv_refuse(p, "kv_bad_namespace", "%s must match " KV_NAMESPACE_PATTERN,
                         field_names[field]);
    return ERR_OK;
}

enum err kv_check_key(struct kv_parse *p, struct span ns, struct span key)
{
    if (key.len == 0 || memchr(key.ptr, 0, key.len) != NULL)
        return kv_refuse(p, "kv_bad_key", "a key has 1..%u bytes and no NUL", KV_KEY_MAX);
    if (key.len > KV_KEY_MAX)
        return kv_refuse(p, "kv_bad_key", "the key is %zu bytes; the most is %u", key.len,
                         KV_KEY_MAX);
    if (1 + sizeof(struct tenant_id) + ns.len + 1 + key.len > KV_STORE_KEY_MAX)
        return kv_refuse_size(p, "kv_key_too_large", "namespace and key together are too long");
    return ERR_OK;
}

static enum err key_text(struct kv_parse *p, struct span ns, const struct json_raw *raw,
                         struct span *out)
{
    if (raw->type != JSON_STRING)
        return kv_refuse(p, "kv_bad_key", "a key must be a string");
    if (!string_text(raw, &p->out->arena, out))
        return kv_refuse(p, "kv_bad_key", "the key has an unpaired surrogate escape");
    return kv_check_key(p, ns, *out);
}

enum err kv_take_key(struct kv_parse *p, struct kv_op *op)
{
    const struct json_raw *raw = kv_given(p, KV_FIELD_KEY);
    if (raw == NULL)
        return kv_refuse(p, "kv_bad_key", "key is missing");
    p->keys++;
    return key_text(p, op->ns, raw, &op->key);
}

enum err kv_take_keys(struct kv_parse *p, struct kv_op *op)
{
    const struct json_raw *raw = kv_given(p, KV_FIELD_KEYS);
    if (raw == NULL || raw->type != JSON_ARRAY)
        return kv_refuse(p, "kv_bad_body", "keys must be an array of strings");
    size_t most = p->limits->keys_max - p->keys, room = raw->text.len / 2; /* of "" and commas */
    if (most > room)
        most = room;
    struct span *keys = arena_alloc(&p->out->arena, most * sizeof(keys[0]));
    struct json_reader in;
    json_reader_init(&in, raw->text, 2);
    if (json_enter_array(&in) != ERR_OK)
        return kv_refuse_json(&in, p->refusal);
    for (;;) {
        struct json_raw key;
        bool more;
        if (json_next_element(&in, &more) != ERR_OK)
            return kv_refuse_json(&in, p->refusal);
        if (!more)
            break;
        if (json_take(&in, &key) != ERR_OK)
            return kv_refuse(p, "kv_bad_key", "a key must be a string");
        if (++p->keys > p->limits->keys_max)
            return kv_refuse(p, "kv_too_many_keys", "more than %zu keys in one call",
                             p->limits->keys_max);
        TRY(key_text(p, op->ns, &key, &keys[op->n_keys]));
        op->n_keys++;
    }
    op->keys = keys;
    return ERR_OK;
}

static bool is_empty(const struct json_raw *raw)
{
    return raw->type == JSON_STRING && raw->text.len == 2;
}

enum err kv_take_prefix(struct kv_parse *p, bool may_be_empty, struct kv_op *op)
{
    const struct json_raw *prefix = kv_given_value(p, KV_FIELD_PREFIX);
    if ((prefix == NULL || is_empty(prefix)) && may_be_empty)
        return ERR_OK;
    if (prefix == NULL || is_empty(prefix))
        return kv_refuse(p, "kv_prefix_required", "getPrefix needs a non-empty prefix");
    return key_text(p, op->ns, prefix, &op->key);
}

/* --- numbers and flags --------------------------------------------------------------------------
 */

enum err kv_take_flag(struct kv_parse *p, enum kv_field field, bool *out)
{
    const struct json_raw *raw = kv_given_value(p, field);
    if (raw == NULL)
        return ERR_OK;
    if (raw->type != JSON_TRUE && raw->type != JSON_FALSE)
        return kv_refuse(p, "kv_bad_body", "%s must be a boolean", field_names[field]);
    *out = raw->type == JSON_TRUE;
    return ERR_OK;
}

enum err kv_take_expect(struct kv_parse *p, struct kv_op *op)
{
    const struct json_raw *raw = kv_given(p, KV_FIELD_EXPECT);
    if (raw == NULL)
        return op->type == KV_CHECK ? kv_refuse(p, "kv_bad_expect", "check needs expect") : ERR_OK;
    if (op->type == KV_INCR)
        return kv_refuse(p, "kv_bad_expect", "incr takes no expect");
    if (raw->type != JSON_NUMBER || !json_uint64(raw->text, &op->expect))
        return kv_refuse(p, "kv_bad_expect", "expect must be 0 or a version");
    if (op->type == KV_PUT_IF_ABSENT && op->expect != 0)
        return kv_refuse(p, "kv_bad_expect", "putIfAbsent expects 0 only");
    op->has_expect = true;
    return ERR_OK;
}

enum err kv_take_expiry(struct kv_parse *p, struct kv_op *op)
{
    const struct json_raw *ttl = kv_given_value(p, KV_FIELD_TTL);
    TRY(kv_take_flag(p, KV_FIELD_FOREVER, &op->forever));
    if ((ttl != NULL) == op->forever)
        return kv_refuse(p, "kv_expiry_not_specified",
                         "give exactly one of ttlSeconds and forever:true");
    if (ttl == NULL)
        return ERR_OK;
    if (ttl->type != JSON_NUMBER || !json_uint64(ttl->text, &op->ttl_seconds) ||
        op->ttl_seconds == 0 || op->ttl_seconds > TTL_MAX)
        return kv_refuse(p, "kv_bad_ttl", "ttlSeconds must be an integer in 1..%llu", TTL_MAX);
    return ERR_OK;
}

/* Appends the normalised form to the scratch buffer. */
static enum err normalise(struct kv_parse *p, const struct json_raw *raw, const char *name)
{
    struct error why = {0};
    buf_reset(&p->scratch);
    enum err err =
        json_normalise(raw->text, p->limits->depth_max, p->limits->value_max, &p->scratch, &why);
    if (err == ERR_TOO_LARGE)
        return kv_refuse_size(p, "kv_value_too_large", "the value is too large");
    if (err != ERR_OK)
        return kv_refuse(p, "kv_bad_body", "%s: %s", name,
                         why.text[0] == '\0' ? err_text(err) : why.text);
    return ERR_OK;
}

enum err kv_take_value(struct kv_parse *p, struct kv_op *op)
{
    const struct json_raw *raw = kv_given(p, KV_FIELD_VALUE);
    if (raw == NULL)
        return kv_refuse(p, "kv_bad_body", "value is missing");
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

enum err kv_take_number(struct kv_parse *p, enum kv_field field, bool *has, struct span *out)
{
    const struct json_raw *raw = kv_given_value(p, field);
    if (raw == NULL)
        return ERR_OK;
    if (raw->type != JSON_NUMBER || raw->text.len > NUMBER_LEN_MAX)
        return kv_refuse(p, "kv_bad_body", "%s must be a number", field_names[field]);
    TRY(normalise(p, raw, field_names[field])); /* some double holds it */
    *out = far_exponent(raw->text) ? arena_copy(&p->out->arena, buf_span(&p->scratch)) : raw->text;
    *has = true;
    return ERR_OK;
}

/* --- pages --------------------------------------------------------------------------------------
 */

static enum err take_after(struct kv_parse *p, struct kv_op *op)
{
    const struct json_raw *after = kv_given_value(p, KV_FIELD_AFTER);
    if (after == NULL)
        return ERR_OK;
    if (after->type != JSON_STRING || !string_text(after, &p->out->arena, &op->after))
        return kv_refuse(p, "kv_bad_key", "after must be a string");
    if (op->after.len > KV_KEY_MAX)
        return kv_refuse(p, "kv_bad_key", "after is %zu bytes; the most is %u", op->after.len,
                         KV_KEY_MAX);
    return ERR_OK;
}

enum err kv_take_page(struct kv_parse *p, struct kv_op *op)
{
    const struct json_raw *limit = kv_given_value(p, KV_FIELD_LIMIT);
    int64_t number = PREFIX_LIMIT_DEFAULT;
    TRY(take_after(p, op));
    if (limit != NULL && (limit->type != JSON_NUMBER || !json_int64(limit->text, &number)))
        return kv_refuse(p, "kv_bad_body", "limit must be an integer");
    op->limit = number < 1 ? 1 : number > PREFIX_LIMIT_MAX ? PREFIX_LIMIT_MAX : (uint32_t)number;
    p->keys += op->limit;
    return kv_take_flag(p, KV_FIELD_KEYS_ONLY, &op->keys_only);
}

/* --- the object ---------------------------------------------------------------------------------
 */

enum err kv_check_tenant(struct kv_parse *p)
{
    if (kv_given(p, KV_FIELD_TENANT) != NULL || kv_given(p, KV_FIELD_TENANT_ID) != NULL ||
        kv_given(p, KV_FIELD_TENANT_ID_SNAKE) != NULL)
        return kv_refuse(p, "kv_tenant_not_an_input", "an operation cannot name a tenant");
    return ERR_OK;
}

static void keep_field(struct kv_parse *p, const struct json_raw *key, const struct json_raw *value)
{
    for (enum kv_field i = 0; i < KV_FIELD_COUNT; i++) {
        if (json_string_is(key->text, span_str(field_names[i]))) {
            p->fields[i] = *value;
            return;
        }
    }
}

enum err kv_fields_read(struct kv_parse *p, struct json_reader *in)
{
    enum json_type type;
    if (json_peek(in, &type) != ERR_OK)
        return kv_refuse_json(in, p->refusal);
    if (type != JSON_OBJECT)
        return kv_refuse(p, "kv_bad_body", "not an object");
    if (json_enter_object(in) != ERR_OK)
        return kv_refuse_json(in, p->refusal);
    memset(p->fields, 0, sizeof(p->fields));
    for (;;) {
        struct json_raw key, value;
        bool more;
        if (json_next_key(in, &key, &more) != ERR_OK)
            return kv_refuse_json(in, p->refusal);
        if (!more)
            return ERR_OK;
        if (json_take(in, &value) != ERR_OK)
            return kv_refuse_json(in, p->refusal);
        keep_field(p, &key, &value); /* of equal ones the last counts */
    }
}
