/* Write-ahead log: the promise behind every acknowledged write (docs/architecture.md, storage rules
 * 1 and 2). One writer (the node's log-writer thread); recovery before it starts.
 *
 * Files in <dir>/: seg-<n>.wal (n: 16 hex digits), preallocated and recycled segments of writes;
 * hard (hard state: term, vote; replaced atomically). The exact tables stand in wal/format.h.
 *
 * A *write* is one batch of entries made durable by one fdatasync. It starts on a 4 KiB boundary
 * with a header of its own CRC: segment salt, write number, chain value of the previous write,
 * synced_through (the highest index known durable when this write was made), length and entry
 * count. Entry CRCs continue the chain. So neither a stale write of a recycled segment nor one of a
 * lost batch can join the chain again; the term rises at every start.
 *
 * Recovery walks the chain; after a bad write it looks on at every later 4 KiB boundary (and later
 * segments): a valid later write whose synced_through covers the bad one means acknowledged data is
 * damaged: ERR_CORRUPT, naming file and offset, nothing changed. Else the log ends there. */
#ifndef WAL_WAL_H
#define WAL_WAL_H

#include "base/buf.h"
#include "io/clock.h"
#include "io/disk.h"

struct wal;

#define WAL_ENTRY_MAX                                                                              \
    (100u * 1024 *                                                                                 \
     1024) /* payload bytes of one entry: entry ceiling + framing                    \
                          */

struct wal_options {
    struct disk *disk;       /* borrowed, outlives the wal */
    struct entropy *entropy; /* borrowed: segment salts */
    const char *dir;         /* below the disk's root, made when missing */
    uint64_t segment_bytes;  /* preallocated size; a larger entry gets a segment of its own */
};

struct wal_entry {
    uint64_t index; /* >= 1, +1 from entry to entry */
    uint64_t term;  /* >= 1 */
    struct span payload;
};

/* Opens and recovers. `applied` is the index of the state's checkpoint: every index from applied +
 * 1 to the last one must be there without a gap, else ERR_CORRUPT and nothing is changed. Entries
 * above `applied` are written back in place, byte for byte, and synced, before this returns (bytes
 * found after a kill may be in the page cache only). The term is raised by one and saved. */
ERR_CHECK enum err wal_open(const struct wal_options *options, uint64_t applied,
                            struct wal **wal_out, struct error *error);
void wal_close(struct wal *w); /* NULL is allowed; syncs nothing */

uint64_t wal_first_index(const struct wal *w); /* 0 when empty */
uint64_t wal_last_index(const struct wal *w);  /* applied when empty */
uint64_t wal_term(const struct wal *w);        /* of this start */
uint64_t wal_bytes(const struct wal *w);       /* of its files, for metrics. Any thread */

/* Calls fn for each entry with index > after, in order (recovery). The payload is valid during the
 * call; an error of fn ends the walk and is returned. */
typedef enum err (*wal_entry_fn)(void *ctx, const struct wal_entry *entry, struct error *error);
ERR_CHECK enum err wal_replay(struct wal *w, uint64_t after, wal_entry_fn fn, void *ctx,
                              struct error *error);

/* One entry of a write, its payload gathered from parts. */
struct wal_append {
    uint64_t index;
    const struct span *parts;
    size_t n_parts;
};

/* Appends entries of the current term as one write and syncs it: they are durable when this returns
 * ERR_OK. ERR_NO_SPACE (from write or preallocation): nothing was appended, the caller may try
 * again. ERR_TOO_LARGE (512 MiB of entries in one write): nothing was appended. Any other error:
 * the node must stop; whether the entries survive is unknown. Blocks. */
ERR_CHECK enum err wal_write(struct wal *w, const struct wal_append *entries, size_t n,
                             struct error *error);

/* Entries up to `index` are in a durable checkpoint: whole segments at or below it are recycled (a
 * few are kept preallocated) or unlinked. May be called from the checkpoint thread. */
ERR_CHECK enum err wal_release(struct wal *w, uint64_t index, struct error *error);

/* Preallocates a segment ahead when none is waiting and the log is below a tenth of the filesystem,
 * so that wal_write() need not. ERR_NO_SPACE changes nothing. Any thread, one at a time. Blocks. */
ERR_CHECK enum err wal_prepare(struct wal *w, struct error *error);
/* Unlinks the files kept for later, for a full disk; false when there are none. Any thread. */
bool wal_drop_spares(struct wal *w);
/* The same before the log in `dir` is opened. */
bool wal_unlink_spares(struct disk *disk, const char *dir);

#endif
