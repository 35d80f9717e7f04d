/* Space: the disk gate, and the ballast that gets the node out of a full disk (decisions.md 20).
 *
 * The gate refuses writes that grow storage from HIGH per cent of the disk on, and while there is
 * less than twice what is on its way to the disk may take. It looks once a second, and other
 * processes write there too, so the disk may be full all the same. Then what is committed already
 * must still be applied, or nothing behind it is: not even the deletion that would make room. So a
 * file of nothing is kept; whoever meets the full disk first, apply, the log writer or the
 * checkpoint, removes it and goes on.
 *
 * Until it is there again is an emergency: only what does not grow storage is admitted, no clock
 * entries are made, and the ballast's room is shared out so that a checkpoint always fits, since it
 * is what lets deleted queues' files go. With B the ballast: RocksDB's write buffers hold B/4 at
 * most (node_write_buffer_bytes), the overlay B/4; a checkpoint writes the overlay to RocksDB's log
 * and perhaps both to a table, 3/4 B in all, and apply begins no entry that would not leave room
 * for that.
 *
 * A second file, the reserve, is for the next start only, which must write before it can serve at
 * all: RocksDB makes tables of what its log holds, B/4 and a batch. It is given up when the start
 * finds no room and the ballast is gone.
 *
 * The files need no sync: whatever a crash leaves of them is taken over or made whole again. */
#include "node/internal.h"

#include "base/log.h"

#define BALLAST_FILE "ballast"
#define RESERVE_FILE "reserve"
#define ROOM_ASKED 2u
#define WRITE_BUFFERS_IN_BALLAST 8 /* two of them are a quarter */

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* At most a tenth of the filesystem. */
static uint64_t ballast_on(uint64_t total_bytes, uint64_t ballast_bytes)
{
    return smaller(ballast_bytes, total_bytes / 10);
}

static uint64_t ballast_size(const struct node *n, uint64_t total_bytes)
{
    return ballast_on(total_bytes, n->options.ballast_bytes);
}

uint64_t node_write_buffer_bytes(struct disk *disk, uint64_t ballast_bytes, uint64_t most)
{
    struct disk_usage usage;
    if (ballast_bytes == 0 || disk_usage(disk, &usage, NULL) != ERR_OK)
        return most;
    return smaller(ballast_on(usage.total_bytes, ballast_bytes) / WRITE_BUFFERS_IN_BALLAST, most);
}

static uint64_t reserve_size(const struct node *n, uint64_t total_bytes)
{
    return ballast_size(n, total_bytes) / 2;
}

/* Kept free beside what is on its way to the disk: 32 MiB. */
static uint64_t margin(const struct node *n)
{
    return n->options.ballast_bytes / 4;
}

static uint64_t dirty_share(const struct node *n)
{
    uint64_t most = n->options.dirty_max_bytes;
    if (n->options.ballast_bytes == 0)
        return most;
    return smaller(ballast_size(n, atomic_load(&n->total_bytes)) / 4, most);
}

uint64_t node_dirty_max(const struct node *n)
{
    bool checkpoints = n->opened || n->options.open_behind; /* else nothing could write it */
    if (atomic_load(&n->emergency) && checkpoints)
        return dirty_share(n);
    return n->opened ? n->options.dirty_max_bytes : UINT64_MAX;
}

uint64_t node_dirty_due(const struct node *n)
{
    return smaller(node_dirty_max(n) / 2, dirty_share(n)); /* the disk may be full any time */
}

/* Is there too little room for `more` bytes of commands beside what is on its way? */
static bool space_short(const struct node *n, uint64_t more)
{
    uint64_t saved = atomic_load(&n->checkpointed_bytes);
    uint64_t then = atomic_load(&n->applied_bytes_then);
    uint64_t applied = atomic_load(&n->applied_bytes); /* last: it only grows */
    uint64_t unsaved = applied - saved;
    uint64_t dirty = atomic_load(&n->dirty_bytes);
    uint64_t coming = atomic_load(&n->queued_bytes) + more + (unsaved > dirty ? unsaved : dirty);
    return n->options.ballast_bytes > 0 &&
           atomic_load(&n->free_bytes) < (applied - then) + 2 * coming + margin(n);
}

bool node_space_refuses(struct node *n, uint64_t more)
{
    if (node_storage_full(n))
        return true;
    if (!space_short(n, more))
        return false;
    if (space_short(n, 0)) /* not for one that is too large: smaller ones may fit */
        atomic_store(&n->space_tight, true);
    if (atomic_exchange(&n->room_asked, ROOM_ASKED) < ROOM_ASKED) /* since the last look */
        node_want_checkpoint(n); /* what it writes no longer counts */
    return true;
}

/* Keeps what was seen of the disk for those who must not wait. */
static bool look(struct node *n, struct disk_usage *usage)
{
    uint64_t applied = atomic_load(&n->applied_bytes);
    if (disk_usage(n->options.disk, usage, NULL) != ERR_OK || usage->total_bytes == 0)
        return false;
    atomic_store(&n->applied_bytes_then, applied);
    atomic_store(&n->free_bytes, usage->free_bytes);
    atomic_store(&n->total_bytes, usage->total_bytes);
    return true;
}

/* --- the ballast --- */

static enum err file_length(struct node *n, const char *file, uint64_t *out)
{
    struct disk_file *f = NULL;
    TRY(disk_open(n->options.disk, file, DISK_READ, &f, NULL));
    enum err err = disk_size(n->options.disk, f, out, NULL);
    disk_close(n->options.disk, f);
    return err;
}

static bool ballast_drop(struct node *n)
{
    struct error error = {0};
    pthread_mutex_lock(&n->ballast.mutex);
    bool first = !atomic_exchange(&n->emergency, true);
    atomic_store(&n->storage_full, true);
    bool held = n->ballast.held;
    n->ballast.held = false;
    enum err err = held ? disk_unlink(n->options.disk, BALLAST_FILE, &error) : ERR_NOT_FOUND;
    pthread_mutex_unlock(&n->ballast.mutex);
    if (err == ERR_OK)
        log_msg(LOG_ERROR, "node",
                "the disk is full: the ballast is given up, writes that grow storage are refused");
    else if (held && err != ERR_NOT_FOUND)
        node_fail(n, "ballast", &error);
    else if (first)
        log_msg(LOG_ERROR, "node", "the disk is full: writes that grow storage are refused");
    if (err == ERR_OK || first)
        node_want_checkpoint(n);
    return err == ERR_OK;
}

bool node_make_room(struct node *n)
{
    if (ballast_drop(n))
        return true;
    return n->wal != NULL ? wal_drop_spares(n->wal) : wal_unlink_spares(n->options.disk, "wal");
}

bool node_make_room_for_boot(struct node *n)
{
    atomic_store(&n->emergency, true); /* is said by who waits */
    if (node_make_room(n))
        return true;
    if (disk_unlink(n->options.disk, RESERVE_FILE, NULL) != ERR_OK)
        return false;
    log_msg(LOG_ERROR, "node", "the disk is full: the reserve is given up to start all the same");
    return true;
}

void node_ballast_find(struct node *n, bool founded)
{
    struct disk_usage usage;
    uint64_t length = 0;
    if (!look(n, &usage) || ballast_size(n, usage.total_bytes) == 0)
        return;
    n->ballast.reserve = file_length(n, RESERVE_FILE, &length) == ERR_OK &&
                         length >= reserve_size(n, usage.total_bytes);
    n->ballast.held = file_length(n, BALLAST_FILE, &length) == ERR_OK;
    bool whole = n->ballast.held && length >= ballast_size(n, usage.total_bytes);
    if (!whole && founded) { /* the broker before this one met a full disk */
        atomic_store(&n->emergency, true);
        atomic_store(&n->storage_full, true);
    }
    if (n->ballast.held && !whole)
        (void)ballast_drop(n);
    while (usage.free_bytes < margin(n) && node_make_room(n) && look(n, &usage)) {
        /* recovery writes before anything could ask for it */
    }
}

static enum err take_room(struct node *n, const char *file, uint64_t size, struct error *error)
{
    struct disk *disk = n->options.disk;
    struct disk_file *f = NULL;
    TRY(disk_open(disk, file, DISK_WRITE | DISK_CREATE, &f, error));
    enum err err = disk_reserve(disk, f, size, error);
    disk_close(disk, f);
    if (err != ERR_OK) {
        enum err ignored = disk_unlink(disk, file, NULL); /* or it stays */
        (void)ignored;
    }
    return err;
}

/* Would that leave the gate open and `beside` free? */
static bool room_for(const struct node *n, const struct disk_usage *usage, uint64_t size,
                     uint64_t beside)
{
    double used = (double)(usage->total_bytes - usage->free_bytes) + (double)size;
    return 100.0 * used < n->options.disk_high_pct * (double)usage->total_bytes &&
           usage->free_bytes >= size + beside;
}

/* Makes it where that leaves the gate open and as much room again. False when there should be one
 * and there is no room. Its mutex is held. */
static bool ballast_make(struct node *n, const struct disk_usage *usage)
{
    struct error error = {0};
    uint64_t size = ballast_size(n, usage->total_bytes);
    if (size == 0 || n->ballast.held || n->ballast.impossible)
        return true;
    if (!room_for(n, usage, size, size + margin(n)) || node_is_behind(n))
        return false;
    enum err err = take_room(n, BALLAST_FILE, size, &error);
    n->ballast.held = err == ERR_OK;
    n->ballast.impossible = err != ERR_OK && err != ERR_NO_SPACE;
    if (n->ballast.impossible)
        log_msg(LOG_WARN, "node", "no ballast is kept for a full disk: %s", error.text);
    return err != ERR_NO_SPACE;
}

/* Makes it where the ballast is, and there is plenty. Its mutex is held. */
static void reserve_make(struct node *n)
{
    struct disk_usage usage;
    if (!n->ballast.held || n->ballast.reserve || !look(n, &usage))
        return;
    uint64_t size = reserve_size(n, usage.total_bytes);
    if (room_for(n, &usage, size, 2 * size + margin(n)))
        n->ballast.reserve = take_room(n, RESERVE_FILE, size, NULL) == ERR_OK;
}

/* --- the gate --- */

/* Shut at HIGH per cent or by a full disk, opened again below LOW, when the ballast is there again;
 * not while the database finds no room, whatever the disk says (a quota, or RocksDB's own bound):
 * the ballast would be given up at the next checkpoint. */
static void gate_look(struct node *n)
{
    struct disk_usage usage;
    pthread_mutex_lock(&n->ballast.mutex);
    if (!look(n, &usage)) {
        pthread_mutex_unlock(&n->ballast.mutex);
        return;
    }
    double used =
        100.0 * (double)(usage.total_bytes - usage.free_bytes) / (double)usage.total_bytes;
    bool was = atomic_load(&n->storage_full);
    bool full = used >= n->options.disk_high_pct || (was && used >= n->options.disk_low_pct);
    if (!full && (atomic_load(&n->checkpoint_short) || !ballast_make(n, &usage)))
        full = was;
    atomic_store(&n->storage_full, full);
    if (!full) {
        atomic_store(&n->emergency, false);
        reserve_make(n);
    }
    pthread_mutex_unlock(&n->ballast.mutex);
    if (full != was)
        log_msg(full ? LOG_ERROR : LOG_INFO, "node",
                full ? "disk gate shut at %.1f %% used: writes that grow storage are refused"
                     : "disk gate open again at %.1f %% used",
                used);
}

/* Files that are open outlive their folder: without this look a broker whose folder was removed
 * would go on acknowledging into nothing. */
static bool folder_is_there(struct node *n)
{
    struct disk_file *f = NULL;
    struct error error = {0};
    enum err err = disk_open(n->options.disk, "LOCK", DISK_READ, &f, &error);
    disk_close(n->options.disk, f);
    if (err != ERR_NOT_FOUND)
        return true; /* there, or not to be told now (out of descriptors, say) */
    (void)error_set(&error, ERR_IO,
                    "LOCK is gone: the folder was removed under the running broker");
    node_fail(n, "data directory", &error);
    return false;
}

void node_pump_space(struct node *n)
{
    int64_t now = clock_mono_us(n->options.clock);
    if (now - n->last_space_check_mono < NODE_SPACE_CHECK_EVERY_US)
        return;
    n->last_space_check_mono = now;
    if (!folder_is_there(n))
        return;
    gate_look(n);
    node_expire_look(n);
    atomic_store(&n->space_tight, false);
    unsigned asked = atomic_load(&n->room_asked);
    if (asked > 0) /* or it is asked again just now */
        (void)atomic_compare_exchange_strong(&n->room_asked, &asked, asked - 1);
    (void)node_space_refuses(n, 0); /* sets it again */
    pthread_mutex_lock(&n->mutex);
    pthread_cond_broadcast(&n->space_wake);
    if (n->shared.clock_wanted)
        pthread_cond_signal(&n->log_wake); /* it may be made now */
    pthread_mutex_unlock(&n->mutex);
}
