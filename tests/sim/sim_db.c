/* The state database in memory. Rows are in versions: a batch changes the newest version in place,
 * or a copy of it while an iterator still holds it. */
#include "sim/sim_db.h"

#include "base/mem.h"
#include "base/omap.h"

#include <pthread.h>

struct version {
    unsigned refs; /* the state's lock */
    struct omap *rows;
};

struct sim_db_state {
    pthread_mutex_t lock;
    struct version *now;
    struct version *late; /* what a failed write left in the log; NULL: nothing */
    uint64_t writes;
    bool failed; /* since the last reboot */
};

enum next_write {
    WRITE_WORKS,
    WRITE_FAILS,
    WRITE_FAILS_LATE,
    WRITE_CRASHES,
    WRITE_CRASHES_APPLIED,
    WRITE_IS_DOWN
};

struct sim_db {
    struct db db; /* first */
    struct sim_db_state *state;
    enum next_write next; /* the state's lock, this one and what follows */
    enum err fails;
    bool read_fails;
    uint64_t read_skip;
    bool spared;
    void (*meanwhile)(void *ctx); /* the caller's */
    void *meanwhile_ctx;
};

struct db_iter {
    struct sim_db *sim;
    struct sim_db_state *state;
    struct version *version;
    struct omap_row row;
    struct buf to;
    bool valid, failed;
};

enum change_kind { CHANGE_PUT, CHANGE_DELETE, CHANGE_DELETE_RANGE };

struct change {
    enum change_kind kind;
    size_t at, a_len, b_len; /* of two byte strings in `bytes` */
};

struct db_batch {
    struct buf bytes;
    struct change *changes;
    size_t n, cap;
};

static struct sim_db *sim_of(struct db *db)
{
    return (struct sim_db *)(void *)db;
}

/* ---- State ---- */

static struct version *version_new(void)
{
    struct version *v = mem_new(sizeof(*v));
    v->refs = 1;
    v->rows = omap_new();
    return v;
}

/* Lock held, or nobody else knows the version. */
static void version_unref(struct version *v)
{
    if (--v->refs > 0)
        return;
    omap_free(v->rows);
    mem_free(v);
}

static struct version *version_copy(const struct version *v)
{
    struct version *copy = version_new();
    struct omap_row row;
    for (bool more = omap_seek(v->rows, SPAN_LIT(""), false, &row); more;
         more = omap_seek(v->rows, row.key, true, &row))
        omap_put(copy->rows, row.key, row.value);
    return copy;
}

static void drop_late(struct sim_db_state *s)
{
    if (s->late != NULL)
        version_unref(s->late);
    s->late = NULL;
}

struct sim_db_state *sim_db_state_new(void)
{
    struct sim_db_state *s = mem_new(sizeof(*s));
    pthread_mutex_init(&s->lock, NULL);
    s->now = version_new();
    return s;
}

void sim_db_state_free(struct sim_db_state *s)
{
    if (s == NULL)
        return;
    drop_late(s);
    version_unref(s->now);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

struct sim_db_state *sim_db_state_copy(struct sim_db_state *s)
{
    struct sim_db_state *copy = sim_db_state_new();
    version_unref(copy->now);
    pthread_mutex_lock(&s->lock);
    copy->now = version_copy(s->now);
    pthread_mutex_unlock(&s->lock);
    return copy;
}

uint64_t sim_db_state_rows(struct sim_db_state *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t rows = omap_count(s->now->rows);
    pthread_mutex_unlock(&s->lock);
    return rows;
}

uint64_t sim_db_state_writes(struct sim_db_state *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t writes = s->writes;
    pthread_mutex_unlock(&s->lock);
    return writes;
}

/* ---- Reading ---- */

static void sim_close(struct db *db)
{
    if (db != NULL)
        mem_free(sim_of(db));
}

/* Lock held. */
static bool read_strikes(struct sim_db *sim)
{
    if (!sim->read_fails || sim->spared || sim->read_skip-- > 0)
        return false;
    sim->read_fails = false;
    sim->state->failed = true;
    return true;
}

static enum err read_failed(struct error *error)
{
    return error_set(error, ERR_IO, "state database: read: simulated fault");
}

static enum err sim_get(struct db *db, struct span key, struct buf *value_out, struct error *error)
{
    struct sim_db_state *s = sim_of(db)->state;
    struct omap_row row;
    pthread_mutex_lock(&s->lock);
    bool struck = read_strikes(sim_of(db));
    bool found = !struck && omap_get(s->now->rows, key, &row);
    if (found)
        buf_put_span(value_out, row.value);
    pthread_mutex_unlock(&s->lock);
    if (struck)
        return read_failed(error);
    return found ? ERR_OK : ERR_NOT_FOUND;
}

static struct db_iter *sim_iter_new(struct db *db, struct span to)
{
    struct sim_db_state *s = sim_of(db)->state;
    struct db_iter *it = mem_new(sizeof(*it));
    it->sim = sim_of(db);
    it->state = s;
    buf_put_span(&it->to, to);
    pthread_mutex_lock(&s->lock);
    it->version = s->now;
    it->version->refs++;
    pthread_mutex_unlock(&s->lock);
    return it;
}

static void sim_iter_free(struct db_iter *it)
{
    if (it == NULL)
        return;
    struct sim_db_state *s = it->state;
    pthread_mutex_lock(&s->lock);
    version_unref(it->version);
    pthread_mutex_unlock(&s->lock);
    buf_deinit(&it->to);
    mem_free(it);
}

static void iter_to(struct db_iter *it, struct span from, bool strict)
{
    pthread_mutex_lock(&it->state->lock);
    it->failed = it->failed || read_strikes(it->sim);
    pthread_mutex_unlock(&it->state->lock);
    it->valid = !it->failed && omap_seek(it->version->rows, from, strict, &it->row) &&
                (it->to.len == 0 || span_cmp(it->row.key, buf_span(&it->to)) < 0);
}

static void sim_iter_seek(struct db_iter *it, struct span from)
{
    iter_to(it, from, false);
}

static void sim_iter_next(struct db_iter *it)
{
    ASSERT(it->valid);
    iter_to(it, it->row.key, true);
}

static bool sim_iter_valid(struct db_iter *it)
{
    return it->valid;
}

static struct span sim_iter_key(struct db_iter *it)
{
    ASSERT(it->valid);
    return it->row.key;
}

static struct span sim_iter_value(struct db_iter *it)
{
    ASSERT(it->valid);
    return it->row.value;
}

static enum err sim_iter_error(struct db_iter *it, struct error *error)
{
    return it->failed ? read_failed(error) : ERR_OK;
}

static uint64_t sim_bytes(struct db *db)
{
    struct sim_db_state *s = sim_of(db)->state;
    pthread_mutex_lock(&s->lock);
    uint64_t bytes = omap_bytes(s->now->rows);
    pthread_mutex_unlock(&s->lock);
    return bytes;
}

/* ---- Writing ---- */

static struct db_batch *sim_batch_new(struct db *db)
{
    (void)db;
    return mem_new(sizeof(struct db_batch));
}

static void sim_batch_free(struct db_batch *b)
{
    if (b == NULL)
        return;
    buf_deinit(&b->bytes);
    mem_free(b->changes);
    mem_free(b);
}

static void batch_add(struct db_batch *b, enum change_kind kind, struct span a_bytes,
                      struct span b_bytes)
{
    if (b->n == b->cap) {
        b->cap = b->cap > 0 ? 2 * b->cap : 16;
        b->changes = mem_grow(b->changes, b->cap * sizeof(b->changes[0]));
    }
    b->changes[b->n++] = (struct change){kind, b->bytes.len, a_bytes.len, b_bytes.len};
    buf_put_span(&b->bytes, a_bytes);
    buf_put_span(&b->bytes, b_bytes);
}

static void sim_batch_put(struct db_batch *b, struct span key, struct span value)
{
    batch_add(b, CHANGE_PUT, key, value);
}

static void sim_batch_delete(struct db_batch *b, struct span key)
{
    batch_add(b, CHANGE_DELETE, key, SPAN_LIT(""));
}

static void sim_batch_delete_range(struct db_batch *b, struct span from, struct span to)
{
    batch_add(b, CHANGE_DELETE_RANGE, from, to);
}

static void delete_range(struct omap *rows, struct span from, struct span to)
{
    struct omap_row row;
    while (omap_seek(rows, from, false, &row) && span_cmp(row.key, to) < 0) {
        char *key = span_dup(row.key); /* the row's own key goes with it */
        omap_erase(rows, span_make(key, row.key.len));
        mem_free(key);
    }
}

static void change_apply(struct omap *rows, const struct db_batch *b, const struct change *c)
{
    struct span first = span_make(b->bytes.ptr + c->at, c->a_len);
    struct span second = span_make(b->bytes.ptr + c->at + c->a_len, c->b_len);
    switch (c->kind) {
    case CHANGE_PUT:
        omap_put(rows, first, second);
        break;
    case CHANGE_DELETE:
        omap_erase(rows, first);
        break;
    case CHANGE_DELETE_RANGE:
        delete_range(rows, first, second);
        break;
    }
}

static void batch_apply(struct sim_db_state *s, const struct db_batch *b)
{
    drop_late(s);           /* everything of it is in this one, or newer */
    if (s->now->refs > 1) { /* an iterator looks at it */
        struct version *old = s->now;
        s->now = version_copy(old);
        version_unref(old);
    }
    for (size_t i = 0; i < b->n; i++)
        change_apply(s->now->rows, b, &b->changes[i]);
    s->writes++;
}

static void batch_apply_late(struct sim_db_state *s, const struct db_batch *b)
{
    drop_late(s);
    s->late = version_copy(s->now);
    for (size_t i = 0; i < b->n; i++)
        change_apply(s->late->rows, b, &b->changes[i]);
}

static enum err sim_batch_write(struct db *db, struct db_batch *b, struct error *error)
{
    struct sim_db *sim = sim_of(db);
    enum err err = ERR_OK;
    if (sim->meanwhile != NULL)
        sim->meanwhile(sim->meanwhile_ctx);
    pthread_mutex_lock(&sim->state->lock);
    switch (sim->next) {
    case WRITE_WORKS:
        batch_apply(sim->state, b);
        break;
    case WRITE_FAILS_LATE:
        batch_apply_late(sim->state, b);
        err = sim->fails;
        sim->next = WRITE_WORKS;
        break;
    case WRITE_FAILS:
        err = sim->fails;
        sim->next = WRITE_WORKS;
        break;
    case WRITE_CRASHES_APPLIED:
        batch_apply(sim->state, b);
        err = ERR_IO;
        sim->next = WRITE_IS_DOWN;
        break;
    case WRITE_CRASHES:
        sim->next = WRITE_IS_DOWN;
        err = ERR_IO;
        break;
    case WRITE_IS_DOWN:
        err = ERR_IO;
        break;
    }
    sim->state->failed = sim->state->failed || err != ERR_OK;
    pthread_mutex_unlock(&sim->state->lock);
    return err == ERR_OK ? ERR_OK : error_set(error, err, "state database: write: simulated fault");
}

static const struct db_ops sim_ops = {
    .close = sim_close,
    .get = sim_get,
    .iter_new = sim_iter_new,
    .iter_free = sim_iter_free,
    .iter_seek = sim_iter_seek,
    .iter_next = sim_iter_next,
    .iter_valid = sim_iter_valid,
    .iter_key = sim_iter_key,
    .iter_value = sim_iter_value,
    .iter_error = sim_iter_error,
    .batch_new = sim_batch_new,
    .batch_free = sim_batch_free,
    .batch_put = sim_batch_put,
    .batch_delete = sim_batch_delete,
    .batch_delete_range = sim_batch_delete_range,
    .batch_write = sim_batch_write,
    .bytes = sim_bytes,
};

struct db *sim_db_new(struct sim_db_state *durable)
{
    struct sim_db *sim = mem_new(sizeof(*sim));
    sim->db.ops = &sim_ops;
    sim->state = durable;
    return &sim->db;
}

static void set_next(struct db *db, enum next_write next, enum err fails)
{
    struct sim_db *sim = sim_of(db);
    pthread_mutex_lock(&sim->state->lock);
    sim->next = next;
    sim->fails = fails;
    pthread_mutex_unlock(&sim->state->lock);
}

void sim_db_crash_next_write(struct db *db, bool applied)
{
    set_next(db, applied ? WRITE_CRASHES_APPLIED : WRITE_CRASHES, ERR_IO);
}

void sim_db_fail_next_write(struct db *db, enum err err)
{
    set_next(db, WRITE_FAILS, err);
}

void sim_db_fail_next_write_late(struct db *db, enum err err)
{
    set_next(db, WRITE_FAILS_LATE, err);
}

void sim_db_fail_next_read(struct db *db, uint64_t skip)
{
    struct sim_db *sim = sim_of(db);
    pthread_mutex_lock(&sim->state->lock);
    sim->read_fails = true;
    sim->read_skip = skip;
    pthread_mutex_unlock(&sim->state->lock);
}

void sim_db_set_meanwhile(struct db *db, void (*meanwhile)(void *ctx), void *ctx)
{
    struct sim_db *sim = sim_of(db);
    sim->meanwhile = meanwhile;
    sim->meanwhile_ctx = ctx;
}

void sim_db_spare_reads(struct db *db, bool spare)
{
    struct sim_db *sim = sim_of(db);
    pthread_mutex_lock(&sim->state->lock);
    sim->spared = spare;
    pthread_mutex_unlock(&sim->state->lock);
}

bool sim_db_state_failed(struct sim_db_state *s)
{
    pthread_mutex_lock(&s->lock);
    bool failed = s->failed;
    pthread_mutex_unlock(&s->lock);
    return failed;
}

void sim_db_state_crash(struct sim_db_state *s, struct prng *prng)
{
    pthread_mutex_lock(&s->lock);
    if (s->late != NULL && prng_chance(prng, 50)) {
        version_unref(s->now);
        s->now = s->late;
        s->late = NULL;
    }
    drop_late(s);
    s->failed = false;
    pthread_mutex_unlock(&s->lock);
}
