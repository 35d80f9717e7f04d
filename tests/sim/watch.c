/* The watch: what the sinks' KV rows may do from one applied entry to the next, whoever wrote them.
 *
 *   A live lease passes to another instance only when it expired or was given back.
 *   Intent and pointer move only in a batch that writes the lease row too (a batch is evaluated in
 *   the order of its keys and versions rise by one with each write, so the lease's version is the
 *   one behind the pointer's).
 *   The pointer's k rises by one, to the window of the intent before it; an intent names the window
 *   behind the pointer, once: who takes over finishes the window as it was begun.
 *   A window ends at or below safeTime less the guard, and lies in one hour or day as is set.
 *   Under start=latest the first intent of a queue is T0, and T0 never moves.
 *   A data object belongs to a window whose intent was durable before.
 *
 * When a boot replayed several entries at once only what holds over any number of them is checked. */
#include "sim/world_internal.h"

#include "base/mem.h"
#include "base/pct.h"
#include "base/timefmt.h"
#include "sink/documents.h"

struct window_bounds {
    bool known;
    int64_t t_start, t_end;
};

struct look {
    struct world *world;
    unsigned queue;
    bool replayed;
    int64_t now; /* safeTime */
    int64_t end; /* what rows end by */
};

static void watch_fail(struct look *at, const char *what)
{
    const struct watched_queue *q = &at->world->watched[at->queue];
    world_fail(at->world, "queue %s: %s (lease of " SPAN_FMT ", intent %llu, committed %llu)",
               world_queue_names[at->queue], what, SPAN_ARG(buf_span(&q->holder)),
               (unsigned long long)q->intent_k, (unsigned long long)q->committed_k);
}

/* --- the lease --- */

static void lease_gone(struct look *at, struct watched_queue *q)
{
    struct instance *i = instance_named(at->world, buf_span(&q->holder));
    if (q->lease_expires > at->end && !at->replayed && i != NULL)
        i->row_gone[at->queue] = true; /* given back: or else its holder will be fenced */
    q->leased = false;
}

static void lease_passed(struct look *at, struct watched_queue *q, const struct sink_lease *doc,
                         int64_t updated_at)
{
    bool live = q->leased && q->lease_expires > updated_at;
    if (live && at->world->one_by_one && !at->replayed &&
        !span_eq(doc->instance, buf_span(&q->holder)))
        watch_fail(at, "a live lease was overwritten by another instance");
    if (q->last_holder.len > 0 && !span_eq(doc->instance, buf_span(&q->last_holder))) {
        q->moves++;
        at->world->result->takeovers++;
        world_trace(at->world, "%s passes from " SPAN_FMT " to " SPAN_FMT,
                    world_queue_names[at->queue], SPAN_ARG(buf_span(&q->last_holder)),
                    SPAN_ARG(doc->instance));
    }
    buf_reset(&q->last_holder);
    buf_put_span(&q->last_holder, doc->instance);
    q->claimed_at = at->replayed ? 0 : at->now;
    struct instance *i = instance_named(at->world, doc->instance);
    if (i != NULL)
        i->row_gone[at->queue] = false;
}

static void look_lease(struct look *at, struct watched_queue *q, const struct kv_row *row)
{
    struct sink_lease doc;
    if (row == NULL) {
        if (q->leased)
            lease_gone(at, q);
        return;
    }
    if (row->version == q->lease_version && q->leased)
        return;
    if (sink_lease_parse(row->value, &doc) != ERR_OK) {
        watch_fail(at, "the lease does not parse");
        return;
    }
    if (!q->leased || !span_eq(doc.incarnation, buf_span(&q->incarnation)))
        lease_passed(at, q, &doc, row->updated_at);
    q->leased = true;
    q->lease_version = row->version;
    q->lease_expires = row->expires_at;
    buf_reset(&q->holder);
    buf_put_span(&q->holder, doc.instance);
    buf_reset(&q->incarnation);
    buf_put_span(&q->incarnation, doc.incarnation);
    sink_lease_deinit(&doc);
}

/* --- intent and pointer --- */

/* The lease may have been written again behind the pointer, within the same entry. */
static bool fenced(const struct look *at, const struct watched_queue *q, uint64_t version)
{
    if (at->replayed || !at->world->one_by_one)
        return at->replayed || !q->leased || q->lease_version > version;
    return q->leased && q->lease_version == version + 1;
}

static void remember(struct watched_queue *q, const struct sink_intent *doc)
{
    if (doc->k > q->n_bounds) {
        q->bounds = mem_grow(q->bounds, doc->k * sizeof(*q->bounds));
        memset(q->bounds + q->n_bounds, 0, (doc->k - q->n_bounds) * sizeof(*q->bounds));
        q->n_bounds = doc->k;
    }
    q->bounds[doc->k - 1] = (struct window_bounds){true, doc->t_start, doc->t_end};
}

static void look_t0(struct look *at, struct watched_queue *q, const struct sink_intent *doc)
{
    if (!at->world->setup.latest)
        watch_fail(at, "T0 under start=earliest");
    if (doc->t_start != doc->t_end || doc->t_start > at->now)
        watch_fail(at, "T0 is not a moment that has been");
    if (!at->replayed && doc->t_start < q->claimed_at)
        watch_fail(at, "T0 is older than the look that found the queue");
    if (q->has_t0)
        watch_fail(at, "T0 was written twice");
    q->has_t0 = true;
    q->t0 = doc->t_start;
}

static bool over_boundary(const struct look *at, const struct sink_intent *doc)
{
    int64_t unit = watch_align_unit(at->world);
    return unit != 0 && time_floor(doc->t_start, unit) != time_floor(doc->t_end - 1, unit);
}

static bool of_live_queue(const struct look *at, uint64_t id)
{
    struct state *s = node_read_begin(at->world->node);
    const struct queue *q =
        state_queue_find(s, &TENANT_DEFAULT, span_str(world_queue_names[at->queue]));
    bool live = q != NULL && q->id == id;
    node_read_end(at->world->node);
    return live;
}

static void look_intent(struct look *at, struct watched_queue *q, const struct kv_row *row)
{
    struct sink_intent doc;
    if (row == NULL || row->version == q->intent_version)
        return;
    if (sink_intent_parse(row->value, &doc) != ERR_OK) {
        watch_fail(at, "the intent does not parse");
        return;
    }
    if (!fenced(at, q, row->version))
        watch_fail(at, "an intent was written without its fence");
    if (doc.k == 0) {
        look_t0(at, q, &doc);
    } else {
        if (at->world->setup.latest && !q->has_t0 && !at->replayed)
            watch_fail(at, "a window under start=latest before T0 is durable");
        if (!at->replayed && doc.k != q->committed_k + 1)
            watch_fail(at, "the intent is not of the window behind the pointer");
        if (!at->replayed && doc.t_end + (int64_t)at->world->setup.guard_ms * 1000 > at->now)
            watch_fail(at, "a window ends above safeTime less the guard");
        if (!at->replayed && at->world->one_by_one && !of_live_queue(at, doc.queue_id))
            watch_fail(at, "an intent of a queue that is not the live one of its name");
        if (!at->replayed && over_boundary(at, &doc))
            watch_fail(at, "a window lies over a boundary");
        if (q->intent_version != 0 && doc.k <= q->intent_k)
            watch_fail(at, "a window was begun twice");
        if (q->intent_k > 0 && doc.t_start < q->t_end)
            watch_fail(at, "a window begins before the end of the one before");
        remember(q, &doc);
    }
    world_trace(at->world, "%s: intent of window %llu [%lld, %lld)", world_queue_names[at->queue],
                (unsigned long long)doc.k, (long long)doc.t_start, (long long)doc.t_end);
    q->intent_version = row->version;
    q->intent_k = doc.k;
    q->t_start = doc.t_start;
    q->t_end = doc.t_end;
    sink_intent_deinit(&doc);
}

/* What the pointer points to is in the bucket. */
static void check_pointed(struct look *at, const struct sink_committed *doc)
{
    struct omap_row row;
    struct lake_manifest m;
    if (!omap_get(at->world->store.objects, doc->manifest, &row) ||
        lake_manifest_parse(row.value, &m) != ERR_OK) {
        watch_fail(at, "the pointer's manifest is not in the bucket");
        return;
    }
    if (m.k != doc->k || m.t_end != doc->t_end || m.records != doc->records ||
        m.bytes != doc->bytes)
        watch_fail(at, "the pointer's manifest is of another window");
    lake_manifest_deinit(&m);
}

static void look_committed(struct look *at, struct watched_queue *q, const struct kv_row *row)
{
    struct sink_committed doc;
    if (row == NULL) {
        if (q->committed_version != 0)
            watch_fail(at, "the pointer is gone");
        return;
    }
    if (row->version == q->committed_version)
        return;
    if (sink_committed_parse(row->value, &doc) != ERR_OK) {
        watch_fail(at, "the pointer does not parse");
        return;
    }
    if (!fenced(at, q, row->version))
        watch_fail(at, "the pointer was moved without its fence");
    if (doc.k <= q->committed_k || (!at->replayed && doc.k != q->committed_k + 1))
        watch_fail(at, "the pointer does not rise by one");
    if (doc.k == q->intent_k ? doc.t_end != q->t_end : !at->replayed)
        watch_fail(at, "the pointer is of another window than the intent");
    world_trace(at->world, "%s: window %llu is committed", world_queue_names[at->queue],
                (unsigned long long)doc.k);
    check_pointed(at, &doc);
    q->committed_version = row->version;
    q->committed_k = doc.k;
    q->committed_t_end = doc.t_end;
    sink_committed_deinit(&doc);
}

/* --- a look --- */

static const struct kv_row *row_of(const struct kv_result *result, struct span key)
{
    for (size_t i = 0; result->n == 1 && i < result->ops[0].n_rows; i++) {
        if (span_eq(result->ops[0].rows[i].key, key))
            return &result->ops[0].rows[i];
    }
    return NULL;
}

static bool read_rows(struct world *w, struct span *keys, size_t n, int64_t now,
                      struct kv_result *result)
{
    struct kv_op op = {.type = KV_GET_MANY, .ns = SINK_NAMESPACE, .keys = keys, .n_keys = n};
    return storage_read_rows(w, &op, now, result);
}

static void look_queue(struct look *at, const struct kv_result *result, const struct span *keys)
{
    struct watched_queue *q = &at->world->watched[at->queue];
    look_lease(at, q, row_of(result, keys[0])); /* first: the fence of the other two */
    look_intent(at, q, row_of(result, keys[1]));
    look_committed(at, q, row_of(result, keys[2]));
}

void watch_init(struct world *w)
{
    for (unsigned i = 0; i < w->queues; i++) {
        struct span sink = SPAN_LIT("default"), queue = span_str(world_queue_names[i]);
        struct buf *keys = w->watched[i].keys;
        sink_key_lease(&keys[0], sink, queue);
        sink_key_intent(&keys[1], sink, queue);
        sink_key_committed(&keys[2], sink, queue);
    }
}

void watch_look(struct world *w, bool replayed)
{
    struct span keys[3 * WORLD_QUEUES_MAX];
    struct kv_result result = {0};
    if (!w->options->with_sink || w->node == NULL || w->unwatched)
        return;
    struct look at = {.world = w,
                      .replayed = replayed,
                      .now = node_safe_time(w->node),
                      .end = world_applied_end(w)};
    for (unsigned i = 0; i < 3 * w->queues; i++)
        keys[i] = buf_span(&w->watched[i / 3].keys[i % 3]);
    bool read = read_rows(w, keys, 3 * (size_t)w->queues, at.end, &result);
    for (at.queue = 0; read && at.queue < w->queues && w->result->ok; at.queue++)
        look_queue(&at, &result, &keys[3 * at.queue]);
    kv_result_deinit(&result);
}

void watch_deinit(struct world *w)
{
    for (unsigned i = 0; i < WORLD_QUEUES_MAX; i++) {
        buf_deinit(&w->watched[i].holder);
        buf_deinit(&w->watched[i].incarnation);
        buf_deinit(&w->watched[i].last_holder);
        for (unsigned k = 0; k < 3; k++)
            buf_deinit(&w->watched[i].keys[k]);
        mem_free(w->watched[i].bounds);
    }
}

/* --- objects --- */

static int64_t not_negative(int64_t us)
{
    return us < 0 ? 0 : us;
}

/* ../w-<k>-<tStart>-<tEnd>.jsonl[.zst|.gz] */
static bool parse_object(struct span key, uint64_t *k, int64_t *t_start, int64_t *t_end)
{
    const uint8_t *name = memmem(key.ptr, key.len, "/w-", 3);
    uint64_t numbers[3] = {0};
    if (name == NULL)
        return false;
    const uint8_t *at = name + 3, *end = key.ptr + key.len;
    for (unsigned i = 0; i < 3; i++) {
        while (at < end && *at >= '0' && *at <= '9')
            numbers[i] = 10 * numbers[i] + (uint64_t)(*at++ - '0');
        if (at >= end || *at++ != (i < 2 ? '-' : '.'))
            return false;
    }
    *k = numbers[0];
    *t_start = (int64_t)numbers[1];
    *t_end = (int64_t)numbers[2];
    return true;
}

bool watch_accounts(void *world, struct span key)
{
    struct world *w = world;
    uint64_t k = 0;
    int64_t t_start = 0, t_end = 0;
    world_trace(w, "PUT " SPAN_FMT, SPAN_ARG(key));
    if (!parse_object(key, &k, &t_start, &t_end))
        return false;
    for (unsigned i = 0; i < w->queues; i++) {
        const struct watched_queue *q = &w->watched[i];
        struct buf folder = BUF_INIT;
        buf_puts(&folder, "/queue=");
        buf_put_pct(&folder, span_str(world_queue_names[i]));
        buf_putc(&folder, '/');
        bool here = memmem(key.ptr, key.len, folder.ptr, folder.len) != NULL;
        buf_deinit(&folder);
        if (!here)
            continue;
        if (k == 0 || k > q->n_bounds)
            return false;
        const struct window_bounds *b = &q->bounds[k - 1];
        return !b->known || (not_negative(b->t_start) == t_start && b->t_end == t_end);
    }
    return false;
}

/* --- what is promised to readers --- */

/* Everything acknowledged below an instance's completeThrough is in the lake. */
void watch_check_complete(struct world *w)
{
    for (unsigned n = 0; n < w->n_instances; n++) {
        for (unsigned q = 0; q < w->queues && instance_alive(&w->instances[n]); q++) {
            int64_t through, t0 = w->watched[q].has_t0 ? w->watched[q].t0 : INT64_MIN;
            if (w->setup.latest && !w->watched[q].has_t0)
                continue; /* nobody knows yet where it begins */
            if (!instance_complete_through(&w->instances[n], world_queue_names[q], &through))
                continue;
            for (size_t i = 0; i < w->ledger.n; i++) {
                const struct ledger_record *r = w->ledger.records[i];
                if (r->queue == q && r->stamp < through && r->stamp >= t0 &&
                    r->stamp >= w->watched[q].committed_t_end && !ledger_optional(&w->ledger, r))
                    world_fail(w, "%s: complete through %lld, but %s of %s is in no window",
                               w->instances[n].name, (long long)through, r->transaction_id,
                               world_queue_names[q]);
            }
        }
    }
}

/* --- who holds what --- */

static bool is_leased(const struct world *w, const struct watched_queue *q)
{
    return q->leased && q->lease_expires > node_safe_time(w->node);
}

unsigned watch_free_queues(const struct world *w)
{
    unsigned n = 0;
    for (unsigned i = 0; i < w->queues; i++)
        n += !is_leased(w, &w->watched[i]);
    return n;
}

unsigned watch_held(const struct world *w, const struct instance *i)
{
    unsigned n = 0;
    for (unsigned q = 0; q < w->queues; q++)
        n += is_leased(w, &w->watched[q]) &&
             span_eq(buf_span(&w->watched[q].holder), span_str(i->name));
    return n;
}

unsigned watch_moves(const struct world *w)
{
    unsigned n = 0;
    for (unsigned i = 0; i < w->queues; i++)
        n += w->watched[i].moves;
    return n;
}

int64_t watch_align_unit(const struct world *w)
{
    if (strcmp(w->setup.align, "none") == 0)
        return 0;
    return strcmp(w->setup.align, "hour") == 0 ? US_PER_HOUR : US_PER_DAY;
}

unsigned watch_window_ends(const struct world *w, int64_t at)
{
    unsigned n = 0;
    for (unsigned q = 0; q < w->queues; q++) {
        for (size_t k = 0; k < w->watched[q].n_bounds; k++)
            n += w->watched[q].bounds[k].known && w->watched[q].bounds[k].t_end == at;
    }
    return n;
}

void watch_check_left(struct world *w, const struct instance *i)
{
    struct buf key = BUF_INIT;
    struct kv_result result = {0};
    if (watch_held(w, i) != 0)
        world_fail(w, "%s is drained and left a lease", i->name);
    sink_key_presence(&key, SPAN_LIT("default"), span_str(i->name));
    struct span keys[] = {buf_span(&key)};
    if (read_rows(w, keys, 1, world_applied_end(w), &result) &&
        row_of(&result, buf_span(&key)) != NULL)
        world_fail(w, "%s is drained and left its presence row", i->name);
    kv_result_deinit(&result);
    buf_deinit(&key);
}
