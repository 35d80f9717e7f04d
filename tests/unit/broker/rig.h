/* A state with a log of its own: applies commands one per entry and keeps what came out. */
#ifndef TESTS_BROKER_RIG_H
#define TESTS_BROKER_RIG_H

#include "base/mem.h"
#include "base/timefmt.h"
#include "broker/configure.h"
#include "broker/dedup.h"
#include "broker/push.h"
#include "lib/test.h"
#include "sim/sim_db.h"

#define RIG_CLOCK (1700000000 * US_PER_SEC)

struct rig {
    struct sim_db_state *durable;
    struct state *s;
    uint64_t index;
    int64_t clock; /* of the last entry */
    uint64_t ids;  /* minted so far */
    struct push_effects effects;
    struct push_result result;
    struct buf body;
};

static inline void rig_open(struct rig *r)
{
    const struct uuid cluster = {{1}};
    *r = (struct rig){.durable = sim_db_state_new(), .clock = RIG_CLOCK};
    CHECK_EQ(state_open(sim_db_new(r->durable), &cluster, &r->s, NULL), ERR_OK);
}

static inline void rig_close(struct rig *r)
{
    push_effects_deinit(&r->effects);
    push_result_deinit(&r->result);
    buf_deinit(&r->body);
    state_close(r->s);
    sim_db_state_free(r->durable);
}

/* The next entry, us later than the last. */
static inline struct apply_context rig_entry(struct rig *r, int64_t us)
{
    struct state_meta *m = state_meta(r->s);
    r->clock += us;
    m->applied = ++r->index;
    m->last_clock = r->clock;
    m->last_count = 1;
    return (struct apply_context){.index = r->index, .now = r->clock};
}

static inline struct uuid rig_id(struct rig *r)
{
    struct uuid id = {{0}};
    r->ids++;
    for (unsigned i = 0; i < 8; i++)
        id.bytes[15 - i] = (uint8_t)(r->ids >> (8 * i));
    return id;
}

/* An item; transaction NULL: minted. */
static inline struct push_item rig_item(struct rig *r, const char *queue, const char *partition,
                                        const char *transaction, const char *payload)
{
    return (struct push_item){
        .queue = span_str(queue),
        .partition = span_str(partition),
        .transaction_id = transaction == NULL ? SPAN_LIT("") : span_str(transaction),
        .minted = transaction == NULL,
        .message_id = rig_id(r),
        .payload = span_str(payload),
    };
}

/* Applies one push; r->result and r->effects hold until the next. */
static inline void rig_push(struct rig *r, int64_t us, const struct push_item *items, size_t n)
{
    struct apply_context at = rig_entry(r, us);
    struct error error;
    buf_reset(&r->body);
    push_encode(&r->body, &TENANT_DEFAULT, items, n);
    push_effects_reset(&r->effects);
    push_result_deinit(&r->result);
    CHECK_EQ(push_apply(r->s, &at, buf_span(&r->body), &r->effects, &r->result, &error), ERR_OK);
    CHECK_EQ(r->result.n, n);
}

static inline struct push_item_result rig_push_one(struct rig *r, int64_t us, const char *queue,
                                                   const char *partition, const char *transaction)
{
    struct push_item item = rig_item(r, queue, partition, transaction, "1");
    rig_push(r, us, &item, 1);
    return r->result.items[0];
}

static inline void rig_configure(struct rig *r, int64_t us, const struct configure_request *request,
                                 struct configure_result *result)
{
    struct apply_context at = rig_entry(r, us);
    buf_reset(&r->body);
    configure_encode(&r->body, request);
    CHECK_EQ(configure_apply(r->s, &at, buf_span(&r->body), result, NULL), ERR_OK);
}

static inline void rig_set_window(struct rig *r, int64_t us, const char *queue, int32_t seconds)
{
    struct configure_request request = {
        .tenant = TENANT_DEFAULT,
        .queue = span_str(queue),
        .set = 1u << QUEUE_OPTION_dedup_window_seconds,
        .options.dedup_window_seconds = seconds,
    };
    rig_configure(r, us, &request, NULL);
}

static inline bool rig_delete(struct rig *r, const char *queue)
{
    struct apply_context at = rig_entry(r, 1);
    bool existed = false;
    buf_reset(&r->body);
    queue_delete_encode(&r->body, &TENANT_DEFAULT, span_str(queue));
    CHECK_EQ(queue_delete_apply(r->s, &at, buf_span(&r->body), &existed, NULL), ERR_OK);
    return existed;
}

static inline void rig_checkpoint(struct rig *r)
{
    struct db *db = state_db(r->s);
    state_freeze(r->s);
    struct db_batch *batch = db->ops->batch_new(db);
    CHECK_EQ(state_frozen_write(r->s, batch, NULL), ERR_OK);
    CHECK_EQ(db->ops->batch_write(db, batch, NULL), ERR_OK);
    db->ops->batch_free(batch);
    state_frozen_done(r->s);
}

static inline void rig_reopen(struct rig *r)
{
    const struct uuid cluster = {{1}};
    rig_checkpoint(r);
    state_close(r->s);
    CHECK_EQ(state_open(sim_db_new(r->durable), &cluster, &r->s, NULL), ERR_OK);
}

#endif
