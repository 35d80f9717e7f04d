/* The scrub: reads every queue log again, slowly, and compares checksums (storage rule 4).
 *
 * Boot checks presence, length and seal of every file and reads only what lies above the last seal;
 * the rest is read here, once after the boot and then every few hours, at a bounded rate. Damage
 * stops the node, naming file and offset: a broker that goes on would serve, or write to a lake,
 * what nobody pushed.
 *
 * The scrub only reads, under a reference to the log, one run at a time; a queue that is deleted or
 * trimmed meanwhile is left at its next step. */
#include "node/internal.h"

#include "base/mem.h"

#define SCRUB_EVERY_US                                                                             \
    (6 * INT64_C(3600000000))         /* spec/cluster.md 1.13, QUEEN_STORE_SCRUB_EVERY_S */
#define SCRUB_BYTES_PER_S (16u << 20) /* far below what a disk reads */
#define SCRUB_PAUSE_BYTES (1u << 20)
#define SCRUB_LOG_BYTES (64u << 10) /* what a log counts beside its bytes: its files are opened */

void node_damaged(struct node *n, const struct error *error)
{
    node_fail(n, "damaged data", error);
}

static int id_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static size_t log_ids(struct node *n, uint64_t **out)
{
    size_t count = 0, at = 0;
    uint64_t id;
    void *value;
    pthread_mutex_lock(&n->mutex);
    uint64_t *ids = MEM_ARRAY(uint64_t, n->shared.log_by_queue.count + 1);
    while (map64_next(&n->shared.log_by_queue, &at, &id, &value))
        ids[count++] = id;
    pthread_mutex_unlock(&n->mutex);
    qsort(ids, count, sizeof(*ids), id_order);
    *out = ids;
    return count;
}

/* Waits; false when the node closes. */
static bool scrub_pause(struct node *n, int64_t us)
{
    int64_t until = clock_mono_us(n->options.clock) + us;
    pthread_mutex_lock(&n->mutex);
    while (!n->shared.closing) {
        int64_t left = until - clock_mono_us(n->options.clock);
        if (left <= 0)
            break;
        (void)cond_wait_us(&n->scrub_wake, &n->mutex, left); /* the time is looked at above */
    }
    bool go_on = !n->shared.closing;
    pthread_mutex_unlock(&n->mutex);
    return go_on;
}

/* Reads one log; paced unless `hurry`. False when the node closes or is stopped. */
static bool scrub_log(struct node *n, uint64_t id, bool hurry, uint64_t *since_pause)
{
    struct qlog *log = node_log_ref(n, id);
    struct qlog_run_data data = {0};
    struct error error = {0};
    bool go_on = true;
    if (log == NULL)
        return true;
    *since_pause += SCRUB_LOG_BYTES;
    uint64_t at = qlog_start(log), end = qlog_end(log);
    while (go_on && at < end) {
        enum err err = qlog_read(log, at, &data, &error);
        if (err == ERR_NOT_FOUND) { /* trimmed meanwhile */
            uint64_t start = qlog_start(log);
            at = start > at ? start : end;
            continue;
        }
        if (err != ERR_OK) {
            node_damaged(n, &error);
            go_on = false;
            break;
        }
        *since_pause += data.head.next_position - at;
        at = data.head.next_position;
        if (!hurry && *since_pause >= SCRUB_PAUSE_BYTES) {
            go_on = scrub_pause(n, (int64_t)(*since_pause * 1000000 / SCRUB_BYTES_PER_S));
            *since_pause = 0;
        }
    }
    qlog_run_data_deinit(&data);
    node_log_unref(n, log);
    return go_on && !atomic_load(&n->stopped);
}

static bool scrub_all(struct node *n, bool hurry)
{
    uint64_t *ids = NULL;
    size_t count = log_ids(n, &ids);
    uint64_t since_pause = 0;
    bool go_on = true;
    for (size_t i = 0; i < count && go_on; i++)
        go_on = scrub_log(n, ids[i], hurry, &since_pause);
    mem_free(ids);
    return go_on;
}

void node_pump_scrub(struct node *n)
{
    (void)scrub_all(n, true); /* damage has stopped the node by now */
}

void node_scrub_thread(void *ctx)
{
    struct node *n = ctx;
    while (scrub_all(n, false) && scrub_pause(n, SCRUB_EVERY_US)) {
    }
}
