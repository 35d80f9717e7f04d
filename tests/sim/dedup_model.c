#include "sim/dedup_model.h"

#include "base/mem.h"
#include "base/timefmt.h"
#include "sim/world_internal.h"

#include <stdio.h>

#define IDS 12u /* half of them in each partition */
#define PARTITIONS 2u
#define ITEMS_MAX 6u
#define WINDOW_DEFAULT 3600

static const struct tenant_id tenant = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8}};
static const char *const queue_name = "repeats", *const partition_names[PARTITIONS] = {"p", "q"};

struct known_id {
    unsigned generation; /* its name's: one whose fate is unknown gets another name */
    bool pushed;
    int64_t stamp;
    uint64_t offset;
    struct uuid message_id;
};

struct dedup_command {
    struct node_request base;
    struct dedup_model *model;
    int32_t window; /* configured */
    size_t n;       /* pushed */
    struct {
        unsigned id, generation;
        struct uuid message_id;
    } items[ITEMS_MAX];
    struct dedup_command *next; /* of those without an answer */
};

struct dedup_model {
    struct world *world;
    struct known_id ids[IDS];
    int32_t window;
    int64_t floor; /* an older push counts no more */
    uint64_t next_offset[PARTITIONS];
    struct dedup_command *lost;  /* in the life before */
    struct dedup_command *first; /* without an answer */
};

static uint64_t roll(struct dedup_model *m, uint64_t n)
{
    return prng_below(&m->world->prng, n);
}

static unsigned partition_of(unsigned id)
{
    return id % PARTITIONS;
}

/* --- what is foretold --- */

static bool counts(const struct dedup_model *m, const struct known_id *id, int64_t now)
{
    return id->pushed && m->window != 0 && id->stamp >= m->floor &&
           id->stamp >= now - (int64_t)m->window * US_PER_SEC;
}

/* Its fate is unknown. */
static void rename_id(struct known_id *id)
{
    *id = (struct known_id){.generation = id->generation + 1};
}

static void deleted(struct dedup_model *m)
{
    for (unsigned i = 0; i < IDS; i++)
        m->ids[i].pushed = false;
    m->window = WINDOW_DEFAULT;
    memset(m->next_offset, 0, sizeof(m->next_offset));
}

static void set_window(struct dedup_model *m, int32_t window, int64_t now)
{
    int64_t kept_from = now - (int64_t)m->window * US_PER_SEC;
    if (window > m->window && kept_from > m->floor)
        m->floor = kept_from;
    m->window = window;
}

/* Was it pushed by an earlier item of the same push? */
static bool within_push(const struct dedup_command *c, size_t i)
{
    for (size_t before = 0; before < i; before++) {
        if (c->items[before].id == c->items[i].id)
            return true;
    }
    return false;
}

static void check_item(struct dedup_model *m, const struct dedup_command *c, size_t i)
{
    struct known_id *id = &m->ids[c->items[i].id];
    const struct push_item_result *got = &c->base.push.items[i];
    bool repeat = within_push(c, i) || counts(m, id, c->base.now);
    if (c->items[i].generation != id->generation)
        return; /* another push of it had no answer */
    if (!repeat) {
        *id = (struct known_id){.generation = id->generation,
                                .pushed = true,
                                .stamp = c->base.now,
                                .offset = m->next_offset[partition_of(c->items[i].id)]++,
                                .message_id = c->items[i].message_id};
    }
    if (got->status != (repeat ? PUSH_DUPLICATE : PUSH_QUEUED))
        world_fail(m->world, "a push of r-%u, last pushed %lld us before, window %d s: told %s",
                   c->items[i].id, (long long)(c->base.now - id->stamp), m->window,
                   repeat ? "it is new" : "it is a repeat");
    else if (got->offset != id->offset || memcmp(&got->message_id, &id->message_id, 16) != 0)
        world_fail(m->world, "a push of r-%u was told offset %llu instead of %llu", c->items[i].id,
                   (unsigned long long)got->offset, (unsigned long long)id->offset);
}

static void answered(struct dedup_model *m, const struct dedup_command *c)
{
    switch (c->base.type) {
    case COMMAND_PUSH:
        for (size_t i = 0; i < c->n && m->world->result->ok; i++)
            check_item(m, c, i);
        break;
    case COMMAND_CONFIGURE:
        set_window(m, c->window, c->base.now);
        break;
    case COMMAND_QUEUE_DELETE:
        deleted(m);
        break;
    case COMMAND_KV:
        break;
    }
}

/* --- commands --- */

static void unlink_command(struct dedup_model *m, struct dedup_command *c)
{
    struct dedup_command **at = &m->first;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
}

static void command_done(struct node_request *base)
{
    struct dedup_command *c = (struct dedup_command *)base;
    struct dedup_model *m = c->model;
    unlink_command(m, c);
    world_detail(m->world, "of repeats: %s", base->err == ERR_OK ? "done" : err_text(base->err));
    if (base->err == ERR_OK) {
        world_check_stamp(m->world, base->now);
        answered(m, c);
    }
    bool lost = base->err == ERR_STOPPED; /* the next boot settles it */
    node_request_deinit(base);
    if (lost) {
        c->next = m->lost;
        m->lost = c;
    } else {
        mem_free(c);
    }
}

static struct dedup_command *command_new(struct dedup_model *m, enum command_type type)
{
    struct dedup_command *c = mem_new(sizeof(*c));
    struct dedup_command **end = &m->first;
    c->model = m;
    c->base.type = type;
    c->base.done = command_done;
    while (*end != NULL)
        end = &(*end)->next;
    *end = c;
    return c;
}

static void push(struct dedup_model *m)
{
    struct push_item items[ITEMS_MAX];
    char names[ITEMS_MAX][32];
    struct dedup_command *c = command_new(m, COMMAND_PUSH);
    c->n = 1 + (size_t)roll(m, ITEMS_MAX);
    for (size_t i = 0; i < c->n; i++) {
        unsigned id = (unsigned)roll(m, IDS);
        c->items[i].id = id;
        c->items[i].generation = m->ids[id].generation;
        entropy_fill(&m->world->entropy.base, c->items[i].message_id.bytes, 16);
        snprintf(names[i], sizeof(names[i]), "r-%u-%u", id, m->ids[id].generation);
        items[i] = (struct push_item){.queue = span_str(queue_name),
                                      .partition = span_str(partition_names[partition_of(id)]),
                                      .transaction_id = span_str(names[i]),
                                      .payload = SPAN_LIT("1"),
                                      .message_id = c->items[i].message_id};
    }
    push_encode(&c->base.body, &tenant, items, c->n);
    c->base.grows_storage = true;
    world_detail(m->world, "push of %zu repeats, perhaps", c->n);
    node_submit(m->world->node, &c->base); /* c may be gone now */
}

static void configure(struct dedup_model *m)
{
    static const int32_t windows[] = {0, 2, 20, 300, 1500, WINDOW_DEFAULT, 9000};
    struct dedup_command *c = command_new(m, COMMAND_CONFIGURE);
    struct configure_request r = {.tenant = tenant, .queue = span_str(queue_name)};
    r.set = 1u << QUEUE_OPTION_dedup_window_seconds;
    r.options.dedup_window_seconds = c->window =
        windows[roll(m, sizeof(windows) / sizeof(windows[0]))];
    world_detail(m->world, "the window of repeats is to be %d s", c->window);
    configure_encode(&c->base.body, &r);
    node_submit(m->world->node, &c->base);
}

static void delete (struct dedup_model *m)
{
    struct dedup_command *c = command_new(m, COMMAND_QUEUE_DELETE);
    queue_delete_encode(&c->base.body, &tenant, span_str(queue_name));
    world_detail(m->world, "delete %s", queue_name);
    node_submit(m->world->node, &c->base);
}

void dedup_model_act(struct dedup_model *m)
{
    uint64_t what = roll(m, 100);
    if (m->lost != NULL)
        return; /* it is settled by a boot whose disk works */
    if (what < 80)
        push(m);
    else if (what < 98)
        configure(m);
    else
        delete (m);
}

/* --- after a boot --- */

/* What was in a command without an answer is not counted on any more. */
static bool settle(struct dedup_model *m)
{
    bool any = m->lost != NULL;
    while (m->lost != NULL) {
        struct dedup_command *c = m->lost;
        m->lost = c->next;
        for (size_t i = 0; i < c->n; i++) {
            if (m->ids[c->items[i].id].generation == c->items[i].generation)
                rename_id(&m->ids[c->items[i].id]);
        }
        for (unsigned i = 0; i < IDS && c->base.type != COMMAND_PUSH; i++)
            rename_id(&m->ids[i]);
        mem_free(c);
    }
    return any;
}

void dedup_model_check(struct dedup_model *m)
{
    bool unknown = settle(m);
    struct state *s = node_read_begin(m->world->node);
    struct queue *q = state_queue_find(s, &tenant, span_str(queue_name));
    int32_t window = q == NULL ? WINDOW_DEFAULT : q->options.dedup_window_seconds;
    for (unsigned i = 0; i < PARTITIONS; i++) {
        struct partition *p =
            q == NULL ? NULL : state_partition_find(s, q, span_str(partition_names[i]));
        uint64_t next = p == NULL ? 0 : p->next_offset;
        if (!unknown && next != m->next_offset[i])
            world_fail(m->world, "partition %s of %s ends at %llu after a restart, at %llu before",
                       partition_names[i], queue_name, (unsigned long long)next,
                       (unsigned long long)m->next_offset[i]);
        m->next_offset[i] = next;
    }
    if (!unknown && window != m->window)
        world_fail(m->world, "the window of repeats is %d s after a restart, %d s before", window,
                   m->window);
    m->window = window;
    node_read_end(m->world->node);
}

/* --- beginning and end --- */

struct dedup_model *dedup_model_new(struct world *w)
{
    struct dedup_model *m = mem_new(sizeof(*m));
    m->world = w;
    m->window = WINDOW_DEFAULT;
    return m;
}

void dedup_model_free(struct dedup_model *m)
{
    if (m == NULL)
        return;
    (void)settle(m);
    ASSERT(m->first == NULL); /* the node's end has answered all */
    mem_free(m);
}
