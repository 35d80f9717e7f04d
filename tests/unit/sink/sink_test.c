/* The driver over a real node: in manual mode with a model bucket (placement, status, metrics,
 * drain and its end, bucket trouble), and with all its threads over a bucket in a folder. */
#include "unit/sink/sink_fixture.h"

#include "base/log.h"
#include "io/pool.h"

#include <ftw.h>

TEST(windows_go_into_the_bucket_and_the_status_says_so)
{
    struct world w;
    world_init(&w, 1);
    start_sink(&w, 0, NULL);
    STATUS(&w, 0, "\"reachable\":null");
    push(&w, "orders");
    push(&w, "orders");
    pass(&w, 20 * SEC);
    STATUS(&w, 0, "\"reachable\":true");
    STATUS(&w, 0,
           "\"placement\":{\"givingBack\":null,\"held\":1,\"nodes\":1,\"queues\":1,\"share\":1}");
    STATUS(&w, 0,
           "\"name\":\"orders\",\"ownedHere\":true,\"partitions\":1,\"records\":2,"
           "\"recordsLost\":0,\"redo\":false,");
    STATUS(&w, 0, "\"health\":{\"ok\":true,\"queues\":1}");
    METRICS(&w, 0, "queen_s3_records_written_total{queue=\"orders\"} 2\n");
    METRICS(&w, 0, "queen_s3_s3_requests_total{op=\"head\",code=\"200\"} 1\n");
    METRICS(&w, 0, "queen_s3_bytes_written_total{queue=\"orders\",format=\"jsonl\"}");
    METRICS(&w, 0, "queen_s3_discovery_partitions{queue=\"orders\"} 1\n");
    METRICS(&w, 0, "# TYPE queen_s3_records_quoted_total counter\n");
    CHECK(objects_under(&w, "queen/tenant=", ".jsonl") >= 1);
    world_deinit(&w);
}

TEST(the_families_come_in_their_order_with_or_without_samples)
{
    static const char *const families[] = {"lag_seconds",
                                           "safe_lag_seconds",
                                           "windows_committed_total",
                                           "records_written_total",
                                           "bytes_written_total",
                                           "records_lost_total",
                                           "window_records",
                                           "window_bytes",
                                           "buffer_bytes",
                                           "fetch_calls_total",
                                           "discovery_partitions",
                                           "s3_requests_total",
                                           "commit_precondition_lost_total",
                                           "checkpoint_age_windows",
                                           "queues_given_back_total",
                                           "records_quoted_total"};
    struct world w;
    world_init(&w, 2);
    start_sink(&w, 0, NULL);
    char *text = metrics_of(&w, 0), *at = text;
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        char line[96];
        (void)snprintf(line, sizeof(line), "# TYPE queen_s3_%s ", families[i]);
        at = strstr(at, line);
        CHECK(at != NULL);
    }
    free(text);
    world_deinit(&w);
}

TEST(new_queues_get_a_task_under_star)
{
    struct world w;
    world_init(&w, 3);
    start_sink(&w, 0, NULL);
    pass(&w, 2 * SEC);
    CHECK_EQ(count(&w, 0, "\"ownedHere\""), 0);
    push(&w, "b");
    push(&w, "a");
    pass(&w, 30 * SEC);
    CHECK_EQ(count(&w, 0, "\"ownedHere\":true"), 2);
    CHECK_EQ(objects_under(&w, "queen/tenant=", "queue=a/"), 1);
    CHECK_EQ(objects_under(&w, "queen/tenant=", "queue=b/"), 1);
    world_deinit(&w);
}

/* Goal: nothing is claimed before the bucket answered, and trouble shows after the first attempt.
 */
TEST(a_bucket_that_is_down_at_the_start_is_probed_for_ever)
{
    struct world w;
    world_init(&w, 4);
    start_sink(&w, 0, (const char *const[]){"QUEEN_S3_QUEUES", "orders", NULL});
    w.models[0]->code = 0;
    w.models[0]->error = "transport: connection refused";
    pass(&w, 10 * SEC);
    STATUS(&w, 0, "\"reachable\":false");
    STATUS(&w, 0, "connection refused");
    STATUS(&w, 0, "\"ok\":false,\"phase\"");
    STATUS(&w, 0, "\"queues\":[]");
    w.models[0]->code = 200;
    w.models[0]->error = "";
    push(&w, "orders");
    pass(&w, 90 * SEC);
    STATUS(&w, 0, "\"reachable\":true");
    STATUS(&w, 0, "\"error\":null,\"name\":\"lake\"");
    CHECK_EQ(objects_under(&w, "queen/tenant=", "queue=orders/"), 1);
    world_deinit(&w);
}

/* --- the probe over an endpoint --- */

static void keep_lines(void *ctx, struct span line)
{
    buf_put_span(ctx, line);
}

static const char *const AT_S3[] = {"QUEEN_S3_QUEUES",
                                    "orders",
                                    "QUEEN_S3_ENDPOINT",
                                    "http://s3.example",
                                    "QUEEN_S3_REGION",
                                    "us-east-1",
                                    "QUEEN_S3_ACCESS_KEY",
                                    "key",
                                    "QUEEN_S3_SECRET_KEY",
                                    "secret",
                                    NULL};

/* The first probe: HEAD answered head_code, and LIST code. error: of bucket.error, in part; NULL
 * none. starts: queues are claimed. */
struct probe_row {
    unsigned head_code, code;
    const char *text, *s3_code;
    const char *reachable, *error;
    bool starts;
    unsigned lists;
};

static const struct probe_row probe_rows[] = {
    {200, 200, "", "", "true", NULL, true, 0},
    {404, 200, "", "", "true", NULL, true, 1},
    {404, 404, "status 404: NoSuchBucket", "NoSuchBucket", "false", "there is no bucket lake",
     false, 1},
    {404, 404, "status 404: X", "XAdminUserNotFound", "false", "QUEEN_S3_ACCESS_KEY", false, 1},
    {404, 403, "status 403: X", "AccessDenied", "true", "grant it s3:ListBucket on", true, 1},
    {404, 503, "status 503: X", "SlowDown", "true",
     "list bucket lake at http://s3.example: status 503: X\"", true, 1},
    {404, 0, "transport: reset", "", "false", "transport: reset", false, 1},
    {403, 403, "status 403: X", "SignatureDoesNotMatch", "false", "QUEEN_S3_SECRET_KEY", false, 1},
    {403, 403, "status 403: X", "AccessDenied", "false", "grant it s3:ListBucket on", false, 1},
    {403, 200, "", "", "false", "grant it s3:GetObject on", false, 1},
    {403, 503, "status 503: X", "SlowDown", "false",
     "head bucket lake at http://s3.example: status 403: ;", false, 1},
    {400, 200, "", "", "false", "head bucket lake at http://s3.example: status 400: ;", false, 1},
    {301, 301, "status 301: X", "PermanentRedirect", "false", "QUEEN_S3_REGION", false, 1},
};

static unsigned requests(struct world *w, const char *op)
{
    char want[64];
    unsigned n = 0;
    struct buf out = BUF_INIT;
    sink_metrics_put(w->sinks[0], &out);
    buf_putc(&out, '\0');
    (void)snprintf(want, sizeof(want), "queen_s3_s3_requests_total{op=\"%s\"", op);
    for (const char *at = (char *)out.ptr; (at = strstr(at, want)) != NULL; at++)
        n += (unsigned)strtoul(strchr(at, ' '), NULL, 10);
    buf_deinit(&out);
    return n;
}

/* Goal: a HEAD without a reason is followed by one LIST, which decides and gives the reason; the
 * first line of the log has it. */
TEST(the_probe_asks_a_list_for_the_reason)
{
    for (size_t i = 0; i < sizeof(probe_rows) / sizeof(probe_rows[0]); i++) {
        const struct probe_row *row = &probe_rows[i];
        struct bucket_clue clue = {.silence = row->code == 0 ? BUCKET_CLOSED : BUCKET_ANSWERED};
        struct buf lines = BUF_INIT;
        struct world w;
        char want[64];
        (void)snprintf(clue.code, sizeof(clue.code), "%s", row->s3_code);
        world_init(&w, 40 + (unsigned)i);
        log_install(keep_lines, NULL, &lines, false);
        start_sink(&w, 0, AT_S3);
        w.models[0]->head_code = row->head_code;
        w.models[0]->code = row->code;
        w.models[0]->error = row->text;
        w.models[0]->clue = &clue;
        pass(&w, SEC / 2);
        log_install(NULL, NULL, NULL, false);
        buf_putc(&lines, '\0');
        (void)snprintf(want, sizeof(want), "\"reachable\":%s", row->reachable);
        const char *line = strstr((char *)lines.ptr, "bucket unreachable");
        STATUS(&w, 0, want);
        if (row->error != NULL)
            STATUS(&w, 0, row->error);
        else
            STATUS(&w, 0, "\"error\":null,\"name\":\"lake\"");
        CHECK_EQ(count(&w, 0, "\"name\":\"orders\""), row->starts);
        if (row->lists == 0 || !row->starts)
            CHECK_EQ(requests(&w, "list"), row->lists);
        CHECK_EQ(line != NULL, !row->starts);
        if (line != NULL) { /* one, and with the reason */
            CHECK(strstr(line + 1, "bucket unreachable") == NULL);
            CHECK(strstr(line, "suppressed=0") != NULL);
            CHECK(memmem(line, strlen(line), row->error, strcspn(row->error, "\"")) != NULL);
        }
        world_deinit(&w);
        buf_deinit(&lines);
    }
}

/* Goal: reachable and the reason stay while probes go on, and a bucket that is put right starts. */
TEST(a_reason_stays_until_the_next_one)
{
    struct bucket_clue clue = {.code = "SignatureDoesNotMatch"};
    struct world w;
    world_init(&w, 60);
    push(&w, "orders");
    start_sink(&w, 0, AT_S3);
    w.models[0]->head_code = w.models[0]->code = 403;
    w.models[0]->error = "status 403: X";
    w.models[0]->clue = &clue;
    for (unsigned i = 0; i < 100; i++) {
        pass(&w, SEC / 5);
        STATUS(&w, 0, "\"reachable\":false");
        STATUS(&w, 0, "QUEEN_S3_SECRET_KEY");
    }
    CHECK(requests(&w, "list") > 2 && requests(&w, "list") < 10);
    w.models[0]->head_code = 404;
    w.models[0]->code = 200;
    pass(&w, 40 * SEC);
    STATUS(&w, 0, "\"reachable\":true");
    STATUS(&w, 0, "\"error\":null,\"name\":\"lake\"");
    CHECK_EQ(count(&w, 0, "\"ownedHere\":true"), 1);
    world_deinit(&w);
}

/* Goal: the error of a queue's write says what to do, and where. */
TEST(a_failed_write_says_what_to_do)
{
    struct bucket_clue clue = {.code = "AccessDenied"};
    struct world w;
    world_init(&w, 61);
    start_sink(&w, 0, AT_S3);
    push(&w, "orders");
    pass(&w, 20 * SEC);
    w.models[0]->code = 403;
    w.models[0]->error = "status 403: X";
    w.models[0]->clue = &clue;
    push(&w, "orders");
    pass(&w, 20 * SEC);
    STATUS(&w, 0,
           "\"error\":\"the access key may not do this: grant it s3:PutObject on the bucket "
           "lake");
    STATUS(&w, 0, "\"message\":\"put queen/tenant=");
    STATUS(&w, 0, ": status 403: X; the access key may not do this: grant it s3:PutObject");
    w.models[0]->code = 200;
    pass(&w, 140 * SEC);
    STATUS(&w, 0, "\"reachable\":true,");
    STATUS(&w, 0, "\"error\":null,\"name\":\"lake\"");
    world_deinit(&w);
}

/* Goal: 5xx for ever at the start leaves reachable alone, but is in the log. */
TEST(a_probe_that_is_answered_5xx_is_logged)
{
    struct bucket_clue clue = {.code = "InternalError"};
    struct buf lines = BUF_INIT;
    struct world w;
    world_init(&w, 62);
    log_install(keep_lines, NULL, &lines, false);
    start_sink(&w, 0, AT_S3);
    w.models[0]->code = 500;
    w.models[0]->error = "status 500: X";
    w.models[0]->clue = &clue;
    pass(&w, 5 * SEC);
    log_install(NULL, NULL, NULL, false);
    buf_putc(&lines, '\0');
    STATUS(&w, 0, "\"reachable\":null");
    STATUS(&w, 0, "head bucket lake at http://s3.example: status 500: X\"");
    CHECK(strstr((char *)lines.ptr, "status 500: X") != NULL);
    world_deinit(&w);
    buf_deinit(&lines);
}

/* decisions.md 14: a 503 leaves reachable alone, no answer and 403 do not. */
TEST(reachable_follows_the_attempts)
{
    struct world w;
    world_init(&w, 5);
    start_sink(&w, 0, NULL);
    push(&w, "orders");
    pass(&w, 20 * SEC);
    w.models[0]->code = 503;
    w.models[0]->error = "status 503: SlowDown";
    push(&w, "orders");
    pass(&w, 10 * SEC);
    STATUS(&w, 0, "\"reachable\":true");
    STATUS(&w, 0, "status 503: SlowDown");
    STATUS(&w, 0, "\"state\":\"upload\"");
    w.models[0]->code = 403;
    w.models[0]->error = "status 403: AccessDenied";
    pass(&w, 70 * SEC);
    STATUS(&w, 0, "\"reachable\":false");
    STATUS(&w, 0, "\"state\":\"failed\"");
    STATUS(&w, 0, "\"health\":{\"limitMs\":30000,\"ok\":false,\"queue\":\"orders\"");
    w.models[0]->code = 200;
    pass(&w, 140 * SEC);
    STATUS(&w, 0, "\"reachable\":true");
    STATUS(&w, 0, "\"state\":\"filling\"");
    CHECK_EQ(objects_under(&w, "queen/tenant=", "queue=orders/"), 2);
    world_deinit(&w);
}

/* Goal: a sink whose queue went to another, and one whose queue is gone, find out that the bucket is back. */
TEST(trouble_does_not_outlive_the_queue_that_met_it)
{
    struct world w;
    world_init(&w, 63);
    start_sink(&w, 0, AT_S3);
    push(&w, "orders");
    pass(&w, 20 * SEC);
    start_sink(&w, 1, AT_S3);
    pass(&w, 5 * SEC);
    w.models[0]->code = 403;
    w.models[0]->error = "status 403: AccessDenied";
    push(&w, "orders");
    pass(&w, 30 * SEC);
    STATUS(&w, 0, "\"reachable\":false");
    STATUS(&w, 1, "\"ownedHere\":true");
    w.models[0]->code = 200;
    uint64_t asked = requests(&w, "head");
    pass(&w, 30 * SEC);
    STATUS(&w, 0, "\"reachable\":false");
    CHECK_EQ(requests(&w, "head"), asked);
    pass(&w, 100 * SEC);
    STATUS(&w, 0, "\"reachable\":true");
    STATUS(&w, 0, "\"error\":null,\"name\":\"lake\"");
    STATUS(&w, 0, "\"heldBy\":\"two/node-1\"");
    pass(&w, 200 * SEC);
    CHECK_EQ(requests(&w, "head"), asked + 1); /* and asks no more */
    world_deinit(&w);
}

TEST(a_drain_releases_leases_and_presence)
{
    struct world w;
    world_init(&w, 6);
    start_sink(&w, 0, NULL);
    push(&w, "orders");
    pass(&w, 20 * SEC);
    CHECK(!sink_drained(w.sinks[0]));
    sink_drain(w.sinks[0]);
    settle(&w);
    CHECK(sink_drained(w.sinks[0]));
    CHECK(sink_wait(w.sinks[0], w.clock.mono + 10 * SEC));
    STATUS(&w, 0, "\"state\":\"drained\"");
    STATUS(&w, 0, "\"phase\":\"stopped\"");
    struct span keys[] = {SPAN_LIT("s3:default:orders:lease"), SPAN_LIT("s3:default:node=one")};
    for (unsigned i = 0; i < 2; i++) {
        struct kv_op get = {.type = KV_GET, .ns = SPAN_LIT("queen-s3"), .key = keys[i]};
        struct kv_result result = {0};
        struct error error;
        bool due;
        struct state *s = node_read_begin(w.node);
        CHECK_EQ(kv_read(s, &TENANT_DEFAULT, &get, 1, node_safe_time(w.node),
                         node_safe_time(w.node), &result, &due, &error),
                 ERR_OK);
        node_read_end(w.node);
        CHECK(!result.ops[0].found);
        kv_result_deinit(&result);
    }
    world_deinit(&w);
}

TEST(a_drain_before_the_probe_succeeded_ends_at_once)
{
    struct world w;
    world_init(&w, 7);
    start_sink(&w, 0, NULL);
    w.models[0]->code = 1;
    pass(&w, SEC);
    sink_drain(w.sinks[0]);
    settle(&w);
    CHECK(sink_drained(w.sinks[0]));
    world_deinit(&w);
}

/* Goal: a PUT that hangs is cut at the end of the grace, and the leases still go. */
TEST(the_end_of_the_grace_cuts_a_hanging_put)
{
    struct world w;
    world_init(&w, 8);
    start_sink(&w, 0, (const char *const[]){"QUEEN_S3_SHUTDOWN_GRACE_MS", "4000", NULL});
    push(&w, "orders");
    pass(&w, 20 * SEC);
    w.models[0]->code = 503;
    w.models[0]->error = "status 503: SlowDown";
    push(&w, "orders");
    pass(&w, 10 * SEC);
    STATUS(&w, 0, "\"state\":\"upload\"");
    sink_drain(w.sinks[0]);
    int64_t deadline = w.clock.mono + 4 * SEC;
    CHECK(!sink_wait(w.sinks[0], deadline));
    pass(&w, 2 * SEC);
    CHECK(!sink_wait(w.sinks[0], deadline));
    CHECK(!w.models[0]->cancelled);
    pass(&w, 1100000); /* inside the last second */
    CHECK(!sink_wait(w.sinks[0], deadline));
    CHECK(w.models[0]->cancelled);
    settle(&w);
    CHECK(sink_drained(w.sinks[0]));
    CHECK(!sink_wait(w.sinks[0], deadline)); /* not by itself */
    world_deinit(&w);
}

/* Goal: two instances share the queues, one is given back at a time, none is held by two. */
TEST(two_instances_share_the_queues)
{
    struct world w;
    char name[2] = "a";
    world_init(&w, 9);
    start_sink(&w, 0, NULL);
    for (name[0] = 'a'; name[0] < 'g'; name[0]++)
        push(&w, name);
    pass(&w, 40 * SEC);
    CHECK_EQ(count(&w, 0, "\"ownedHere\":true"), 6);
    start_sink(&w, 1, NULL);
    for (unsigned i = 0; i < 200; i++) {
        pass(&w, SEC);
        CHECK(count(&w, 0, "\"ownedHere\":true") + count(&w, 1, "\"ownedHere\":true") <= 6);
        CHECK(count(&w, 0, "\"ownedHere\":true") + count(&w, 1, "\"ownedHere\":true") >= 5);
    }
    CHECK_EQ(count(&w, 0, "\"ownedHere\":true"), 3);
    CHECK_EQ(count(&w, 1, "\"ownedHere\":true"), 3);
    METRICS(&w, 0, "queen_s3_queues_given_back_total 3\n");
    METRICS(&w, 1, "queen_s3_queues_given_back_total 0\n");
    CHECK_EQ(count(&w, 0, "\"heldBy\":\"two"), 3);

    /* a node that dies: its queues are taken when the leases have run out */
    while (sim_executor_pump(&w.executor)) {
    }
    w.models[1]->code = 1;
    w.settings[1].node.lease_ttl_ms = 6000;
    struct sink *dead = w.sinks[1];
    w.sinks[1] = NULL;
    pass(&w, 40 * SEC);
    CHECK_EQ(count(&w, 0, "\"ownedHere\":true"), 6);
    w.sinks[1] = dead;
    world_deinit(&w);
}

/* Goal: what shipped is right although the owner changed; k goes on. */
TEST(a_queue_goes_on_at_its_next_owner)
{
    struct world w;
    world_init(&w, 10);
    start_sink(&w, 0, NULL);
    push(&w, "orders");
    pass(&w, 10 * SEC);
    sink_drain(w.sinks[0]);
    settle(&w);
    reboot(&w);
    start_sink(&w, 1, NULL);
    push(&w, "orders");
    pass(&w, 30 * SEC);
    STATUS(&w, 1, "\"k\":2,");
    STATUS(&w, 1, "\"windowsCommitted\":1}");
    CHECK_EQ(objects_under(&w, "queen/tenant=", "w-0000000001-"), 1);
    CHECK_EQ(objects_under(&w, "queen/tenant=", "w-0000000002-"), 1);
    world_deinit(&w);
}

TEST(checkpoints_hold_the_partitions_written_since)
{
    struct world w;
    struct omap_row row;
    struct lake_checkpoint c;
    world_init(&w, 11);
    start_sink(&w, 0, NULL);
    push_size(&w, "orders", "b", 3);
    pass(&w, 15 * SEC);
    push_size(&w, "orders", "a", 3);
    push_size(&w, "orders", "b", 3);
    pass(&w, 15 * SEC);
    CHECK(omap_get(w.objects,
                   SPAN_LIT("queen/_queen/tenant=00000000-0000-0000-0000-000000000001/"
                            "queue=orders/checkpoint/0000000002.json.zst"),
                   &row));
    CHECK_EQ(lake_checkpoint_parse(row.value, &c), ERR_OK);
    CHECK_EQ(c.k, 2);
    CHECK_EQ(c.n, 2);
    CHECK_TEXT(c.rows[0].partition, "a");
    CHECK_EQ(c.rows[0].next_offset, 1);
    CHECK_TEXT(c.rows[1].partition, "b");
    CHECK_EQ(c.rows[1].next_offset, 2);
    CHECK(c.rows[1].has_id);
    lake_checkpoint_deinit(&c);
    METRICS(&w, 0, "queen_s3_checkpoint_age_windows{queue=\"orders\"} 0\n");
    push_size(&w, "orders", "a", 3);
    pass(&w, 15 * SEC);
    METRICS(&w, 0, "queen_s3_checkpoint_age_windows{queue=\"orders\"} 1\n");
    world_deinit(&w);
}

TEST(the_memory_budget_closes_the_largest_window)
{
    struct world w;
    world_init(&w, 12);
    start_sink(&w, 0,
               (const char *const[]){"QUEEN_S3_QUEUES", "big,small", "QUEEN_S3_MEMORY_MB", "1",
                                     "QUEEN_S3_MAX_WINDOW_MS", "3600000", NULL});
    push(&w, "big");
    push(&w, "small");
    pass(&w, 20 * SEC); /* earliest: a first small window each */
    for (unsigned i = 0; i < 13; i++) {
        push_size(&w, "big", "p", 70000);
        push_size(&w, "small", "p", 20000);
    }
    pass(&w, 20 * SEC);
    CHECK_EQ(objects_under(&w, "queen/tenant=", "queue=big/"), 2);
    CHECK_EQ(objects_under(&w, "queen/tenant=", "queue=small/"), 1);
    world_deinit(&w);
}

TEST(a_crash_point_is_fired_and_nothing_follows)
{
    static const char *const names[] = {"after_intent", "mid_upload", "after_upload",
                                        "before_commit", "after_commit"};
    for (unsigned i = 0; i < 5; i++) {
        struct world w;
        world_init(&w, 20 + i);
        start_sink(&w, 0, (const char *const[]){"QUEEN_S3_CRASH_AT", names[i], NULL});
        push(&w, "orders");
        pass(&w, 20 * SEC);
        CHECK_TEXT(span_str(sink_crash_point_name(w.crashed)), names[i]);
        size_t objects = objects_under(&w, "queen/", "");
        CHECK_EQ(objects, i == 0 ? 0 : i == 1 ? 1 : 2);
        pass(&w, 20 * SEC);
        CHECK_EQ(objects_under(&w, "queen/", ""), objects);
        reboot(&w);
        start_sink(&w, 0, NULL);
        pass(&w, 20 * SEC);
        STATUS(&w, 0, "\"k\":1,");
        CHECK_EQ(objects_under(&w, "queen/", ""), 2);
        world_deinit(&w);
    }
}

/* Like pass(), until the queue's window is being built; the build stays in the executor. */
static void pass_to_build(struct world *w)
{
    int64_t wake;
    for (unsigned i = 0; count(w, 0, "\"state\":\"upload\"") == 0 || w->executor.n == 0; i++) {
        CHECK(i < 100000);
        bool did = node_pump_log(w->node);
        did = node_pump_apply(w->node) || did;
        did = sink_pump(w->sinks[0], &wake) || did;
        did = model_pump(w->models[0]) || did;
        if (!did && count(w, 0, "\"state\":\"upload\"") == 0)
            did = sim_executor_pump(&w->executor);
        if (!did)
            sim_clock_advance(&w->clock, 10000);
    }
}

static void kv_done(struct node_request *r)
{
    CHECK_EQ(r->err, ERR_OK);
    *(bool *)r->ctx = true;
}

/* An instance elsewhere takes the queue's lease for a moment. */
static void steal(struct world *w, struct span lease_key)
{
    bool done = false;
    struct kv_op op = {.type = KV_PUT,
                       .ns = SPAN_LIT("queen-s3"),
                       .key = lease_key,
                       .value = SPAN_LIT("{\"incarnation\":\"feedfeedfeedfeed\",\"instance\":"
                                         "\"elsewhere\",\"sinceMs\":1}"),
                       .ttl_seconds = 6};
    struct node_request r = {.type = COMMAND_KV, .done = kv_done, .ctx = &done};
    kv_encode(&r.body, &TENANT_DEFAULT, &op, 1);
    node_submit(w->node, &r);
    while (!done) {
        (void)node_pump_log(w->node);
        (void)node_pump_apply(w->node);
    }
    node_request_deinit(&r);
}

/* Goal: a build that comes late does not put its bytes under another window's key. Method: the
 * executor keeps the build of window 1 until the queue was lost, taken by another instance and came
 * back with window 2 on its way. */
TEST(a_build_of_a_run_that_ended_is_not_uploaded)
{
    struct world w;
    world_init(&w, 13);
    start_sink(&w, 0, (const char *const[]){"QUEEN_S3_QUEUES", "orders", NULL});
    push(&w, "orders");
    pass_to_build(&w);
    struct sim_executor late = w.executor; /* holds the build */
    CHECK_EQ(late.n, 1);
    w.executor.jobs = NULL;
    w.executor.n = w.executor.cap = 0;
    steal(&w, SPAN_LIT("s3:default:orders:lease")); /* the run ends as fenced */
    pass(&w, 5 * SEC);
    CHECK_EQ(count(&w, 0, "\"state\":\"fenced\""), 1);
    pass(&w, 20 * SEC); /* its row expires: window 1 is redone here */
    STATUS(&w, 0, "\"k\":1,");
    w.models[0]->code = 503;
    w.models[0]->error = "status 503: SlowDown";
    push_size(&w, "orders", "p", 500);
    pass(&w, 10 * SEC);
    CHECK_EQ(count(&w, 0, "\"state\":\"upload\""), 1);
    while (sim_executor_pump(&late)) {
    }
    settle(&w);
    w.models[0]->code = 200;
    pass(&w, 30 * SEC);
    STATUS(&w, 0, "\"k\":2,");
    struct omap_row row;
    bool found = false;
    bool any = omap_seek(w.objects, SPAN_LIT("queen/tenant="), false, &row);
    for (; any && !found; any = !found && omap_seek(w.objects, row.key, true, &row))
        found = memmem(row.key.ptr, row.key.len, "/w-0000000002-", 14) != NULL;
    CHECK(found);
    CHECK(row.value.len > 500);
    sim_executor_deinit(&late);
    world_deinit(&w);
}

/* Goal: leaving does not wait for the turn of a beat that was under way when the last queue ended.
 * Method: nothing is committed while the queue drains, so both are. */
TEST(a_beat_under_way_does_not_hold_up_the_end)
{
    struct world w;
    int64_t wake;
    world_init(&w, 14);
    start_sink(&w, 0,
               (const char *const[]){"QUEEN_S3_QUEUES", "orders", "QUEEN_S3_LEASE_TTL_MS", "600000",
                                     NULL});
    pass(&w, SEC); /* the queue is not there: its task waits and holds nothing */
    CHECK_EQ(count(&w, 0, "\"state\":\"missing\""), 1);
    sim_clock_advance(&w.clock, 201 * SEC);
    while (sink_pump(w.sinks[0], &wake)) { /* the beat goes out, and is not committed yet */
    }
    sink_drain(w.sinks[0]);
    while (sink_pump(w.sinks[0], &wake)) {
    }
    pass(&w, SEC);
    CHECK(sink_drained(w.sinks[0]));
    world_deinit(&w);
}

/* Goal: a queue that failed here stays in the verdict until it runs again. */
TEST(a_failed_queue_is_watched_while_it_claims)
{
    struct world w;
    world_init(&w, 15);
    start_sink(&w, 0,
               (const char *const[]){"QUEEN_S3_QUEUES", "a,b,c,d,e,f,g,h,orders",
                                     "QUEEN_S3_LEASE_TTL_MS", "30000", NULL});
    for (char name[2] = "a"; name[0] <= 'h'; name[0]++)
        push(&w, name);
    pass(&w, 40 * SEC);
    w.models[0]->code = 400;
    w.models[0]->error = "status 400: no";
    push(&w, "orders");
    pass(&w, 40 * SEC);
    CHECK_EQ(count(&w, 0, "\"state\":\"failed\""), 1);
    unsigned claiming = 0;
    for (unsigned i = 0; i < 80; i++) {
        pass(&w, SEC);
        claiming += count(&w, 0, "\"state\":\"claiming\"");
        if (i > 20)
            STATUS(&w, 0, "\"ok\":false,\"queue\":\"orders\"");
    }
    CHECK(claiming > 3);
    world_deinit(&w);
}

/* Goal: a bucket that is down costs disk, not memory, however many queues wait for it. */
TEST(objects_that_wait_share_the_memory)
{
    struct world w;
    world_init(&w, 16);
    start_sink(
        &w, 0,
        (const char *const[]){"QUEEN_S3_QUEUES", "a,b,c,d,e", "QUEEN_S3_MEMORY_MB", "1", NULL});
    for (char name[2] = "a"; name[0] <= 'e'; name[0]++)
        push(&w, name);
    pass(&w, 40 * SEC);
    w.models[0]->code = 503;
    w.models[0]->error = "status 503: SlowDown";
    for (char name[2] = "a"; name[0] <= 'e'; name[0]++)
        push_size(&w, name, "p", 700000);
    pass(&w, 12 * SEC);
    CHECK_EQ(count(&w, 0, "\"state\":\"upload\""), 5);
    CHECK(w.models[0]->large_in_memory > 0);
    CHECK(w.models[0]->large_in_files > w.models[0]->large_in_memory);
    w.models[0]->code = 200;
    pass(&w, 70 * SEC);
    CHECK_EQ(count(&w, 0, "\"k\":2,"), 5);
    w.models[0]->large_in_memory = 0; /* there is room again */
    push_size(&w, "a", "p", 700000);
    pass(&w, 12 * SEC);
    CHECK_EQ(w.models[0]->large_in_memory, 1);
    world_deinit(&w);
}

/* Goal: on one node a queue that is new is claimed at once, not after the next count of nodes. */
TEST(a_new_queue_is_part_of_the_fair_share_at_once)
{
    struct world w;
    world_init(&w, 17);
    start_sink(&w, 0,
               (const char *const[]){"QUEEN_S3_LEASE_TTL_MS", "600000",
                                     "QUEEN_S3_DISCOVERY_INTERVAL_MS", "100", NULL});
    push(&w, "first");
    pass(&w, 5 * SEC);
    CHECK_EQ(count(&w, 0, "\"ownedHere\":true"), 1);
    push(&w, "second");
    pass(&w, 5 * SEC);
    CHECK_EQ(count(&w, 0, "\"ownedHere\":true"), 2);
    world_deinit(&w);
}

TEST(a_queue_log_that_cannot_be_read_stops_the_node)
{
    struct world w;
    struct node_status status;
    world_init(&w, 21);
    start_sink(&w, 0, NULL);
    pass(&w, 2 * SEC);
    sim_disk_fail_next(w.disk, SIM_DISK_READ, ERR_IO, 0);
    push(&w, "orders");
    pass(&w, 30 * SEC);
    node_status(w.node, &status);
    CHECK(status.stopped);
    CHECK(strstr(status.failure, "qlog/") != NULL && strstr(status.failure, "offset ") != NULL);
    world_deinit(&w);
}

TEST(a_sink_without_settings_has_an_empty_status)
{
    struct world w;
    struct error error = {0};
    const char *pairs[] = {"QUEEN_S3_EMBEDDED", "true", NULL};
    world_init(&w, 30);
    CHECK_EQ(sink_settings_read(get_pair, pairs, 1, "host", 4, &w.settings[0], &error), ERR_OK);
    struct sink_options o = {.node = w.node,
                             .clock = &w.clock.base,
                             .entropy = &w.entropy.base,
                             .executor = &w.executor.base,
                             .settings = &w.settings[0],
                             .spool_dir = "/tmp",
                             .manual = true};
    CHECK_EQ(sink_start(&o, &w.sinks[0], &error), ERR_OK);
    CHECK(holds(status_of(&w, 0), "\"sinks\":[],\"threads\":1}"));
    CHECK(sink_drained(w.sinks[0]));
    free(metrics_of(&w, 0));
    sink_free(w.sinks[0]);
    sink_boot_settings_deinit(&w.settings[0]);
    w.sinks[0] = NULL;
    world_deinit(&w);
}

/* --- threads --- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static unsigned objects_found;

static int count_object(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    objects_found += type == FTW_F && strstr(path, "/dt=") != NULL;
    return 0;
}

struct threaded_push {
    struct node_request base;
    atomic_bool done;
};

static void threaded_push_done(struct node_request *r)
{
    atomic_store(&((struct threaded_push *)r)->done, true);
}

static enum err open_threaded_db(void *ctx, struct db **out, struct error *error)
{
    (void)error;
    *out = sim_db_new(ctx);
    return ERR_OK;
}

/* Goal: all threads together, several queues, status and metrics read meanwhile, an orderly end.
 * For TSan. */
TEST(with_all_its_threads)
{
    char folder[] = "/tmp/queen-sink-test-XXXXXX", bucket_root[64], endpoint[80];
    struct error error = {0};
    struct node *node;
    struct sink_boot_settings settings;
    struct bucket *bucket;
    struct sink *sink;
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(bucket_root, sizeof(bucket_root), "%s/bucket", folder);
    (void)snprintf(endpoint, sizeof(endpoint), "file://%s/bucket", folder);
    char lake[80];
    (void)snprintf(lake, sizeof(lake), "%s/lake", bucket_root);
    struct disk *disk;
    char data[64];
    (void)snprintf(data, sizeof(data), "%s/data", folder);
    CHECK_EQ(disk_real_open(data, &disk, &error), ERR_OK);
    struct disk *made;
    CHECK_EQ(disk_real_open(lake, &made, &error), ERR_OK); /* makes the bucket's folder */
    disk_real_close(made);

    struct node_options no;
    node_options_default(&no);
    no.disk = disk;
    no.open_db = open_threaded_db;
    struct sim_db_state *rows = sim_db_state_new();
    no.db_ctx = rows;
    no.clock = clock_real();
    no.entropy = entropy_real();
    no.wal_segment_bytes = 1u << 20;
    no.segment_bytes = 1u << 20;
    CHECK_EQ(node_open(&no, &node, &error), ERR_OK);

    const char *pairs[] = {"QUEEN_S3_EMBEDDED",
                           "true",
                           "QUEEN_S3_QUEUES",
                           "*",
                           "QUEEN_S3_ENDPOINT",
                           endpoint,
                           "QUEEN_S3_BUCKET",
                           "lake",
                           "QUEEN_S3_START",
                           "earliest",
                           "QUEEN_S3_MAX_WINDOW_MS",
                           "200",
                           "QUEEN_S3_SAFE_GUARD_MS",
                           "50",
                           "QUEEN_S3_DISCOVERY_INTERVAL_MS",
                           "20",
                           "QUEEN_S3_THREADS",
                           "3",
                           "QUEEN_S3_CHECKPOINT_EVERY",
                           "1",
                           "QUEEN_S3_LEASE_TTL_MS",
                           "1000",
                           "QUEEN_S3_SHUTDOWN_GRACE_MS",
                           "20000",
                           NULL};
    CHECK_EQ(sink_settings_read(get_pair, pairs, 1, "host", 2, &settings, &error), ERR_OK);
    struct pool_executor executor;
    pool_executor_init(&executor, pool_new("sink-test", 2));
    struct file_bucket_options bo = {.path = span_str(bucket_root),
                                     .bucket = SPAN_LIT("lake"),
                                     .instance = span_str(settings.node.instance),
                                     .executor = &executor.base,
                                     .clock = clock_real(),
                                     .entropy = entropy_real()};
    CHECK_EQ(file_bucket_open(&bo, &bucket, &error), ERR_OK);
    struct sink_options so = {.node = node,
                              .clock = clock_real(),
                              .entropy = entropy_real(),
                              .executor = &executor.base,
                              .bucket = bucket,
                              .settings = &settings,
                              .spool_dir = folder};
    CHECK_EQ(sink_start(&so, &sink, &error), ERR_OK);

    enum { PUSHES = 300 };
    for (unsigned i = 0; i < PUSHES; i++) {
        char queue[16], id[16];
        (void)snprintf(queue, sizeof(queue), "q%u", i % 5);
        (void)snprintf(id, sizeof(id), "t%u", i);
        struct push_item item = {.queue = span_str(queue),
                                 .partition = SPAN_LIT("p"),
                                 .transaction_id = span_str(id),
                                 .payload = SPAN_LIT("{\"n\":1}")};
        struct threaded_push p = {.base = {.type = COMMAND_PUSH, .done = threaded_push_done}};
        push_encode(&p.base.body, &TENANT_DEFAULT, &item, 1);
        node_submit(node, &p.base);
        while (!atomic_load(&p.done))
            (void)usleep(200);
        CHECK_EQ(p.base.err, ERR_OK);
        node_request_deinit(&p.base);
        if (i % 20 == 0) {
            struct buf out = BUF_INIT;
            sink_status_put(sink, &out);
            sink_metrics_put(sink, &out);
            buf_deinit(&out);
            (void)usleep(20000);
        }
    }
    uint64_t records = 0;
    for (unsigned i = 0; i < 600 && records < PUSHES; i++) { /* everything arrives */
        struct buf out = BUF_INIT;
        sink_metrics_put(sink, &out);
        buf_putc(&out, '\0');
        records = 0;
        for (unsigned q = 0; q < 5; q++) {
            char line[64];
            (void)snprintf(line, sizeof(line), "queen_s3_records_written_total{queue=\"q%u\"} ", q);
            const char *at = strstr((const char *)out.ptr, line);
            records += at == NULL ? 0 : strtoull(at + strlen(line), NULL, 10);
        }
        buf_deinit(&out);
        (void)usleep(50000);
    }
    CHECK_EQ(records, PUSHES);
    sink_drain(sink);
    CHECK(sink_wait(sink, clock_mono_us(clock_real()) + 20 * SEC));
    node_end(node);
    sink_free(sink);
    pool_free(executor.pool);
    node_close(node);
    sink_boot_settings_deinit(&settings);
    disk_real_close(disk);
    sim_db_state_free(rows);
    objects_found = 0;
    CHECK_EQ(nftw(lake, count_object, 16, FTW_PHYS), 0);
    CHECK(objects_found >= 5);
    CHECK_EQ(nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

TEST_MAIN()
