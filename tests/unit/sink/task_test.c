/* The pure queue task, driven through the model world of task_fixture.h: traces of what it does,
 * and what the lake holds at the end. */
#include "task_fixture.h"

/* A world with a queue and one record in it, task 0 at rest after having read it. */
static void begin(struct fix *f)
{
    fix_init(f);
    fix_create(f);
    fix_start(f, 0);
}

/* Runs on, one answer at a time, until the trace holds `text`: its answer is not taken yet. */
static void until(struct fix *f, const char *text)
{
    for (unsigned i = 0; !fix_traced(f, text); i++) {
        CHECK(i < 100000);
        if (!fix_one(f, 0))
            fix_move(f, f->mono + 1000);
    }
}

/* --- claiming --- */

/* Goal: the whole life of a first window, action by action. */
TEST(a_first_window_goes_from_claim_to_commit)
{
    struct fix f;
    begin(&f);
    fix_push(&f);
    fix_pass(&f, 300000);
    CHECK(fix_traced(&f, "- starting\nkv look\n"));
    CHECK(fix_traced(&f, "kv look\nkv claim\n- owned\nkv restore\nlook up\n- restored\n"
                         "get 0000000001.json\nlook up\nscan\n"));
    CHECK_TEXT(span_str(fix_state(&f)), "filling");
    fix_mark(&f);
    fix_pass(&f, 8 * SEC);
    CHECK(fix_traced(&f, "scan\nkv intent\nbuild 1\nput object\nput 0000000001.json\n"
                         "kv commit\n- committed\nlook up\n"));
    CHECK_EQ(fix_row(&f)->k, 1);
    CHECK_EQ(fix_row(&f)->records, 1);
    CHECK_EQ(fix_judge(&f, true), 1);
    fix_deinit(&f);
}

TEST(a_row_of_an_earlier_life_is_taken_at_once)
{
    struct fix f;
    begin(&f);
    fix_pass(&f, SEC);
    fix_start(&f, 0); /* kill -9, same instance */
    fix_mark(&f);
    fix_settle(&f);
    CHECK(fix_traced(&f, "kv look\nkv take\n- owned\n"));
    fix_deinit(&f);
}

TEST(another_nodes_queue_is_held_and_taken_when_its_lease_expires)
{
    struct fix f;
    begin(&f);
    fix_steal(&f);
    fix_pass(&f, SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "held");
    CHECK_TEXT(buf_span(&fix_row(&f)->held_by), "node-9@z");
    CHECK(!fix_row(&f)->owned_here);
    CHECK(!fix_traced(&f, "kv claim"));
    (void)fix_push(&f); /* the clock moves with traffic */
    fix_pass(&f, 31 * SEC);
    (void)fix_push(&f);
    fix_pass(&f, 31 * SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "filling");
    CHECK(fix_row(&f)->owned_here);
    CHECK_EQ(fix_row(&f)->held_by.len, 0);
    fix_deinit(&f);
}

TEST(a_loaded_node_waits_before_it_claims)
{
    struct fix f;
    begin(&f);
    f.placement.load = 3;
    fix_pass(&f, 2900000);
    CHECK(!fix_traced(&f, "kv claim"));
    fix_pass(&f, 400000);
    CHECK(fix_traced(&f, "kv claim"));
    fix_deinit(&f);
}

TEST(an_unparseable_lease_row_is_somebody_elses)
{
    struct fix f;
    begin(&f);
    fix_put(&f, "lease", "17");
    fix_pass(&f, SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "held");
    CHECK_TEXT(buf_span(&fix_row(&f)->held_by), "unknown");
    fix_deinit(&f);
}

/* --- start --- */

/* Goal: T0 is durable before the first window opens, and a new owner starts there. */
TEST(latest_starts_at_a_durable_t0)
{
    struct fix f;
    fix_init(&f);
    f.settings.start = SINK_LATEST;
    (void)fix_push(&f); /* before: not in the lake */
    fix_start(&f, 0);
    fix_pass(&f, SEC);
    CHECK(fix_traced(&f,
                     "kv restore\nlook up\nkv start\n- restored\nget 0000000001.json\nlook up\n"));
    struct buf value = BUF_INIT;
    struct sink_intent intent;
    CHECK(fix_get(&f, "intent", &value));
    CHECK_EQ(sink_intent_parse(buf_span(&value), &intent), ERR_OK);
    CHECK_EQ(intent.k, 0);
    CHECK_EQ(intent.t_start, intent.t_end);
    int64_t t0 = intent.t_start;
    sink_intent_deinit(&intent);

    (void)fix_push(&f);
    fix_start(&f, 0);
    fix_pass(&f, SEC);
    (void)fix_push(&f);
    fix_pass(&f, 20 * SEC);
    CHECK_EQ(fix_committed_k(&f), fix_row(&f)->k);
    CHECK_EQ(fix_judge(&f, false), 2);
    CHECK(f.records[0].stamp < t0);
    buf_deinit(&value);
    fix_deinit(&f);
}

/* Goal: a bucket that does not answer does not move the start. Method: it is down when the queue is
 * found, and the process ends before it comes back. */
TEST(t0_is_durable_although_the_bucket_is_down)
{
    struct fix f;
    fix_init(&f);
    f.settings.start = SINK_LATEST;
    (void)fix_push(&f); /* before: not in the lake */
    f.bucket_down = true;
    fix_start(&f, 0);
    fix_pass(&f, 2 * SEC);
    (void)fix_push(&f);
    fix_start(&f, 0);
    fix_pass(&f, 2 * SEC);
    f.bucket_down = false;
    fix_pass(&f, 80 * SEC);
    CHECK_EQ(fix_judge(&f, false), 1);
    CHECK_EQ(f.first_seen, 1);
    fix_deinit(&f);
}

TEST(earliest_starts_at_the_floor_of_the_first_stamp)
{
    struct fix f;
    begin(&f);
    fix_push(&f);
    fix_pass(&f, 10 * SEC);
    struct omap_row row;
    CHECK(omap_seek(f.bucket, SPAN_LIT("queen/tenant="), false, &row));
    CHECK(memmem(row.key.ptr, row.key.len, "/w-0000000001-1791007200000000-", 31) != NULL);
    fix_deinit(&f);
}

/* Goal: a queue that is not there is looked for every 5 s, logged once, and found. */
TEST(a_missing_queue_is_looked_for_quietly)
{
    struct fix f;
    fix_init(&f);
    f.settings.start = SINK_LATEST;
    fix_start(&f, 0);
    fix_pass(&f, 3 * SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "missing");
    CHECK(fix_traced(&f, "- missing"));
    CHECK(!fix_traced(&f, "get "));
    fix_mark(&f);
    fix_pass(&f, 30 * SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "missing");
    CHECK(fix_traced(&f, "kv claim"));
    CHECK(!fix_traced(&f, "- missing"));
    CHECK(!fix_traced(&f, "- owned"));
    CHECK(!fix_traced(&f, "- restored"));
    fix_create(&f);
    fix_pass(&f, 6 * SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "filling");
    (void)fix_push(&f);
    fix_pass(&f, 20 * SEC);
    CHECK_EQ(fix_judge(&f, true), 1);
    fix_deinit(&f);
}

/* --- closing --- */

/* Goal: a queue that was missing, then held elsewhere, is not called held by nobody. */
TEST(a_missing_queue_that_nobody_holds_any_more_is_not_held)
{
    struct fix f;
    fix_init(&f);
    fix_start(&f, 0);
    fix_pass(&f, SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "missing");
    fix_steal(&f);
    fix_pass(&f, 10 * SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "held");
    fix_put(&f, "lease", "{\"incarnation\":\"1\",\"instance\":\"node-1@a\",\"sinceMs\":1}");
    for (unsigned i = 0; i < 5000; i++) {
        if (!fix_one(&f, 0))
            fix_move(&f, f.mono + 10000);
        bool held = strcmp(fix_state(&f), "held") == 0;
        CHECK_EQ(held, fix_row(&f)->held_by.len > 0);
    }
    CHECK_TEXT(span_str(fix_state(&f)), "missing");
    fix_deinit(&f);
}

/* Goal: decisions.md 12, with default-like settings and nothing else going on. */
TEST(a_lone_push_is_in_the_bucket_within_window_guard_and_three_seconds)
{
    struct fix f;
    begin(&f);
    f.settings.max_window_ms = 20000;
    fix_start(&f, 0);
    fix_pass(&f, 30 * SEC);
    struct sink_wishes w;
    sink_task_wishes(f.tasks[0].task, &w);
    CHECK_EQ(w.clock_us, WINDOW_NEVER); /* nothing held: no clock entry is asked for */
    CHECK(w.append);
    (void)fix_push(&f);
    fix_tell(&f, 0, SINK_EVENT_WAKE); /* not told of the append: the discovery interval finds it */
    fix_pass(&f, (20 + 5 + 3) * SEC);
    CHECK_EQ(fix_judge(&f, true), 1);
    (void)fix_push(&f); /* and the one after it, which starts a window of its own */
    fix_pass(&f, (20 + 5 + 3) * SEC);
    CHECK_EQ(fix_judge(&f, true), 2);
    fix_deinit(&f);
}

/* Goal: the same from T0 on: the first push is too young for a scan, and without a clock entry
 * nothing would move until the next lease refresh, ten seconds later. */
TEST(a_lone_push_behind_t0_needs_no_other_traffic)
{
    struct fix f;
    begin(&f);
    f.settings.start = SINK_LATEST;
    f.settings.max_window_ms = 1000;
    fix_start(&f, 0);
    fix_pass(&f, 300000);
    for (size_t n = 1; n <= 3; n++) {
        fix_pass(&f, 100000);
        (void)fix_push(&f);
        struct sink_event event = {.type = SINK_EVENT_WAKE, .appended = true, .retry_after_us = -1};
        fix_step(&f, 0, &event);
        fix_pass(&f, 4 * SEC);
        (void)fix_tick(&f); /* a presence beat, which postpones nothing */
        fix_pass(&f, (1 + 5 + 3 - 4) * SEC);
        CHECK_EQ(fix_judge(&f, true), n);
    }
    struct sink_wishes w;
    sink_task_wishes(f.tasks[0].task, &w);
    CHECK_EQ(w.clock_us, WINDOW_NEVER); /* nothing held any more */
    fix_deinit(&f);
}

TEST(an_append_wakes_an_idle_task)
{
    struct fix f;
    begin(&f);
    fix_pass(&f, 3 * SEC);
    fix_mark(&f);
    (void)fix_push(&f);
    struct sink_event event = {.type = SINK_EVENT_WAKE, .appended = true, .retry_after_us = -1};
    fix_step(&f, 0, &event);
    CHECK_TRACE(&f, "look up\n");
    fix_deinit(&f);
}

TEST(a_size_close_ends_at_the_next_record)
{
    struct fix f;
    begin(&f);
    fix_pass(&f, SEC);
    for (unsigned i = 0; i < 7; i++)
        (void)fix_push_weight(&f, 400000);
    int64_t fourth = f.records[3].stamp;
    fix_pass(&f, 9 * SEC); /* 3 records of 400,000 pass 1 MiB */
    CHECK(fix_row(&f)->k >= 2);
    struct omap_row row;
    struct lake_manifest m;
    struct buf key = BUF_INIT;
    lake_key_manifest(&key,
                      &(struct lake_spec){.prefix = SPAN_LIT("queen"),
                                          .tenant = span_str(TENANT_TEXT),
                                          .queue = QUEUE,
                                          .segment_max = 255},
                      1);
    CHECK(omap_get(f.bucket, buf_span(&key), &row));
    CHECK_EQ(lake_manifest_parse(row.value, &m), ERR_OK);
    CHECK_EQ(m.records, 3);
    CHECK_EQ(m.t_end, fourth);
    lake_manifest_deinit(&m);
    buf_deinit(&key);
    fix_pass(&f, 20 * SEC);
    CHECK_EQ(fix_judge(&f, true), 7);
    fix_deinit(&f);
}

TEST(a_scan_in_many_pieces_sees_the_same)
{
    struct fix f;
    begin(&f);
    f.scan_max = 2;
    fix_pass(&f, SEC);
    for (unsigned i = 0; i < 21; i++)
        (void)fix_push_weight(&f, 100000);
    fix_pass(&f, 40 * SEC);
    CHECK_EQ(fix_judge(&f, true), 21);
    fix_deinit(&f);
}

TEST(memory_closes_a_window_early)
{
    struct fix f;
    begin(&f);
    f.settings.max_window_ms = 3600000;
    fix_start(&f, 0);
    (void)fix_push(&f);
    fix_pass(&f, 10 * SEC);
    uint64_t k = fix_row(&f)->k;
    (void)fix_push(&f);
    fix_pass(&f, 10 * SEC);
    CHECK_EQ(fix_row(&f)->k, k);
    CHECK_EQ(fix_row(&f)->buffered, WEIGHT_DEFAULT);
    fix_tell(&f, 0, SINK_EVENT_FORCE);
    fix_settle(&f);
    CHECK_EQ(fix_row(&f)->k, k + 1);
    CHECK_EQ(fix_row(&f)->buffered, 0);
    CHECK_EQ(fix_judge(&f, true), 2);
    fix_deinit(&f);
}

TEST(windows_never_cross_an_hour_and_empty_hours_are_skipped)
{
    struct fix f;
    begin(&f);
    (void)fix_push(&f);
    fix_pass(&f, 1800 * SEC);
    (void)fix_push(&f);
    fix_pass(&f, 5 * 3600 * SEC); /* hours with nothing in them */
    (void)fix_push(&f);
    fix_pass(&f, 60 * SEC);
    CHECK_EQ(fix_row(&f)->k, 3);
    CHECK_EQ(fix_judge(&f, true), 3);
    struct omap_row row;
    struct span from = SPAN_LIT("queen/tenant=");
    unsigned objects = 0;
    while (omap_seek(f.bucket, from, true, &row) &&
           span_starts_with(row.key, SPAN_LIT("queen/tenant="))) {
        from = row.key;
        objects++;
    }
    CHECK_EQ(objects, 3);
    fix_deinit(&f);
}

TEST(complete_through_follows_the_clock_while_nothing_is_held)
{
    struct fix f;
    begin(&f);
    fix_pass(&f, 3 * SEC);
    CHECK(fix_row(&f)->has_complete); /* read and empty */
    int64_t before = fix_row(&f)->complete_through;
    fix_pass(&f, 30 * SEC); /* refreshes move the clock */
    CHECK(fix_row(&f)->complete_through > before);
    int64_t lag;
    CHECK(sink_row_lag(fix_row(&f), &lag));
    CHECK(lag >= 5 * SEC && lag < 12 * SEC);
    fix_deinit(&f);
}

/* --- redo --- */

/* A world whose task died right after `point`. */
static void crash_at(struct fix *f, enum sink_crash_point point)
{
    begin(f);
    f->tasks[0].node.crash_at = point;
    (void)fix_push(f);
    (void)fix_push(f);
    fix_pass(f, 20 * SEC);
    CHECK_TEXT(span_str(fix_state(f)), "crashed");
    f->tasks[0].node.crash_at = SINK_CRASH_NEVER;
    fix_mark(f);
    fix_start(f, 0);
}

TEST(after_intent_leaves_no_object)
{
    struct fix f;
    crash_at(&f, SINK_CRASH_AFTER_INTENT);
    CHECK_EQ(omap_count(f.bucket), 0);
    fix_pass(&f, 20 * SEC);
    CHECK(fix_traced(&f, "get 0000000001.json\nbuild 1\nget 0000000001.json\nput object\n"
                         "put 0000000001.json\nkv commit\n- committed\n"));
    CHECK(!fix_traced(&f, "kv intent"));
    CHECK_EQ(fix_judge(&f, true), 2);
    fix_deinit(&f);
}

TEST(mid_upload_leaves_an_object_without_a_manifest)
{
    struct fix f;
    crash_at(&f, SINK_CRASH_MID_UPLOAD);
    CHECK_EQ(omap_count(f.bucket), 1);
    fix_pass(&f, 20 * SEC);
    CHECK_EQ(fix_judge(&f, true), 2);
    fix_deinit(&f);
}

TEST(a_finished_upload_is_committed_from_its_manifest)
{
    static const enum sink_crash_point points[] = {SINK_CRASH_AFTER_UPLOAD,
                                                   SINK_CRASH_BEFORE_COMMIT};
    for (unsigned i = 0; i < 2; i++) {
        struct fix f;
        crash_at(&f, points[i]);
        CHECK_EQ(omap_count(f.bucket), 2);
        fix_settle(&f);
        CHECK(fix_traced(&f, "get 0000000001.json\n- from manifest\nkv commit\n- committed\n"));
        CHECK(!fix_traced(&f, "build"));
        CHECK_EQ(fix_row(&f)->records, 2);
        CHECK_EQ(fix_judge(&f, true), 2);
        fix_deinit(&f);
    }
}

TEST(after_commit_nothing_is_done_twice)
{
    struct fix f;
    crash_at(&f, SINK_CRASH_AFTER_COMMIT);
    CHECK_EQ(fix_committed_k(&f), 1);
    fix_pass(&f, 20 * SEC);
    CHECK(!fix_traced(&f, "build 1"));
    CHECK_EQ(fix_judge(&f, true), 2);
    fix_deinit(&f);
}

/* Goal: the intent's format stands, whatever today's settings say. */
TEST(a_redo_writes_what_the_intent_names)
{
    struct fix f;
    crash_at(&f, SINK_CRASH_AFTER_INTENT);
    f.settings.compression = SINK_GZIP;
    f.settings.align = SINK_ALIGN_DAY;
    f.settings.prefix = (char *)(uintptr_t) "other";
    fix_start(&f, 0);
    fix_pass(&f, 20 * SEC);
    struct omap_row row;
    CHECK(omap_seek(f.bucket, SPAN_LIT("queen/tenant="), false, &row));
    CHECK(memmem(row.key.ptr, row.key.len, "/hour=06/", 9) != NULL);
    CHECK(memmem(row.key.ptr, row.key.len, ".jsonl", 6) != NULL);
    CHECK(memmem(row.key.ptr, row.key.len, ".gz", 3) == NULL);
    CHECK_EQ(fix_committed_k(&f), 1);
    CHECK(omap_seek(f.bucket, SPAN_LIT("queen/_queen/"), false, &row));
    struct lake_manifest m;
    CHECK_EQ(lake_manifest_parse(row.value, &m), ERR_OK);
    CHECK_TEXT(m.compression, "none");
    CHECK_TEXT(m.writer, "queen-s3/2.0.0 jsonl"); /* of this format, not of today's settings */
    lake_manifest_deinit(&m);
    (void)fix_push(&f); /* the next window is today's */
    fix_pass(&f, 20 * SEC);
    CHECK_EQ(fix_committed_k(&f), 2);
    CHECK(omap_seek(f.bucket, SPAN_LIT("other/tenant="), false, &row));
    CHECK(memmem(row.key.ptr, row.key.len, ".jsonl.gz", 9) != NULL);
    fix_deinit(&f);
}

TEST(an_intent_for_another_bucket_fails_naming_both)
{
    struct fix f;
    crash_at(&f, SINK_CRASH_AFTER_INTENT);
    f.settings.bucket = (char *)(uintptr_t) "pond";
    fix_start(&f, 0);
    fix_pass(&f, 2 * SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "failed");
    CHECK(memmem(fix_row(&f)->error.ptr, fix_row(&f)->error.len, "lake", 4) != NULL);
    CHECK(memmem(fix_row(&f)->error.ptr, fix_row(&f)->error.len, "pond", 4) != NULL);
    CHECK_EQ(omap_count(f.bucket), 0);
    f.settings.bucket = (char *)(uintptr_t) "lake";
    fix_start(&f, 0);
    fix_pass(&f, 20 * SEC);
    CHECK_EQ(fix_judge(&f, true), 2);
    fix_deinit(&f);
}

TEST(an_open_window_whose_log_is_gone_fails_naming_it)
{
    struct fix f;
    crash_at(&f, SINK_CRASH_AFTER_INTENT);
    f.no_log = true;
    fix_pass(&f, 20 * SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "failed");
    CHECK(memmem(fix_row(&f)->error.ptr, fix_row(&f)->error.len, "cannot be found", 15) != NULL);
    f.no_log = false;
    fix_pass(&f, 70 * SEC); /* tried again from scratch after 60 s */
    CHECK_EQ(fix_judge(&f, true), 2);
    fix_deinit(&f);
}

/* Goal: a window with an intent is finished although its queue was deleted, then the run ends
 * missing. */
TEST(the_window_of_a_deleted_queue_is_finished)
{
    struct fix f;
    crash_at(&f, SINK_CRASH_AFTER_INTENT);
    fix_delete(&f);
    fix_pass(&f, 20 * SEC);
    CHECK_EQ(fix_committed_k(&f), 1);
    CHECK_EQ(fix_judge(&f, false), 2);
    CHECK_TEXT(span_str(fix_state(&f)), "missing");
    fix_create(&f); /* pointer and k go on */
    (void)fix_push(&f);
    fix_pass(&f, 30 * SEC);
    CHECK_EQ(fix_committed_k(&f), 2);
    CHECK_EQ(fix_judge(&f, true), 3);
    fix_deinit(&f);
}

/* --- foreign lakes --- */

static void check_foreign(struct fix *f)
{
    size_t before = omap_count(f->bucket);
    struct buf intent = BUF_INIT, now = BUF_INIT;
    (void)fix_get(f, "intent", &intent);
    fix_pass(f, 3 * SEC);
    CHECK_TEXT(span_str(fix_state(f)), "failed");
    CHECK(fix_traced(f, "kv suspect refresh\nkv suspect read\n- stopped\nkv release look\n"
                        "kv release\n"));
    CHECK(memmem(fix_row(f)->error.ptr, fix_row(f)->error.len, "QUEEN_S3_PREFIX", 15) != NULL);
    CHECK_EQ(omap_count(f->bucket), before);
    (void)fix_get(f, "intent", &now);
    CHECK_SPAN(buf_span(&now), buf_span(&intent));
    buf_deinit(&intent);
    buf_deinit(&now);
}

/* A second broker on the same prefix, or a wiped data directory: the bucket knows more than our
 * rows. */
TEST(a_manifest_that_no_intent_names_is_a_foreign_lake)
{
    struct fix f, other;
    begin(&other);
    (void)fix_push(&other);
    fix_pass(&other, 10 * SEC);
    CHECK_EQ(fix_committed_k(&other), 1);

    begin(&f);
    struct omap *ours = f.bucket;
    f.bucket = other.bucket;
    other.bucket = ours;
    (void)fix_push(&f);
    check_foreign(&f);
    fix_deinit(&f);
    fix_deinit(&other);
}

TEST(a_manifest_of_other_bounds_is_a_foreign_lake)
{
    struct fix f;
    crash_at(&f, SINK_CRASH_AFTER_UPLOAD);
    fix_put(&f, "intent",
            "{\"align\":\"hour\",\"bucket\":\"lake\",\"compression\":\"none\",\"endpoint\":"
            "\"file:///tmp/bucket\",\"format\":\"jsonl\",\"k\":1,\"layout\":\"merged\",\"prefix\":"
            "\"queen\",\"queueId\":1,\"segmentMax\":255,\"tEnd\":1791007200000009,\"tStart\":"
            "1791007200000000,\"writer\":\"queen-s3/2.0.0 jsonl+none\"}");
    check_foreign(&f);
    fix_deinit(&f);
}

/* Goal: an older copy of the data whose last window was open does not overwrite what the lake holds
 * behind that window. Method: the lake goes on to window 2, then the rows are set back to the intent
 * of window 1. */
TEST(an_older_copy_with_an_open_window_is_a_foreign_lake)
{
    for (unsigned finished = 0; finished < 2; finished++) {
        struct fix f;
        struct buf key = BUF_INIT;
        struct lake_spec spec = {.prefix = SPAN_LIT("queen"),
                                 .tenant = span_str(TENANT_TEXT),
                                 .queue = QUEUE,
                                 .segment_max = 255};
        struct omap_row row;
        crash_at(&f, finished ? SINK_CRASH_AFTER_UPLOAD : SINK_CRASH_AFTER_INTENT);
        lake_key_manifest(&key, &spec, 2);
        omap_put(f.bucket, buf_span(&key), SPAN_LIT("{\"theirs\":2}"));
        (void)fix_push(&f);
        fix_pass(&f, 20 * SEC);
        CHECK_TEXT(span_str(fix_state(&f)), "failed");
        CHECK(memmem(fix_row(&f)->error.ptr, fix_row(&f)->error.len, "QUEEN_S3_PREFIX", 15) !=
              NULL);
        CHECK_EQ(fix_committed_k(&f), 1);
        CHECK(omap_get(f.bucket, buf_span(&key), &row));
        CHECK_TEXT(row.value, "{\"theirs\":2}");
        buf_deinit(&key);
        fix_deinit(&f);
    }
}

TEST(a_pointer_that_does_not_parse_stops_the_queue)
{
    struct fix f;
    begin(&f);
    fix_put(&f, "committed", "{\"k\":\"many\"}");
    check_foreign(&f);
    CHECK(fix_traced(&f, "- bad pointer"));
    fix_deinit(&f);
}

TEST(an_intent_from_the_future_is_a_foreign_lake)
{
    struct fix f;
    crash_at(&f, SINK_CRASH_AFTER_INTENT);
    fix_put(&f, "intent",
            "{\"align\":\"hour\",\"bucket\":\"lake\",\"compression\":\"none\",\"endpoint\":"
            "\"file:///tmp/bucket\",\"format\":\"jsonl\",\"k\":7,\"layout\":\"merged\",\"prefix\":"
            "\"queen\",\"queueId\":1,\"segmentMax\":255,\"tEnd\":1791007200000009,\"tStart\":"
            "1791007200000000,\"writer\":\"queen-s3/2.0.0 jsonl+none\"}");
    check_foreign(&f);
    fix_deinit(&f);
}

/* Goal: a lease that was lost meanwhile is fenced, not a foreign lake. */
TEST(a_suspicion_without_the_lease_is_fenced)
{
    struct fix f;
    begin(&f);
    fix_put(&f, "committed", "{\"k\":\"many\"}");
    f.fault = FAULT_STEAL;
    f.fault_at = 3; /* look, claim, restore, then the refresh */
    fix_pass(&f, 2 * SEC);
    CHECK(f.fault_fired);
    CHECK_TEXT(span_str(fix_state(&f)), "fenced");
    fix_deinit(&f);
}

TEST(an_intent_that_does_not_parse_is_replaced_at_its_version)
{
    struct fix f;
    begin(&f);
    fix_put(&f, "intent", "[]");
    (void)fix_push(&f);
    fix_pass(&f, 20 * SEC);
    CHECK_EQ(fix_judge(&f, true), 1);
    fix_deinit(&f);
}

/* --- fences --- */

TEST(a_lost_refresh_fences_the_queue)
{
    struct fix f;
    begin(&f);
    fix_pass(&f, 3 * SEC);
    fix_steal(&f);
    fix_mark(&f);
    fix_pass(&f, 11 * SEC);
    CHECK(fix_traced(&f, "kv refresh\n- lease lost\n- fenced\n"));
    CHECK_TEXT(span_str(fix_state(&f)), "fenced");
    CHECK(!fix_row(&f)->owned_here);
    struct buf lease = BUF_INIT; /* the thief's row is left alone */
    CHECK(fix_get(&f, "lease", &lease));
    buf_deinit(&lease);
    fix_deinit(&f);
}

/* Goal: a refresh whose answer was lost was ours all the same. */
TEST(a_refresh_of_unknown_outcome_is_no_loss)
{
    struct fix f;
    begin(&f);
    fix_pass(&f, 3 * SEC);
    for (unsigned i = 0; i < 2; i++) {
        fix_mark(&f);
        f.fault = i == 0 ? FAULT_UNKNOWN_DONE : FAULT_UNKNOWN_NOT;
        f.fault_fired = false;
        struct sink_wishes w;
        sink_task_wishes(f.tasks[0].task, &w);
        while (!fix_traced(&f, "kv refresh")) {
            f.fault_at = UINT32_MAX;
            unsigned before = f.operations;
            fix_mark(&f);
            f.fault_at = before + 1; /* every round is a look-up, the refresh comes behind one */
            f.fault_fired = false;
            fix_pass(&f, 2 * SEC);
        }
        fix_pass(&f, 30 * SEC);
        CHECK(fix_row(&f)->owned_here);
    }
    f.fault = FAULT_NONE;
    (void)fix_push(&f);
    fix_pass(&f, 20 * SEC);
    CHECK_EQ(fix_judge(&f, true), 1);
    CHECK(!fix_traced(&f, "- fenced"));
    fix_deinit(&f);
}

TEST(the_lease_is_refreshed_while_an_upload_hangs)
{
    struct fix f;
    begin(&f);
    fix_pass(&f, 3 * SEC);
    (void)fix_push(&f);
    f.bucket_down = true;
    fix_pass(&f, 120 * SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "upload");
    CHECK(fix_row(&f)->owned_here);
    int64_t lag;
    CHECK(sink_row_lag(fix_row(&f), &lag));
    CHECK(lag > 100 * SEC); /* told while it hangs */
    f.bucket_down = false;
    fix_pass(&f, 80 * SEC);
    CHECK_EQ(fix_judge(&f, true), 1);
    fix_deinit(&f);
}

/* --- retries --- */

TEST(a_put_is_retried_with_backoff_for_ever)
{
    struct fix f;
    begin(&f);
    fix_pass(&f, 3 * SEC);
    (void)fix_push(&f);
    f.bucket_down = true;
    fix_pass(&f, 10 * SEC);
    CHECK(span_starts_with(buf_span(&fix_row(&f)->error),
                           SPAN_LIT("put queen/tenant=" TENANT_TEXT
                                    "/queue=orders/dt=2026-10-03/hour=06/w-0000000001-")));
    CHECK(memmem(fix_row(&f)->error.ptr, fix_row(&f)->error.len, ".jsonl: status 503: trouble",
                 27) != NULL);
    int64_t waited[8];
    unsigned n = 0;
    while (n < 8) {
        struct sink_wishes w;
        sink_task_wishes(f.tasks[0].task, &w);
        fix_mark(&f);
        int64_t from = f.mono;
        while (!fix_traced(&f, "put object"))
            fix_pass(&f, SEC / 10);
        waited[n++] = f.mono - from;
    }
    CHECK(waited[7] >= 44 * SEC && waited[7] <= 76 * SEC); /* 60 s x 0.75..1.25 */
    fix_deinit(&f);
}

TEST(retry_after_is_taken_exactly)
{
    struct fix f;
    begin(&f);
    (void)fix_push(&f);
    until(&f, "build 1");
    f.bucket_down = true;
    until(&f, "put object");
    struct fix_task *t = &f.tasks[0];
    t->pending[t->head % PENDING_MAX].event.retry_after_us = 3 * SEC;
    CHECK(fix_one(&f, 0));
    struct sink_wishes w;
    sink_task_wishes(t->task, &w);
    CHECK_EQ(w.timer_us - f.mono, 3 * SEC);
    fix_deinit(&f);
}

TEST(a_terminal_put_stops_the_queue_for_a_minute)
{
    struct fix f;
    begin(&f);
    (void)fix_push(&f);
    fix_pass(&f, SEC);
    until(&f, "build 1");
    f.fault = FAULT_TERMINAL;
    f.fault_at = f.operations;
    fix_settle(&f);
    CHECK_TEXT(span_str(fix_state(&f)), "failed");
    CHECK(fix_traced(&f, "- stopped"));
    f.fault = FAULT_NONE;
    fix_pass(&f, 70 * SEC);
    CHECK_EQ(fix_judge(&f, true), 1);
    fix_deinit(&f);
}

TEST(an_attempt_inside_a_request_shows_at_once)
{
    struct fix f;
    begin(&f);
    (void)fix_push(&f);
    until(&f, "put object");
    struct fix_task *t = &f.tasks[0];
    struct sink_event event = {.type = SINK_EVENT_ATTEMPT,
                               .op = t->pending[t->head % PENDING_MAX].event.op,
                               .error = SPAN_LIT("transport: refused"),
                               .retry_after_us = -1};
    fix_step(&f, 0, &event);
    CHECK(fix_row(&f)->has_error);
    CHECK(span_starts_with(buf_span(&fix_row(&f)->error), SPAN_LIT("put queen/tenant=")));
    fix_pass(&f, SEC);
    CHECK_EQ(fix_judge(&f, true), 1);
    fix_deinit(&f);
}

TEST(a_failed_scan_waits_a_second)
{
    struct fix f;
    begin(&f);
    (void)fix_push(&f);
    until(&f, "get 0000000001.json\nlook up\n");
    f.fault = FAULT_RETRIABLE;
    f.fault_at = f.operations;
    fix_settle(&f);
    CHECK_TEXT(buf_span(&fix_row(&f)->error), "fetch: disk trouble");
    fix_pass(&f, 20 * SEC);
    CHECK_EQ(fix_judge(&f, true), 1);
    fix_deinit(&f);
}

/* --- checkpoints --- */

TEST(checkpoints_are_written_and_loaded)
{
    struct fix f;
    begin(&f);
    f.tasks[0].node.checkpoint_every = 1;
    for (unsigned i = 0; i < 5; i++) {
        (void)fix_push(&f);
        fix_pass(&f, 20 * SEC);
    }
    CHECK_EQ(fix_row(&f)->k, 5);
    CHECK(fix_traced(&f, "- committed\nget 0000000006.json\nbuild checkpoint 5\n"
                         "put 0000000005.json.zst\nlook up\n"));
    CHECK(fix_row(&f)->has_checkpoint);
    CHECK_EQ(fix_row(&f)->checkpoint_k, 5);
    fix_start(&f, 0);
    fix_mark(&f);
    fix_settle(&f);
    CHECK(fix_traced(&f, "list\nlist\nlist\nget 0000000005.json.zst\n- restored\n"));
    CHECK_EQ(fix_row(&f)->checkpoint_k, 5);
    fix_deinit(&f);
}

static void set_checkpoint(struct fix *f, uint64_t k, const char *text)
{
    struct buf key = BUF_INIT;
    struct lake_spec spec = {.prefix = SPAN_LIT("queen"),
                             .tenant = span_str(TENANT_TEXT),
                             .queue = QUEUE,
                             .segment_max = 255};
    lake_key_checkpoint(&key, &spec, k);
    omap_put(f->bucket, buf_span(&key), span_str(text));
    buf_deinit(&key);
}

/* Five windows, a checkpoint behind the second and the fourth, and a new process. */
static void five_windows(struct fix *f)
{
    begin(f);
    f->tasks[0].node.checkpoint_every = 2;
    for (unsigned i = 0; i < 5; i++) {
        (void)fix_push(f);
        fix_pass(f, 20 * SEC);
    }
    CHECK_EQ(fix_row(f)->k, 5);
    CHECK_EQ(fix_row(f)->checkpoint_k, 4);
    fix_start(f, 0);
    fix_mark(f);
}

TEST(a_seek_is_told_what_the_checkpoint_knows)
{
    struct fix f;
    five_windows(&f);
    int64_t t_end = f.tasks[0].checkpoint.checkpoint.t_end;
    (void)fix_push(&f);
    fix_pass(&f, 20 * SEC);
    CHECK_EQ(f.tasks[0].sought.partition_id, 1);
    CHECK_EQ(f.tasks[0].sought.offset, 104);
    CHECK_EQ(f.tasks[0].sought.below, t_end);
    CHECK(fix_traced(&f, "get 0000000007.json\nbuild checkpoint 6\n"));
    CHECK_EQ(f.tasks[0].checkpoint.checkpoint.since, t_end);
    fix_deinit(&f);
}

/* Goal: one that does not fit the pointer is not used; the next one begins behind the last that was
 * listed, whose window's end the manifest tells. */
TEST(a_checkpoint_that_does_not_fit_is_ignored)
{
    static const char *const texts[] = {"damaged", "3 1", "4 9000000000000000000", "6 1"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct fix f;
        five_windows(&f);
        int64_t t_end = f.tasks[0].checkpoint.checkpoint.t_end;
        set_checkpoint(&f, 4, texts[i]);
        (void)fix_push(&f);
        fix_pass(&f, 20 * SEC);
        CHECK(fix_traced(&f, "- checkpoint unreadable\n- restored\n"));
        CHECK_EQ(f.tasks[0].sought.partition_id, 0);
        CHECK(fix_traced(&f, "get 0000000007.json\nget 0000000005.json\nbuild checkpoint 6\n"));
        CHECK_EQ(f.tasks[0].checkpoint.checkpoint.since, t_end);
        CHECK_EQ(fix_row(&f)->checkpoint_k, 6);
        fix_mark(&f);
        (void)fix_push(&f);
        fix_pass(&f, 20 * SEC);
        (void)fix_push(&f);
        fix_pass(&f, 20 * SEC);
        CHECK(fix_traced(&f, "get 0000000009.json\nbuild checkpoint 8\n")); /* looked up once */
        CHECK_EQ(fix_judge(&f, true), f.n_records);
        fix_deinit(&f);
    }
}

/* One of the last window must have its very end. */
TEST(a_checkpoint_of_another_end_is_ignored)
{
    struct fix f;
    begin(&f);
    f.tasks[0].node.checkpoint_every = 1;
    (void)fix_push(&f);
    fix_pass(&f, 20 * SEC);
    set_checkpoint(&f, 1, "1 5");
    fix_start(&f, 0);
    fix_mark(&f);
    fix_settle(&f);
    CHECK(fix_traced(&f, "- checkpoint unreadable\n- restored\n"));
    fix_deinit(&f);
}

/* Goal: where no list is to be had, the next one begins where the last was due; while its beginning
 * cannot be looked up, none is written rather than a part of one. */
TEST(a_checkpoint_waits_for_its_beginning)
{
    struct fix f;
    five_windows(&f);
    int64_t t_end = f.tasks[0].checkpoint.checkpoint.t_end;
    until(&f, "kv restore\nlook up\n");
    f.bucket_down = true;
    fix_settle(&f);
    f.bucket_down = false;
    CHECK(fix_traced(&f, "list\n- checkpoint not listed\n- restored\n"));
    (void)fix_push(&f);
    until(&f, "get 0000000007.json\n");
    f.bucket_down = true;
    (void)fix_one(&f, 0);
    f.bucket_down = false;
    fix_settle(&f);
    CHECK(fix_traced(&f, "get 0000000005.json\n- checkpoint not written\nlook up\n"));
    for (unsigned i = 0; i < 2; i++) {
        (void)fix_push(&f);
        fix_pass(&f, 20 * SEC);
    }
    CHECK(fix_traced(&f, "get 0000000009.json\nget 0000000005.json\nbuild checkpoint 8\n"));
    CHECK_EQ(f.tasks[0].checkpoint.checkpoint.since, t_end);
    CHECK_EQ(fix_judge(&f, true), f.n_records);
    fix_deinit(&f);
}

TEST(a_checkpoint_is_tried_three_times)
{
    struct fix f;
    begin(&f);
    f.tasks[0].node.checkpoint_every = 1;
    (void)fix_push(&f);
    until(&f, "build checkpoint 1");
    f.bucket_down = true;
    fix_pass(&f, 10 * SEC);
    CHECK(fix_traced(&f, "put 0000000001.json.zst\nput 0000000001.json.zst\n"
                         "put 0000000001.json.zst\n- checkpoint not written\nlook up\n"));
    fix_deinit(&f);
}

/* --- drain --- */

TEST(a_drain_closes_a_window_that_is_worth_it)
{
    struct fix f;
    begin(&f);
    f.settings.max_window_ms = 3600000;
    fix_start(&f, 0);
    (void)fix_push(&f);
    fix_pass(&f, 10 * SEC); /* earliest: window 1 closes at once */
    (void)fix_push(&f);
    fix_pass(&f, 30 * SEC); /* open, 100 bytes, older than 10 s */
    fix_mark(&f);
    fix_tell(&f, 0, SINK_EVENT_STOP);
    fix_settle(&f);
    CHECK_TRACE(&f, "- shutting down\nkv intent\nbuild 2\nput object\nput 0000000002.json\n"
                    "kv commit\n- committed\nkv release look\nkv release\n- drained\n");
    CHECK_TEXT(span_str(fix_state(&f)), "drained");
    struct sink_wishes w;
    sink_task_wishes(f.tasks[0].task, &w);
    CHECK(w.ended);
    struct buf lease = BUF_INIT;
    CHECK(!fix_get(&f, "lease", &lease));
    CHECK_EQ(fix_judge(&f, true), 2);
    buf_deinit(&lease);
    fix_deinit(&f);
}

TEST(a_drain_leaves_young_records_in_the_log)
{
    struct fix f;
    begin(&f);
    f.settings.max_window_ms = 3600000;
    fix_start(&f, 0);
    (void)fix_push(&f);
    fix_pass(&f, 10 * SEC);
    (void)fix_push(&f);
    fix_pass(&f, SEC);
    fix_mark(&f);
    fix_tell(&f, 0, SINK_EVENT_STOP);
    fix_settle(&f);
    CHECK_TRACE(&f, "- shutting down\nkv release look\nkv release\n- drained\n");
    f.settings.max_window_ms = 10000;
    fix_start(&f, 0); /* the next owner ships it */
    fix_pass(&f, 30 * SEC);
    CHECK_EQ(fix_judge(&f, true), 2);
    fix_deinit(&f);
}

TEST(a_queue_given_back_is_not_claimed_for_two_ttls)
{
    struct fix f;
    begin(&f);
    fix_pass(&f, 3 * SEC);
    fix_mark(&f);
    fix_tell(&f, 0, SINK_EVENT_GIVE_BACK);
    fix_settle(&f);
    CHECK_TRACE(&f, "- shutting down\nkv release look\nkv release\n- released\n");
    CHECK_TEXT(span_str(fix_state(&f)), "released");
    fix_mark(&f);
    fix_pass(&f, 55 * SEC);
    CHECK(fix_traced(&f, "kv look"));
    CHECK(!fix_traced(&f, "kv claim"));
    fix_pass(&f, 10 * SEC);
    CHECK(fix_traced(&f, "kv claim"));
    fix_deinit(&f);
}

TEST(the_end_of_the_grace_gives_the_lease_back)
{
    struct fix f;
    begin(&f);
    fix_pass(&f, 3 * SEC);
    (void)fix_push(&f);
    f.bucket_down = true;
    fix_pass(&f, 10 * SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "upload");
    fix_tell(&f, 0, SINK_EVENT_STOP);
    fix_pass(&f, 2 * SEC);
    CHECK_TEXT(span_str(fix_state(&f)), "upload"); /* retried for ever, a drain does not end that */
    fix_tell(&f, 0, SINK_EVENT_CUT);
    fix_settle(&f);
    struct sink_wishes w;
    sink_task_wishes(f.tasks[0].task, &w);
    CHECK(w.ended);
    struct buf lease = BUF_INIT;
    CHECK(!fix_get(&f, "lease", &lease));
    buf_deinit(&lease);
    f.bucket_down = false;
    fix_start(&f, 0); /* the next owner redoes it from the intent */
    fix_pass(&f, 20 * SEC);
    CHECK_EQ(fix_judge(&f, true), 1);
    fix_deinit(&f);
}

/* --- guards --- */

/* Goal: an inconsistency of ours ends the run, not the process, and the task starts again after a
 * minute. */
TEST(an_internal_inconsistency_ends_the_run_only)
{
    struct fix f;
    begin(&f);
    (void)fix_push(&f);
    fix_pass(&f, SEC);
    until(&f, "build 1");
    struct fix_task *t = &f.tasks[0];
    t->pending[t->head % PENDING_MAX].event.built.out.records = 5;
    fix_settle(&f);
    CHECK_TEXT(span_str(fix_state(&f)), "failed");
    CHECK(fix_traced(&f, "- panicked"));
    CHECK(span_starts_with(buf_span(&fix_row(&f)->error), SPAN_LIT("queue task panicked: ")));
    fix_pass(&f, 70 * SEC);
    CHECK_EQ(fix_judge(&f, true), 1);
    fix_deinit(&f);
}

TEST(answers_of_a_run_that_ended_change_nothing)
{
    struct fix f;
    begin(&f);
    fix_pass(&f, 3 * SEC);
    fix_mark(&f);
    static const enum sink_event_type types[] = {
        SINK_EVENT_KV,     SINK_EVENT_QUEUE,      SINK_EVENT_SCANNED, SINK_EVENT_BUILT,
        SINK_EVENT_BUCKET, SINK_EVENT_CHECKPOINT, SINK_EVENT_ATTEMPT};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct sink_event event = {.type = types[i], .op = 999999, .retry_after_us = -1};
        fix_step(&f, 0, &event);
    }
    CHECK_EQ(f.trace.len, 0);
    CHECK_TEXT(span_str(fix_state(&f)), "filling");
    fix_deinit(&f);
}

/* --- sweeps: every fault at every operation --- */

#define SWEEP_OPERATIONS 60

/* Two windows with pushes in between, checkpoints after each, a fault somewhere; then enough quiet
 * time for everything to heal. */
static void run_with_fault(struct fix *f, enum fault fault, unsigned at, enum sink_start start)
{
    fix_init(f);
    f->settings.start = start;
    f->tasks[0].node.checkpoint_every = 1;
    f->fault = fault;
    f->fault_at = at;
    fix_create(f);
    fix_start(f, 0);
    fix_pass(f, SEC);
    for (unsigned i = 0; i < 3; i++) {
        (void)fix_push(f);
        (void)fix_push_weight(f, 700000);
        (void)fix_push_weight(f, 700000);
        fix_pass(f, 8 * SEC);
    }
}

static void heal(struct fix *f)
{
    f->fault = FAULT_NONE;
    for (unsigned i = 0; i < 6; i++) { /* traffic moves the clock: leases expire, windows age */
        fix_pass(f, 40 * SEC);
        (void)fix_push(f);
    }
    fix_pass(f, 40 * SEC);
}

TEST(no_fault_at_any_operation_loses_or_doubles_a_record)
{
    static const enum fault faults[] = {FAULT_RETRIABLE, FAULT_UNKNOWN_DONE, FAULT_UNKNOWN_NOT,
                                        FAULT_TERMINAL,  FAULT_STEAL,        FAULT_CRASH,
                                        FAULT_CRASH_DONE};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        for (unsigned at = 0; at < SWEEP_OPERATIONS; at++) {
            struct fix f;
            run_with_fault(&f, faults[i], at, SINK_EARLIEST);
            bool fired = f.fault_fired;
            if (faults[i] == FAULT_UNKNOWN_DONE || faults[i] == FAULT_UNKNOWN_NOT) {
                CHECK(!fix_traced(&f, "- fenced")); /* our own write is never somebody else's */
                CHECK(!fix_traced(&f, "- precondition lost"));
            }
            heal(&f);
            CHECK(!fix_traced(&f, "- panicked"));
            CHECK_TEXT(span_str(fix_state(&f)), "filling");
            CHECK_EQ(fix_judge(&f, true), f.n_records);
            fix_deinit(&f);
            if (!fired)
                break;
        }
    }
}

TEST(a_fence_at_any_operation_stops_the_queue)
{
    for (unsigned at = 0; at < SWEEP_OPERATIONS; at++) {
        struct fix f;
        run_with_fault(&f, FAULT_STEAL, at, SINK_EARLIEST);
        bool fired = f.fault_fired;
        fix_pass(&f, 11 * SEC); /* the next refresh at the latest */
        CHECK(!fired || fix_traced(&f, "- fenced") || fix_traced(&f, "- held"));
        heal(&f);
        CHECK_EQ(fix_judge(&f, true), f.n_records);
        fix_deinit(&f);
        if (!fired)
            break;
    }
}

/* Goal: under latest whatever is stamped from T0 on is in the lake, wherever the first owner died.
 */
TEST(latest_ships_everything_from_t0_on)
{
    static const enum fault faults[] = {FAULT_RETRIABLE, FAULT_UNKNOWN_DONE, FAULT_UNKNOWN_NOT,
                                        FAULT_STEAL,     FAULT_CRASH,        FAULT_CRASH_DONE};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        for (unsigned at = 0; at < 30; at++) {
            struct fix f;
            run_with_fault(&f, faults[i], at, SINK_LATEST);
            heal(&f);
            size_t total = fix_judge(&f, false);
            CHECK(total > 0);
            CHECK_EQ(total, f.n_records - f.first_seen); /* a tail of the log without holes */
            fix_deinit(&f);
        }
    }
}

TEST(a_stop_at_any_operation_ends_with_the_lease_given_back)
{
    static const enum fault faults[] = {FAULT_STOP, FAULT_CUT};
    for (size_t i = 0; i < 2; i++) {
        for (unsigned at = 0; at < SWEEP_OPERATIONS; at++) {
            struct fix f;
            struct buf lease = BUF_INIT;
            struct sink_wishes w;
            run_with_fault(&f, faults[i], at, SINK_EARLIEST);
            bool fired = f.fault_fired;
            if (fired) {
                sink_task_wishes(f.tasks[0].task, &w);
                CHECK(w.ended);
                CHECK(!fix_get(&f, "lease", &lease));
                (void)fix_judge(&f, false);
                fix_start(&f, 0);
            }
            heal(&f);
            CHECK_EQ(fix_judge(&f, true), f.n_records);
            buf_deinit(&lease);
            fix_deinit(&f);
            if (!fired)
                break;
        }
    }
}

TEST(a_hand_off_at_any_operation_is_safe)
{
    for (unsigned at = 0; at < SWEEP_OPERATIONS; at++) {
        struct fix f;
        run_with_fault(&f, FAULT_GIVE_BACK, at, SINK_EARLIEST);
        bool fired = f.fault_fired;
        heal(&f);
        CHECK_TEXT(span_str(fix_state(&f)), "filling");
        CHECK_EQ(fix_judge(&f, true), f.n_records);
        fix_deinit(&f);
        if (!fired)
            break;
    }
}

/* Goal: the queue deleted between any two steps: what is in the lake stays right, the run ends
 * missing, and the queue made again goes on with the next k. */
TEST(a_deletion_at_any_operation_is_safe)
{
    for (unsigned at = 0; at < SWEEP_OPERATIONS; at++) {
        struct fix f;
        fix_init(&f);
        f.tasks[0].node.checkpoint_every = 1;
        f.fault = FAULT_DELETE;
        f.fault_at = at;
        fix_create(&f);
        (void)fix_push(&f);
        fix_start(&f, 0);
        fix_pass(&f, 25 * SEC);
        bool fired = f.fault_fired;
        if (fired) {
            CHECK_TEXT(span_str(fix_state(&f)), "missing");
            (void)fix_judge(&f, false);
            size_t pins_n;
            const struct pin **pins;
            pins_n = state_pin_list(f.state, &pins);
            CHECK_EQ(pins_n, 0); /* nothing keeps the dead queue's log */
            mem_free(pins);
            fix_create(&f);
        }
        heal(&f);
        (void)fix_judge(&f, true);
        fix_deinit(&f);
        if (!fired)
            break;
    }
}

/* Two nodes and a lease that moves: each window is written by one of them. */
TEST(two_nodes_never_write_one_window_differently)
{
    for (unsigned at = 0; at < 40; at++) {
        struct fix f;
        fix_init(&f);
        f.placement.share = 2;
        f.fault = FAULT_GIVE_BACK;
        f.fault_at = at;
        fix_create(&f);
        fix_start(&f, 0);
        fix_start(&f, 1);
        for (unsigned i = 0; i < 10; i++) {
            (void)fix_push(&f);
            fix_pass(&f, 9 * SEC);
        }
        heal(&f);
        CHECK_EQ(fix_judge(&f, true), f.n_records);
        bool first = fix_row(&f)->owned_here;
        bool second = sink_task_row(f.tasks[1].task)->owned_here;
        CHECK(first != second);
        fix_deinit(&f);
    }
}

TEST_MAIN()
