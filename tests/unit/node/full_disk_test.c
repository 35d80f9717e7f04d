/* The node on a disk that is full, or fails (decisions.md 20, storage rules 5 and 6): manual mode on
 * the simulated disk. */
#include "bench.h"

#include "base/mem.h"

#define BALLAST (256u << 10)
#define OTHERS (3u << 20) /* what other processes have on the disk */
#define MANY 600u

/* --- scaffolding --- */

static void full_init(struct bench *b, uint64_t seed)
{
    bench_init(b, seed);
    b->ballast_bytes = BALLAST;
    uint8_t *others = mem_new(OTHERS); /* zeros */
    sim_disk_put(b->disk, "others", span_make(others, OTHERS));
    mem_free(others);
}

static void full_open(struct bench *b)
{
    enum err err = bench_open(b);
    if (err != ERR_OK)
        print_error("%s\n", b->error.text);
    CHECK_EQ(err, ERR_OK);
}

static void leave_free(struct bench *b, uint64_t bytes)
{
    sim_disk_set_capacity(b->disk, sim_disk_used(b->disk) + bytes);
}

static void make_room(struct bench *b)
{
    sim_disk_set_capacity(b->disk, (uint64_t)64 << 20);
}

static void check_file(struct bench *b, const char *file, size_t size)
{
    struct buf bytes = BUF_INIT;
    CHECK_EQ(sim_disk_get(b->disk, file, &bytes), size > 0);
    CHECK_EQ(bytes.len, size);
    buf_deinit(&bytes);
}

static void check_ballast(struct bench *b, bool there)
{
    check_file(b, "ballast", there ? BALLAST : 0);
}

static void check_reserve(struct bench *b, bool there)
{
    check_file(b, "reserve", there ? BALLAST / 2 : 0);
}

static void look_at_space(struct bench *b)
{
    sim_clock_advance(&b->clock, 1100000);
    node_pump_space(b->node);
}

static struct node_status status_of(struct bench *b)
{
    struct node_status status;
    node_status(b->node, &status);
    return status;
}

static void submit_delete(struct bench *b, struct call *c, const char *queue)
{
    *c = (struct call){.base = {.type = COMMAND_QUEUE_DELETE, .done = call_done}};
    queue_delete_encode(&c->base.body, &TENANT_DEFAULT, span_str(queue));
    node_submit(b->node, &c->base);
}

static void end_call(struct call *c, enum err err)
{
    CHECK_EQ(c->done, 1);
    CHECK_EQ(c->base.err, err);
    node_request_deinit(&c->base);
}

static void check_refused(struct bench *b)
{
    struct call c;
    submit_push(b->node, &c, "refused", "p", "r", "1");
    end_call(&c, ERR_STORAGE_FULL);
}

static char *text_of(size_t len)
{
    char *text = mem_new(len + 1);
    memset(text, '7', len);
    return text;
}

/* No byte is left, and the ballast was spent on a first entry. */
static void into_emergency(struct bench *b)
{
    leave_free(b, 0);
    push(b, "first", "t1", "1", PUSH_QUEUED, 0);
    check_ballast(b, false);
    CHECK(node_storage_full(b->node));
}

static size_t log_folders(struct bench *b)
{
    struct disk_list list = {0};
    CHECK_EQ(disk_list(b->disk, "qlog", &list, &b->error), ERR_OK);
    size_t n = list.count;
    disk_list_deinit(&list);
    return n;
}

/* --- a full disk --- */

TEST(a_full_disk_refuses_writes_and_goes_on_by_itself)
{
    struct bench b;
    struct call c;
    bench_init(&b, 5);
    CHECK_EQ(bench_open(&b), ERR_OK);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    sim_disk_fail_next(b.disk, SIM_DISK_WRITE, ERR_NO_SPACE, 0);
    submit_push(b.node, &c, "q", "p", "t2", "2");
    pump(b.node);
    CHECK_EQ(c.base.err, ERR_STORAGE_FULL);
    node_request_deinit(&c.base);
    CHECK(node_storage_full(b.node));
    sim_clock_advance(&b.clock, 1100000);
    (void)node_pump_log(b.node);
    node_pump_space(b.node);
    CHECK(!node_storage_full(b.node));
    push(&b, "q", "t2", "2", PUSH_QUEUED, 1);
    node_close(b.node);
    bench_deinit(&b);
}

/* Goal: a disk that fills up does not stop what is committed already, nor the deletion that makes
 * room. Method: no byte is left when the entry comes to its queue log. */
TEST(a_full_disk_costs_the_ballast_and_deletions_still_go_through)
{
    struct bench b;
    struct call c = {.base = {.type = COMMAND_QUEUE_DELETE, .done = call_done}};
    full_init(&b, 14);
    CHECK_EQ(bench_open(&b), ERR_OK);
    look_at_space(&b);
    check_ballast(&b, true);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    sim_disk_set_capacity(b.disk, sim_disk_used(b.disk));
    push(&b, "q", "t2", "2", PUSH_QUEUED, 1);
    check_ballast(&b, false);
    CHECK(node_storage_full(b.node));
    struct call refused;
    submit_push(b.node, &refused, "q", "p", "t3", "3");
    CHECK_EQ(refused.base.err, ERR_STORAGE_FULL);
    node_request_deinit(&refused.base);
    queue_delete_encode(&c.base.body, &TENANT_DEFAULT, SPAN_LIT("q"));
    node_submit(b.node, &c.base);
    pump(b.node);
    CHECK_EQ(c.base.err, ERR_OK);
    CHECK(c.base.existed);
    node_request_deinit(&c.base);
    CHECK(node_pump_checkpoint(b.node));

    sim_disk_set_capacity(b.disk, (uint64_t)64 << 20);
    look_at_space(&b);
    CHECK(!node_storage_full(b.node));
    check_ballast(&b, true);
    push(&b, "q", "t3", "3", PUSH_QUEUED, 0);
    node_close(b.node);
    bench_deinit(&b);
}

TEST(a_full_disk_does_not_refuse_the_boot)
{
    struct bench b;
    full_init(&b, 15);
    CHECK_EQ(bench_open(&b), ERR_OK);
    look_at_space(&b);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    node_abandon(b.node);
    sim_disk_kill(b.disk);
    sim_disk_set_capacity(b.disk, sim_disk_used(b.disk));
    CHECK_EQ(bench_open(&b), ERR_OK);
    check_payload(b.node, "q", 0, "1");
    node_close(b.node);
    bench_deinit(&b);
}

TEST(clock_entries_pause_while_there_is_no_ballast)
{
    struct bench b;
    full_init(&b, 20);
    full_open(&b);
    into_emergency(&b);
    CHECK(node_clock_paused(b.node));
    uint64_t entries = status_of(&b).entries;
    sim_clock_advance(&b.clock, 1000000);
    node_request_clock_entry(b.node);
    pump(b.node);
    CHECK_EQ(status_of(&b).entries, entries);
    make_room(&b);
    look_at_space(&b);
    check_ballast(&b, true);
    CHECK(!node_clock_paused(b.node));
    pump(b.node); /* what was asked for is made now */
    CHECK_EQ(status_of(&b).entries, entries + 1);
    node_close(b.node);
    bench_deinit(&b);
}

/* Goal: a checkpoint always fits into the ballast's room. Method: many small entries are committed
 * when the disk fills up; apply holds a quarter of the ballast and one entry at most. */
TEST(what_a_checkpoint_must_write_stays_small_while_there_is_no_ballast)
{
    struct bench b;
    static struct call calls[MANY];
    char name[16];
    full_init(&b, 21);
    full_open(&b);
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "p%u", i);
        submit_push(b.node, &calls[i], "q", name, name, "1");
        CHECK(node_pump_log(b.node));
    }
    leave_free(&b, 0);
    unsigned checkpoints = 0;
    while (status_of(&b).applied < MANY) {
        if (node_pump_apply(b.node))
            CHECK(status_of(&b).dirty_bytes < BALLAST / 4 + 4096);
        else
            CHECK(++checkpoints < 50 && node_pump_checkpoint_due(b.node) &&
                  node_pump_checkpoint(b.node));
    }
    CHECK(checkpoints > 1);
    check_ballast(&b, false);
    for (unsigned i = 0; i < MANY; i++)
        end_call(&calls[i], ERR_OK);
    node_close(b.node);
    bench_deinit(&b);
}

TEST(a_checkpoint_is_due_before_it_outgrows_the_ballast)
{
    struct bench b;
    full_init(&b, 29);
    full_open(&b);
    for (unsigned i = 0; i < MANY && !node_pump_checkpoint_due(b.node); i++) {
        char name[16];
        snprintf(name, sizeof(name), "t%u", i);
        push(&b, "q", name, "1", PUSH_QUEUED, i);
        CHECK(status_of(&b).dirty_bytes < BALLAST / 4 + 4096);
    }
    CHECK(node_pump_checkpoint_due(b.node));
    node_close(b.node);
    bench_deinit(&b);
}

TEST(a_checkpoint_runs_at_once_when_the_ballast_was_given_up)
{
    struct bench b;
    full_init(&b, 22);
    full_open(&b);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    CHECK(!node_pump_checkpoint_due(b.node));
    into_emergency(&b);
    CHECK(node_pump_checkpoint_due(b.node));
    CHECK(node_pump_checkpoint(b.node));
    CHECK(!node_pump_checkpoint_due(b.node));
    struct call c;
    submit_delete(&b, &c, "q");
    pump(b.node);
    end_call(&c, ERR_OK);
    CHECK(node_pump_checkpoint_due(b.node)); /* it makes room */
    CHECK_EQ(log_folders(&b), 2);
    CHECK(node_pump_checkpoint(b.node));
    CHECK_EQ(log_folders(&b), 1);
    node_close(b.node);
    bench_deinit(&b);
}

/* Goal: a deleted queue's files go although nothing more is written. Method: a reader has them when
 * the checkpoint is made. */
TEST(a_reader_only_delays_that_a_deletion_makes_room)
{
    struct bench b;
    struct call c;
    full_init(&b, 36);
    full_open(&b);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    struct qlog *log = node_log_ref(b.node, 1);
    CHECK(log != NULL);
    submit_delete(&b, &c, "q");
    pump(b.node);
    end_call(&c, ERR_OK);
    CHECK(node_pump_checkpoint(b.node));
    CHECK_EQ(log_folders(&b), 1);
    CHECK(!node_pump_checkpoint_due(b.node));
    node_log_unref(b.node, log);
    CHECK(node_pump_checkpoint_due(b.node));
    CHECK(!node_pump_checkpoint(b.node)); /* not for another checkpoint */
    CHECK_EQ(log_folders(&b), 0);
    CHECK(!node_pump_checkpoint_due(b.node));
    node_close(b.node);
    bench_deinit(&b);
}

TEST(the_ballast_is_made_again_below_low_only)
{
    struct bench b;
    full_init(&b, 23);
    b.high_pct = 90;
    b.low_pct = 50;
    full_open(&b);
    into_emergency(&b);
    sim_disk_set_capacity(b.disk, sim_disk_used(b.disk) * 10 / 6); /* 60 % used */
    look_at_space(&b);
    check_ballast(&b, false);
    CHECK(node_storage_full(b.node));
    sim_disk_set_capacity(b.disk, sim_disk_used(b.disk) * 10 / 4);
    look_at_space(&b);
    check_ballast(&b, true);
    CHECK(!node_storage_full(b.node));
    node_close(b.node);
    bench_deinit(&b);
}

/* Goal: an entry that ran out of room in its middle neither holds the state's lock, nor reaches a
 * checkpoint, and is finished later. Method: its second run fails, with nothing to give up; it has
 * also deleted the queue of its third run. */
TEST(an_entry_left_half_way_lets_reads_go_on)
{
    struct bench b;
    struct call one, two, three, gone;
    bench_init(&b, 24); /* no ballast */
    CHECK_EQ(bench_open(&b), ERR_OK);
    push(&b, "a", "t0", "0", PUSH_QUEUED, 0);
    submit_push(b.node, &one, "a", "p", "t1", "1");
    submit_push(b.node, &two, "b", "p", "t2", "2");
    submit_push(b.node, &three, "c", "p", "t3", "3");
    submit_delete(&b, &gone, "c");
    CHECK(node_pump_log(b.node));
    int64_t safe_time = node_safe_time(b.node);
    sim_disk_fail_next(b.disk, SIM_DISK_WRITE, ERR_NO_SPACE, 1);
    CHECK(!node_pump_apply(b.node));
    CHECK_EQ(one.done + two.done + three.done + gone.done, 0);
    CHECK_EQ(node_safe_time(b.node), safe_time);
    CHECK_EQ(status_of(&b).applied, 1);
    CHECK(!status_of(&b).stopped);
    check_payload(b.node, "a", 0, "0"); /* would wait for the lock for ever */
    CHECK(!node_pump_checkpoint(b.node));
    check_refused(&b);
    CHECK(node_pump_apply(b.node));
    end_call(&one, ERR_OK);
    end_call(&two, ERR_OK);
    end_call(&three, ERR_OK);
    end_call(&gone, ERR_OK);
    CHECK(node_pump_checkpoint(b.node));
    CHECK_EQ(log_folders(&b), 2);
    node_abandon(b.node);
    sim_disk_crash(b.disk, &b.prng);
    CHECK_EQ(bench_open(&b), ERR_OK);
    check_payload(b.node, "a", 1, "1");
    check_payload(b.node, "b", 0, "2");
    node_close(b.node);
    bench_deinit(&b);
}

TEST(a_node_with_an_entry_half_way_ends_and_starts_again)
{
    struct bench b;
    struct call one, two, behind;
    for (unsigned orderly = 0; orderly < 2; orderly++) {
        bench_init(&b, 25);
        CHECK_EQ(bench_open(&b), ERR_OK);
        submit_push(b.node, &one, "a", "p", "t1", "1");
        submit_push(b.node, &two, "b", "p", "t2", "2");
        CHECK(node_pump_log(b.node));
        submit_push(b.node, &behind, "c", "p", "t3", "3");
        CHECK(node_pump_log(b.node));
        sim_disk_fail_next(b.disk, SIM_DISK_WRITE, ERR_NO_SPACE, 1);
        CHECK(!node_pump_apply(b.node));
        leave_free(&b, 0);
        if (orderly)
            node_close(b.node);
        else
            node_abandon(b.node);
        end_call(&one, ERR_STOPPED);
        end_call(&two, ERR_STOPPED);
        end_call(&behind, ERR_STOPPED);
        sim_disk_kill(b.disk);
        make_room(&b);
        CHECK_EQ(bench_open(&b), ERR_OK);
        check_payload(b.node, "a", 0, "1");
        check_payload(b.node, "b", 0, "2");
        check_payload(b.node, "c", 0, "3");
        node_close(b.node);
        bench_deinit(&b);
    }
}

/* Goal: what was admitted always fits. Method: the margin (a quarter of the ballast) and twice what
 * is under way are left free, or one byte less. */
TEST(admission_leaves_twice_the_room_of_what_is_under_way)
{
    struct bench b;
    struct call big, small, tiny;
    full_init(&b, 26);
    full_open(&b);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    CHECK(node_pump_checkpoint(b.node));
    look_at_space(&b);
    leave_free(&b, BALLAST / 4 + 2 * 40000 + 2000);
    look_at_space(&b);
    CHECK(!node_storage_full(b.node));
    char *text = text_of(30000);
    submit_push(b.node, &big, "q", "p", "t2", text);
    CHECK_EQ(big.done, 0);
    submit_push(b.node, &small, "q", "p", "t3", text); /* 60000 with the one before */
    end_call(&small, ERR_STORAGE_FULL);
    CHECK(!node_storage_full(b.node)); /* one that fits is taken */
    submit_push(b.node, &tiny, "q", "p", "t4", "1");
    pump(b.node);
    end_call(&big, ERR_OK);
    end_call(&tiny, ERR_OK);
    leave_free(&b, BALLAST / 4 + 2 * 20000);
    look_at_space(&b);
    submit_push(b.node, &tiny, "q", "p", "t5", "1");
    end_call(&tiny, ERR_STORAGE_FULL);
    CHECK(node_storage_full(b.node)); /* for the moment */
    CHECK(!node_clock_paused(b.node));
    leave_free(&b, BALLAST / 4 + 2 * 40000);
    look_at_space(&b); /* 30000 are not checkpointed */
    submit_push(b.node, &small, "q", "p", "t3", text);
    end_call(&small, ERR_STORAGE_FULL);
    CHECK(node_pump_checkpoint_due(b.node));
    CHECK(node_pump_checkpoint(b.node));
    leave_free(&b, BALLAST / 4 + 2 * 40000);
    look_at_space(&b);
    submit_push(b.node, &small, "q", "p", "t3", text);
    pump(b.node);
    end_call(&small, ERR_OK);
    check_ballast(&b, true); /* nobody met a full disk */
    mem_free(text);
    node_close(b.node);
    bench_deinit(&b);
}

TEST(a_write_without_room_in_the_log_lets_the_deletion_in_it_through)
{
    struct bench b;
    struct call more, gone;
    full_init(&b, 27);
    full_open(&b);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    char *text = text_of(100000); /* a segment of its own */
    submit_push(b.node, &more, "q", "p", "t2", text);
    submit_delete(&b, &gone, "q");
    leave_free(&b, 4096);
    CHECK(node_pump_log(b.node));
    end_call(&more, ERR_STORAGE_FULL);
    CHECK_EQ(gone.done, 0);
    check_ballast(&b, false);
    pump(b.node);
    end_call(&gone, ERR_OK);
    mem_free(text);
    node_close(b.node);
    bench_deinit(&b);
}

/* Goal: the state database never meets a full disk. */
TEST(a_checkpoint_that_would_not_fit_is_not_begun)
{
    struct bench b;
    full_init(&b, 28);
    full_open(&b);
    for (unsigned i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof(name), "t%u", i);
        push(&b, "q", name, "1", PUSH_QUEUED, i);
    }
    into_emergency(&b);
    leave_free(&b, 100);
    uint64_t writes = sim_db_state_writes(b.rows);
    CHECK(!node_pump_checkpoint(b.node));
    CHECK_EQ(sim_db_state_writes(b.rows), writes);
    CHECK(!status_of(&b).stopped);
    make_room(&b);
    CHECK(node_pump_checkpoint(b.node));
    CHECK_EQ(sim_db_state_writes(b.rows), writes + 1);
    node_close(b.node);
    bench_deinit(&b);
}

/* Goal: the ballast is not made and given up in turns. Method: there is room, but the database says
 * there is none. */
TEST(a_database_without_room_keeps_the_gate_shut_until_it_has_some)
{
    for (unsigned with = 0; with < 2; with++) {
        struct bench b;
        bench_init(&b, 37);
        b.ballast_bytes = with ? BALLAST : 0;
        full_open(&b);
        look_at_space(&b);
        push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
        for (unsigned i = 0; i < 40; i++) {
            look_at_space(&b);
            check_ballast(&b, with && i == 0);
            CHECK(i == 0 || node_storage_full(b.node));
            CHECK(node_pump_checkpoint_due(b.node));
            sim_db_fail_next_write(b.db, ERR_NO_SPACE);
            CHECK(!node_pump_checkpoint(b.node));
            check_refused(&b);
            if (i > 0)
                CHECK(!node_pump_checkpoint_due(b.node)); /* in a second */
        }
        sim_clock_advance(&b.clock, 1100000);
        CHECK(node_pump_checkpoint(b.node));
        node_pump_space(b.node);
        check_ballast(&b, with);
        push(&b, "q", "t2", "2", PUSH_QUEUED, 1);
        node_close(b.node);
        bench_deinit(&b);
    }
}

/* --- full at boot --- */

TEST(a_boot_without_a_whole_ballast_starts_with_the_gate_shut)
{
    for (unsigned there = 0; there < 2; there++) {
        struct bench b;
        full_init(&b, 30 + there);
        b.low_pct = 50;
        full_open(&b);
        push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
        node_abandon(b.node);
        sim_disk_kill(b.disk);
        CHECK_EQ(disk_unlink(b.disk, "ballast", &b.error), ERR_OK);
        if (there)
            sim_disk_put(b.disk, "ballast", SPAN_LIT("half of it"));
        sim_disk_set_capacity(b.disk, sim_disk_used(b.disk) * 10 / 6); /* 60 % */
        full_open(&b);
        check_ballast(&b, false);
        check_refused(&b);
        check_payload(b.node, "q", 0, "1");
        make_room(&b);
        look_at_space(&b);
        check_ballast(&b, true);
        push(&b, "q", "t2", "2", PUSH_QUEUED, 1);
        node_close(b.node);
        bench_deinit(&b);
    }
}

static void remove_files(struct bench *b, const char *folder, const char *head)
{
    struct disk_list list = {0};
    char path[80];
    CHECK_EQ(disk_list(b->disk, folder, &list, &b->error), ERR_OK);
    for (size_t i = 0; i < list.count; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, list.entries[i].name);
        if (strncmp(list.entries[i].name, head, strlen(head)) == 0)
            CHECK_EQ(disk_unlink(b->disk, path, &b->error), ERR_OK);
    }
    disk_list_deinit(&list);
}

/* A disk with no room for what the log holds above the checkpoint, and no ballast: a power cut took
 * what apply had written, somebody else has its place. `b` is closed. */
static void full_below_the_log(struct bench *b, struct call *kept, struct call *gone)
{
    char *text = text_of(20000);
    push(b, "bulk", "t1", text, PUSH_QUEUED, 0);
    CHECK(node_pump_checkpoint(b->node));
    submit_push(b->node, kept, "kept", "p", "t2", text);
    CHECK(node_pump_log(b->node));
    submit_delete(b, gone, "bulk");
    pump(b->node);
    end_call(kept, ERR_OK);
    end_call(gone, ERR_OK);
    node_abandon(b->node);
    sim_disk_kill(b->disk);
    CHECK_EQ(disk_unlink(b->disk, "ballast", &b->error), ERR_OK);
    CHECK_EQ(disk_unlink(b->disk, "reserve", &b->error), ERR_OK);
    remove_files(b, "wal", "spare"); /* they would be room */
    remove_files(b, "qlog/2", "");
    leave_free(b, 3000);
    mem_free(text);
}

/* Goal: nothing acknowledged is lost, and the node works meanwhile. Method: an entry and a deletion
 * behind it are in the log; the entry does not fit any more, and there is no ballast. */
TEST(a_boot_on_a_full_disk_opens_behind_what_does_not_fit)
{
    struct bench b;
    struct call kept, gone, more;
    full_init(&b, 32);
    full_open(&b);
    full_below_the_log(&b, &kept, &gone);
    CHECK_EQ(bench_open(&b), ERR_NO_SPACE); /* without being told to */
    b.open_behind = true;
    full_open(&b);
    struct node_status status = status_of(&b);
    CHECK_EQ(status.applied, 1);
    CHECK_EQ(status.committed, 3);
    CHECK(node_is_behind(b.node));
    CHECK(status.storage_full && !status.stopped);
    check_refused(&b);
    struct state *s = node_read_begin(b.node);
    CHECK(state_queue_find(s, &TENANT_DEFAULT, SPAN_LIT("bulk")) != NULL);
    node_read_end(b.node);
    submit_delete(&b, &more, "nothing"); /* taken, behind the others */
    CHECK(node_pump_log(b.node));
    CHECK(!node_pump_apply(b.node));
    look_at_space(&b);
    check_ballast(&b, false); /* never while that goes on */
    CHECK_EQ(more.done, 0);

    make_room(&b);
    look_at_space(&b);
    check_ballast(&b, false);
    pump(b.node);
    end_call(&more, ERR_OK);
    CHECK(!more.base.existed);
    CHECK_EQ(status_of(&b).applied, 4);
    CHECK(!node_is_behind(b.node));
    CHECK(node_pump_checkpoint(b.node));
    CHECK_EQ(log_folders(&b), 1);
    look_at_space(&b);
    check_ballast(&b, true);
    push(&b, "kept", "t3", "3", PUSH_QUEUED, 1);
    node_close(b.node);
    bench_deinit(&b);
}

TEST(a_kill_while_the_boot_is_behind_loses_nothing)
{
    struct bench b;
    struct call kept, gone, more;
    full_init(&b, 33);
    full_open(&b);
    full_below_the_log(&b, &kept, &gone);
    b.open_behind = true;
    for (unsigned i = 0; i < 3; i++) {
        full_open(&b);
        submit_delete(&b, &more, "nothing");
        CHECK(node_pump_log(b.node));
        node_abandon(b.node);
        end_call(&more, ERR_STOPPED);
        sim_disk_crash(b.disk, &b.prng);
    }
    make_room(&b);
    full_open(&b);
    CHECK_EQ(status_of(&b).applied, 6);
    char *text = text_of(20000);
    check_payload(b.node, "kept", 0, text);
    mem_free(text);
    node_close(b.node);
    bench_deinit(&b);
}

/* Goal: the deletion that frees the disk waits behind the entry that does not fit, at boot: the
 * ballast is what gets them both applied. */
TEST(a_boot_on_a_full_disk_gets_out_of_it_by_the_ballast)
{
    struct bench b;
    struct call kept, gone;
    full_init(&b, 34);
    full_open(&b);
    full_below_the_log(&b, &kept, &gone);
    char *ballast = text_of(BALLAST);
    sim_disk_put(b.disk, "ballast", span_make(ballast, BALLAST));
    mem_free(ballast);
    leave_free(&b, 3000);
    b.open_behind = true;
    full_open(&b);
    CHECK_EQ(status_of(&b).applied, 3);
    check_refused(&b);
    CHECK(node_pump_checkpoint_due(b.node));
    CHECK(node_pump_checkpoint(b.node));
    CHECK_EQ(log_folders(&b), 1);
    node_close(b.node);
    bench_deinit(&b);
}

/* Goal: a start on a disk without a byte serves all the same. Method: nothing else is left to give
 * up, so that without the reserve it is refused. */
TEST(a_boot_without_a_byte_takes_the_reserve)
{
    for (unsigned there = 0; there < 2; there++) {
        struct bench b;
        full_init(&b, 38 + there);
        full_open(&b);
        push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
        check_reserve(&b, true);
        node_abandon(b.node);
        sim_disk_kill(b.disk);
        CHECK_EQ(disk_unlink(b.disk, "ballast", &b.error), ERR_OK);
        if (!there)
            CHECK_EQ(disk_unlink(b.disk, "reserve", &b.error), ERR_OK);
        remove_files(&b, "wal", "spare");
        leave_free(&b, 0);
        b.open_behind = true;
        if (!there) {
            CHECK_EQ(bench_open(&b), ERR_NO_SPACE);
        } else {
            full_open(&b);
            check_reserve(&b, false);
            check_refused(&b);
            check_payload(b.node, "q", 0, "1");
            CHECK(node_pump_checkpoint(b.node));
            make_room(&b);
            look_at_space(&b);
            check_ballast(&b, true);
            check_reserve(&b, true);
            push(&b, "q", "t2", "2", PUSH_QUEUED, 1);
            node_close(b.node);
        }
        bench_deinit(&b);
    }
}

/* Goal: while the node runs the reserve is not for it. */
TEST(a_full_disk_costs_a_running_node_no_reserve)
{
    struct bench b;
    full_init(&b, 42);
    full_open(&b);
    into_emergency(&b);
    leave_free(&b, 0);
    struct call c;
    char *text = text_of(100000);
    submit_push(b.node, &c, "q", "p", "t2", text);
    end_call(&c, ERR_STORAGE_FULL);
    mem_free(text);
    for (unsigned i = 0; i < 3; i++)
        look_at_space(&b);
    check_ballast(&b, false);
    check_reserve(&b, true);
    node_close(b.node);
    bench_deinit(&b);
}

/* --- a failing disk --- */

/* A life that meets every kind of call. Ends at the first answer that is not ERR_OK; *acked_out of
 * the pushes were acknowledged. */
static void busy_life(struct bench *b, unsigned *acked_out)
{
    char *text = text_of(9000);
    char id[16];
    for (unsigned i = 0; i < 24; i++) {
        struct call c, gone;
        snprintf(id, sizeof(id), "t%u", i);
        submit_push(b->node, &c, "q", "p", id, text);
        pump(b->node);
        bool ok = c.base.err == ERR_OK;
        node_request_deinit(&c.base);
        if (!ok)
            break;
        *acked_out = i + 1;
        submit_push(b->node, &c, "other", "p", id, text);
        pump(b->node);
        node_request_deinit(&c.base);
        if (i % 6 == 3) {
            submit_delete(b, &gone, "other");
            pump(b->node);
            node_request_deinit(&gone.base);
        }
        if (i % 3 == 2)
            (void)node_pump_checkpoint(b->node);
        look_at_space(b);
    }
    mem_free(text);
}

/* Goal: whichever call fails with EIO, or a sync with whatever: the node stops for good, or the
 * failure did not matter; and a restart on a healed disk has everything acknowledged. */
static unsigned fail_each(enum sim_disk_op op, enum err err, bool may_pass)
{
    char *text = text_of(9000);
    unsigned hits = 0;
    for (uint64_t skip = 0;; skip++) {
        struct bench b;
        unsigned acked = 0;
        full_init(&b, 40 + skip);
        full_open(&b);
        uint64_t before = sim_disk_count(b.disk, op);
        sim_disk_fail_next(b.disk, op, err, skip);
        busy_life(&b, &acked);
        bool hit = sim_disk_count(b.disk, op) - before > skip;
        struct node_status status = status_of(&b);
        if (hit && !may_pass && !status.stopped)
            print_error("op %d, call %llu: the node went on\n", (int)op, (unsigned long long)skip);
        CHECK(!hit || may_pass || status.stopped);
        CHECK(hit || (!status.stopped && acked == 24));
        if (status.stopped) {
            struct call c;
            submit_push(b.node, &c, "q", "p", "late", "1");
            end_call(&c, ERR_STOPPED);
            CHECK(!node_pump_checkpoint(b.node));
        }
        node_close(b.node);
        sim_disk_crash(b.disk, &b.prng); /* what a failed sync lost is lost */
        full_open(&b);
        for (unsigned i = 0; i < acked; i++)
            check_payload(b.node, "q", i, text);
        node_close(b.node);
        bench_deinit(&b);
        if (!hit)
            break;
        hits++;
    }
    mem_free(text);
    return hits;
}

TEST(a_failed_sync_stops_the_node_whichever_it_is)
{
    CHECK(fail_each(SIM_DISK_DATASYNC, ERR_NO_SPACE, false) > 24);
    CHECK(fail_each(SIM_DISK_SYNC_ALL, ERR_NO_SPACE, false) > 4);
    CHECK(fail_each(SIM_DISK_SYNC_DIR, ERR_IO, false) > 4);
}

TEST(an_error_of_the_disk_stops_the_node_whichever_call_it_is)
{
    CHECK(fail_each(SIM_DISK_WRITE, ERR_IO, false) > 48);
    CHECK(fail_each(SIM_DISK_PREALLOCATE, ERR_IO, false) > 0);
    CHECK(fail_each(SIM_DISK_RENAME, ERR_IO, false) > 1);
    CHECK(fail_each(SIM_DISK_MKDIR, ERR_IO, false) > 1);
    CHECK(fail_each(SIM_DISK_UNLINK, ERR_IO, false) > 2);
    CHECK(fail_each(SIM_DISK_RMDIR, ERR_IO, false) > 1);
    CHECK(fail_each(SIM_DISK_OPEN, ERR_IO, true) > 24); /* also the look for LOCK */
}

TEST(a_ballast_that_cannot_be_removed_stops_the_node)
{
    struct bench b;
    struct call c;
    full_init(&b, 35);
    full_open(&b);
    leave_free(&b, 0);
    sim_disk_fail_next(b.disk, SIM_DISK_UNLINK, ERR_IO, 1); /* behind that of the torn segment */
    submit_push(b.node, &c, "q", "p", "t1", "1");
    pump(b.node);
    CHECK(status_of(&b).stopped);
    CHECK(strstr(status_of(&b).failure, "ballast") != NULL);
    node_close(b.node);
    end_call(&c, ERR_STOPPED);
    bench_deinit(&b);
}

TEST(a_ballast_that_cannot_be_removed_refuses_the_boot)
{
    struct bench b;
    full_init(&b, 39);
    full_open(&b);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    node_abandon(b.node);
    sim_disk_kill(b.disk);
    leave_free(&b, 0);
    sim_disk_fail_next(b.disk, SIM_DISK_UNLINK, ERR_IO, 0);
    CHECK_EQ(bench_open(&b), ERR_IO);
    CHECK(strstr(b.error.text, "ballast") != NULL);
    full_open(&b);
    check_payload(b.node, "q", 0, "1");
    node_close(b.node);
    bench_deinit(&b);
}

/* Without space a call may be made again, so the node must not stop. */
TEST(a_lack_of_space_never_stops_the_node)
{
    static const enum sim_disk_op ops[] = {SIM_DISK_WRITE, SIM_DISK_PREALLOCATE, SIM_DISK_OPEN,
                                           SIM_DISK_RENAME, SIM_DISK_MKDIR};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        for (uint64_t skip = 0; skip < 60; skip++) {
            struct bench b;
            unsigned acked = 0;
            full_init(&b, 100 + skip);
            full_open(&b);
            sim_disk_fail_next(b.disk, ops[i], ERR_NO_SPACE, skip);
            busy_life(&b, &acked);
            if (status_of(&b).stopped)
                print_error("op %d, call %u: %s\n", (int)ops[i], (unsigned)skip,
                            status_of(&b).failure);
            CHECK(!status_of(&b).stopped);
            look_at_space(&b);
            CHECK(!node_storage_full(b.node));
            check_ballast(&b, true);
            node_close(b.node);
            bench_deinit(&b);
        }
    }
}

TEST_MAIN()
