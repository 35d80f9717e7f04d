/* Applying pushes; the body's table is in push_body.c.
 *
 * The body is decoded whole before anything changes. Items are sorted by group (queue and
 * partition, in order of first appearance) in one counting pass; each group is then handled in
 * request order: repeats within the request, repeats within the dedup window, and for what is new
 * an offset, a dedup row and a record. The records of a group lie side by side, so a run is a slice
 * of them. Everything is linear in the number of items. */
#include "broker/push.h"

#include "base/hash.h"
#include "base/mem.h"
#include "broker/configure.h"
#include "broker/dedup.h"
#include "broker/mint.h"
#include "broker/push_internal.h"

/* --- what effects live in --- */

#define BLOCK_BYTES ((size_t)256 * 1024)
#define KEEP_BYTES ((size_t)8 * 1024 * 1024) /* a larger scratch is given back after use */

struct push_block {
    struct push_block *next;
    size_t used, cap;
    uint8_t bytes[];
};

static void *scratch_take(struct push_scratch *scratch, size_t size)
{
    struct push_block *b = scratch->blocks;
    size = (size + 15) / 16 * 16;
    if (b == NULL || b->cap - b->used < size) {
        size_t cap = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        b = mem_new(sizeof(*b) + cap);
        b->cap = cap;
        b->next = scratch->blocks;
        scratch->blocks = b;
    }
    void *at = b->bytes + b->used;
    b->used += size;
    return at;
}

static void blocks_free(struct push_block *b)
{
    while (b != NULL) {
        struct push_block *next = b->next;
        mem_free(b);
        b = next;
    }
}

void push_effects_reset(struct push_effects *e)
{
    e->n = 0;
    if (e->scratch == NULL)
        return;
    struct push_block *kept = e->scratch->blocks;
    if (kept != NULL) {
        blocks_free(kept->next);
        kept->next = NULL;
        kept->used = 0;
        if (kept->cap > KEEP_BYTES) {
            mem_free(kept);
            kept = NULL;
        }
    }
    e->scratch->blocks = kept;
    push_groups_reset(&e->scratch->groups);
    if (e->cap * sizeof(*e->runs) > KEEP_BYTES) {
        mem_free(e->runs);
        e->runs = NULL;
        e->cap = 0;
    }
}

void push_effects_deinit(struct push_effects *e)
{
    if (e == NULL)
        return;
    if (e->scratch != NULL) {
        blocks_free(e->scratch->blocks);
        push_groups_deinit(&e->scratch->groups);
        mem_free(e->scratch);
    }
    mem_free(e->runs);
    *e = (struct push_effects){0};
}

void push_result_deinit(struct push_result *r)
{
    if (r == NULL)
        return;
    mem_free(r->items);
    *r = (struct push_result){0};
}

/* --- repeats within the request --- */

/* Open addressing over item numbers + 1; only items that name an id of their own are in it. */
struct repeats {
    uint32_t *slots;
    size_t mask;
};

static void repeats_init(struct repeats *r, size_t explicit_count)
{
    size_t cap = 16;
    while (cap < 2 * explicit_count)
        cap *= 2;
    r->slots = explicit_count < 2 ? NULL : MEM_ARRAY(uint32_t, cap);
    r->mask = cap - 1;
}

/* True when an earlier item of the same group has this id: *first_out is its number. */
static bool repeats_add(struct repeats *r, const struct push_groups *g, uint32_t item,
                        const struct push_parts *parts, uint32_t *first_out)
{
    if (r->slots == NULL)
        return false;
    uint32_t group = g->items[item].group;
    size_t at = hash64(parts->transaction_id, group) & r->mask;
    for (; r->slots[at] != 0; at = (at + 1) & r->mask) {
        uint32_t other = r->slots[at] - 1;
        if (g->items[other].group != group)
            continue;
        struct push_parts other_parts = push_item_parts(g, other);
        if (span_eq(other_parts.transaction_id, parts->transaction_id)) {
            *first_out = other;
            return true;
        }
    }
    r->slots[at] = item + 1;
    return false;
}

/* --- applying --- */

struct push_job {
    struct state *s;
    struct apply_context *at;
    struct push_groups *groups;
    struct push_effects *effects;
    struct push_item_result *results; /* NULL on replay */
    struct repeats repeats;
    struct tenant_id tenant;
    struct queue *queue; /* of the last group */
    struct error *error;
};

static struct queue *find_queue(struct push_job *job, struct span name)
{
    if (job->queue != NULL && span_eq(job->queue->name, name))
        return job->queue;
    struct queue *q = state_queue_find(job->s, &job->tenant, name);
    if (q == NULL) {
        struct queue_options options;
        struct span namespace_, task;
        struct uuid uuid = mint_uuid(job->s, job->at);
        queue_options_implicit(&options);
        q = state_queue_create(job->s, &job->tenant, name, &uuid, job->at->now, &options);
        queue_labels_from_name(name, &namespace_, &task);
        state_queue_set_labels(job->s, q, namespace_, task);
    }
    job->queue = q;
    return q;
}

static struct partition *find_partition(struct push_job *job, struct queue *q, struct span name)
{
    struct partition *p = state_partition_find(job->s, q, name);
    if (p != NULL)
        return p;
    struct uuid uuid = mint_uuid(job->s, job->at);
    return state_partition_create(job->s, q, name, &uuid, job->at->now);
}

static void result_set(struct push_job *job, uint32_t item, enum push_status status,
                       uint64_t offset, const struct uuid *message_id)
{
    if (job->results != NULL)
        job->results[item] = (struct push_item_result){
            .offset = offset, .message_id = *message_id, .status = (uint8_t)status};
}

/* Sets *duplicate_out, and then the item's result. */
static enum err look_for_duplicate(struct push_job *job, const struct partition *p, uint32_t item,
                                   const struct push_parts *parts, bool *duplicate_out)
{
    uint32_t first;
    *duplicate_out = true;
    if (repeats_add(&job->repeats, job->groups, item, parts, &first)) {
        if (job->results != NULL)
            result_set(job, item, PUSH_DUPLICATE, job->results[first].offset,
                       &job->results[first].message_id);
        return ERR_OK;
    }
    struct dedup_hit hit;
    enum err err = dedup_find(job->s, p, parts->transaction_id, job->at->now, &hit, job->error);
    if (err == ERR_OK)
        result_set(job, item, PUSH_DUPLICATE, hit.offset, &hit.message_id);
    if (err == ERR_NOT_FOUND) {
        *duplicate_out = false;
        err = ERR_OK;
    }
    return err;
}

/* The id's text, for items that came without one. */
static struct span text_of_id(struct push_scratch *scratch, const struct uuid *id)
{
    uint8_t *text = scratch_take(scratch, UUID_TEXT_LEN);
    uuid_text(id, text);
    return span_make(text, UUID_TEXT_LEN);
}

/* The bytes that they take in the log. */
static uint64_t add_runs(struct push_effects *e, const struct partition *p, int64_t stamp,
                         const struct qlog_record *records, size_t count)
{
    uint64_t bytes = 0;
    for (size_t done = 0; done < count;) {
        size_t n = count - done < QLOG_RUN_RECORDS_MAX ? count - done : QLOG_RUN_RECORDS_MAX;
        if (e->n == e->cap) {
            e->cap = e->cap == 0 ? 16 : e->cap * 2;
            e->runs = mem_grow(e->runs, e->cap * sizeof(*e->runs));
        }
        e->runs[e->n] = (struct push_effect){
            .queue = p->queue,
            .run = {.partition_id = p->id,
                    .partition = p->name,
                    .first_offset = p->next_offset + done,
                    .stamp = stamp,
                    .records = records + done,
                    .count = (uint32_t)n},
        };
        bytes += qlog_run_size(&e->runs[e->n++].run);
        done += n;
    }
    return bytes;
}

/* One record for what is new, nothing for a duplicate. */
static enum err apply_item(struct push_job *job, struct partition *p, uint32_t item,
                           struct qlog_record *record, uint64_t offset, bool *new_out)
{
    struct push_parts parts = push_item_parts(job->groups, item);
    bool duplicate = false;
    if (parts.minted)
        parts.transaction_id = text_of_id(job->effects->scratch, &parts.message_id);
    else
        TRY(look_for_duplicate(job, p, item, &parts, &duplicate));
    *new_out = !duplicate;
    if (duplicate)
        return ERR_OK;
    *record = (struct qlog_record){
        .message_id = parts.message_id,
        .transaction_id = parts.transaction_id,
        .payload = parts.payload,
    };
    const struct dedup_hit row = {offset, parts.message_id, job->at->now};
    dedup_put(job->s, p, parts.transaction_id, &row);
    result_set(job, item, PUSH_QUEUED, offset, &parts.message_id);
    return ERR_OK;
}

static enum err apply_group(struct push_job *job, const struct push_group *group)
{
    struct state *s = job->s;
    struct queue *q = find_queue(job, group->queue);
    struct partition *p = find_partition(job, q, group->partition);
    struct qlog_record *records =
        scratch_take(job->effects->scratch, group->count * sizeof(*records));
    size_t n = 0;
    for (uint32_t i = 0; i < group->count; i++) {
        bool is_new;
        uint32_t item = job->groups->order[group->first + i];
        TRY(apply_item(job, p, item, &records[n], p->next_offset + n, &is_new));
        n += is_new;
    }
    if (n == 0)
        return ERR_OK;
    uint64_t bytes = add_runs(job->effects, p, job->at->now, records, n);
    state_partition_touch(s, p);
    state_queue_touch(s, q);
    p->next_offset += n;
    p->log_bytes += bytes;
    q->records += n;
    p->last_write_at = job->at->now;
    q->last_write_at = job->at->now;
    state_meta(s)->max_stamp = job->at->now;
    return ERR_OK;
}

static enum err apply_groups(struct push_job *job)
{
    for (size_t i = 0; i < job->groups->group_count; i++)
        TRY(apply_group(job, &job->groups->groups[i]));
    return ERR_OK;
}

enum err push_apply(struct state *s, struct apply_context *at, struct span body,
                    struct push_effects *effects, struct push_result *result, struct error *error)
{
    if (effects->scratch == NULL)
        effects->scratch = mem_new(sizeof(*effects->scratch));
    struct push_job job = {
        .s = s,
        .at = at,
        .groups = &effects->scratch->groups,
        .effects = effects,
        .error = error,
    };
    if (push_groups_decode(job.groups, body, &job.tenant) != ERR_OK)
        return error_set(error, ERR_CORRUPT, "a push command does not decode");

    size_t n = job.groups->item_count;
    if (result != NULL && n != 0)
        job.results = MEM_ARRAY(struct push_item_result, n);
    repeats_init(&job.repeats, job.groups->explicit_count);
    enum err err = apply_groups(&job);
    mem_free(job.repeats.slots);
    if (err != ERR_OK) {
        mem_free(job.results);
        return err;
    }
    if (result != NULL)
        *result = (struct push_result){job.results, n};
    return ERR_OK;
}
