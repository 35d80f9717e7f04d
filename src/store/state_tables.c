/* Queues, partitions and pins in memory.
 *
 * A partition is one allocation with its name behind it, in one hash table over all queues and in
 * its queue's array. Deleting a queue is O(1): its array moves to a grave, from which state_reap()
 * takes the partitions in bounded steps. Such a partition may still be on a dirty list (its frozen
 * row may have to be written): then it is freed when it leaves the list. The queue struct lives
 * until the last of its partitions is freed and it is on no list itself, so a partition's queue
 * pointer never dangles.
 *
 * Pins are few: each change of one is written through as a row of the overlay, and the table here
 * is only an index. */
#include "store/state_internal.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "base/mem.h"
#include "store/state_format.h"

void id_list_add(struct id_list *list, uint64_t id)
{
    if (list->n == list->cap) {
        list->cap = list->cap == 0 ? 16 : list->cap * 2;
        list->at = mem_grow(list->at, list->cap * sizeof(*list->at));
    }
    list->at[list->n++] = id;
}

/* --- the hash table of partitions --- */

static struct partition **table_bucket(const struct partition_table *t, uint32_t hash)
{
    size_t at = hash & (2 * t->base - 1);
    return &t->buckets[at < t->n ? at : at - t->base];
}

/* Adds one bucket: the entries of the bucket it splits from are shared out. */
static void table_split(struct partition_table *t)
{
    if (t->n == t->cap) {
        t->cap = t->cap == 0 ? 64 : t->cap * 2;
        t->buckets = mem_grow(t->buckets, t->cap * sizeof(struct partition *));
    }
    if (t->n == 0) {
        t->buckets[0] = NULL;
        t->n = t->base = 1;
        return;
    }
    size_t old = t->n - t->base;
    struct partition *p = t->buckets[old], *next;
    t->buckets[old] = NULL;
    t->buckets[t->n++] = NULL;
    for (; p != NULL; p = next) {
        struct partition **bucket = table_bucket(t, p->hash);
        next = p->next_in_bucket;
        p->next_in_bucket = *bucket;
        *bucket = p;
    }
    if (t->n == 2 * t->base)
        t->base = t->n;
}

static void table_add(struct partition_table *t, struct partition *p)
{
    if (++t->count > t->n)
        table_split(t);
    struct partition **bucket = table_bucket(t, p->hash);
    p->next_in_bucket = *bucket;
    *bucket = p;
}

static void table_remove(struct partition_table *t, struct partition *p)
{
    struct partition **at = table_bucket(t, p->hash);
    while (*at != p)
        at = &(*at)->next_in_bucket;
    *at = p->next_in_bucket;
    p->next_in_bucket = NULL;
    t->count--;
}

/* --- names --- */

/* Tenant and name (or key) as one map key. */
struct scoped {
    uint8_t small[512];
    uint8_t *large;
    struct span key;
};

static void scoped_init(struct scoped *k, const struct tenant_id *tenant, struct span name)
{
    size_t len = sizeof(tenant->bytes) + name.len;
    uint8_t *at = k->small;
    k->large = NULL;
    if (len > sizeof(k->small))
        at = k->large = mem_new(len);
    memcpy(at, tenant->bytes, sizeof(tenant->bytes));
    if (name.len != 0)
        memcpy(at + sizeof(tenant->bytes), name.ptr, name.len);
    k->key = span_make(at, len);
}

static void scoped_deinit(struct scoped *k)
{
    mem_free(k->large);
}

static void *scoped_get(const struct map *m, const struct tenant_id *tenant, struct span name)
{
    struct scoped k;
    scoped_init(&k, tenant, name);
    void *value = map_get(m, k.key);
    scoped_deinit(&k);
    return value;
}

static void scoped_put(struct map *m, const struct tenant_id *tenant, struct span name, void *value)
{
    struct scoped k;
    scoped_init(&k, tenant, name);
    void *old = map_put(m, k.key, value);
    ASSERT(old == NULL);
    scoped_deinit(&k);
}

static void scoped_remove(struct map *m, const struct tenant_id *tenant, struct span name)
{
    struct scoped k;
    scoped_init(&k, tenant, name);
    void *old = map_remove(m, k.key);
    ASSERT(old != NULL);
    scoped_deinit(&k);
}

static struct span span_own(struct span s)
{
    return span_make(s.len == 0 ? NULL : mem_copy(s.ptr, s.len), s.len);
}

static void span_disown(struct span s)
{
    mem_free((void *)(uintptr_t)s.ptr);
}

/* --- queues --- */

struct queue *state_queue_find(struct state *s, const struct tenant_id *tenant, struct span name)
{
    return scoped_get(&s->names, tenant, name);
}

struct queue *state_queue_by_id(struct state *s, uint64_t id)
{
    return map64_get(&s->ids, id);
}

void state_queue_attach(struct state *s, struct queue *q)
{
    void *old = map64_put(&s->ids, q->id, q);
    ASSERT(old == NULL);
    if (q->dead) {
        q->deleted_epoch = s->epoch;
        return;
    }
    scoped_put(&s->names, &q->tenant, q->name, q);
    s->queue_count++;
}

struct queue *state_queue_create(struct state *s, const struct tenant_id *tenant, struct span name,
                                 const struct uuid *uuid, int64_t now,
                                 const struct queue_options *options)
{
    struct queue *q = mem_new(sizeof(*q));
    q->id = s->meta.next_queue_id++;
    q->uuid = *uuid;
    q->tenant = *tenant;
    q->name = span_own(name);
    q->options = *options;
    q->created_at = now;
    state_queue_attach(s, q);
    state_queue_touch(s, q);
    return q;
}

void state_queue_set_labels(struct state *s, struct queue *q, struct span namespace_,
                            struct span task)
{
    state_queue_touch(s, q);
    struct span new_namespace = span_own(namespace_), new_task = span_own(task);
    span_disown(q->namespace_); /* after the copies: the arguments may be the old ones */
    span_disown(q->task);
    q->namespace_ = new_namespace;
    q->task = new_task;
}

void state_queue_free(struct queue *q)
{
    if (q == NULL)
        return;
    for (size_t i = 0; i < q->partition_count; i++)
        mem_free(q->partitions[i]);
    mem_free(q->partitions);
    span_disown(q->name);
    span_disown(q->namespace_);
    span_disown(q->task);
    mem_free(q);
}

/* Frees a queue that is gone once nothing refers to it any more. */
void state_queue_release(struct state *s, struct queue *q)
{
    (void)s;
    if (q->gone_epoch != 0 && q->dirty == 0 && q->grave == NULL)
        state_queue_free(q);
}

static void grave_release(struct state *s, struct queue_grave *g)
{
    if (g->linked || g->left != 0)
        return;
    struct queue *q = g->queue;
    q->grave = NULL;
    mem_free(g);
    state_queue_release(s, q);
}

void state_partition_release(struct state *s, struct partition *p)
{
    struct queue_grave *g = p->queue->grave;
    mem_free(p);
    g->left--;
    grave_release(s, g);
}

static void freed_add(struct state *s, const struct queue *q)
{
    if (s->freed_count == s->freed_cap) {
        s->freed_cap = s->freed_cap == 0 ? 8 : s->freed_cap * 2;
        s->freed = mem_grow(s->freed, s->freed_cap * sizeof(*s->freed));
    }
    /* `applied` moves before the entry is applied. */
    s->freed[s->freed_count++] =
        (struct state_freed){.queue_id = q->id, .index = s->meta.applied, .log = q->log};
}

static void queue_gone(struct state *s, struct queue *q)
{
    void *old = map64_remove(&s->ids, q->id);
    ASSERT(old == q);
    freed_add(s, q);
    q->log = NULL;
    q->gone_epoch = s->epoch;
    id_list_add(&s->active.gone_ids, q->id);
    state_queue_release(s, q);
}

static void queue_bury(struct state *s, struct queue *q)
{
    struct queue_grave *g = mem_new(sizeof(*g));
    g->queue = q;
    g->partitions = q->partitions;
    g->n = g->left = q->partition_count;
    g->linked = true;
    g->next = s->graves;
    s->graves = g;
    s->partition_count -= q->partition_count;
    q->partitions = NULL;
    q->partition_count = q->partition_cap = 0;
    q->grave = g;
}

void state_queue_delete(struct state *s, struct queue *q)
{
    ASSERT(!q->dead);
    state_queue_touch(s, q);
    scoped_remove(&s->names, &q->tenant, q->name);
    s->queue_count--;
    q->dead = true;
    q->deleted_epoch = s->epoch;
    if (q->partition_count != 0) {
        id_list_add(&s->active.dead_ids, q->id);
        queue_bury(s, q);
    }
    if (q->pins == 0)
        queue_gone(s, q);
}

size_t state_take_freed(struct state *s, struct state_freed **out)
{
    size_t n = s->freed_count;
    *out = s->freed;
    s->freed = NULL;
    s->freed_count = s->freed_cap = 0;
    return n;
}

static void partition_reap(struct state *s, struct partition *p)
{
    table_remove(&s->table, p);
    if (p->dirty != 0)
        p->dirty |= DIRTY_REAPED;
    else
        state_partition_release(s, p);
}

bool state_reap(struct state *s, size_t budget)
{
    while (s->graves != NULL) {
        struct queue_grave *g = s->graves;
        for (; g->n != 0 && budget != 0; budget--)
            partition_reap(s, g->partitions[--g->n]);
        if (g->n != 0)
            return true;
        s->graves = g->next;
        mem_free(g->partitions);
        g->linked = false;
        grave_release(s, g);
    }
    return false;
}

static int name_order(const void *a, const void *b)
{
    const struct queue *qa = *(struct queue *const *)a, *qb = *(struct queue *const *)b;
    int order = memcmp(qa->tenant.bytes, qb->tenant.bytes, sizeof(qa->tenant.bytes));
    return order != 0 ? order : span_cmp(qa->name, qb->name);
}

size_t state_queue_list(struct state *s, const struct tenant_id *tenant, struct queue ***out)
{
    struct queue **list = MEM_ARRAY(struct queue *, s->queue_count + 1);
    size_t n = 0, at = 0;
    struct span key;
    void *value;
    while (map_next(&s->names, &at, &key, &value)) {
        struct queue *q = value;
        if (tenant == NULL || memcmp(&q->tenant, tenant, sizeof(*tenant)) == 0)
            list[n++] = q;
    }
    qsort(list, n, sizeof(struct queue *), name_order);
    *out = list;
    return n;
}

size_t state_queue_ids(struct state *s, const struct tenant_id *tenant, uint64_t **out)
{
    uint64_t *list = MEM_ARRAY(uint64_t, s->queue_count + 1);
    size_t n = 0, at = 0;
    uint64_t id;
    void *value;
    while (map64_next(&s->ids, &at, &id, &value)) {
        const struct queue *q = value;
        if (!q->dead && memcmp(&q->tenant, tenant, sizeof(*tenant)) == 0)
            list[n++] = id;
    }
    *out = list;
    return n;
}

static int id_order(const void *a, const void *b)
{
    const struct queue *qa = *(struct queue *const *)a, *qb = *(struct queue *const *)b;
    return (qa->id > qb->id) - (qa->id < qb->id);
}

size_t state_queue_list_all(struct state *s, struct queue ***out)
{
    struct queue **list = MEM_ARRAY(struct queue *, s->ids.count + 1);
    size_t n = 0, at = 0;
    uint64_t id;
    void *value;
    while (map64_next(&s->ids, &at, &id, &value))
        list[n++] = value;
    qsort(list, n, sizeof(struct queue *), id_order);
    *out = list;
    return n;
}

size_t state_queue_count(const struct state *s)
{
    return s->queue_count;
}

uint64_t state_partition_count(const struct state *s)
{
    return s->partition_count;
}

/* --- partitions --- */

static uint32_t partition_hash(const struct queue *q, struct span name)
{
    return (uint32_t)hash64(name, q->id);
}

struct partition *state_partition_find(struct state *s, struct queue *q, struct span name)
{
    if (s->table.n == 0)
        return NULL;
    uint32_t hash = partition_hash(q, name);
    struct partition *p = *table_bucket(&s->table, hash);
    while (p != NULL && (p->hash != hash || p->queue != q || !span_eq(p->name, name)))
        p = p->next_in_bucket;
    return p;
}

struct partition *state_partition_attach(struct state *s, struct queue *q, uint64_t id,
                                         struct span name)
{
    struct partition *p = mem_new(sizeof(*p) + name.len);
    uint8_t *text = (uint8_t *)(p + 1);
    if (name.len != 0)
        memcpy(text, name.ptr, name.len);
    p->id = id;
    p->queue = q;
    p->name = span_make(text, name.len);
    p->hash = partition_hash(q, name);
    table_add(&s->table, p);
    if (q->partition_count == q->partition_cap) {
        q->partition_cap = q->partition_cap == 0 ? 1 : q->partition_cap * 2;
        q->partitions = mem_grow(q->partitions, q->partition_cap * sizeof(struct partition *));
    }
    q->partitions[q->partition_count++] = p;
    s->partition_count++;
    return p;
}

struct partition *state_partition_create(struct state *s, struct queue *q, struct span name,
                                         const struct uuid *uuid, int64_t now)
{
    ASSERT(!q->dead);
    struct partition *p = state_partition_attach(s, q, s->meta.next_partition_id++, name);
    p->uuid = *uuid;
    p->created_at = now;
    state_partition_touch(s, p);
    return p;
}

/* --- pins --- */

static void pin_free(struct pin *pin)
{
    span_disown(pin->key);
    mem_free(pin);
}

const struct pin *state_pin_find(struct state *s, const struct tenant_id *tenant, struct span key)
{
    return scoped_get(&s->pins, tenant, key);
}

static void pin_attach(struct state *s, const struct pin *content)
{
    struct pin *pin = mem_new(sizeof(*pin));
    *pin = *content;
    pin->key = span_own(content->key);
    scoped_put(&s->pins, &pin->tenant, pin->key, pin);
}

enum err state_pin_attach(struct state *s, struct span row_key, struct span value)
{
    if (row_key.len < PIN_KEY_AT || value.len != PIN_SIZE)
        return ERR_CORRUPT;
    struct pin pin = {
        .key = span_sub(row_key, PIN_KEY_AT, row_key.len),
        .queue_id = le64_get(value.ptr),
        .t_start = (int64_t)le64_get(value.ptr + 8),
        .t_end = (int64_t)le64_get(value.ptr + 16),
    };
    memcpy(pin.tenant.bytes, row_key.ptr + 1, sizeof(pin.tenant.bytes));
    struct queue *q = state_queue_by_id(s, pin.queue_id);
    if (q == NULL)
        return ERR_CORRUPT;
    q->pins++;
    pin_attach(s, &pin);
    return ERR_OK;
}

/* Takes the pin out of the table; its queue, if deleted, may be gone afterwards. */
static void pin_detach(struct state *s, struct pin *pin)
{
    struct queue *q = state_queue_by_id(s, pin->queue_id);
    scoped_remove(&s->pins, &pin->tenant, pin->key);
    pin_free(pin);
    ASSERT(q != NULL && q->pins != 0);
    if (--q->pins == 0 && q->dead)
        queue_gone(s, q);
}

void state_pin_set(struct state *s, const struct tenant_id *tenant, struct span key,
                   uint64_t queue_id, int64_t t_start, int64_t t_end)
{
    struct pin *old = scoped_get(&s->pins, tenant, key);
    struct queue *q = state_queue_by_id(s, queue_id);
    ASSERT(q != NULL);
    q->pins++; /* before the old one ends: it may be the same queue's last */
    /* key may be the old pin's own */
    struct pin pin = {*tenant, span_own(key), queue_id, t_start, t_end};
    if (old != NULL)
        pin_detach(s, old);
    pin_attach(s, &pin);

    struct buf row_key = BUF_INIT, value = BUF_INIT;
    state_pin_key(&pin.tenant, pin.key, &row_key);
    buf_put_le64(&value, queue_id);
    buf_put_le64(&value, (uint64_t)t_start);
    buf_put_le64(&value, (uint64_t)t_end);
    state_row_put(s, buf_span(&row_key), buf_span(&value));
    buf_deinit(&row_key);
    buf_deinit(&value);
    span_disown(pin.key);
}

void state_pin_remove(struct state *s, const struct tenant_id *tenant, struct span key)
{
    struct pin *pin = scoped_get(&s->pins, tenant, key);
    if (pin == NULL)
        return;
    struct buf row_key = BUF_INIT;
    state_pin_key(tenant, key, &row_key);
    state_row_delete(s, buf_span(&row_key));
    buf_deinit(&row_key);
    pin_detach(s, pin);
}

static int pin_order(const void *a, const void *b)
{
    const struct pin *pa = *(const struct pin *const *)a, *pb = *(const struct pin *const *)b;
    int order = memcmp(pa->tenant.bytes, pb->tenant.bytes, sizeof(pa->tenant.bytes));
    return order != 0 ? order : span_cmp(pa->key, pb->key);
}

size_t state_pin_list(struct state *s, const struct pin ***out)
{
    const struct pin **list = MEM_ARRAY(const struct pin *, s->pins.count + 1);
    size_t n = 0, at = 0;
    struct span key;
    void *value;
    while (map_next(&s->pins, &at, &key, &value))
        list[n++] = value;
    qsort(list, n, sizeof(const struct pin *), pin_order);
    *out = list;
    return n;
}

/* --- the end --- */

static void lists_clear(struct state *s, struct layer *layer)
{
    struct partition *next_partition;
    for (struct partition *p = layer->partitions; p != NULL; p = next_partition) {
        next_partition = p->next_dirty;
        bool reaped = p->dirty & DIRTY_REAPED;
        p->dirty = 0;
        if (reaped)
            state_partition_release(s, p);
    }
    struct queue *next_queue;
    for (struct queue *q = layer->queues; q != NULL; q = next_queue) {
        next_queue = q->next_dirty;
        q->dirty = 0;
        state_queue_release(s, q);
    }
    layer->partitions = NULL;
    layer->queues = NULL;
}

void state_tables_deinit(struct state *s)
{
    size_t at = 0;
    uint64_t id;
    struct span key;
    void *value;

    lists_clear(s, &s->active);
    lists_clear(s, &s->frozen);
    (void)state_reap(s, SIZE_MAX); /* with no budget it never leaves anything */
    while (map64_next(&s->ids, &at, &id, &value))
        state_queue_free(value);
    at = 0;
    while (map_next(&s->pins, &at, &key, &value))
        pin_free(value);
    map_deinit(&s->names);
    map64_deinit(&s->ids);
    map_deinit(&s->pins);
    mem_free(s->table.buckets);
}
