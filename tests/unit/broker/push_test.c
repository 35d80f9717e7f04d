/* Applying pushes (spec/broker-api.md 2 and 17). */
#include "broker/push.h"

#include "unit/broker/rig.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* broker-api 17.1 */
TEST(three_items_without_ids_get_offsets_and_one_stamp)
{
    struct rig r;
    rig_open(&r);
    struct push_item items[] = {
        rig_item(&r, "orders", "cust-1", NULL, "{\"total\":42.00}"),
        rig_item(&r, "orders", "cust-2", NULL, "null"),
        rig_item(&r, "orders", "cust-1", NULL, "[1, 2]"),
    };
    rig_push(&r, 1, items, 3);
    static const uint64_t offsets[] = {0, 0, 1};
    for (unsigned i = 0; i < 3; i++) {
        CHECK_EQ(r.result.items[i].status, PUSH_QUEUED);
        CHECK_EQ(r.result.items[i].offset, offsets[i]);
        CHECK(memcmp(&r.result.items[i].message_id, &items[i].message_id, 16) == 0);
    }
    CHECK_EQ(r.effects.n, 2);
    const struct qlog_run *run = &r.effects.runs[0].run;
    CHECK_TEXT(run->partition, "cust-1");
    CHECK_EQ(run->count, 2);
    CHECK_EQ(run->first_offset, 0);
    CHECK_EQ(run->stamp, r.clock);
    CHECK_TEXT(run->records[0].payload, "{\"total\":42.00}");
    CHECK_TEXT(run->records[1].payload, "[1, 2]");
    CHECK_TEXT(run->records[1].transaction_id, "00000000-0000-0000-0000-000000000003");
    CHECK_TEXT(r.effects.runs[1].run.partition, "cust-2");
    CHECK_EQ(r.effects.runs[1].run.stamp, r.clock);
    CHECK_EQ(state_meta(r.s)->max_stamp, r.clock);
    struct queue *q = r.effects.runs[0].queue;
    CHECK_EQ(q->last_write_at, r.clock);
    CHECK_EQ(q->partitions[0]->next_offset, 2);
    CHECK_EQ(q->partitions[0]->last_write_at, r.clock);
    rig_close(&r);
}

TEST(an_empty_push_does_nothing)
{
    struct rig r;
    rig_open(&r);
    rig_push(&r, 1, NULL, 0);
    CHECK_EQ(r.effects.n, 0);
    CHECK_EQ(state_queue_count(r.s), 0);
    rig_close(&r);
}

TEST(a_queue_made_by_a_push_has_the_implicit_options)
{
    struct rig r;
    rig_open(&r);
    (void)rig_push_one(&r, 1, "billing.invoices.eu", "p", NULL);
    (void)rig_push_one(&r, 1, "orders", "p", NULL);
    struct queue *q = state_queue_find(r.s, &TENANT_DEFAULT, SPAN_LIT("billing.invoices.eu"));
    CHECK_EQ(q->options.lease_time, 60);
    CHECK_EQ(q->options.retention_sink_hold_max_seconds, 0);
    CHECK_EQ(q->options.dedup_window_seconds, 3600);
    CHECK_EQ(q->options.retry_limit, 3);
    CHECK(q->options.dead_letter_queue);
    CHECK_EQ(q->created_at, RIG_CLOCK + 1);
    CHECK_TEXT(q->namespace_, "billing");
    CHECK_TEXT(q->task, "invoices");
    q = state_queue_find(r.s, &TENANT_DEFAULT, SPAN_LIT("orders"));
    CHECK_TEXT(q->namespace_, "orders");
    CHECK_TEXT(q->task, "");
    rig_close(&r);
}

/* broker-api 17.2 */
TEST(a_repeated_id_answers_with_the_first_ones)
{
    struct rig r;
    rig_open(&r);
    (void)rig_push_one(&r, 1, "q", "p", NULL);
    struct push_item_result first = rig_push_one(&r, 1, "q", "p", "id");
    CHECK_EQ(first.status, PUSH_QUEUED);
    CHECK_EQ(first.offset, 1);
    for (unsigned i = 0; i < 8; i++) {
        struct push_item_result again = rig_push_one(&r, 1, "q", "p", "id");
        CHECK_EQ(again.status, PUSH_DUPLICATE);
        CHECK_EQ(again.offset, 1);
        CHECK(memcmp(&again.message_id, &first.message_id, 16) == 0);
        CHECK_EQ(r.effects.n, 0);
    }
    CHECK_EQ(rig_push_one(&r, 1, "q", "other", "id").status, PUSH_QUEUED);
    CHECK_EQ(rig_push_one(&r, 1, "other", "p", "id").status, PUSH_QUEUED);
    CHECK_EQ(rig_push_one(&r, 1, "q", "p", "").status, PUSH_QUEUED); /* "" is an id */
    CHECK_EQ(rig_push_one(&r, 1, "q", "p", "").status, PUSH_DUPLICATE);
    rig_reopen(&r);
    CHECK_EQ(rig_push_one(&r, 1, "q", "p", "id").status, PUSH_DUPLICATE);
    rig_close(&r);
}

TEST(a_minted_id_counts_as_an_id)
{
    struct rig r;
    rig_open(&r);
    (void)rig_push_one(&r, 1, "q", "p", NULL);
    CHECK_EQ(rig_push_one(&r, 1, "q", "p", "00000000-0000-0000-0000-000000000001").status,
             PUSH_DUPLICATE);
    rig_close(&r);
}

TEST(repeats_within_a_request_need_no_window)
{
    struct rig r;
    rig_open(&r);
    rig_set_window(&r, 1, "q", 0);
    (void)rig_push_one(&r, 1, "q", "p", "id");
    struct push_item items[] = {
        rig_item(&r, "q", "p", "id", "1"), rig_item(&r, "q", "x", "id", "2"),
        rig_item(&r, "q", "p", "id", "3"), rig_item(&r, "q", "p", "jd", "4"),
        rig_item(&r, "q", "p", "id", "5"),
    };
    rig_push(&r, 1, items, COUNT(items));
    const struct push_item_result *got = r.result.items;
    static const uint8_t want[] = {PUSH_QUEUED, PUSH_QUEUED, PUSH_DUPLICATE, PUSH_QUEUED,
                                   PUSH_DUPLICATE};
    for (unsigned i = 0; i < COUNT(want); i++)
        CHECK_EQ(got[i].status, want[i]);
    CHECK_EQ(got[0].offset, 1);
    CHECK_EQ(got[2].offset, 1);
    CHECK_EQ(got[3].offset, 2);
    CHECK_EQ(got[4].offset, 1);
    CHECK(memcmp(&got[4].message_id, &items[0].message_id, 16) == 0);
    CHECK_EQ(r.effects.n, 2);
    CHECK_EQ(r.effects.runs[0].run.count, 2);
    CHECK_TEXT(r.effects.runs[0].run.records[1].payload, "4");
    rig_close(&r);
}

TEST(a_repeat_of_a_duplicate_answers_with_the_original)
{
    struct rig r;
    rig_open(&r);
    struct push_item_result first = rig_push_one(&r, 1, "q", "p", "id");
    struct push_item items[] = {rig_item(&r, "q", "p", "id", "1"),
                                rig_item(&r, "q", "p", "id", "2")};
    rig_push(&r, 1, items, 2);
    for (unsigned i = 0; i < 2; i++) {
        CHECK_EQ(r.result.items[i].status, PUSH_DUPLICATE);
        CHECK(memcmp(&r.result.items[i].message_id, &first.message_id, 16) == 0);
    }
    rig_close(&r);
}

/* Goal: what a queue and its partitions hold is known without a walk, by the bytes of the runs that
 * were handed out, and after a reload too. */
TEST(records_and_bytes_are_counted_on_the_way)
{
    struct rig r;
    uint64_t records = 0, bytes[2] = {0};
    rig_open(&r);
    for (unsigned round = 0; round < 3; round++) { /* ids of the first round come again */
        struct push_item items[] = {
            rig_item(&r, "q", "a", NULL, "[1, 2]"),
            rig_item(&r, "q", "bb", "t", "\"long enough to be seen\""),
            rig_item(&r, "q", "a", "t", "1"),
            rig_item(&r, "q", "a", "t", "2"),
        };
        rig_push(&r, 1, items, COUNT(items));
        for (size_t i = 0; i < r.effects.n; i++) {
            const struct qlog_run *run = &r.effects.runs[i].run;
            records += run->count;
            bytes[run->partition_id - 1] += qlog_run_size(run);
        }
    }
    for (unsigned round = 0; round < 2; round++) {
        struct queue *q = state_queue_find(r.s, &TENANT_DEFAULT, SPAN_LIT("q"));
        CHECK_EQ(records, 5);
        CHECK_EQ(q->records, records);
        CHECK_EQ(q->partition_count, 2);
        for (size_t i = 0; i < q->partition_count; i++)
            CHECK_EQ(q->partitions[i]->log_bytes, bytes[i]);
        rig_reopen(&r);
    }
    CHECK(rig_delete(&r, "q"));
    (void)rig_push_one(&r, 1, "q", "a", "t");
    CHECK_EQ(state_queue_find(r.s, &TENANT_DEFAULT, SPAN_LIT("q"))->records, 1);
    rig_close(&r);
}

TEST(groups_come_in_order_of_first_appearance)
{
    struct rig r;
    rig_open(&r);
    struct push_item items[] = {
        rig_item(&r, "b", "2", NULL, "0"), rig_item(&r, "a", "1", NULL, "1"),
        rig_item(&r, "b", "1", NULL, "2"), rig_item(&r, "b", "2", NULL, "3"),
        rig_item(&r, "a", "1", NULL, "4"), rig_item(&r, "b", "2", NULL, "5"),
    };
    rig_push(&r, 1, items, COUNT(items));
    CHECK_EQ(r.effects.n, 3);
    CHECK_TEXT(r.effects.runs[0].queue->name, "b");
    CHECK_TEXT(r.effects.runs[0].run.partition, "2");
    CHECK_EQ(r.effects.runs[0].run.count, 3);
    CHECK_TEXT(r.effects.runs[0].run.records[2].payload, "5");
    CHECK_TEXT(r.effects.runs[1].queue->name, "a");
    CHECK_TEXT(r.effects.runs[2].run.partition, "1");
    CHECK_EQ(r.result.items[5].offset, 2);
    CHECK_EQ(r.effects.runs[0].queue->id, 1);
    CHECK_EQ(r.effects.runs[2].run.partition_id, 3);
    rig_close(&r);
}

TEST(a_deleted_queue_starts_anew)
{
    struct rig r;
    rig_open(&r);
    (void)rig_push_one(&r, 1, "q", "p", "id");
    CHECK(rig_delete(&r, "q"));
    CHECK(!rig_delete(&r, "q"));
    struct push_item_result again = rig_push_one(&r, 1, "q", "p", "id");
    CHECK_EQ(again.status, PUSH_QUEUED);
    CHECK_EQ(again.offset, 0);
    CHECK_EQ(r.effects.runs[0].queue->id, 2);
    CHECK_EQ(r.effects.runs[0].run.partition_id, 2);
    rig_close(&r);
}

/* Goal: derived ids differ over commands of one entry as over entries, and are version 7. */
TEST(derived_ids_are_unique_within_an_entry)
{
    struct rig r;
    struct push_result result;
    rig_open(&r);
    struct apply_context at = rig_entry(&r, 1);
    for (unsigned i = 0; i < 3; i++) {
        const char *names[] = {"a", "b", "c"};
        struct push_item item = rig_item(&r, names[i], "p", NULL, "1");
        buf_reset(&r.body);
        push_encode(&r.body, &TENANT_DEFAULT, &item, 1);
        push_effects_reset(&r.effects);
        CHECK_EQ(push_apply(r.s, &at, buf_span(&r.body), &r.effects, &result, NULL), ERR_OK);
        push_result_deinit(&result);
        at.ordinal++;
        at.now++;
        at.minted = 0;
    }
    struct uuid ids[6];
    for (unsigned i = 0; i < 3; i++) {
        struct queue *q = state_queue_by_id(r.s, i + 1);
        ids[2 * i] = q->uuid;
        ids[2 * i + 1] = q->partitions[0]->uuid;
    }
    for (unsigned i = 0; i < 6; i++) {
        CHECK_EQ(ids[i].bytes[6] >> 4, 7);
        for (unsigned j = 0; j < i; j++)
            CHECK(memcmp(&ids[i], &ids[j], sizeof(ids[0])) != 0);
    }
    rig_close(&r);
}

/* Method: the same bodies with results and without give equal states and effects. */
TEST(replay_without_results_does_the_same)
{
    struct rig a, b;
    uint8_t da[32], db[32];
    rig_open(&a);
    rig_open(&b);
    for (unsigned i = 0; i < 50; i++) {
        char id[8], partition[8];
        (void)snprintf(id, sizeof(id), "%u", i % 7);
        (void)snprintf(partition, sizeof(partition), "%u", i % 3);
        struct push_item items[] = {rig_item(&a, "q", partition, id, "1"),
                                    rig_item(&a, "q", "x", id, "1"),
                                    rig_item(&a, "q", "x", id, "1")};
        rig_push(&a, 1, items, COUNT(items));
        struct apply_context at = rig_entry(&b, 1);
        push_effects_reset(&b.effects);
        CHECK_EQ(push_apply(b.s, &at, buf_span(&a.body), &b.effects, NULL, NULL), ERR_OK);
        CHECK_EQ(a.effects.n, b.effects.n);
        for (size_t j = 0; j < a.effects.n; j++) {
            CHECK_EQ(a.effects.runs[j].run.count, b.effects.runs[j].run.count);
            CHECK_EQ(a.effects.runs[j].run.first_offset, b.effects.runs[j].run.first_offset);
        }
    }
    state_digest(a.s, da);
    state_digest(b.s, db);
    CHECK(memcmp(da, db, sizeof(da)) == 0);
    rig_close(&a);
    rig_close(&b);
}

TEST(a_run_holds_no_more_than_its_limit)
{
    enum { N = QLOG_RUN_RECORDS_MAX + 5 };
    struct rig r;
    rig_open(&r);
    rig_set_window(&r, 1, "q", 0);
    struct push_item *items = MEM_ARRAY(struct push_item, N);
    for (size_t i = 0; i < N; i++)
        items[i] = rig_item(&r, "q", "p", NULL, "1");
    rig_push(&r, 1, items, N);
    CHECK_EQ(r.effects.n, 2);
    CHECK_EQ(r.effects.runs[0].run.count, QLOG_RUN_RECORDS_MAX);
    CHECK_EQ(r.effects.runs[1].run.count, 5);
    CHECK_EQ(r.effects.runs[1].run.first_offset, QLOG_RUN_RECORDS_MAX);
    CHECK_EQ(r.effects.runs[1].run.stamp, r.clock);
    CHECK_EQ(r.result.items[N - 1].offset, N - 1);
    (void)rig_push_one(&r, 1, "q", "p", NULL);
    CHECK_EQ(r.effects.runs[0].run.first_offset, N);
    mem_free(items);
    rig_close(&r);
}

TEST(many_partitions_in_one_push)
{
    enum { N = 50000 };
    struct rig r;
    rig_open(&r);
    struct push_item *items = MEM_ARRAY(struct push_item, 2 * N);
    char(*names)[12] = mem_new(N * sizeof(*names));
    for (size_t i = 0; i < 2 * N; i++) {
        if (i < N)
            (void)snprintf(names[i], sizeof(names[i]), "p%zu", i);
        items[i] = rig_item(&r, "q", names[i % N], NULL, "1");
    }
    rig_push(&r, 1, items, 2 * N);
    CHECK_EQ(r.effects.n, N);
    for (size_t i = 0; i < N; i++) {
        CHECK_EQ(r.effects.runs[i].run.partition_id, i + 1);
        CHECK_EQ(r.effects.runs[i].run.count, 2);
        CHECK_EQ(r.result.items[N + i].offset, 1);
    }
    mem_free(items);
    mem_free(names);
    rig_close(&r);
}

/* --- damage --- */

static enum err apply_body(struct rig *r, struct span body)
{
    struct apply_context at = rig_entry(r, 1);
    struct push_result result = {NULL, 77};
    push_effects_reset(&r->effects);
    enum err err = push_apply(r->s, &at, body, &r->effects, &result, NULL);
    if (err != ERR_OK) {
        CHECK_EQ(result.n, 77); /* untouched */
        CHECK_EQ(r->effects.n, 0);
    } else {
        push_result_deinit(&result);
    }
    return err;
}

TEST(every_truncation_is_refused_and_changes_nothing)
{
    struct rig r;
    rig_open(&r);
    struct push_item items[] = {rig_item(&r, "q", "p", "id", "1"),
                                rig_item(&r, "q", "p", NULL, "22"),
                                rig_item(&r, "r", "", "jd", "")};
    struct buf body = BUF_INIT;
    push_encode(&body, &TENANT_DEFAULT, items, COUNT(items));
    for (size_t len = 0; len < body.len; len++)
        CHECK_EQ(apply_body(&r, span_make(body.ptr, len)), ERR_CORRUPT);
    CHECK_EQ(state_queue_count(r.s), 0);
    CHECK_EQ(apply_body(&r, buf_span(&body)), ERR_OK);
    buf_putc(&body, 0);
    CHECK_EQ(apply_body(&r, buf_span(&body)), ERR_CORRUPT);
    body.len--;
    body.ptr[20] = 0; /* flags of the first item: no names */
    CHECK_EQ(apply_body(&r, buf_span(&body)), ERR_CORRUPT);
    body.ptr[20] = 5; /* an unknown flag */
    CHECK_EQ(apply_body(&r, buf_span(&body)), ERR_CORRUPT);
    buf_deinit(&body);
    rig_close(&r);
}

TEST_MAIN()
