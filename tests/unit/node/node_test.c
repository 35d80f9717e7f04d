/* The node over a simulated disk (manual mode) and over a real one (threads). */
#include "io/pool.h"

#include "base/mem.h"
#include "bench.h"

#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* --- manual mode --- */

TEST(a_push_is_answered_after_commit_and_apply_and_reads_back)
{
    struct bench b;
    struct call c;
    bench_init(&b, 1);
    CHECK_EQ(bench_open(&b), ERR_OK);
    submit_push(b.node, &c, "q", "p", "t1", "{\"a\":42.00}");
    CHECK_EQ(c.done, 0);
    CHECK(node_pump_log(b.node));
    CHECK_EQ(c.done, 0); /* durable, not applied */
    CHECK_EQ(node_safe_time(b.node), 0);
    CHECK(node_pump_apply(b.node));
    CHECK_EQ(c.done, 1);
    CHECK_EQ(c.base.push.items[0].offset, 0);
    CHECK_EQ(node_safe_time(b.node), c.base.now);
    node_request_deinit(&c.base);
    check_payload(b.node, "q", 0, "{\"a\":42.00}");
    node_close(b.node);
    bench_deinit(&b);
}

TEST(acknowledged_records_and_dedup_survive_a_power_cut_at_every_step)
{
    for (unsigned checkpoints = 0; checkpoints < 4; checkpoints++) {
        struct bench b;
        bench_init(&b, 10 + checkpoints);
        CHECK_EQ(bench_open(&b), ERR_OK);
        push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
        if (checkpoints & 1)
            CHECK(node_pump_checkpoint(b.node));
        push(&b, "q", "t2", "2", PUSH_QUEUED, 1);
        push(&b, "q", "t1", "1", PUSH_DUPLICATE, 0);
        if (checkpoints & 2)
            CHECK(node_pump_checkpoint(b.node));
        node_abandon(b.node);
        sim_disk_crash(b.disk, &b.prng);
        CHECK_EQ(bench_open(&b), ERR_OK);
        check_payload(b.node, "q", 0, "1");
        check_payload(b.node, "q", 1, "2");
        push(&b, "q", "t2", "2", PUSH_DUPLICATE, 1);
        push(&b, "q", "t3", "3", PUSH_QUEUED, 2);
        node_close(b.node);
        bench_deinit(&b);
    }
}

TEST(the_log_clock_rises_when_the_wall_clock_steps_back)
{
    struct bench b;
    bench_init(&b, 2);
    CHECK_EQ(bench_open(&b), ERR_OK);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    int64_t before = node_safe_time(b.node);
    b.clock.wall -= 300 * INT64_C(1000000);
    push(&b, "q", "t2", "2", PUSH_QUEUED, 1);
    int64_t after = node_safe_time(b.node);
    CHECK(after > before);
    sim_clock_advance(&b.clock, 10 * 1000000);
    CHECK_EQ(node_clock_estimate(b.node), after + 5 * 1000000); /* half the monotonic time */
    struct node_status status;
    node_status(b.node, &status);
    CHECK(status.clock_ahead_seconds > 280 && status.clock_ahead_seconds < 300);
    node_close(b.node);
    bench_deinit(&b);
}

TEST(clock_entries_move_safe_time_and_are_limited)
{
    struct bench b;
    bench_init(&b, 3);
    CHECK_EQ(bench_open(&b), ERR_OK);
    sim_clock_advance(&b.clock, 1000000);
    node_request_clock_entry(b.node);
    pump(b.node);
    int64_t first = node_safe_time(b.node);
    CHECK_EQ(first, b.clock.wall);
    sim_clock_advance(&b.clock, 100000);
    node_request_clock_entry(b.node);
    pump(b.node);
    CHECK_EQ(node_safe_time(b.node), first); /* 4 a second */
    sim_clock_advance(&b.clock, 150000);
    pump(b.node);
    CHECK_EQ(node_safe_time(b.node), b.clock.wall);
    CHECK_EQ(node_clock_wait_us(b.node, b.clock.wall + 700), 700);
    node_close(b.node);
    bench_deinit(&b);
}

TEST(a_failed_sync_stops_the_node_for_good)
{
    struct bench b;
    struct call c;
    struct node_status status;
    bench_init(&b, 4);
    CHECK_EQ(bench_open(&b), ERR_OK);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    sim_disk_fail_next(b.disk, SIM_DISK_DATASYNC, ERR_IO, 0);
    submit_push(b.node, &c, "q", "p", "t2", "2");
    pump(b.node);
    CHECK_EQ(c.done, 1);
    CHECK_EQ(c.base.err, ERR_STOPPED);
    node_request_deinit(&c.base);
    node_status(b.node, &status);
    CHECK(status.stopped);
    submit_push(b.node, &c, "q", "p", "t3", "3");
    CHECK_EQ(c.base.err, ERR_STOPPED);
    node_request_deinit(&c.base);
    CHECK(!node_pump_checkpoint(b.node));
    node_close(b.node);
    sim_disk_kill(b.disk);
    CHECK_EQ(bench_open(&b), ERR_OK);
    check_payload(b.node, "q", 0, "1");
    node_close(b.node);
    bench_deinit(&b);
}

TEST(damage_of_the_data_directory_refuses_the_boot_naming_the_file)
{
    static const char *const files[] = {"FORMAT", "NODE"};
    for (size_t i = 0; i < 2; i++) {
        struct bench b;
        bench_init(&b, 6);
        CHECK_EQ(bench_open(&b), ERR_OK);
        push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
        node_close(b.node);
        CHECK_EQ(disk_unlink(b.disk, files[i], &b.error), ERR_OK);
        CHECK(bench_open(&b) != ERR_OK);
        CHECK(strstr(b.error.text, files[i]) != NULL);
        sim_disk_put(b.disk, files[i], SPAN_LIT("queen 9 openraft\n"));
        sim_disk_kill(b.disk);
        CHECK(bench_open(&b) != ERR_OK);
        bench_deinit(&b);
    }
}

TEST(a_swapped_state_database_is_noticed)
{
    struct bench a, b;
    bench_init(&a, 7);
    bench_init(&b, 8);
    CHECK_EQ(bench_open(&a), ERR_OK);
    CHECK_EQ(bench_open(&b), ERR_OK);
    push(&a, "q", "t1", "1", PUSH_QUEUED, 0);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    node_close(a.node);
    node_close(b.node);
    struct sim_db_state *rows = a.rows;
    a.rows = b.rows;
    b.rows = rows;
    CHECK_EQ(bench_open(&a), ERR_CORRUPT);
    bench_deinit(&a);
    bench_deinit(&b);
}

/* Goal: the boot says which file the disk does not give back, before RocksDB calls that a
 * corruption. Method: its first file behind FORMAT and NODE, which are read before. */
TEST(a_state_database_whose_first_file_cannot_be_read_is_named)
{
    static const enum sim_disk_op ops[] = {SIM_DISK_READ, SIM_DISK_OPEN};
    static const uint64_t before[] = {2, 3}; /* FORMAT and NODE; LOCK is opened too */
    for (size_t i = 0; i < 2; i++) {
        struct bench b;
        bench_init(&b, 20 + i);
        CHECK_EQ(bench_open(&b), ERR_OK);
        node_close(b.node);
        sim_disk_put(b.disk, "state/CURRENT", SPAN_LIT("MANIFEST-000001\n"));
        sim_disk_fail_next(b.disk, ops[i], ERR_IO, before[i]);
        CHECK_EQ(bench_open(&b), ERR_IO);
        CHECK(strstr(b.error.text, "state/CURRENT") != NULL);
        sim_disk_kill(b.disk);
        CHECK_EQ(bench_open(&b), ERR_OK);
        node_close(b.node);
        bench_deinit(&b);
    }
}

TEST(a_wiped_state_database_is_noticed)
{
    struct bench b;
    bench_init(&b, 9);
    CHECK_EQ(bench_open(&b), ERR_OK);
    char id[8];
    char filler[4000];
    memset(filler, '1', sizeof(filler) - 1);
    filler[sizeof(filler) - 1] = 0;
    for (unsigned i = 0; i < 200; i++) { /* enough to recycle WAL segments */
        snprintf(id, sizeof(id), "t%u", i);
        push(&b, "q", id, filler, PUSH_QUEUED, i);
        if (i % 20 == 19)
            CHECK(node_pump_checkpoint(b.node));
    }
    node_close(b.node);
    sim_db_state_free(b.rows);
    b.rows = sim_db_state_new();
    CHECK_EQ(bench_open(&b), ERR_CORRUPT);
    bench_deinit(&b);
}

static void wipe(struct bench *b, const char *folder)
{
    struct disk_list list = {0};
    char path[256];
    CHECK_EQ(disk_list(b->disk, folder, &list, &b->error), ERR_OK);
    for (size_t i = 0; i < list.count; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, list.entries[i].name);
        if (list.entries[i].is_dir)
            wipe(b, path);
        else
            CHECK_EQ(disk_unlink(b->disk, path, &b->error), ERR_OK);
    }
    disk_list_deinit(&list);
    CHECK_EQ(disk_rmdir(b->disk, folder, &b->error), ERR_OK);
}

TEST(a_wiped_data_directory_is_noticed_by_its_node_file)
{
    struct bench b;
    bench_init(&b, 14);
    CHECK_EQ(bench_open(&b), ERR_OK);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    node_close(b.node);
    wipe(&b, "wal");
    wipe(&b, "qlog");
    sim_db_state_free(b.rows);
    b.rows = sim_db_state_new();
    CHECK_EQ(bench_open(&b), ERR_CORRUPT);
    CHECK(strstr(b.error.text, "wiped") != NULL);
    bench_deinit(&b);
}

TEST(a_deleted_queue_loses_its_folder_only_after_a_checkpoint_and_its_last_reader)
{
    struct bench b;
    struct call c = {.base = {.type = COMMAND_QUEUE_DELETE, .done = call_done}};
    struct disk_list list = {0};
    bench_init(&b, 12);
    CHECK_EQ(bench_open(&b), ERR_OK);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    CHECK(node_pump_checkpoint(b.node));
    struct state *s = node_read_begin(b.node);
    uint64_t id = state_queue_find(s, &TENANT_DEFAULT, SPAN_LIT("q"))->id;
    node_read_end(b.node);
    struct qlog *log = node_log_ref(b.node, id);
    queue_delete_encode(&c.base.body, &TENANT_DEFAULT, SPAN_LIT("q"));
    node_submit(b.node, &c.base);
    pump(b.node);
    CHECK(c.base.existed);
    node_request_deinit(&c.base);
    CHECK(node_log_ref(b.node, id) == NULL);
    CHECK(node_pump_checkpoint(b.node));
    CHECK_EQ(disk_list(b.disk, "qlog", &list, &b.error), ERR_OK);
    CHECK_EQ(list.count, 1); /* still read */
    disk_list_deinit(&list);
    node_log_unref(b.node, log);
    push(&b, "q", "t1", "new", PUSH_QUEUED, 0); /* a new queue: no duplicate, offset 0 */
    CHECK(node_pump_checkpoint(b.node));
    CHECK_EQ(disk_list(b.disk, "qlog", &list, &b.error), ERR_OK);
    CHECK_EQ(list.count, 1); /* the new one's */
    disk_list_deinit(&list);
    check_payload(b.node, "q", 0, "new");
    node_close(b.node);
    bench_deinit(&b);
}

/* --- the overlay's bound --- */

/* A database whose next batch is on its way while the node goes on. */
static struct {
    struct db_ops ops;
    enum err (*write)(struct db *db, struct db_batch *b, struct error *error);
    struct node *node;
    unsigned applied;
} slow;

static enum err write_slowly(struct db *db, struct db_batch *b, struct error *error)
{
    while (node_pump_apply(slow.node))
        slow.applied++;
    return slow.write(db, b, error);
}

#define WIDE 600u /* partitions */

static void submit_wide_push(struct node *n, struct call *c)
{
    static char names[WIDE][8];
    static struct push_item items[WIDE];
    for (unsigned i = 0; i < WIDE; i++) {
        snprintf(names[i], sizeof(names[i]), "p%u", i);
        items[i] = (struct push_item){.queue = SPAN_LIT("q"),
                                      .partition = span_str(names[i]),
                                      .transaction_id = span_str(names[i]),
                                      .payload = SPAN_LIT("1")};
    }
    *c = (struct call){.base = {.type = COMMAND_PUSH, .done = call_done, .grows_storage = true}};
    push_encode(&c->base.body, &TENANT_DEFAULT, items, WIDE);
    node_submit(n, &c->base);
}

/* Goal: a push behind one that takes the overlay far past its bound does not wait until that is
 * written, only until it is frozen. */
TEST(an_entry_past_the_bound_holds_nothing_up_while_it_is_written)
{
    struct bench b;
    struct call wide, small;
    bench_init(&b, 16);
    b.dirty_max_bytes = 32u << 10;
    CHECK_EQ(bench_open(&b), ERR_OK);
    slow.ops = *b.db->ops;
    slow.write = b.db->ops->batch_write;
    slow.node = b.node;
    slow.ops.batch_write = write_slowly;
    b.db->ops = &slow.ops;
    submit_wide_push(b.node, &wide);
    pump(b.node);
    CHECK_EQ(wide.done, 1);
    node_request_deinit(&wide.base);
    submit_push(b.node, &small, "q", "p1", "t", "1");
    pump(b.node);
    CHECK_EQ(small.done, 0);
    CHECK(node_pump_checkpoint_due(b.node));
    CHECK(node_pump_checkpoint(b.node));
    CHECK_EQ(slow.applied, 1);
    CHECK_EQ(small.done, 1);
    node_request_deinit(&small.base);
    node_close(b.node);
    bench_deinit(&b);
}

/* --- an entry that fails half-way --- */

/* A disk whose next write waits and then fails; only while armed. */
static struct {
    struct disk_ops ops;
    enum err (*write)(struct disk *d, struct disk_file *f, uint64_t at, const struct span *parts,
                      size_t n, struct error *error);
    atomic_bool armed, waiting, go;
} stuck;

static enum err stuck_write(struct disk *d, struct disk_file *f, uint64_t at,
                            const struct span *parts, size_t n, struct error *error)
{
    if (!atomic_exchange(&stuck.armed, false))
        return stuck.write(d, f, at, parts, n, error);
    atomic_store(&stuck.waiting, true);
    while (!atomic_load(&stuck.go))
        (void)usleep(1000);
    return error_set(error, ERR_IO, "write: the disk fails");
}

static void stuck_install(struct disk *d)
{
    stuck.ops = *d->ops;
    stuck.write = d->ops->write;
    stuck.ops.write = stuck_write;
    d->ops = &stuck.ops;
}

static void apply_in_thread(void *ctx)
{
    (void)node_pump_apply(ctx); /* the call's answer tells */
}

static struct {
    struct node *node;
    bool did;
} checkpoint;

static void checkpoint_in_thread(void *ctx)
{
    (void)ctx;
    checkpoint.did = node_pump_checkpoint(checkpoint.node);
}

/* Goal: a state that holds half an entry never reaches the database.
 * Method: the entry's first run waits inside the write to the queue log, with the state locked; a
 * checkpoint that found the node in order waits for that lock; then the write fails. */
TEST(a_checkpoint_that_waited_for_a_failing_entry_writes_nothing)
{
    struct bench b;
    struct call c;
    bench_init(&b, 13);
    CHECK_EQ(bench_open(&b), ERR_OK);
    stuck_install(b.disk);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    submit_push(b.node, &c, "q", "p", "t2", "2");
    CHECK(node_pump_log(b.node));
    atomic_store(&stuck.armed, true);
    struct thread *apply = thread_start("apply", apply_in_thread, b.node);
    while (!atomic_load(&stuck.waiting))
        (void)usleep(1000);
    checkpoint.node = b.node;
    struct thread *other = thread_start("checkpoint", checkpoint_in_thread, NULL);
    (void)usleep(100 * 1000); /* it is at the lock by then */
    atomic_store(&stuck.go, true);
    thread_join(apply);
    thread_join(other);

    CHECK(!checkpoint.did);
    CHECK_EQ(c.base.err, ERR_STOPPED);
    node_request_deinit(&c.base);
    CHECK(!node_pump_checkpoint(b.node));
    node_abandon(b.node);
    sim_disk_kill(b.disk);
    CHECK_EQ(bench_open(&b), ERR_OK); /* the log still has both */
    check_payload(b.node, "q", 0, "1");
    check_payload(b.node, "q", 1, "2");
    node_close(b.node);
    bench_deinit(&b);
}

TEST(a_data_directory_removed_underneath_stops_the_node)
{
    struct bench b;
    struct call c;
    struct node_status status;
    bench_init(&b, 15);
    CHECK_EQ(bench_open(&b), ERR_OK);
    push(&b, "q", "t1", "1", PUSH_QUEUED, 0);
    CHECK_EQ(disk_unlink(b.disk, "LOCK", &b.error), ERR_OK);
    sim_clock_advance(&b.clock, 1100000);
    node_pump_space(b.node);
    node_status(b.node, &status);
    CHECK(status.stopped);
    CHECK(strstr(status.failure, "LOCK is gone") != NULL);
    submit_push(b.node, &c, "q", "p", "t2", "2");
    CHECK_EQ(c.base.err, ERR_STOPPED);
    node_request_deinit(&c.base);
    node_close(b.node);
    bench_deinit(&b);
}

TEST(the_scrub_stops_the_node_at_a_damaged_record)
{
    struct bench b;
    struct node_status status;
    struct disk_list list = {0};
    char path[128];
    bench_init(&b, 13);
    CHECK_EQ(bench_open(&b), ERR_OK);
    push(&b, "q", "t1", "\"a payload that will lose a bit\"", PUSH_QUEUED, 0);
    push(&b, "q", "t2", "2", PUSH_QUEUED, 1);
    node_pump_scrub(b.node);
    node_status(b.node, &status);
    CHECK(!status.stopped);
    CHECK_EQ(disk_list(b.disk, "qlog/1", &list, &b.error), ERR_OK);
    CHECK_EQ(list.count, 1);
    snprintf(path, sizeof(path), "qlog/1/%s", list.entries[0].name);
    disk_list_deinit(&list);
    struct buf bytes = BUF_INIT;
    CHECK(sim_disk_get(b.disk, path, &bytes));
    const uint8_t *at = memmem(bytes.ptr, bytes.len, "lose a bit", 10);
    CHECK(at != NULL);
    sim_disk_damage(b.disk, path, (uint64_t)(at - bytes.ptr), SPAN_LIT("m"));
    buf_deinit(&bytes);
    node_pump_scrub(b.node);
    node_status(b.node, &status);
    CHECK(status.stopped);
    CHECK(strstr(status.failure, path) != NULL);
    node_close(b.node);
    bench_deinit(&b);
}

/* --- threads, a real disk and RocksDB --- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static enum err open_rocks(void *ctx, struct db **out, struct error *error)
{
    struct db_rocks_options o = {
        .path = ctx, .block_cache_bytes = 8 << 20, .write_buffer_bytes = 1 << 20};
    return db_rocks_open(&o, out, error);
}

struct waiter {
    struct call call;
    pthread_mutex_t *mutex;
    pthread_cond_t *cond;
    unsigned *left;
};

static void waiter_done(struct node_request *r)
{
    struct waiter *w = (struct waiter *)r;
    pthread_mutex_lock(w->mutex);
    w->call.done++;
    (*w->left)--;
    pthread_cond_signal(w->cond);
    pthread_mutex_unlock(w->mutex);
}

#define THREADED_PUSHES 500u

TEST(threads_answer_every_push_once_and_a_restart_finds_them)
{
    char dir[] = "/tmp/queen-node-XXXXXX", db[64];
    static struct waiter waiters[THREADED_PUSHES];
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    unsigned left = THREADED_PUSHES;
    struct error error = {0};
    CHECK(mkdtemp(dir) != NULL);
    snprintf(db, sizeof(db), "%s/state", dir);
    for (unsigned boot = 0; boot < 2; boot++) {
        struct disk *disk;
        struct node_options o;
        struct node *n;
        CHECK_EQ(disk_real_open(dir, &disk, &error), ERR_OK);
        node_options_default(&o);
        o.disk = disk;
        o.open_db = open_rocks;
        o.db_ctx = db;
        o.clock = clock_real();
        o.entropy = entropy_real();
        o.wal_segment_bytes = 1 << 20;
        o.durable_every_ms = 20;
        o.disk_high_pct = o.disk_low_pct = 100;
        CHECK_EQ(node_open(&o, &n, &error), ERR_OK);
        struct disk *second;
        struct node *other;
        o.disk = NULL;
        CHECK_EQ(disk_real_open(dir, &second, &error), ERR_OK);
        o.disk = second;
        CHECK_EQ(node_open(&o, &other, &error), ERR_LOCKED);
        disk_real_close(second);
        left = THREADED_PUSHES;
        for (unsigned i = 0; i < THREADED_PUSHES; i++) {
            char id[16];
            struct waiter *w = &waiters[i];
            snprintf(id, sizeof(id), "t%u", i);
            struct push_item item = {
                .queue = SPAN_LIT("q"),
                .partition = SPAN_LIT("p"),
                .transaction_id = span_str(id),
                .payload = SPAN_LIT("{}"),
            };
            *w = (struct waiter){.mutex = &mutex, .cond = &cond, .left = &left};
            w->call.base.type = COMMAND_PUSH;
            w->call.base.done = waiter_done;
            push_encode(&w->call.base.body, &TENANT_DEFAULT, &item, 1);
            node_submit(n, &w->call.base);
        }
        pthread_mutex_lock(&mutex);
        while (left > 0)
            pthread_cond_wait(&cond, &mutex);
        pthread_mutex_unlock(&mutex);
        for (unsigned i = 0; i < THREADED_PUSHES; i++) {
            const struct push_item_result *item = &waiters[i].call.base.push.items[0];
            CHECK_EQ(waiters[i].call.done, 1);
            CHECK_EQ(waiters[i].call.base.err, ERR_OK);
            CHECK_EQ(item->status, boot == 0 ? PUSH_QUEUED : PUSH_DUPLICATE);
            CHECK_EQ(item->offset, i);
            node_request_deinit(&waiters[i].call.base);
        }
        node_close(n);
        disk_real_close(disk);
    }
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

TEST_MAIN()
