/* Opening a data directory (storage rule 4).
 *
 * Files beside the subfolders:
 *   LOCK    held exclusively while the node runs: one opener
 *   FORMAT  "queen <version> <replicator>\n": written first, so a folder without it is new or not ours
 *   NODE    "cluster <uuid>\n", and "founded\n" behind it once a boot came through: the identity that the
 *           state must carry too, so that a wiped or swapped folder is noticed
 *
 * Order: lock → format and identity → state at its checkpoint A → WAL, which checks that every
 * index from A + 1 is there and writes those entries back in place before anything is applied →
 * queue logs cut to their length at A, folders the state does not know removed → replay. Nothing is
 * changed before the checks passed but the ballast and spares, on a full disk; what does not fit
 * together refuses the boot with one sentence that names the file. */
#include "node/internal.h"

#include "base/log.h"
#include "base/mem.h"

#define FORMAT_FILE "FORMAT"
#define NODE_FILE "NODE"
#define FORMAT_TEXT "queen 1 local\n"
#define CLUSTER_WORD "cluster "
#define FOUNDED_LINE "founded\n"
#define SMALL_FILE_MAX 4096

static enum err take_lock(struct node *n, struct error *error)
{
    TRY(disk_open(n->options.disk, "LOCK", DISK_WRITE | DISK_CREATE, &n->lock_file, error));
    enum err err = disk_lock(n->options.disk, n->lock_file, error);
    if (err == ERR_LOCKED)
        return error_set(error, err, "the data directory is in use by another process (LOCK)");
    return err;
}

/* Is there anything of a broker's in the folder but LOCK? */
static enum err folder_has_data(struct node *n, bool *has_out, struct error *error)
{
    struct disk_list list = {0};
    TRY(disk_list(n->options.disk, ".", &list, error));
    *has_out = false;
    for (size_t i = 0; i < list.count; i++) {
        const char *name = list.entries[i].name;
        if (strcmp(name, "wal") == 0 || strcmp(name, "state") == 0 || strcmp(name, "qlog") == 0)
            *has_out = true;
    }
    disk_list_deinit(&list);
    return ERR_OK;
}

static enum err check_format(struct node *n, bool has_data, struct error *error)
{
    struct buf text = BUF_INIT;
    enum err err = disk_read_file(n->options.disk, FORMAT_FILE, SMALL_FILE_MAX, &text, error);
    if (err == ERR_NOT_FOUND) {
        buf_deinit(&text);
        if (has_data)
            return error_set(error, ERR_CORRUPT,
                             "the data directory holds wal, state or qlog but no " FORMAT_FILE
                             ": it is damaged or not a broker's");
        return disk_replace_file(n->options.disk, FORMAT_FILE, SPAN_LIT(FORMAT_TEXT), error);
    }
    if (err == ERR_OK && !span_eq(buf_span(&text), SPAN_LIT(FORMAT_TEXT)))
        err = error_set(error, ERR_VERSION,
                        "the data directory's " FORMAT_FILE
                        " is not \"queen 1 local\": another version or replicator made it");
    buf_deinit(&text);
    return err;
}

static enum err write_identity(struct node *n, bool founded, struct error *error)
{
    struct buf text = BUF_INIT;
    buf_puts(&text, CLUSTER_WORD);
    buf_put_uuid(&text, &n->cluster);
    buf_puts(&text, founded ? "\n" FOUNDED_LINE : "\n");
    enum err err = disk_replace_file(n->options.disk, NODE_FILE, buf_span(&text), error);
    buf_deinit(&text);
    return err;
}

static enum err new_identity(struct node *n, struct error *error)
{
    struct uuid_minter minter = {0};
    uint8_t random[8];
    entropy_fill(n->options.entropy, random, sizeof(random));
    n->cluster = uuid_mint(&minter, clock_wall_us(n->options.clock), random);
    return write_identity(n, false, error);
}

static bool parse_identity(struct span text, struct uuid *cluster_out, bool *founded_out)
{
    const struct span head = SPAN_LIT(CLUSTER_WORD);
    size_t first = head.len + UUID_TEXT_LEN + 1;
    if (text.len < first || !span_starts_with(text, head) || text.ptr[first - 1] != '\n' ||
        !uuid_parse(span_sub(text, head.len, first - 1), cluster_out))
        return false;
    struct span rest = span_sub(text, first, text.len);
    *founded_out = span_eq(rest, SPAN_LIT(FOUNDED_LINE));
    return *founded_out || rest.len == 0;
}

static enum err check_identity(struct node *n, bool has_data, bool *founded_out,
                               struct error *error)
{
    struct buf text = BUF_INIT;
    *founded_out = false;
    enum err err = disk_read_file(n->options.disk, NODE_FILE, SMALL_FILE_MAX, &text, error);
    if (err == ERR_NOT_FOUND) {
        buf_deinit(&text);
        if (has_data)
            return error_set(error, ERR_CORRUPT,
                             "the data directory's " NODE_FILE " is missing: it is damaged");
        return new_identity(n, error);
    }
    if (err == ERR_OK && !parse_identity(buf_span(&text), &n->cluster, founded_out))
        err = error_set(error, ERR_CORRUPT, "the data directory's " NODE_FILE " does not parse");
    if (err == ERR_OK && *founded_out && !has_data)
        err = error_set(error, ERR_CORRUPT,
                        "the data directory was in use (" NODE_FILE
                        ") and its wal, state and qlog are gone: it was wiped or not mounted");
    buf_deinit(&text);
    return err;
}

/* RocksDB calls it a corruption when its first file cannot be read. */
static enum err check_readable(struct node *n, const char *path, struct error *error)
{
    struct buf text = BUF_INIT;
    enum err err = disk_read_file(n->options.disk, path, SMALL_FILE_MAX, &text, error);
    buf_deinit(&text);
    return err == ERR_NOT_FOUND || err == ERR_TOO_LARGE ? ERR_OK : err;
}

static enum err open_state(struct node *n, struct error *error)
{
    struct db *db = NULL;
    TRY(check_readable(n, "state/CURRENT", error));
    TRY(n->options.open_db(n->options.db_ctx, &db, error));
    TRY(state_open(db, &n->cluster, &n->state, error));
    if (memcmp(&state_meta(n->state)->cluster, &n->cluster, sizeof(n->cluster)) != 0)
        return error_set(error, ERR_CORRUPT,
                         "state/ belongs to another cluster than " NODE_FILE " names");
    return kv_expire_find(n->state, error);
}

static enum err open_wal(struct node *n, struct error *error)
{
    const struct wal_options options = {
        .disk = n->options.disk,
        .entropy = n->options.entropy,
        .dir = "wal",
        .segment_bytes = n->options.wal_segment_bytes,
    };
    TRY(wal_open(&options, state_meta(n->state)->applied, &n->wal, error));
    n->replicator = replicator_local_new(n->wal);
    return ERR_OK;
}

/* Removes the folders of logs that the state does not know: queues created or freed around the
 * crash. */
static enum err remove_unknown_logs(struct node *n, struct error *error)
{
    uint64_t *ids = NULL;
    size_t count = 0;
    TRY(qlog_set_list(n->logs, &ids, &count, error));
    enum err err = ERR_OK;
    for (size_t i = 0; i < count && err == ERR_OK; i++) {
        struct qlog *log = NULL;
        if (state_queue_by_id(n->state, ids[i]) != NULL)
            continue;
        err = qlog_create(n->logs, ids[i], &log, error);
        if (err == ERR_OK)
            err = qlog_destroy(log, error);
    }
    mem_free(ids);
    return err;
}

static enum err open_log(struct node *n, struct queue *q, struct error *error)
{
    if (q->log_length == 0)
        return ERR_OK; /* made by its first append, which empties a folder left by the crash */
    TRY(qlog_open(n->logs, q->id, q->log_start, q->log_length, &q->log, error));
    node_log_add(n, q->id, q->log);
    return ERR_OK;
}

static enum err open_logs(struct node *n, struct error *error)
{
    const struct qlog_set_options options = {
        .disk = n->options.disk,
        .dir = "qlog",
        .segment_bytes = n->options.segment_bytes,
        .handles_max = n->options.log_handles_max,
    };
    TRY(qlog_set_open(&options, &n->logs, error));
    TRY(remove_unknown_logs(n, error));
    struct queue **queues = NULL;
    size_t count = state_queue_list_all(n->state, &queues);
    enum err err = ERR_OK;
    for (size_t i = 0; i < count && err == ERR_OK; i++)
        err = open_log(n, queues[i], error);
    mem_free(queues);
    return err;
}

/* What the checkpoint had: replay goes on from there. */
static void publish(struct node *n)
{
    const struct state_meta *meta = state_meta(n->state);
    int64_t safe_time = meta->last_clock > meta->max_stamp ? meta->last_clock : meta->max_stamp;
    atomic_store(&n->safe_time, safe_time);
    atomic_store(&n->kv_expire_next, kv_expire_next(n->state));
    atomic_store(&n->applied, meta->applied);
    atomic_store(&n->durable, meta->applied);
    n->shared.last_clock = meta->last_clock;
    n->shared.last_count = meta->last_count;
}

static enum err replay(struct node *n, struct error *error)
{
    uint64_t from = state_meta(n->state)->applied;
    n->recover_to = wal_last_index(n->wal);
    TRY(wal_replay(n->wal, from, node_replay_entry, n, error));
    n->log.next_index = n->recover_to + 1;
    n->shared.last_mono = clock_mono_us(n->options.clock);
    uint64_t applied = atomic_load(&n->applied);
    log_msg(LOG_INFO, "node", "recovered: checkpoint %llu, %llu entries replayed, %zu queues",
            (unsigned long long)from, (unsigned long long)(applied - from),
            state_queue_count(n->state));
    if (n->current != NULL)
        log_msg(LOG_ERROR, "node",
                "the disk is full: %llu entries more are applied when there is room",
                (unsigned long long)(n->recover_to - applied));
    return ERR_OK;
}

enum err node_recover(struct node *n, struct error *error)
{
    bool has_data = false, founded = false;
    TRY(take_lock(n, error));
    TRY(folder_has_data(n, &has_data, error));
    node_ballast_find(n, has_data);
    if (atomic_load(&n->stopped)) { /* it does not go */
        *error = n->shared.failure;
        return ERR_IO;
    }
    TRY(check_format(n, has_data, error));
    TRY(check_identity(n, has_data, &founded, error));
    TRY(open_state(n, error));
    publish(n);
    TRY(open_wal(n, error));
    TRY(open_logs(n, error));
    TRY(replay(n, error));
    if (!founded)
        TRY(write_identity(n, true, error));
    n->opened = true;
    return ERR_OK;
}
