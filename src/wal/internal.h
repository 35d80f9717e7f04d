/* What the files of wal share. */
#ifndef WAL_INTERNAL_H
#define WAL_INTERNAL_H

#include "wal/format.h"
#include "wal/wal.h"

#include <pthread.h>

/* Preallocated files kept. One is made ahead, so that a roll need not; more only come back from the
 * log, up to what a node at full speed fills between two checkpoints (256 MB in segments of 64 MiB)
 * and while one is made: else the writer makes them itself, which is a stall and writes twice. */
#define WAL_SPARES_MAX 6u
#define WAL_SHARE_OF_DISK                                                                          \
    10 /* spares are kept while the log is below this fraction of the disk                         \
        */

struct wal_spare {
    uint64_t id, size;
};

/* Where a walk along the log stands: after the last good write. */
struct wal_position {
    uint64_t at;         /* offset in its segment: the next write goes here */
    uint64_t number;     /* of the next write */
    uint64_t last_index; /* of the last entry; the first segment's first - 1 when there is none */
    uint64_t last_term;  /* of the last entry; 0 when there is none */
    uint32_t chain;
};

struct wal {
    struct disk *disk;
    struct entropy *entropy;
    char *dir;
    uint64_t segment_bytes;
    struct wal_hard hard;

    /* Writer. */
    struct disk_file *tail; /* the last segment, open for writing */
    struct wal_segment_header tail_header;
    struct wal_position end;
    bool failed;    /* a write or sync failed: nothing is written any more */
    uint8_t *heads; /* headers of the write being made */
    size_t heads_cap;
    struct span *parts; /* what goes to the disk */
    size_t parts_cap;

    struct {
        pthread_mutex_t mutex;
        struct wal_segment_header *segments; /* ascending, the last one is the tail */
        size_t n_segments, segments_cap;
        struct wal_spare spares[WAL_SPARES_MAX];
        size_t n_spares;
        uint64_t next_id; /* for names of spare and tmp files */
        uint64_t bytes;   /* of all files; read without the mutex */
    } shared;
};

/* segment.c */

/* <dir>/<kind>-<number>.wal, mem_free(). */
char *wal_file_path(const struct wal *w, const char *kind, uint64_t number);
/* Takes a spare or makes a file of `size` bytes, gives it the header of the log's next segment and
 * makes it the tail. ERR_NO_SPACE: nothing changed. */
ERR_CHECK enum err wal_segment_start(struct wal *w, uint64_t size, struct error *error);
/* Recycles or unlinks segments that are no longer in the list. */
ERR_CHECK enum err wal_segments_retire(struct wal *w, const struct wal_segment_header *segments,
                                       size_t n, struct error *error);
void wal_segment_push(struct wal *w, const struct wal_segment_header *h); /* under the mutex */
void wal_bytes_add(struct wal *w, int64_t delta);

/* recover.c */

/* Reads the folder, checks the log, writes back what lies above applied, cleans up, and sets the
 * writer's fields and the lists. */
ERR_CHECK enum err wal_recover(struct wal *w, uint64_t applied, struct error *error);

/* walk.c */

struct wal_walk {
    /* Called for every entry with index > after; NULL: only checks. */
    wal_entry_fn fn;
    void *ctx;
    uint64_t after;
    bool write_back; /* writes that hold an entry above `after` are rewritten as they are, and
                        synced */
};

/* Walks along consecutive segments (n >= 1) from the first one's header to the end of the log, as
 * wal.h says. ERR_CORRUPT when acknowledged entries are damaged. */
ERR_CHECK enum err wal_walk_segments(struct wal *w, const struct wal_segment_header *segments,
                                     size_t n, const struct wal_walk *walk,
                                     struct wal_position *end_out, struct error *error);

#endif
