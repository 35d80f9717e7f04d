/* The replicated state: opening, loading, locks and the digest. The parts:
 *
 *   state_tables.c      queues, partitions and pins in memory
 *   state_rows.c        the overlay of the unbounded kinds, and the merged iterator
 *   state_checkpoint.c  freezing, the batch, and what becomes of the frozen set
 *   state_codec.c       rows as bytes
 *
 * Loading streams the database's rows once, kind by kind: meta, queues, partitions (ascending by
 * queue and id, so each goes to the end of its queue's list), pins. KV and dedup rows stay where
 * they are. A database that does not fit together is ERR_CORRUPT: nothing is repaired. */
#include "store/state.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "base/mem.h"
#include "store/state_format.h"
#include "store/state_internal.h"

const struct tenant_id TENANT_DEFAULT = {{[15] = 1}};

static enum err corrupt(struct error *error, const char *what)
{
    return error_set(error, ERR_CORRUPT, "state database: %s", what);
}

/* --- loading --- */

/* An empty database gets its meta row at once: the cluster id must never change afterwards. */
static enum err found(struct state *s, const struct uuid *cluster, struct error *error)
{
    const struct db_ops *ops = s->db->ops;
    s->meta = (struct state_meta){.cluster = *cluster, .next_queue_id = 1, .next_partition_id = 1};
    struct buf value = BUF_INIT;
    state_meta_encode(&s->meta, &value);
    struct db_batch *batch = ops->batch_new(s->db);
    ops->batch_put(batch, SPAN_LIT("M"), buf_span(&value));
    enum err err = ops->batch_write(s->db, batch, error);
    ops->batch_free(batch);
    buf_deinit(&value);
    return err;
}

static enum err load_meta(struct state *s, const struct uuid *cluster, struct error *error)
{
    struct buf value = BUF_INIT;
    enum err err = s->db->ops->get(s->db, SPAN_LIT("M"), &value, error);
    if (err == ERR_OK) {
        err = state_meta_decode(buf_span(&value), &s->meta);
        if (err == ERR_VERSION)
            err = error_set(error, err,
                            "state database: format version %u, and this program reads %u only",
                            value.ptr[0], STATE_FORMAT_VERSION);
        else if (err != ERR_OK)
            err = corrupt(error, "the meta row does not decode");
    } else if (err == ERR_NOT_FOUND) {
        struct db_iter *it = s->db->ops->iter_new(s->db, SPAN_LIT(""));
        s->db->ops->iter_seek(it, SPAN_LIT(""));
        bool empty = !s->db->ops->iter_valid(it);
        err = s->db->ops->iter_error(it, error);
        s->db->ops->iter_free(it);
        if (err == ERR_OK)
            err = empty ? found(s, cluster, error) : corrupt(error, "rows without a meta row");
    }
    buf_deinit(&value);
    return err;
}

static enum err load_queue(struct state *s, struct span key, struct span value, struct error *error)
{
    struct queue *q = mem_new(sizeof(*q));
    if (state_queue_decode(key, value, q) != ERR_OK || q->id >= s->meta.next_queue_id) {
        state_queue_free(q);
        return corrupt(error, "a queue row does not decode");
    }
    state_queue_attach(s, q);
    return ERR_OK;
}

static enum err load_partition(struct state *s, struct span key, struct span value,
                               struct error *error)
{
    if (key.len != PARTITION_KEY_SIZE || value.len < PARTITION_NAME_AT)
        return corrupt(error, "a partition row does not decode");
    struct queue *q = state_queue_by_id(s, be64_get(key.ptr + 1));
    uint64_t id = be64_get(key.ptr + 9);
    if (q == NULL || q->dead || id >= s->meta.next_partition_id)
        return corrupt(error, "a partition without its queue");
    struct partition *p =
        state_partition_attach(s, q, id, span_sub(value, PARTITION_NAME_AT, value.len));
    memcpy(p->uuid.bytes, value.ptr, sizeof(p->uuid.bytes));
    p->next_offset = le64_get(value.ptr + 16);
    p->log_start = le64_get(value.ptr + 24);
    p->last_write_at = (int64_t)le64_get(value.ptr + 32);
    p->created_at = (int64_t)le64_get(value.ptr + 40);
    p->log_bytes = le64_get(value.ptr + 48);
    if (p->log_start > p->next_offset)
        return corrupt(error, "a partition that starts behind its end");
    q->records += p->next_offset - p->log_start;
    return ERR_OK;
}

static enum err load_row(struct state *s, char kind, struct span key, struct span value,
                         struct error *error)
{
    if (kind == STATE_KIND_QUEUE)
        return load_queue(s, key, value, error);
    if (kind == STATE_KIND_PARTITION)
        return load_partition(s, key, value, error);
    enum err err = state_pin_attach(s, key, value);
    return err == ERR_OK ? ERR_OK : corrupt(error, "a pin row does not decode");
}

static enum err load_kind(struct state *s, struct db_iter *it, char kind, struct error *error)
{
    const struct db_ops *ops = s->db->ops;
    uint8_t first = (uint8_t)kind;
    for (ops->iter_seek(it, span_make(&first, 1)); ops->iter_valid(it); ops->iter_next(it)) {
        struct span key = ops->iter_key(it);
        if (key.len == 0 || key.ptr[0] != first)
            break;
        TRY(load_row(s, kind, key, ops->iter_value(it), error));
    }
    return ops->iter_error(it, error);
}

static enum err check_dead(struct state *s, struct error *error)
{
    size_t at = 0;
    uint64_t id;
    void *value;
    while (map64_next(&s->ids, &at, &id, &value)) {
        const struct queue *q = value;
        if (q->dead && q->pins == 0)
            return corrupt(error, "a deleted queue without a pin");
    }
    return ERR_OK;
}

static enum err load(struct state *s, const struct uuid *cluster, struct error *error)
{
    TRY(load_meta(s, cluster, error));
    struct db_iter *it = s->db->ops->iter_new(s->db, SPAN_LIT(""));
    s->loading = true;
    enum err err = load_kind(s, it, STATE_KIND_QUEUE, error);
    if (err == ERR_OK)
        err = load_kind(s, it, STATE_KIND_PARTITION, error);
    if (err == ERR_OK)
        state_loaded(s);
    if (err == ERR_OK)
        err = load_kind(s, it, STATE_KIND_PIN, error);
    s->db->ops->iter_free(it);
    if (err == ERR_OK)
        err = check_dead(s, error);
    return err;
}

static void lock_init(pthread_rwlock_t *lock)
{
    pthread_rwlockattr_t attr;
    ASSERT(pthread_rwlockattr_init(&attr) == 0);
    /* Readers come in crowds; the one writer (apply) must not starve. */
    ASSERT(pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) == 0);
    ASSERT(pthread_rwlock_init(lock, &attr) == 0);
    (void)pthread_rwlockattr_destroy(&attr); /* never fails on Linux */
}

enum err state_open(struct db *db, const struct uuid *cluster, struct state **out,
                    struct error *error)
{
    struct state *s = mem_new(sizeof(*s));
    s->db = db;
    lock_init(&s->lock);
    s->epoch = 1;
    s->active = state_layer_new();
    enum err err = load(s, cluster, error);
    if (err != ERR_OK) {
        state_close(s);
        return err;
    }
    *out = s;
    return ERR_OK;
}

void state_close(struct state *s)
{
    if (s == NULL)
        return;
    state_tables_deinit(s);
    state_layer_deinit(&s->active);
    state_layer_deinit(&s->frozen);
    buf_deinit(&s->images);
    buf_deinit(&s->kv_cursor);
    mem_free(s->freed);
    (void)pthread_rwlock_destroy(&s->lock); /* nobody holds it */
    s->db->ops->close(s->db);
    mem_free(s);
}

void state_write_lock(struct state *s)
{
    ASSERT(pthread_rwlock_wrlock(&s->lock) == 0);
}

void state_write_unlock(struct state *s)
{
    ASSERT(pthread_rwlock_unlock(&s->lock) == 0);
}

void state_read_lock(struct state *s)
{
    ASSERT(pthread_rwlock_rdlock(&s->lock) == 0);
}

void state_read_unlock(struct state *s)
{
    ASSERT(pthread_rwlock_unlock(&s->lock) == 0);
}

struct state_meta *state_meta(struct state *s)
{
    return &s->meta;
}

struct db *state_db(struct state *s)
{
    return s->db;
}

struct buf *state_kv_cursor(struct state *s)
{
    return &s->kv_cursor;
}

/* --- digest --- */

static void digest_row(struct sha256_stream *sum, struct span key, struct span value)
{
    uint8_t lengths[8];
    le32_put(lengths, (uint32_t)key.len);
    le32_put(lengths + 4, (uint32_t)value.len);
    sha256_stream_update(sum, span_make(lengths, sizeof(lengths)));
    sha256_stream_update(sum, key);
    sha256_stream_update(sum, value);
}

/* Queues (dead ones too) and their partitions, by id. Fills by_id: partition id -> partition. */
static void digest_tables(struct state *s, struct sha256_stream *sum, struct map64 *by_id)
{
    struct queue **queues;
    size_t n = state_queue_list_all(s, &queues);
    struct buf row = BUF_INIT, key = BUF_INIT;
    for (size_t i = 0; i < n; i++) {
        struct queue *q = queues[i];
        buf_reset(&row);
        buf_reset(&key);
        state_queue_key(q->id, &key);
        state_queue_encode(q, &row);
        digest_row(sum, buf_span(&key), buf_span(&row));
        for (size_t j = 0; j < q->partition_count; j++) {
            struct partition *p = q->partitions[j];
            buf_reset(&row);
            buf_reset(&key);
            state_partition_key(q->id, p->id, &key);
            state_partition_encode(p, &row);
            digest_row(sum, buf_span(&key), buf_span(&row));
            (void)map64_put(by_id, p->id, p); /* ids are unique: nothing is replaced */
        }
    }
    buf_deinit(&row);
    buf_deinit(&key);
    mem_free(queues);
}

/* Dedup rows that no read would return any more do not count: when they go is each node's own affair. */
static bool row_visible(const struct map64 *by_id, int64_t end, struct span key, struct span value)
{
    if (key.ptr[0] == STATE_KIND_DEDUP && key.len == DEDUP_KEY_SIZE && value.len == DEDUP_SIZE) {
        const struct partition *p = map64_get(by_id, be64_get(key.ptr + DEDUP_PARTITION_AT));
        if (p == NULL)
            return false;
        int64_t stamp = (int64_t)le64_get(value.ptr + DEDUP_STAMP_AT);
        int64_t window = (int64_t)p->queue->options.dedup_window_seconds * 1000000;
        return window != 0 && stamp >= end - window && stamp >= p->queue->dedup_floor;
    }
    return true;
}

static void digest_kind(struct state *s, struct sha256_stream *sum, const struct map64 *by_id,
                        char kind)
{
    /* The clock of the next command is at least this. */
    int64_t end = s->meta.last_clock + (s->meta.last_count > 1 ? s->meta.last_count : 1);
    uint8_t first = (uint8_t)kind, behind = (uint8_t)(first + 1);
    struct state_iter *it = state_iter_new(s, span_make(&first, 1), span_make(&behind, 1));
    for (; state_iter_valid(it); state_iter_next(it)) {
        struct span key = state_iter_key(it), value = state_iter_value(it);
        if (row_visible(by_id, end, key, value))
            digest_row(sum, key, value);
    }
    ASSERT(state_iter_error(it, NULL) == ERR_OK); /* tests and simulator only */
    state_iter_free(it);
}

void state_digest(struct state *s, uint8_t out[32])
{
    struct sha256_stream *sum = sha256_stream_new();
    struct buf row = BUF_INIT;
    struct map64 by_id = MAP64_INIT;
    state_meta_encode(&s->meta, &row);
    digest_row(sum, SPAN_LIT("M"), buf_span(&row));
    digest_tables(s, sum, &by_id);
    digest_kind(s, sum, &by_id, STATE_KIND_DEDUP);
    digest_kind(s, sum, &by_id, STATE_KIND_KV);
    digest_kind(s, sum, &by_id, STATE_KIND_KV_EXPIRY);
    digest_kind(s, sum, &by_id, STATE_KIND_KV_SIZE);
    digest_kind(s, sum, &by_id, STATE_KIND_PIN);
    sha256_stream_final(sum, out);
    sha256_stream_free(sum);
    map64_deinit(&by_id);
    buf_deinit(&row);
}
