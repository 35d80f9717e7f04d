/* Space: the disk gate, and the ballast that gets the node out of a full disk.
 *
 * The gate refuses writes that grow storage from HIGH per cent of the disk on. It looks once a
 * second, and other processes write there too, so the disk may be full all the same. Then what is
 * committed already must still be applied, half an entry above all, or nothing behind it is: not
 * even the deletion that would make room. So a file of nothing is kept; whoever meets the full disk
 * first, apply, the log writer or the checkpoint, removes it and goes on. Until it is there again
 * only what does not grow storage is admitted.
 *
 * The file needs no sync: whatever a crash leaves of it is taken over or made whole again. */
#include "node/internal.h"

#include "base/log.h"

#define BALLAST_FILE "ballast"

void node_ballast_find(struct node *n)
{
    struct disk *disk = n->options.disk;
    struct disk_file *f = NULL;
    struct disk_usage usage;
    if (disk_open(disk, BALLAST_FILE, DISK_READ, &f, NULL) != ERR_OK)
        return;
    disk_close(disk, f);
    n->ballast.held = true;
    if (disk_usage(disk, &usage, NULL) == ERR_OK && usage.free_bytes < n->options.ballast_bytes / 4)
        (void)node_ballast_drop(n); /* recovery writes before anything could ask for it */
}

bool node_ballast_drop(struct node *n)
{
    struct error error = {0};
    atomic_store(&n->storage_full, true);
    pthread_mutex_lock(&n->ballast.mutex);
    bool held = n->ballast.held;
    n->ballast.held = false;
    enum err err = held ? disk_unlink(n->options.disk, BALLAST_FILE, &error) : ERR_NOT_FOUND;
    pthread_mutex_unlock(&n->ballast.mutex);
    if (err == ERR_OK)
        log_msg(LOG_ERROR, "node",
                "the disk is full: the ballast is given up, writes that grow storage are refused");
    else if (held)
        log_msg(LOG_ERROR, "node", "the disk is full and the ballast does not go: %s", error.text);
    return err == ERR_OK;
}

static enum err ballast_reserve(struct node *n, uint64_t size, struct error *error)
{
    struct disk *disk = n->options.disk;
    struct disk_file *f = NULL;
    TRY(disk_open(disk, BALLAST_FILE, DISK_WRITE | DISK_CREATE, &f, error));
    enum err err = disk_reserve(disk, f, size, error);
    disk_close(disk, f);
    return err;
}

static uint64_t ballast_size(const struct node *n, const struct disk_usage *usage)
{
    uint64_t tenth = usage->total_bytes / 10;
    return n->options.ballast_bytes < tenth ? n->options.ballast_bytes : tenth;
}

/* Kept free beside what is on its way to the disk. */
static uint64_t margin(uint64_t ballast)
{
    return ballast / 4;
}

/* Makes it where that leaves the gate open and as much room again. False when there should be one
 * and there is no room. */
static bool ballast_make(struct node *n, const struct disk_usage *usage)
{
    struct error error = {0};
    enum err err = ERR_OK;
    uint64_t size = ballast_size(n, usage);
    double used = (double)(usage->total_bytes - usage->free_bytes) + (double)size;
    pthread_mutex_lock(&n->ballast.mutex);
    bool needless = size == 0 || n->ballast.held || n->ballast.impossible;
    bool room = 100.0 * used < n->options.disk_high_pct * (double)usage->total_bytes &&
                usage->free_bytes >= 2 * size + margin(size);
    if (!needless && room) {
        err = ballast_reserve(n, size, &error);
        n->ballast.held = err == ERR_OK;
        n->ballast.impossible = err != ERR_OK && err != ERR_NO_SPACE;
        if (err != ERR_OK) {
            enum err ignored = disk_unlink(n->options.disk, BALLAST_FILE, NULL); /* or it stays */
            (void)ignored;
        }
    }
    bool warn = !needless && n->ballast.impossible;
    bool there = needless || (room && err != ERR_NO_SPACE);
    pthread_mutex_unlock(&n->ballast.mutex);
    if (warn)
        log_msg(LOG_WARN, "node", "no ballast is kept for a full disk: %s", error.text);
    return there;
}

/* Is there less than what is on its way to the disk may take, twice over? */
static bool space_tight(const struct node *n, const struct disk_usage *usage)
{
    uint64_t coming = atomic_load(&n->queued_bytes) + atomic_load(&n->applied_bytes) -
                      atomic_load(&n->checkpoint_bytes_mark);
    return n->options.ballast_bytes > 0 &&
           usage->free_bytes < 2 * coming + margin(ballast_size(n, usage));
}

/* The disk gate: shut at HIGH per cent or by a full disk, opened again below LOW, when the ballast
 * is there again. */
static void gate_look(struct node *n, const struct disk_usage *usage)
{
    double used =
        100.0 * (double)(usage->total_bytes - usage->free_bytes) / (double)usage->total_bytes;
    bool was = atomic_load(&n->storage_full);
    bool full = used >= n->options.disk_high_pct || (was && used >= n->options.disk_low_pct);
    if (!full && !ballast_make(n, usage))
        full = was;
    atomic_store(&n->storage_full, full);
    if (full != was)
        log_msg(full ? LOG_ERROR : LOG_INFO, "node",
                full ? "disk gate shut at %.1f %% used: writes that grow storage are refused"
                     : "disk gate open again at %.1f %% used",
                used);
}

/* Files that are open outlive their folder: without this look a broker whose folder was removed would go on
 * acknowledging into nothing. */
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
    struct disk_usage usage;
    if (!folder_is_there(n))
        return;
    if (disk_usage(n->options.disk, &usage, NULL) != ERR_OK || usage.total_bytes == 0)
        return;
    gate_look(n, &usage);
    atomic_store(&n->space_tight, space_tight(n, &usage));
    if (!node_storage_full(n)) {
        pthread_mutex_lock(&n->mutex);
        pthread_cond_broadcast(&n->space_wake);
        pthread_mutex_unlock(&n->mutex);
    }
}
