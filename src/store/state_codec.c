/* Rows of the state as bytes; the tables are in state_format.h. */
#include "store/state_internal.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "store/state_format.h"

enum {
    QUEUE_DEAD = 1,
    QUEUE_DEAD_LETTER = 2,
    QUEUE_DLQ_AFTER = 4,
    QUEUE_RETENTION = 8,
    QUEUE_ENCRYPTION = 16,
    QUEUE_FLAGS = 31,
};

void state_meta_encode(const struct state_meta *m, struct buf *value)
{
    buf_putc(value, STATE_FORMAT_VERSION);
    buf_append(value, m->cluster.bytes, sizeof(m->cluster.bytes));
    buf_put_le64(value, m->applied);
    buf_put_le64(value, m->term);
    buf_put_le64(value, (uint64_t)m->last_clock);
    buf_put_le32(value, m->last_count);
    buf_put_le64(value, (uint64_t)m->max_stamp);
    buf_put_le64(value, m->next_queue_id);
    buf_put_le64(value, m->next_partition_id);
    buf_put_le64(value, m->kv_version);
}

static void bytes16_get(struct cursor *c, uint8_t out[16])
{
    struct span s = cursor_bytes(c, 16);
    if (s.len == 16)
        memcpy(out, s.ptr, 16);
}

enum err state_meta_decode(struct span value, struct state_meta *out)
{
    struct cursor c = {value, false};
    struct state_meta m = {0};
    if (cursor_u8(&c) != STATE_FORMAT_VERSION)
        return c.bad ? ERR_CORRUPT : ERR_VERSION;
    bytes16_get(&c, m.cluster.bytes);
    m.applied = cursor_le64(&c);
    m.term = cursor_le64(&c);
    m.last_clock = (int64_t)cursor_le64(&c);
    m.last_count = cursor_le32(&c);
    m.max_stamp = (int64_t)cursor_le64(&c);
    m.next_queue_id = cursor_le64(&c);
    m.next_partition_id = cursor_le64(&c);
    m.kv_version = cursor_le64(&c);
    if (c.bad || c.in.len != 0)
        return ERR_CORRUPT;
    *out = m;
    return ERR_OK;
}

void state_queue_key(uint64_t id, struct buf *key)
{
    buf_putc(key, STATE_KIND_QUEUE);
    buf_put_be64(key, id);
}

/* The fourteen integers, in the order of the format. */
#define QUEUE_INTS(X)                                                                              \
    X(lease_time)                                                                                  \
    X(retry_limit)                                                                                 \
    X(delayed_processing)                                                                          \
    X(window_buffer)                                                                               \
    X(dedup_window_seconds)                                                                        \
    X(retention_seconds)                                                                           \
    X(completed_retention_seconds)                                                                 \
    X(max_wait_time_seconds)                                                                       \
    X(retention_sink_hold_max_seconds)                                                             \
    X(priority)                                                                                    \
    X(retry_delay)                                                                                 \
    X(ttl)                                                                                         \
    X(max_size)                                                                                    \
    X(min_pop_wait_time)

static void text_put(struct buf *b, struct span text)
{
    buf_put_le32(b, (uint32_t)text.len);
    buf_put_span(b, text);
}

void state_queue_encode(const struct queue *q, struct buf *value)
{
    const struct queue_options *o = &q->options;
    buf_putc(value,
             (uint8_t)((q->dead ? QUEUE_DEAD : 0) | (o->dead_letter_queue ? QUEUE_DEAD_LETTER : 0) |
                       (o->dlq_after_max_retries ? QUEUE_DLQ_AFTER : 0) |
                       (o->retention_enabled ? QUEUE_RETENTION : 0) |
                       (o->encryption_enabled ? QUEUE_ENCRYPTION : 0)));
    buf_append(value, q->uuid.bytes, sizeof(q->uuid.bytes));
    buf_append(value, q->tenant.bytes, sizeof(q->tenant.bytes));
    buf_put_le64(value, (uint64_t)q->created_at);
    buf_put_le64(value, (uint64_t)q->last_write_at);
    buf_put_le64(value, (uint64_t)q->dedup_floor);
    buf_put_le64(value, q->log_length);
    buf_put_le64(value, q->log_start);
#define PUT_INT(field) buf_put_le32(value, (uint32_t)o->field);
    QUEUE_INTS(PUT_INT)
#undef PUT_INT
    buf_put_le32(value, q->dedup_classes);
    for (unsigned i = 0; i < QUEUE_DEDUP_CLASSES; i++) {
        if (q->dedup_classes & 1u << (QUEUE_DEDUP_CLASS_MIN + i))
            buf_put_le64(value, (uint64_t)q->dedup_until[i]);
    }
    size_t hold_len = strlen(o->retention_sink_hold);
    buf_putc(value, (uint8_t)hold_len);
    buf_append(value, o->retention_sink_hold, hold_len);
    text_put(value, q->name);
    text_put(value, q->namespace_);
    text_put(value, q->task);
}

static struct span text_get(struct cursor *c)
{
    uint32_t len = cursor_le32(c);
    return cursor_bytes(c, len);
}

static void options_get(struct cursor *c, struct queue_options *o)
{
#define GET_INT(field) o->field = (int32_t)cursor_le32(c);
    QUEUE_INTS(GET_INT)
#undef GET_INT
}

static struct span text_own(struct span text)
{
    return span_make(text.len == 0 ? NULL : mem_copy(text.ptr, text.len), text.len);
}

enum err state_queue_decode(struct span key, struct span value, struct queue *q)
{
    struct cursor c = {value, false};
    struct queue_options *o = &q->options;
    if (key.len != QUEUE_KEY_SIZE)
        return ERR_CORRUPT;
    uint8_t flags = cursor_u8(&c);
    q->id = be64_get(key.ptr + 1);
    q->dead = (flags & QUEUE_DEAD) != 0;
    o->dead_letter_queue = (flags & QUEUE_DEAD_LETTER) != 0;
    o->dlq_after_max_retries = (flags & QUEUE_DLQ_AFTER) != 0;
    o->retention_enabled = (flags & QUEUE_RETENTION) != 0;
    o->encryption_enabled = (flags & QUEUE_ENCRYPTION) != 0;
    bytes16_get(&c, q->uuid.bytes);
    bytes16_get(&c, q->tenant.bytes);
    q->created_at = (int64_t)cursor_le64(&c);
    q->last_write_at = (int64_t)cursor_le64(&c);
    q->dedup_floor = (int64_t)cursor_le64(&c);
    q->log_length = cursor_le64(&c);
    q->log_start = cursor_le64(&c);
    options_get(&c, o);
    q->dedup_classes = cursor_le32(&c);
    for (unsigned i = 0; i < QUEUE_DEDUP_CLASSES; i++) {
        if (q->dedup_classes & 1u << (QUEUE_DEDUP_CLASS_MIN + i))
            q->dedup_until[i] = (int64_t)cursor_le64(&c);
    }
    uint8_t hold_len = cursor_u8(&c);
    struct span hold = cursor_bytes(&c, hold_len);
    struct span name = text_get(&c), namespace_ = text_get(&c), task = text_get(&c);
    if (c.bad || c.in.len != 0 || flags > QUEUE_FLAGS || o->dedup_window_seconds < 0 ||
        hold.len >= sizeof(o->retention_sink_hold) ||
        (q->dedup_classes & ((1u << QUEUE_DEDUP_CLASS_MIN) - 1)) != 0)
        return ERR_CORRUPT;
    if (hold.len != 0)
        memcpy(o->retention_sink_hold, hold.ptr, hold.len);
    q->name = text_own(name);
    q->namespace_ = text_own(namespace_);
    q->task = text_own(task);
    return ERR_OK;
}

void state_partition_key(uint64_t queue_id, uint64_t id, struct buf *key)
{
    buf_putc(key, STATE_KIND_PARTITION);
    buf_put_be64(key, queue_id);
    buf_put_be64(key, id);
}

void state_partition_encode(const struct partition *p, struct buf *value)
{
    buf_append(value, p->uuid.bytes, sizeof(p->uuid.bytes));
    buf_put_le64(value, p->next_offset);
    buf_put_le64(value, p->log_start);
    buf_put_le64(value, (uint64_t)p->last_write_at);
    buf_put_le64(value, (uint64_t)p->created_at);
    buf_put_le64(value, p->log_bytes);
    buf_put_span(value, p->name);
}

void state_pin_key(const struct tenant_id *tenant, struct span key, struct buf *out)
{
    buf_putc(out, STATE_KIND_PIN);
    buf_append(out, tenant->bytes, sizeof(tenant->bytes));
    buf_put_span(out, key);
}
