/* Configuring and deleting queues (spec/broker-api.md 3, 11 and 17.3). */
#include "broker/configure.h"

#include "unit/broker/rig.h"

static struct configure_request request_for(const char *queue)
{
    return (struct configure_request){.tenant = TENANT_DEFAULT, .queue = span_str(queue)};
}

TEST(a_new_queue_has_the_documented_defaults_and_no_labels)
{
    struct rig r;
    struct configure_result result;
    rig_open(&r);
    struct configure_request request = request_for("a.b");
    rig_configure(&r, 1, &request, &result);
    const struct queue_options *o = &result.options;
    CHECK_EQ(o->lease_time, 300);
    CHECK_EQ(o->retry_limit, 3);
    CHECK_EQ(o->retry_delay, 1000);
    CHECK_EQ(o->ttl, 3600);
    CHECK(o->dead_letter_queue && o->dlq_after_max_retries);
    CHECK(!o->retention_enabled && !o->encryption_enabled);
    CHECK_EQ(o->dedup_window_seconds, 3600);
    CHECK_EQ(o->retention_sink_hold_max_seconds, 604800);
    CHECK_EQ(o->max_size + o->priority + o->delayed_processing + o->window_buffer, 0);
    CHECK_EQ(o->retention_sink_hold[0], 0);
    CHECK_EQ(result.namespace_.len + result.task.len, 0);
    CHECK(memcmp(&result.queue_uuid, &state_queue_by_id(r.s, 1)->uuid, 16) == 0);
    configure_result_deinit(&result);
    rig_close(&r);
}

TEST(options_left_out_are_kept_and_null_resets)
{
    struct rig r;
    struct configure_result result;
    rig_open(&r);
    struct configure_request request = request_for("q");
    request.set = 1u << QUEUE_OPTION_lease_time | 1u << QUEUE_OPTION_retention_sink_hold |
                  1u << QUEUE_OPTION_dead_letter_queue;
    request.options.lease_time = -5;
    request.options.dead_letter_queue = false;
    memcpy(request.options.retention_sink_hold, "lake", 5);
    request.namespace_set = true;
    request.namespace_ = SPAN_LIT("ns");
    rig_configure(&r, 1, &request, &result);
    struct uuid uuid = result.queue_uuid;
    configure_result_deinit(&result);

    request = request_for("q");
    request.reset = 1u << QUEUE_OPTION_lease_time;
    request.task_set = true;
    request.task = SPAN_LIT("task");
    rig_configure(&r, 1, &request, &result);
    CHECK_EQ(result.options.lease_time, 300);
    CHECK(!result.options.dead_letter_queue);
    CHECK(strcmp(result.options.retention_sink_hold, "lake") == 0);
    CHECK_TEXT(buf_span(&result.namespace_), "ns");
    CHECK_TEXT(buf_span(&result.task), "task");
    CHECK(memcmp(&uuid, &result.queue_uuid, 16) == 0);
    configure_result_deinit(&result);

    request.reset = (1u << QUEUE_OPTION_COUNT) - 1; /* mode replace */
    rig_configure(&r, 1, &request, &result);
    CHECK(result.options.dead_letter_queue);
    CHECK_EQ(result.options.retention_sink_hold[0], 0);
    configure_result_deinit(&result);
    CHECK_EQ(state_queue_count(r.s), 1);
    CHECK_EQ(state_queue_by_id(r.s, 1)->created_at, RIG_CLOCK + 1);
    rig_close(&r);
}

TEST(merging_into_a_pushed_queue_keeps_its_implicit_options)
{
    struct rig r;
    rig_open(&r);
    (void)rig_push_one(&r, 1, "a.b", "p", NULL);
    rig_set_window(&r, 1, "a.b", 7);
    struct queue *q = state_queue_by_id(r.s, 1);
    CHECK_EQ(q->options.lease_time, 60);
    CHECK_EQ(q->options.retention_sink_hold_max_seconds, 0);
    CHECK_EQ(q->options.dedup_window_seconds, 7);
    CHECK_TEXT(q->task, "b");
    CHECK_EQ(q->partition_count, 1);
    rig_close(&r);
}

TEST(labels_are_the_first_two_parts_of_a_name)
{
    static const char *const cases[][3] = {
        {"billing.invoices.eu", "billing", "invoices"},
        {"orders", "orders", ""},
        {".x", "", "x"},
        {"a.", "a", ""},
        {"", "", ""},
        {"..", "", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct span namespace_, task;
        queue_labels_from_name(span_str(cases[i][0]), &namespace_, &task);
        CHECK_TEXT(namespace_, cases[i][1]);
        CHECK_TEXT(task, cases[i][2]);
    }
}

static enum err apply_body(struct rig *r, struct span body)
{
    struct apply_context at = rig_entry(r, 1);
    struct configure_result result;
    enum err err = configure_apply(r->s, &at, body, &result, NULL);
    if (err == ERR_OK)
        configure_result_deinit(&result);
    return err;
}

TEST(damaged_bodies_are_refused_and_change_nothing)
{
    struct rig r;
    rig_open(&r);
    struct configure_request request = request_for("q");
    request.set = 1u << QUEUE_OPTION_retention_sink_hold_max_seconds |
                  1u << QUEUE_OPTION_retention_enabled | 1u << QUEUE_OPTION_retention_sink_hold;
    request.options.retention_sink_hold_max_seconds = 60;
    memcpy(request.options.retention_sink_hold, "lake", 5);
    request.namespace_set = request.task_set = true;
    request.namespace_ = SPAN_LIT("ns");
    struct buf body = BUF_INIT;
    configure_encode(&body, &request);
    for (size_t len = 0; len < body.len; len++)
        CHECK_EQ(apply_body(&r, span_make(body.ptr, len)), ERR_CORRUPT);
    static const struct {
        size_t at;
        uint8_t value;
    } damage[] = {
        {19, 0x80}, /* an option that does not exist */
        {20, 0xFF}, /* an option set and reset */
        {24, 4},    /* an unknown flag */
        {25, 2},    /* retentionEnabled */
        {26, 65},   /* the hold's length */
        {27, 0},    /* a NUL in it */
        {31, 59},   /* below the range */
    };
    for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
        struct buf bad = BUF_INIT;
        buf_put_span(&bad, buf_span(&body));
        bad.ptr[damage[i].at] = damage[i].value;
        if (damage[i].at == 20)
            memset(bad.ptr + 20, 0xFF, 4);
        CHECK_EQ(apply_body(&r, buf_span(&bad)), ERR_CORRUPT);
        buf_deinit(&bad);
    }
    CHECK_EQ(state_queue_count(r.s), 0);
    CHECK_EQ(apply_body(&r, buf_span(&body)), ERR_OK);
    buf_deinit(&body);
    rig_close(&r);
}

TEST(deleting_says_whether_it_was_there)
{
    struct rig r;
    rig_open(&r);
    (void)rig_push_one(&r, 1, "q", "p", NULL);
    CHECK(!rig_delete(&r, "other"));
    CHECK(rig_delete(&r, "q"));
    CHECK(!rig_delete(&r, "q"));
    struct apply_context at = rig_entry(&r, 1);
    CHECK_EQ(queue_delete_apply(r.s, &at, SPAN_LIT("short"), NULL, NULL), ERR_CORRUPT);
    rig_close(&r);
}

TEST_MAIN()
