#include "sim/options_model.h"

#include "base/mem.h"
#include "sim/world_internal.h"

#include <stdio.h>

#define QUEUES 3u
#define LABEL_MAX 16u

struct known {
    bool exists;
    struct queue_options options;
    char labels[2][LABEL_MAX]; /* namespace, task */
};

struct command {
    struct node_request base;
    struct options_model *model;
    unsigned queue;
    struct known then; /* when it is applied */
};

struct options_model {
    struct world *world;
    struct known queues[QUEUES];
    struct command *sent[QUEUES]; /* without an answer: one for each queue */
    bool any;
};

static const char *const names[QUEUES] = {"sales", "sales.eu", "a b"};
static const struct tenant_id tenant = {
    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}}; /* no sink of ours reads it */

static uint64_t roll(struct options_model *m, uint64_t n)
{
    return prng_below(&m->world->prng, n);
}

/* --- comparing --- */

#define SAME_I(field) (a->field == b->field)
#define SAME_B(field) (a->field == b->field)
#define SAME_S(field) (strcmp(a->field, b->field) == 0)
#define SAME(field, name, kind, def, min, max) &&SAME_##kind(field)

static bool same_options(const struct queue_options *a, const struct queue_options *b)
{
    return true QUEUE_OPTION_LIST(SAME);
}

static bool same(const struct known *k, const struct queue *q)
{
    if (!k->exists || q == NULL)
        return !k->exists && q == NULL;
    return same_options(&k->options, &q->options) &&
           span_eq(span_str(k->labels[0]), q->namespace_) &&
           span_eq(span_str(k->labels[1]), q->task);
}

/* --- commands --- */

static void command_free(struct command *c)
{
    c->model->sent[c->queue] = NULL;
    mem_free(c);
}

static void answered(struct options_model *m, struct command *c)
{
    struct known *k = &m->queues[c->queue];
    if (c->base.type == COMMAND_QUEUE_DELETE) {
        if (c->base.existed != k->exists)
            world_fail(m->world, "deleting %s: it %s", names[c->queue],
                       k->exists ? "existed" : "did not exist");
    } else {
        const struct configure_result *r = &c->base.configure;
        if (!same_options(&r->options, &c->then.options) ||
            !span_eq(span_str(c->then.labels[0]), buf_span(&r->namespace_)) ||
            !span_eq(span_str(c->then.labels[1]), buf_span(&r->task)))
            world_fail(m->world, "%s was configured and has other options", names[c->queue]);
    }
    *k = c->then;
}

static void command_done(struct node_request *base)
{
    struct command *c = (struct command *)base;
    struct options_model *m = c->model;
    world_detail(m->world, "%s %s: %s",
                 base->type == COMMAND_CONFIGURE ? "configuring" : "deleting", names[c->queue],
                 base->err == ERR_OK ? "acknowledged" : err_text(base->err));
    if (base->err == ERR_OK) {
        world_check_stamp(m->world, base->now);
        answered(m, c);
    }
    bool lost = base->err == ERR_STOPPED; /* until the next boot */
    node_request_deinit(base);
    if (!lost)
        command_free(c);
}

#define DRAW_I(field, name, def, min, max)                                                         \
    o->field = (int32_t)((min) < 0 ? -5 + (int64_t)roll(m, 1000) : (min) + (int64_t)roll(m, 1000));
#define DRAW_B(field, name, def, min, max) o->field = roll(m, 2) == 0;
#define DRAW_S(field, name, def, min, max)                                                         \
    snprintf(o->field, sizeof(o->field), "sink-%u", (unsigned)roll(m, 9));
#define DRAW(field, name, kind, def, min, max)                                                     \
    if (r->set & 1u << QUEUE_OPTION_##field) {                                                     \
        DRAW_##kind(field, name, def, min, max)                                                    \
    }

static void draw_options(struct options_model *m, struct configure_request *r)
{
    struct queue_options *o = &r->options;
    r->set = (uint32_t)roll(m, UINT64_C(1) << QUEUE_OPTION_COUNT);
    r->reset = (uint32_t)roll(m, UINT64_C(1) << QUEUE_OPTION_COUNT) & ~r->set;
    if (roll(m, 2) == 0) { /* most requests name few */
        r->set &= (uint32_t)roll(m, UINT64_C(1) << QUEUE_OPTION_COUNT) &
                  (uint32_t)roll(m, UINT64_C(1) << QUEUE_OPTION_COUNT);
        r->reset = 0;
    }
    QUEUE_OPTION_LIST(DRAW)
}

#define MERGE_I(field) to->field = from->field;
#define MERGE_B(field) to->field = from->field;
#define MERGE_S(field) memcpy(to->field, from->field, sizeof(to->field));
#define MERGE(field, name, kind, def, min, max)                                                    \
    if ((r->set | r->reset) & 1u << QUEUE_OPTION_##field) {                                        \
        const struct queue_options *from =                                                         \
            r->set & 1u << QUEUE_OPTION_##field ? &r->options : &defaults;                         \
        MERGE_##kind(field)                                                                        \
    }

static void merge(struct known *k, const struct configure_request *r)
{
    struct queue_options defaults, *to = &k->options;
    queue_options_default(&defaults);
    if (!k->exists)
        *k = (struct known){.exists = true, .options = defaults};
    QUEUE_OPTION_LIST(MERGE)
}

static void draw_label(struct options_model *m, bool *set, struct span *out, char *label)
{
    *set = roll(m, 3) == 0;
    if (!*set)
        return;
    bool empty = roll(m, 4) == 0;
    snprintf(label, LABEL_MAX, "label-%u", (unsigned)roll(m, 100));
    if (empty)
        label[0] = '\0';
    *out = span_make(label, strlen(label));
}

static void configure(struct options_model *m, struct command *c)
{
    struct configure_request r = {.tenant = tenant, .queue = span_str(names[c->queue])};
    draw_options(m, &r);
    merge(&c->then, &r);
    draw_label(m, &r.namespace_set, &r.namespace_, c->then.labels[0]);
    draw_label(m, &r.task_set, &r.task, c->then.labels[1]);
    c->base.type = COMMAND_CONFIGURE;
    configure_encode(&c->base.body, &r);
}

void options_model_act(struct options_model *m)
{
    unsigned queue = (unsigned)roll(m, QUEUES);
    if (m->sent[queue] != NULL)
        return;
    struct command *c = mem_new(sizeof(*c));
    c->model = m;
    c->queue = queue;
    c->then = m->queues[queue];
    if (roll(m, 5) == 0) {
        c->base.type = COMMAND_QUEUE_DELETE;
        c->then = (struct known){0};
        queue_delete_encode(&c->base.body, &tenant, span_str(names[queue]));
    } else {
        configure(m, c);
    }
    c->base.done = command_done;
    m->sent[queue] = c;
    m->any = true;
    world_detail(m->world, "%s %s", c->base.type == COMMAND_CONFIGURE ? "configure" : "delete",
                 names[queue]);
    m->world->result->configured++;
    node_submit(m->world->node, &c->base); /* c may be gone now */
}

/* --- after a boot --- */

void options_model_check(struct options_model *m)
{
    struct state *s = node_read_begin(m->world->node);
    for (unsigned i = 0; m->any && i < QUEUES; i++) {
        const struct queue *q = state_queue_find(s, &tenant, span_str(names[i]));
        bool before = same(&m->queues[i], q);
        bool after = m->sent[i] != NULL && same(&m->sent[i]->then, q);
        if (after)
            m->queues[i] = m->sent[i]->then;
        else if (!before)
            world_fail(m->world, "%s has not the options it was given", names[i]);
        if (m->sent[i] != NULL)
            command_free(m->sent[i]);
    }
    node_read_end(m->world->node);
}

/* --- beginning and end --- */

struct options_model *options_model_new(struct world *w)
{
    struct options_model *m = mem_new(sizeof(*m));
    m->world = w;
    return m;
}

void options_model_free(struct options_model *m)
{
    if (m == NULL)
        return;
    for (unsigned i = 0; i < QUEUES; i++) {
        if (m->sent[i] != NULL)
            command_free(m->sent[i]);
    }
    mem_free(m);
}
