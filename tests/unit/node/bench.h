/* What the tests of node share: a node in manual mode over a simulated disk, and calls to it. */
#ifndef TESTS_NODE_BENCH_H
#define TESTS_NODE_BENCH_H

#include "node/node.h"

#include "sim/sim_clock.h"
#include "sim/sim_db.h"
#include "sim/sim_disk.h"

#include "lib/test.h"

struct bench {
    struct prng prng;
    struct sim_clock clock;
    struct sim_entropy entropy;
    struct disk *disk;
    struct sim_db_state *rows;
    struct node *node;
    uint64_t ballast_bytes, dirty_max_bytes;
    double high_pct, low_pct;
    bool open_behind;
    struct db *db; /* of the open node */
    struct error error;
};

static inline enum err open_sim_db(void *ctx, struct db **out, struct error *error)
{
    (void)error;
    struct bench *b = ctx;
    *out = b->db = sim_db_new(b->rows);
    return ERR_OK;
}

static inline void bench_init(struct bench *b, uint64_t seed)
{
    *b = (struct bench){0};
    prng_init(&b->prng, seed);
    sim_clock_init(&b->clock, INT64_C(1791007200000000));
    sim_entropy_init(&b->entropy, &b->prng);
    b->disk = sim_disk_new(seed);
    b->rows = sim_db_state_new();
    b->high_pct = b->low_pct = 100;
}

static inline enum err bench_open(struct bench *b)
{
    struct node_options o;
    node_options_default(&o);
    o.disk = b->disk;
    o.open_db = open_sim_db;
    o.db_ctx = b;
    o.clock = &b->clock.base;
    o.entropy = &b->entropy.base;
    o.manual = true;
    o.wal_segment_bytes = 64u << 10;
    o.segment_bytes = 16u << 10;
    o.disk_high_pct = b->high_pct;
    o.disk_low_pct = b->low_pct;
    o.open_behind = b->open_behind;
    o.ballast_bytes = b->ballast_bytes;
    if (b->dirty_max_bytes > 0)
        o.dirty_max_bytes = b->dirty_max_bytes;
    return node_open(&o, &b->node, &b->error);
}

static inline void bench_deinit(struct bench *b)
{
    sim_db_state_free(b->rows);
    sim_disk_free(b->disk);
}

struct call {
    struct node_request base;
    unsigned done;
};

static inline void call_done(struct node_request *r)
{
    ((struct call *)r)->done++;
}

static inline void submit_push(struct node *n, struct call *c, const char *queue,
                               const char *partition, const char *transaction_id,
                               const char *payload)
{
    struct push_item item = {
        .queue = span_str(queue),
        .partition = span_str(partition),
        .transaction_id = span_str(transaction_id),
        .payload = span_str(payload),
    };
    item.message_id.bytes[15] = (uint8_t)transaction_id[strlen(transaction_id) - 1];
    *c = (struct call){.base = {.type = COMMAND_PUSH, .done = call_done, .grows_storage = true}};
    push_encode(&c->base.body, &TENANT_DEFAULT, &item, 1);
    node_submit(n, &c->base);
}

static inline void pump(struct node *n)
{
    while (node_pump_log(n) || node_pump_apply(n)) {
    }
}

static inline void push(struct bench *b, const char *queue, const char *transaction_id,
                        const char *payload, enum push_status status, uint64_t offset)
{
    struct call c;
    submit_push(b->node, &c, queue, "p", transaction_id, payload);
    pump(b->node);
    CHECK_EQ(c.done, 1);
    CHECK_EQ(c.base.err, ERR_OK);
    CHECK_EQ(c.base.push.items[0].status, status);
    CHECK_EQ(c.base.push.items[0].offset, offset);
    node_request_deinit(&c.base);
}

static inline void check_payload(struct node *n, const char *queue, uint64_t offset,
                                 const char *payload)
{
    struct qlog_run_data data = {0};
    struct error error;
    uint64_t position;
    struct state *s = node_read_begin(n);
    struct queue *q = state_queue_find(s, &TENANT_DEFAULT, span_str(queue));
    CHECK(q != NULL);
    struct partition *p = state_partition_find(s, q, SPAN_LIT("p"));
    CHECK(p != NULL);
    uint64_t queue_id = q->id, partition_id = p->id;
    node_read_end(n);
    struct qlog *log = node_log_ref(n, queue_id);
    CHECK(log != NULL);
    CHECK_EQ(qlog_find(log, partition_id, offset, &position, &error), ERR_OK);
    CHECK_EQ(qlog_read(log, position, &data, &error), ERR_OK);
    CHECK_TEXT(data.records[offset - data.head.first_offset].payload, payload);
    qlog_run_data_deinit(&data);
    node_log_unref(n, log);
}

#endif
