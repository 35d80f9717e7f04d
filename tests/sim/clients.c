/* The clients of a world: they push, repeat what was acknowledged and delete queues, and the ledger
 * learns what they were told. After a boot every acknowledged record is read back. */
#include "sim/world_internal.h"

#include "base/mem.h"
#include "base/timefmt.h"

const char *const world_queue_names[WORLD_QUEUES_MAX] = {"orders",   "ünï cødé/1", "p:2 100%",
                                                         "payments", "audit",      "zz.top"};
const char *const world_partition_names[WORLD_PARTITIONS] = {"cust-1",  "cust-2", "Default",
                                                             "a\"b\\c", "👑",      "z/=%"};

struct client_request {
    struct node_request base;
    struct world *world;
    struct ledger_record **records; /* pushed ones, in item order */
    bool *repeat;                   /* was acknowledged before: must be a duplicate */
    size_t n;
    size_t deletion; /* index in the ledger */
    bool gate_shut;  /* when it was sent */
    struct client_request *next;
};

static void client_free(struct client_request *c)
{
    node_request_deinit(&c->base);
    mem_free(c->records);
    mem_free(c->repeat);
    mem_free(c);
}

/* --- offsets have no gaps --- */

/* So an answer's offset tells the next one's, until there is a push or deletion without an answer. */
static void check_offset(struct world *w, const struct ledger_record *r, uint64_t offset)
{
    if (w->next[r->queue][r->partition].known && !w->unwatched &&
        offset != w->next[r->queue][r->partition].offset)
        world_fail(w, "%s got offset %llu, the next one was %llu", r->transaction_id,
                   (unsigned long long)offset,
                   (unsigned long long)w->next[r->queue][r->partition].offset);
    w->next[r->queue][r->partition].known = true;
    w->next[r->queue][r->partition].offset = offset + 1;
}

static void forget_offsets(struct world *w, unsigned queue, bool deleted)
{
    for (unsigned p = 0; p < WORLD_PARTITIONS; p++) {
        w->next[queue][p].known = deleted;
        w->next[queue][p].offset = 0;
    }
}

/* --- pushes --- */

static void push_done_item(struct world *w, struct client_request *c, size_t i)
{
    struct ledger_record *r = c->records[i];
    const struct push_item_result *item = &c->base.push.items[i];
    if (c->repeat[i]) {
        if (ledger_optional(&w->ledger,
                            r)) /* its queue was deleted meanwhile: nothing is promised */
            return;
        if (item->status != PUSH_DUPLICATE || item->offset != r->offset ||
            memcmp(&item->message_id, &r->message_id, 16) != 0)
            world_fail(w, "%s was acknowledged at %llu; its repeat was told status %d offset %llu",
                       r->transaction_id, (unsigned long long)r->offset, item->status,
                       (unsigned long long)item->offset);
        return;
    }
    if (item->status != PUSH_QUEUED) {
        world_fail(w, "%s is new and was told status %d", r->transaction_id, item->status);
        return;
    }
    check_offset(w, r, item->offset);
    r->told = TOLD_QUEUED;
    r->offset = item->offset;
    r->message_id = item->message_id;
    r->stamp = c->base.now;
}

void world_check_stamp(struct world *w, int64_t stamp)
{
    if (stamp <= w->last_stamp && !w->unwatched)
        world_fail(w, "an answered command has the clock %lld behind one with %lld",
                   (long long)stamp, (long long)w->last_stamp);
    w->last_stamp = stamp;
}

static void client_done(struct node_request *base)
{
    struct client_request *c = (struct client_request *)base;
    struct world *w = c->world;
    w->outstanding--;
    if (base->err == ERR_OK)
        world_check_stamp(w, base->now);
    if (base->err == ERR_OK && c->gate_shut)
        world_fail(w, "a push is taken while the disk gate is shut");
    world_trace(w, "%s of %zu: %s", base->type == COMMAND_PUSH ? "push" : "delete",
                base->type == COMMAND_PUSH ? c->n : 1,
                base->err == ERR_OK ? "acknowledged" : err_text(base->err));
    if (base->type == COMMAND_PUSH) {
        for (size_t i = 0; i < c->n; i++) {
            if (base->err == ERR_OK)
                push_done_item(w, c, i);
            else if (base->err == ERR_STORAGE_FULL && !c->repeat[i])
                c->records[i]->told = TOLD_REFUSED;
            else
                forget_offsets(w, c->records[i]->queue, false);
        }
    } else if (base->err == ERR_STORAGE_FULL) {
        w->ledger.deletions[c->deletion].refused = true;
    } else {
        forget_offsets(w, w->ledger.deletions[c->deletion].queue, base->err == ERR_OK);
    }
    client_free(c);
}

static struct client_request *client_new(struct world *w, enum command_type type)
{
    struct client_request *c = mem_new(sizeof(*c));
    c->world = w;
    c->base.type = type;
    c->base.done = client_done;
    w->outstanding++;
    return c;
}

static void make_payload(struct world *w, struct buf *out)
{
    static const char *const texts[] = {"null",        "{\"a\":42.00}",
                                        "\"\\u0000\"", "-0",
                                        "1E+400",      "123456789012345678901234567890",
                                        "[1, 2,\t3]"};
    uint64_t kind = prng_below(&w->prng, 10);
    if (kind < 7) {
        buf_puts(out, texts[kind]);
        return;
    }
    buf_puts(out, "{\"filler\":\"");
    uint64_t len = prng_below(&w->prng, kind == 9 ? 20000 : 200);
    for (uint64_t i = 0; i < len; i++)
        buf_putc(out, (uint8_t)('a' + prng_below(&w->prng, 26)));
    buf_puts(out, "\"}");
}

/* A record to push again: acknowledged, its queue not deleted since. */
static struct ledger_record *pick_repeat(struct world *w, unsigned queue)
{
    if (w->ledger.n == 0)
        return NULL;
    struct ledger_record *r = w->ledger.records[prng_below(&w->prng, w->ledger.n)];
    int64_t now = node_safe_time(w->node) > w->clock.wall ? node_safe_time(w->node) : w->clock.wall;
    bool recent = r->stamp > now - 1800 * US_PER_SEC; /* inside the window */
    return r->queue == queue && recent && !ledger_optional(&w->ledger, r) ? r : NULL;
}

static void push_records(struct world *w, struct client_request *c)
{
    struct push_item *items = MEM_ARRAY(struct push_item, c->n);
    for (size_t i = 0; i < c->n; i++) {
        struct ledger_record *r = c->records[i];
        items[i] = (struct push_item){
            .queue = span_str(world_queue_names[r->queue]),
            .partition = span_str(world_partition_names[r->partition]),
            .transaction_id = span_str(r->transaction_id),
            .payload = r->payload,
        };
        entropy_fill(&w->entropy.base, items[i].message_id.bytes, 16);
    }
    push_encode(&c->base.body, &TENANT_DEFAULT, items, c->n);
    mem_free(items);
    c->base.grows_storage = true;
    c->gate_shut = node_storage_full(w->node);
    world_trace(w, "push of %zu from %s on", c->n, c->records[0]->transaction_id);
    node_submit(w->node, &c->base);
}

static struct client_request *push_new(struct world *w, size_t n)
{
    struct client_request *c = client_new(w, COMMAND_PUSH);
    c->records = MEM_ARRAY(struct ledger_record *, n);
    c->repeat = MEM_ARRAY(bool, n);
    c->n = n;
    return c;
}

static struct ledger_record *new_record(struct world *w, unsigned queue)
{
    struct buf payload = BUF_INIT;
    make_payload(w, &payload);
    struct ledger_record *r = ledger_add(
        &w->ledger, queue, (unsigned)prng_below(&w->prng, WORLD_PARTITIONS), buf_span(&payload));
    buf_deinit(&payload);
    return r;
}

/* A mix of new records and repeats, over all queues. */
void world_push_any(struct world *w)
{
    size_t n = 1 + (size_t)prng_below(&w->prng, prng_chance(&w->prng, 10) ? 60 : 6);
    struct client_request *c = push_new(w, n);
    for (size_t i = 0; i < n; i++) {
        unsigned queue = (unsigned)prng_below(&w->prng, w->queues);
        struct ledger_record *r = prng_chance(&w->prng, 10) ? pick_repeat(w, queue) : NULL;
        for (size_t before = 0; r != NULL && before < i; before++)
            r = c->records[before] == r ? NULL : r;
        c->repeat[i] = r != NULL;
        c->records[i] = r != NULL ? r : new_record(w, queue);
    }
    push_records(w, c);
}

void world_push(struct world *w, unsigned queue, size_t n)
{
    struct client_request *c = push_new(w, n);
    for (size_t i = 0; i < n; i++)
        c->records[i] = new_record(w, queue);
    push_records(w, c);
}

void world_push_mixed(struct world *w, size_t n)
{
    struct client_request *c = push_new(w, n);
    for (size_t i = 0; i < n; i++)
        c->records[i] = new_record(w, (unsigned)prng_below(&w->prng, w->queues));
    push_records(w, c);
}

void world_delete(struct world *w, unsigned queue)
{
    struct client_request *c = client_new(w, COMMAND_QUEUE_DELETE);
    c->deletion = ledger_delete(&w->ledger, queue);
    queue_delete_encode(&c->base.body, &TENANT_DEFAULT, span_str(world_queue_names[queue]));
    w->result->deletions++;
    world_trace(w, "delete %s", world_queue_names[queue]);
    node_submit(w->node, &c->base);
    if (w->result->deletions == w->options->deletions_wrong)
        world_fail(w, "a deletion too many");
}

/* --- reading back after a boot --- */

static void check_record(struct world *w, struct state *s, const struct ledger_record *r)
{
    struct queue *q = state_queue_find(s, &TENANT_DEFAULT, span_str(world_queue_names[r->queue]));
    struct partition *p =
        q == NULL ? NULL
                  : state_partition_find(s, q, span_str(world_partition_names[r->partition]));
    if (p == NULL || p->next_offset <= r->offset) {
        world_fail(w, "%s was acknowledged and is not in the log after a restart",
                   r->transaction_id);
        return;
    }
    struct qlog_run_data data = {0};
    struct error error = {0};
    uint64_t position = 0;
    enum err err = qlog_find(q->log, p->id, r->offset, &position, &error);
    if (err == ERR_OK)
        err = qlog_read(q->log, position, &data, &error);
    uint64_t at = r->offset - data.head.first_offset;
    if (err != ERR_OK && (sim_disk_down(w->disk) || storage_failed(w)))
        world_trace(w, "the disk failed while reading back"); /* the life ends at the next step */
    else if (err != ERR_OK || at >= data.head.count)
        world_fail(w, "%s cannot be read: %s", r->transaction_id, error.text);
    else if (!span_eq(data.records[at].payload, r->payload) || data.head.stamp != r->stamp ||
             !span_eq(data.records[at].transaction_id, span_str(r->transaction_id)))
        world_fail(w, "%s reads altered after a restart", r->transaction_id);
    qlog_run_data_deinit(&data);
}

/* What a queue is said to hold is what its partitions hold, and what is in its log. */
static void check_figures(struct world *w, struct state *s)
{
    struct queue **queues = NULL;
    size_t n = state_queue_list(s, NULL, &queues);
    for (size_t i = 0; i < n && !node_is_behind(w->node); i++) {
        const struct queue *q = queues[i];
        uint64_t records = 0, bytes = 0;
        for (size_t j = 0; j < q->partition_count; j++) {
            records += q->partitions[j]->next_offset - q->partitions[j]->log_start;
            bytes += q->partitions[j]->log_bytes;
        }
        if (records != q->records || bytes != q->log_length - q->log_start)
            world_fail(w, "%.*s has %llu records in %llu bytes, its partitions %llu in %llu",
                       (int)q->name.len, (const char *)q->name.ptr, (unsigned long long)q->records,
                       (unsigned long long)(q->log_length - q->log_start),
                       (unsigned long long)records, (unsigned long long)bytes);
    }
    mem_free(queues);
}

void world_check_log(struct world *w)
{
    struct state *s = node_read_begin(w->node);
    for (size_t i = 0; i < w->ledger.n && w->result->ok; i++) {
        if (w->ledger.records[i]->told == TOLD_QUEUED &&
            !ledger_optional(&w->ledger, w->ledger.records[i]))
            check_record(w, s, w->ledger.records[i]);
    }
    check_figures(w, s);
    node_read_end(w->node);
}
