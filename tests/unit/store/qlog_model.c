/* The model keeps what an append needs to be repeated; contents come from a seed for each run. */
#include "unit/store/qlog_model.h"

#include "base/mem.h"
#include "lib/test.h"

#define RECORDS_MAX 4u
#define TRANSACTION_MAX 24u
#define SAMPLES 1000u

struct made_run { /* a run with its storage */
    struct qlog_run run;
    struct qlog_record records[RECORDS_MAX];
    uint8_t *bytes;
    struct buf name;
};

static void put_name(struct buf *b, uint64_t partition_id)
{
    switch (partition_id / 10 % 8) {
    case 0: /* the empty name */
        break;
    case 1:
        buf_puts(b, "orders/cust-1");
        break;
    case 2:
        buf_append(b, "a\0b\n\"\\", 6);
        break;
    case 3:
        buf_puts(b, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\x9d");
        break;
    case 4:
        for (unsigned i = 0; i < 300; i++)
            buf_putc(b, 'x');
        break;
    case 5:
        buf_puts(b, "../../etc/passwd");
        break;
    default:
        buf_puts(b, "p");
        break;
    }
    if (partition_id > 80)
        buf_put_u64(b, partition_id);
}

static void made_deinit(struct made_run *made)
{
    mem_free(made->bytes);
    buf_deinit(&made->name);
}

/* large: payload bytes of the first record, or 0. */
static void make_run(struct made_run *made, const struct model_run *m, uint32_t payload_max)
{
    struct prng rng;
    prng_init(&rng, m->seed);
    *made = (struct made_run){0};
    put_name(&made->name, m->partition_id);
    uint32_t large = (uint32_t)(m->seed >> 32);
    size_t cap = m->count * (size_t)(TRANSACTION_MAX + payload_max) + large;
    made->bytes = mem_new(cap);
    uint8_t *p = made->bytes;
    for (uint32_t i = 0; i < m->count; i++) {
        struct qlog_record *r = &made->records[i];
        prng_fill(&rng, r->message_id.bytes, sizeof(r->message_id.bytes));
        size_t transaction = prng_chance(&rng, 20) ? 0 : prng_below(&rng, TRANSACTION_MAX + 1);
        size_t payload = prng_chance(&rng, 20) ? 0 : prng_below(&rng, payload_max + 1u);
        if (i == 0 && large > 0)
            payload = large;
        prng_fill(&rng, p, transaction);
        r->transaction_id = span_make(p, transaction);
        p += transaction;
        if (payload < 4096)
            prng_fill(&rng, p, payload);
        else
            memset(p, (int)(m->seed & 0xff), payload);
        r->payload = span_make(p, payload);
        p += payload;
    }
    ASSERT(p <= made->bytes + cap);
    made->run = (struct qlog_run){
        .partition_id = m->partition_id,
        .partition = buf_span(&made->name),
        .first_offset = m->first_offset,
        .stamp = m->stamp,
        .records = made->records,
        .count = m->count,
    };
}

void model_init(struct model *m, uint64_t seed, unsigned partitions, uint32_t payload_max)
{
    *m = (struct model){.partitions = partitions, .payload_max = payload_max, .stamp = 1000};
    ASSERT(partitions > 0 && partitions <= MODEL_PARTITIONS_MAX);
    prng_init(&m->rng, seed);
    for (unsigned i = 0; i < partitions; i++) /* offsets need not start at 0: old ones are gone */
        m->next_offset[i] = prng_chance(&m->rng, 50) ? 0 : prng_below(&m->rng, 1000);
}

void model_deinit(struct model *m)
{
    mem_free(m->runs);
    *m = (struct model){0};
}

static enum err append(struct model *m, struct qlog *q, uint32_t large, struct error *error)
{
    struct prng before = m->rng;
    unsigned partition = (unsigned)prng_below(&m->rng, m->partitions);
    struct model_run run = {
        .partition_id = 10 * (partition + 1),
        .first_offset = m->next_offset[partition],
        .count = 1 + (uint32_t)prng_below(&m->rng, RECORDS_MAX),
        .seed = (prng_u64(&m->rng) & UINT32_MAX) | (uint64_t)large << 32,
        .stamp = m->stamp + (prng_chance(&m->rng, 30) ? 0 : 1 + (int64_t)prng_below(&m->rng, 9)),
    };
    struct made_run made;
    make_run(&made, &run, m->payload_max);
    uint64_t end = qlog_end(q);
    uint64_t size = qlog_run_size(&made.run);
    enum err err = qlog_append(q, &made.run, &run.position, error);
    for (uint32_t i = 0; i < run.count; i++)
        run.weight +=
            64 + made.records[i].transaction_id.len + made.name.len + made.records[i].payload.len;
    made_deinit(&made);
    if (err != ERR_OK) {
        CHECK_EQ(qlog_end(q), end);
        m->rng = before;
        return err;
    }
    CHECK_EQ(run.position, end);
    run.next = run.position + size;
    CHECK_EQ(qlog_end(q), run.next);
    if (m->n == m->cap) {
        m->cap = m->cap > 0 ? 2 * m->cap : 64;
        m->runs = mem_grow(m->runs, m->cap * sizeof(m->runs[0]));
    }
    m->runs[m->n++] = run;
    m->next_offset[partition] += run.count;
    m->stamp = run.stamp;
    return ERR_OK;
}

enum err model_append(struct model *m, struct qlog *q, struct error *error)
{
    return append(m, q, 0, error);
}

enum err model_append_large(struct model *m, struct qlog *q, uint32_t payload, struct error *error)
{
    return append(m, q, payload, error);
}

void model_cut(struct model *m, size_t n)
{
    while (m->n > n) {
        const struct model_run *run = &m->runs[--m->n];
        m->next_offset[run->partition_id / 10 - 1] = run->first_offset;
    }
    m->stamp = m->n > 0 ? m->runs[m->n - 1].stamp : 1000;
}

uint64_t model_end(const struct model *m)
{
    return m->n > 0 ? m->runs[m->n - 1].next : 0;
}

/* ---- Checking ---- */

static void check_head(const struct model_run *run, const struct qlog_run_head *head)
{
    CHECK_EQ(head->position, run->position);
    CHECK_EQ(head->next_position, run->next);
    CHECK_EQ(head->partition_id, run->partition_id);
    CHECK_EQ(head->first_offset, run->first_offset);
    CHECK_EQ(head->count, run->count);
    CHECK_EQ(head->stamp, run->stamp);
    CHECK_EQ(head->weight, run->weight);
}

enum err model_check_run(const struct model *m, struct qlog *q, size_t i,
                         struct qlog_run_data *data, struct error *error)
{
    const struct model_run *run = &m->runs[i];
    TRY(qlog_read(q, run->position, data, error));
    struct made_run made;
    make_run(&made, run, m->payload_max);
    check_head(run, &data->head);
    CHECK_SPAN(data->partition, made.run.partition);
    for (uint32_t r = 0; r < run->count; r++) {
        CHECK(memcmp(data->records[r].message_id.bytes, made.records[r].message_id.bytes, 16) == 0);
        CHECK(span_eq(data->records[r].transaction_id, made.records[r].transaction_id));
        CHECK(span_eq(data->records[r].payload, made.records[r].payload));
    }
    made_deinit(&made);
    return ERR_OK;
}

static enum err check_scan(const struct model *m, struct qlog *q, size_t first, size_t at_a_time,
                           struct error *error)
{
    struct qlog_run_head heads[100];
    ASSERT(at_a_time <= 100);
    uint64_t position = first < m->n ? m->runs[first].position : qlog_end(q);
    size_t i = first;
    for (;;) {
        size_t n = 99;
        uint64_t next = 99;
        TRY(qlog_scan(q, position, qlog_end(q), heads, at_a_time, &n, &next, error));
        if (n == 0)
            break;
        for (size_t h = 0; h < n; h++) {
            CHECK(i < m->n);
            check_head(&m->runs[i++], &heads[h]);
        }
        CHECK_EQ(next, heads[n - 1].next_position);
        position = next;
    }
    CHECK_EQ(i, m->n);
    CHECK_EQ(position, qlog_end(q));
    return ERR_OK;
}

static enum err expect_find(struct qlog *q, uint64_t partition_id, uint64_t offset, uint64_t want,
                            struct error *error)
{
    uint64_t got = 99;
    enum err err = qlog_find(q, partition_id, offset, &got, error);
    if (want == UINT64_MAX && err == ERR_NOT_FOUND) {
        CHECK_EQ(got, 99);
        return ERR_OK;
    }
    if (err != ERR_OK)
        return err;
    CHECK_EQ(got, want);
    return ERR_OK;
}

/* Some runs of a large log, all of a small one. */
static bool sampled(const struct model *m, size_t i)
{
    return i % (m->n / SAMPLES + 1) == 0;
}

/* Every offset of one partition: those below its first run, in each run, behind its last one. */
static enum err check_partition(const struct model *m, struct qlog *q, size_t first,
                                uint64_t partition_id, bool thorough, struct error *error)
{
    uint64_t behind = 0; /* the offset behind the run before */
    for (size_t i = first; i < m->n; i++) {
        const struct model_run *run = &m->runs[i];
        if (run->partition_id != partition_id)
            continue;
        if (run->first_offset > behind)
            TRY(expect_find(q, partition_id, behind, run->position, error));
        for (uint32_t o = 0; o < run->count; o++) {
            if (thorough || ((o == 0 || o + 1 == run->count) && sampled(m, i)))
                TRY(expect_find(q, partition_id, run->first_offset + o, run->position, error));
        }
        behind = run->first_offset + run->count;
    }
    TRY(expect_find(q, partition_id, behind, UINT64_MAX, error));
    TRY(expect_find(q, partition_id, UINT64_MAX, UINT64_MAX, error));
    return ERR_OK;
}

static enum err expect_seek(const struct model *m, struct qlog *q, size_t first, int64_t stamp,
                            struct error *error)
{
    size_t lo = first; /* the first run with stamp >= stamp */
    size_t hi = m->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (m->runs[mid].stamp < stamp)
            lo = mid + 1;
        else
            hi = mid;
    }
    uint64_t right = lo < m->n ? m->runs[lo].position : qlog_end(q);
    uint64_t got = 99;
    TRY(qlog_seek_stamp(q, stamp, &got, error));
    CHECK_EQ(got, right);
    /* Told of any record, right or wrong, it is the same. */
    struct prng rng;
    prng_init(&rng, (uint64_t)stamp);
    for (unsigned i = 0; i < 4; i++) {
        const struct model_run *run = m->n > 0 ? &m->runs[prng_below(&rng, m->n)] : NULL;
        struct qlog_near near = {prng_below(&rng, 10 * (m->partitions + 2)),
                                 prng_below(&rng, 10 * (m->n + 1)), INT64_MAX};
        if (run != NULL && i > 0)
            near = (struct qlog_near){run->partition_id, run->first_offset + prng_below(&rng, 3),
                                      i > 1 ? INT64_MAX : run->stamp + 1};
        got = 99;
        TRY(qlog_seek_stamp_near(q, stamp, &near, &got, error));
        CHECK_EQ(got, right);
    }
    return ERR_OK;
}

enum err model_check(const struct model *m, struct qlog *q, size_t first, bool thorough,
                     struct error *error)
{
    CHECK_EQ(qlog_end(q), model_end(m));
    CHECK_EQ(qlog_start(q), first < m->n ? m->runs[first].position : qlog_end(q));
    TRY(check_scan(m, q, first, 100, error));
    if (thorough) {
        TRY(check_scan(m, q, first, 1, error));
        TRY(check_scan(m, q, first, 7, error));
    }
    struct qlog_run_data data = {0};
    enum err err = ERR_OK;
    for (size_t i = first; i < m->n && err == ERR_OK; i++)
        err = model_check_run(m, q, i, &data, error);
    qlog_run_data_deinit(&data);
    TRY(err);
    for (unsigned p = 0; p < m->partitions; p++) {
        TRY(check_partition(m, q, first, 10 * (p + 1), thorough, error));
        TRY(expect_find(q, 10 * (p + 1) + 5, 0, UINT64_MAX, error));
    }
    TRY(expect_find(q, 0, 0, UINT64_MAX, error));
    TRY(expect_find(q, UINT64_MAX, 0, UINT64_MAX, error));
    for (size_t i = first; i < m->n; i++) {
        for (int64_t d = -1; d <= 1 && (thorough || sampled(m, i)); d++)
            TRY(expect_seek(m, q, first, m->runs[i].stamp + d, error));
    }
    TRY(expect_seek(m, q, first, INT64_MIN, error));
    return expect_seek(m, q, first, INT64_MAX, error);
}
