/* The body of COMMAND_KV, version 1, integers little-endian:
 *   offset size field
 *        0   16  tenant
 *       16    4  operation count
 *       20    .  operations
 * operation:
 *        0    1  type (enum kv_op_type)
 *        1    1  flags: 1 forever, 2 expect, 4 required, 8 keysOnly, 16 min, 32 max
 *        2    1  pin (enum kv_pin)
 *        3  2+.  namespace: length, bytes
 *        .  2+.  key, or prefix of getPrefix: length, bytes
 *        .    8  expect                                             (with its flag)
 *        .    8  ttlSeconds                        (put, putIfAbsent, incr; not with forever)
 *        .  4+.  value or delta: length, bytes     (put, putIfAbsent, incr)
 *        .  2+.  min, then max: length, bytes      (incr, with their flags)
 *        .    4  number of keys, then each: length le16, bytes      (getMany)
 *        .  2+4  after: length, bytes; limit le32  (getPrefix)
 *        .    .  pin 1: queue length le16, bytes; queue id, tStart, tEnd le64
 *        .  2+.  pin 2: key length, bytes
 *
 * The API has checked what a client may send; the decoder checks what apply relies on. */
#include "kv/kv_internal.h"

#include "base/bytes.h"
#include "base/mem.h"

enum {
    FLAG_FOREVER = 1,
    FLAG_EXPECT = 2,
    FLAG_REQUIRED = 4,
    FLAG_KEYS_ONLY = 8,
    FLAG_MIN = 16,
    FLAG_MAX = 32,
    FLAG_ALL = 63,
};

enum { OP_SIZE_MIN = 7 };

bool kv_op_single(enum kv_op_type type)
{
    return type != KV_GET_MANY && type != KV_GET_PREFIX;
}

bool kv_op_writes(enum kv_op_type type)
{
    switch (type) {
    case KV_GET:
    case KV_GET_MANY:
    case KV_GET_PREFIX:
        return false;
    case KV_PUT:
    case KV_PUT_IF_ABSENT:
    case KV_DELETE:
    case KV_INCR:
    case KV_CHECK:
        return true;
    }
    return false;
}

bool kv_has_write(const struct kv_op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (kv_op_writes(ops[i].type))
            return true;
    }
    return false;
}

static bool has_value(enum kv_op_type type)
{
    return type == KV_PUT || type == KV_PUT_IF_ABSENT || type == KV_INCR;
}

/* Do the parts fit the type? */
static bool op_sound(const struct kv_op *op)
{
    if (op->type == KV_INCR &&
        (op->has_expect || !kv_number_valid(op->value) ||
         (op->has_min && !kv_number_valid(op->min)) || (op->has_max && !kv_number_valid(op->max))))
        return false;
    if (op->type != KV_INCR && (op->has_min || op->has_max))
        return false;
    if (op->type == KV_CHECK && !op->has_expect)
        return false;
    if (op->type == KV_PUT_IF_ABSENT && op->has_expect && op->expect != 0)
        return false;
    if (has_value(op->type) && !op->forever && op->ttl_seconds == 0)
        return false;
    return true;
}

/* --- encoding --- */

static void short_put(struct buf *out, struct span s)
{
    ASSERT(s.len <= UINT16_MAX);
    buf_put_le16(out, (uint16_t)s.len);
    buf_put_span(out, s);
}

static void reads_put(struct buf *out, const struct kv_op *op)
{
    if (op->type == KV_GET_MANY) {
        buf_put_le32(out, (uint32_t)op->n_keys);
        for (size_t i = 0; i < op->n_keys; i++)
            short_put(out, op->keys[i]);
    }
    if (op->type == KV_GET_PREFIX) {
        short_put(out, op->after);
        buf_put_le32(out, op->limit);
    }
}

static void pin_put(struct buf *out, const struct kv_op *op)
{
    switch (op->pin) {
    case KV_PIN_NONE:
        break;
    case KV_PIN_SET:
        short_put(out, op->pin_queue);
        buf_put_le64(out, op->pin_queue_id);
        buf_put_le64(out, (uint64_t)op->pin_t_start);
        buf_put_le64(out, (uint64_t)op->pin_t_end);
        break;
    case KV_PIN_CLEAR:
        short_put(out, op->pin_key);
        break;
    }
}

static void op_put(struct buf *out, const struct kv_op *op)
{
    ASSERT(op->pin == KV_PIN_NONE || op->type == KV_PUT);
    ASSERT(op_sound(op)); /* here and not at apply: a bad body in the log would stop every node */
    buf_putc(out, (uint8_t)op->type);
    buf_putc(out,
             (uint8_t)((op->forever ? FLAG_FOREVER : 0) | (op->has_expect ? FLAG_EXPECT : 0) |
                       (op->required ? FLAG_REQUIRED : 0) | (op->keys_only ? FLAG_KEYS_ONLY : 0) |
                       (op->has_min ? FLAG_MIN : 0) | (op->has_max ? FLAG_MAX : 0)));
    buf_putc(out, (uint8_t)op->pin);
    short_put(out, op->ns);
    short_put(out, op->key);
    if (op->has_expect)
        buf_put_le64(out, op->expect);
    if (has_value(op->type)) {
        if (!op->forever)
            buf_put_le64(out, op->ttl_seconds);
        buf_put_le32(out, (uint32_t)op->value.len);
        buf_put_span(out, op->value);
    }
    if (op->has_min)
        short_put(out, op->min);
    if (op->has_max)
        short_put(out, op->max);
    reads_put(out, op);
    pin_put(out, op);
}

void kv_encode(struct buf *out, const struct tenant_id *tenant, const struct kv_op *ops, size_t n)
{
    ASSERT(n <= KV_CALL_OPS_MAX);
    buf_append(out, tenant->bytes, sizeof(tenant->bytes));
    buf_put_le32(out, (uint32_t)n);
    for (size_t i = 0; i < n; i++)
        op_put(out, &ops[i]);
}

/* --- decoding --- */

static struct span short_get(struct cursor *c)
{
    uint16_t len = cursor_le16(c);
    return cursor_bytes(c, len);
}

static struct span long_get(struct cursor *c)
{
    uint32_t len = cursor_le32(c);
    return cursor_bytes(c, len);
}

static bool keys_get(struct cursor *c, struct kv_op *op)
{
    uint32_t n = cursor_le32(c);
    if (c->bad || n > c->in.len / sizeof(uint16_t))
        return false;
    op->keys = MEM_ARRAY(struct span, (size_t)n + 1);
    op->n_keys = n;
    for (uint32_t i = 0; i < n; i++)
        op->keys[i] = short_get(c);
    return !c->bad;
}

static bool pin_get(struct cursor *c, struct kv_op *op)
{
    switch (op->pin) {
    case KV_PIN_NONE:
        return true;
    case KV_PIN_SET:
        op->pin_queue = short_get(c);
        op->pin_queue_id = cursor_le64(c);
        op->pin_t_start = (int64_t)cursor_le64(c);
        op->pin_t_end = (int64_t)cursor_le64(c);
        return op->type == KV_PUT;
    case KV_PIN_CLEAR:
        op->pin_key = short_get(c);
        return op->type == KV_PUT;
    }
    return false;
}

static bool op_get(struct cursor *c, struct kv_op *op)
{
    uint8_t type = cursor_u8(c), flags = cursor_u8(c), pin = cursor_u8(c);
    if (c->bad || type > KV_CHECK || flags > FLAG_ALL || pin > KV_PIN_CLEAR)
        return false;
    op->type = (enum kv_op_type)type;
    op->pin = (enum kv_pin)pin;
    op->forever = flags & FLAG_FOREVER;
    op->has_expect = flags & FLAG_EXPECT;
    op->required = flags & FLAG_REQUIRED;
    op->keys_only = flags & FLAG_KEYS_ONLY;
    op->has_min = flags & FLAG_MIN;
    op->has_max = flags & FLAG_MAX;
    op->ns = short_get(c);
    op->key = short_get(c);
    if (op->has_expect)
        op->expect = cursor_le64(c);
    if (has_value(op->type)) {
        if (!op->forever)
            op->ttl_seconds = cursor_le64(c);
        op->value = long_get(c);
    }
    if (op->has_min)
        op->min = short_get(c);
    if (op->has_max)
        op->max = short_get(c);
    if (op->type == KV_GET_MANY && !keys_get(c, op))
        return false;
    if (op->type == KV_GET_PREFIX) {
        op->after = short_get(c);
        op->limit = cursor_le32(c);
    }
    return pin_get(c, op) && !c->bad && op_sound(op);
}

enum err kv_decode(struct span body, struct kv_call *out)
{
    struct cursor c = {body, false};
    struct kv_call call = {0};
    struct span tenant = cursor_bytes(&c, sizeof(call.tenant.bytes));
    uint32_t n = cursor_le32(&c);
    if (c.bad || n > KV_CALL_OPS_MAX || n > c.in.len / OP_SIZE_MIN)
        return ERR_CORRUPT;
    memcpy(call.tenant.bytes, tenant.ptr, sizeof(call.tenant.bytes));
    call.ops = MEM_ARRAY(struct kv_op, (size_t)n + 1);
    bool sound = true;
    while (sound && call.n < n)
        sound = op_get(&c, &call.ops[call.n++]);
    if (!sound || c.in.len != 0) {
        kv_call_deinit(&call);
        return ERR_CORRUPT;
    }
    *out = call;
    return ERR_OK;
}

void kv_call_deinit(struct kv_call *call)
{
    for (size_t i = 0; i < call->n; i++)
        mem_free(call->ops[i].keys);
    mem_free(call->ops);
    *call = (struct kv_call){0};
}
