/* What the fuzz targets of commands share.
 *
 * An input is a chain of bodies, each behind its length (le16; the last one may be cut short). They
 * are applied to two states, with results and without. A body is applied or refused as ERR_CORRUPT;
 * the states must agree, and the first must be the same after a checkpoint and reopening. */
#ifndef TESTS_FUZZ_COMMAND_FUZZ_H
#define TESTS_FUZZ_COMMAND_FUZZ_H

#include "base/bytes.h"
#include "base/err.h"
#include "fuzz/fuzz.h"
#include "sim/sim_db.h"
#include "store/command.h"
#include "store/state.h"

#define FUZZ_CLOCK 1700000000000000
#define FUZZ_STEP 3000000 /* us from body to body: some rows expire on the way */

/* with_result: whether the command's result is asked for. The callee frees it. */
typedef enum err (*fuzz_apply_fn)(struct state *s, struct apply_context *at, struct span body,
                                  bool with_result);

static inline struct state *fuzz_open(struct sim_db_state *durable)
{
    const struct uuid cluster = {{1}};
    struct state *s = NULL;
    ASSERT(state_open(sim_db_new(durable), &cluster, &s, NULL) == ERR_OK);
    return s;
}

static inline void fuzz_checkpoint(struct state *s)
{
    struct db *db = state_db(s);
    state_freeze(s);
    struct db_batch *batch = db->ops->batch_new(db);
    ASSERT(state_frozen_write(s, batch, NULL) == ERR_OK);
    ASSERT(db->ops->batch_write(db, batch, NULL) == ERR_OK);
    db->ops->batch_free(batch);
    state_frozen_done(s);
}

static inline bool fuzz_same(struct state *a, struct state *b)
{
    uint8_t da[32], db[32];
    state_digest(a, da);
    state_digest(b, db);
    return memcmp(da, db, sizeof(da)) == 0;
}

static inline void fuzz_feed(struct state *s, struct span input, fuzz_apply_fn apply,
                             bool with_result)
{
    struct cursor c = {input, false};
    struct apply_context at = {.now = FUZZ_CLOCK};
    struct state_meta *m = state_meta(s);
    while (c.in.len > 2) {
        size_t len = cursor_le16(&c);
        struct span body = cursor_bytes(&c, len < c.in.len ? len : c.in.len);
        at.index++;
        at.now += FUZZ_STEP;
        at.minted = 0;
        m->applied = at.index;
        enum err err = apply(s, &at, body, with_result);
        ASSERT(err == ERR_OK || err == ERR_CORRUPT);
        m->last_clock = at.now;
        m->last_count = 1;
    }
}

static inline int fuzz_commands(const uint8_t *data, size_t size, fuzz_apply_fn apply)
{
    struct sim_db_state *durable_a = sim_db_state_new(), *durable_b = sim_db_state_new();
    struct state *a = fuzz_open(durable_a), *b = fuzz_open(durable_b);
    struct span input = span_make(data, size);
    fuzz_feed(a, input, apply, true);
    fuzz_feed(b, input, apply, false);
    ASSERT(fuzz_same(a, b));
    fuzz_checkpoint(a);
    state_close(a);
    a = fuzz_open(durable_a);
    ASSERT(fuzz_same(a, b));
    state_close(a);
    state_close(b);
    sim_db_state_free(durable_a);
    sim_db_state_free(durable_b);
    return 0;
}

#endif
