/* A disk in memory that can lose power: struct disk for tests and the simulator.
 *
 * It keeps two states. What calls see is the page cache: the latest of everything. What would survive is
 * the durable state, plus a list of changes made since: bytes written, sizes, names. A sync moves the
 * changes it covers to the durable state:
 *   datasync(file)  its bytes and size
 *   sync_dir(path)  names made, renamed and removed in that folder (a rename counts for both folders)
 *   sync_all        everything
 * A power cut (sim_disk_crash) takes the durable state and lets each 512-byte sector, size and name changed
 * since survive, be lost, or be torn, at random; so a sector may also come back in any of the versions
 * between. Names survive either as a prefix in the order of their making (a journal) or each for itself
 * (all that POSIX promises). kill -9 (sim_disk_kill) loses nothing that was written, but it stays unsynced.
 * Both make every open file and lock invalid: each call on one fails with ERR_IO, but it must still be
 * closed.
 *
 * A sync that fails does what Linux does: the page cache keeps the data and calls it clean, the
 * disk may have it or not, and the next sync succeeds without writing it.
 *
 * All random choices come from the seed and the caller's generator. Any thread. */
#ifndef TESTS_SIM_DISK_H
#define TESTS_SIM_DISK_H

#include "base/buf.h"
#include "io/disk.h"
#include "lib/prng.h"

enum sim_disk_op {
    SIM_DISK_OPEN,
    SIM_DISK_READ,
    SIM_DISK_WRITE,
    SIM_DISK_TRUNCATE,
    SIM_DISK_PREALLOCATE,
    SIM_DISK_DATASYNC,
    SIM_DISK_SYNC_DIR,
    SIM_DISK_SYNC_ALL,
    SIM_DISK_RENAME,
    SIM_DISK_UNLINK,
    SIM_DISK_MKDIR,
    SIM_DISK_RMDIR,
    SIM_DISK_LIST,
    SIM_DISK_OPS, /* how many kinds */
};

struct disk *sim_disk_new(uint64_t seed);
void sim_disk_free(struct disk *d); /* NULL is allowed; open files must be closed before */

/* Power cut and reboot. */
void sim_disk_crash(struct disk *d, struct prng *rng);
/* Process killed and started again. */
void sim_disk_kill(struct disk *d);
/* After n more operations that change something (0: the next one), that one is done in part or not
 * at all, and it and every operation after it fails with ERR_IO, until sim_disk_crash or
 * sim_disk_kill. */
void sim_disk_crash_after(struct disk *d, uint64_t n);
/* True from the moment the above struck until the reboot. */
bool sim_disk_down(struct disk *d);

/* The next operation of that kind fails with err (ERR_IO, ERR_NO_SPACE, ...); a write may be done
 * in part. `skip` operations of that kind succeed before. */
void sim_disk_fail_next(struct disk *d, enum sim_disk_op op, enum err err, uint64_t skip);
/* The kind of the operation that failed so since the last reboot; SIM_DISK_OPS: none did. */
enum sim_disk_op sim_disk_failed(struct disk *d);
const char *sim_disk_op_name(enum sim_disk_op op);
/* Called within each operation before it is done: a slow disk moves a clock there. NULL: none. It
 * must not call the disk. */
void sim_disk_set_pace(struct disk *d, void (*pace)(void *ctx, enum sim_disk_op op), void *ctx);
/* Called before each read and sync of everything, which other threads do something during: it may
 * call the disk, and should see to it that it is not called within itself. NULL: none. */
void sim_disk_set_meanwhile(struct disk *d, void (*meanwhile)(void *ctx), void *ctx);

/* Bytes all files together may have; ERR_NO_SPACE beyond. 1 TiB at first. */
void sim_disk_set_capacity(struct disk *d, uint64_t bytes);
uint64_t sim_disk_used(struct disk *d);

uint64_t sim_disk_count(struct disk *d, enum sim_disk_op op); /* operations since the start */
uint64_t sim_disk_changes(struct disk *d); /* those that change something, as crash_after counts */

/* Direct access, for damage and for setting a scene: no counters, no faults. */
/* Makes or replaces a file (and its folders) with these bytes, all durable. */
void sim_disk_put(struct disk *d, const char *path, struct span bytes);
/* What a reader sees; false when there is no such file. Appends to out. */
bool sim_disk_get(struct disk *d, const char *path, struct buf *out);
/* Overwrites bytes in the page cache and on the disk alike (bit rot); the file must be that long.
 */
void sim_disk_damage(struct disk *d, const char *path, uint64_t at, struct span bytes);
/* A new disk with what a reader sees, all of it durable. Nothing may be changing meanwhile. */
struct disk *sim_disk_copy(struct disk *d, uint64_t seed);

#endif
