/* What the files of the queue log share.
 *
 * qlog.c          the set; create, open, append, trim, destroy
 * qlog_open.c     what boot does with a folder: order, checks, cut, rebuild
 * qlog_segment.c  segments, lists of segments, open files, sealing
 * qlog_index.c    the active segment's index in memory, the sealed one's blocks
 * qlog_read.c     seek, scan, read, find
 * qlog_format.c   bytes */
#ifndef STORE_QLOG_INTERNAL_H
#define STORE_QLOG_INTERNAL_H

#include "store/qlog.h"
#include "store/qlog_format.h"
#include "base/map.h"

#include <pthread.h>
#include <stdatomic.h>

#define QLOG_PATH_MAX 512u
#define QLOG_DIR_MAX 400u /* leaves room for the id, the file's name and the slashes */
#define QLOG_SEGMENT_BYTES_MAX UINT32_MAX /* the active index keeps 32-bit places */

/* ---- Index of the active segment (qlog_index.c). The log's lock guards it. ---- */

#define QLOG_NONE UINT32_MAX

/* A run. Runs of one partition form a chain by `prev`; `jump` goes back further, so that a search
 * takes O(log) steps (Myers, "An applicative random-access stack", 1983). 40 bytes. */
struct qlog_node {
    uint64_t first_offset;
    int64_t stamp;
    uint32_t at; /* position - the segment's first */
    uint32_t count;
    uint32_t slot; /* of its partition */
    uint32_t prev, jump;
    uint32_t depth; /* number of runs before it in the chain */
};

struct qlog_slot { /* a partition of the active segment */
    uint64_t partition_id;
    uint32_t last; /* node */
};

struct qlog_active {
    uint64_t first;            /* position of the segment's first run */
    struct qlog_node **chunks; /* of a fixed size, so that growth copies little */
    uint32_t chunks_cap;
    uint32_t first_cap; /* nodes the first chunk has room for, up to that size */
    uint32_t n;
    struct qlog_slot *slots;
    uint32_t slots_n, slots_cap;
    struct map64 by_id; /* partition id -> slot + 1 */
};

void qlog_active_init(struct qlog_active *a, uint64_t first);
void qlog_active_deinit(struct qlog_active *a);
/* False when the run does not fit behind what is there: its partition's offsets, the stamps, or its
 * place (32 bits) are out of order or range. */
bool qlog_active_add(struct qlog_active *a, const struct qlog_run_head *head);
/* Position of the first run with stamp >= `stamp`; false when there is none. */
bool qlog_active_seek_stamp(const struct qlog_active *a, int64_t stamp, uint64_t *position_out);

/* What a segment knows about a key (partition id, offset): its last run of that partition that
 * starts at or below the offset, and its first one that starts above it. */
struct qlog_around {
    bool has_floor, has_above;
    uint64_t floor, above; /* positions */
    uint64_t floor_behind; /* the offset behind the floor run; 0 when only its header tells */
};

void qlog_active_around(const struct qlog_active *a, uint64_t partition_id, uint64_t offset,
                        struct qlog_around *out);
/* Index blocks, marks and footer of the whole active segment, ready to be written behind its runs.
 * run_bytes: its length. */
void qlog_active_seal(const struct qlog_active *a, uint64_t run_bytes, struct buf *out,
                      struct qlog_footer *footer_out);

/* ---- Segments (qlog_segment.c) ---- */

struct qlog_handle;

struct qlog_segment {
    struct qlog *q;
    uint64_t first;
    int64_t first_stamp;
    unsigned lists;     /* lists that hold it; the log's lock */
    atomic_bool sealed; /* release after `footer` is set, never back */
    atomic_bool gone;   /* trimmed: its file may be missing */
    struct qlog_footer footer;
    struct qlog_handle *handle; /* its open file or NULL; the cache's lock */
};

/* Segments in order of position. Immutable: a change makes a new list, and a reader keeps the one
 * it took, with the segments in it, until it puts it back. */
struct qlog_list {
    unsigned refs; /* the log's lock */
    size_t n;
    struct qlog_segment *segs[];
};

/* Open files of segments, newest use first. At most `max` stay open, more only while more are in
 * use at once. One cache for active and sealed segments: a file opened while its segment was active
 * can be written, which its readers do not mind later. */
struct qlog_handles {
    pthread_mutex_t lock;
    struct qlog_handle *newest, *oldest;
    unsigned open, max;
};

struct qlog_set {
    struct disk *disk;
    char *dir;
    uint64_t segment_bytes;
    struct qlog_handles handles;
    _Atomic(struct buf *) scratch; /* the appender's encoding buffer, when nobody uses it */
    pthread_mutex_t lock;          /* guards the list of logs */
    struct qlog *logs;
};

struct qlog {
    struct qlog_set *set;
    struct qlog *next, **link; /* in the set's list; its lock */
    uint64_t id;
    /* Appender. */
    int64_t last_stamp;
    bool torn; /* the active file may be longer than its runs */
    /* Any thread. */
    atomic_uint_least64_t end;
    atomic_uint_least64_t start;
    atomic_uint_least64_t disk_bytes;
    struct {
        pthread_mutex_t lock;
        struct qlog_list *list;
        struct qlog_segment *active_seg; /* last of the list, or NULL */
        struct qlog_active active;       /* index of active_seg */
    } shared;
};

/* Path of the log's folder, or of the segment that starts at `first`. */
void qlog_folder_path(const struct qlog_set *s, uint64_t id, char out[QLOG_PATH_MAX]);
void qlog_segment_path(const struct qlog *q, uint64_t first, char out[QLOG_PATH_MAX]);
/* The first position in a segment file's name; false for another name. */
bool qlog_segment_name_parse(const char *name, uint64_t *first_out);
/* Unlinks every file in the folder; a missing folder is fine. */
ERR_CHECK enum err qlog_folder_empty(struct qlog_set *s, uint64_t id, struct error *error);

struct qlog_segment *qlog_segment_new(struct qlog *q, uint64_t first, int64_t first_stamp);
void qlog_segment_free(struct qlog_segment *seg); /* closes its file; NULL is allowed */

/* A file to read from (or, while the segment is active, to write to), until it is released.
 * ERR_NOT_FOUND when the segment was trimmed; a missing file is ERR_CORRUPT otherwise. */
ERR_CHECK enum err qlog_handle_acquire(struct qlog_segment *seg, struct qlog_handle **out,
                                       struct error *error);
struct disk_file *qlog_handle_file(struct qlog_handle *h);
void qlog_handle_release(struct qlog_handle *h); /* NULL is allowed */
/* Puts the open file of a new active segment, made by the appender, into the cache. */
void qlog_handle_install(struct qlog_segment *seg, struct disk_file *file);

/* The current list, until it is put back. */
struct qlog_list *qlog_list_take(struct qlog *q);
void qlog_list_put(struct qlog *q, struct qlog_list *list);
/* Adds a segment behind the others (takes it); NULL makes the first, empty list. One that is not
 * sealed becomes the active segment, with an empty index. Returns the list from before, to be put
 * back when the lock is released. The log's lock is held. */
struct qlog_list *qlog_list_add(struct qlog *q, struct qlog_segment *seg);
/* Takes the sealed segments that end at or below `position` off the list and marks them gone.
 * Returns the list from before, to be put back; the first *n_out of its segments went. */
struct qlog_list *qlog_list_trim(struct qlog *q, uint64_t position, size_t *n_out);
/* Index of the last segment with first <= position; list->n when there is none. */
size_t qlog_list_at(const struct qlog_list *list, uint64_t position);

/* End of the segment's runs: its seal, or the published end of the log. */
uint64_t qlog_segment_end(const struct qlog_segment *seg);
bool qlog_segment_sealed(const struct qlog_segment *seg);
/* Byte of the segment's file where `position` lies. */
uint64_t qlog_segment_byte(const struct qlog_segment *seg, uint64_t position);
/* Reads bytes that must be there: a short file is ERR_CORRUPT. */
ERR_CHECK enum err qlog_segment_read(struct qlog_segment *seg, struct qlog_handle *h, uint64_t at,
                                     void *out, size_t len, struct error *error);
/* ERR_CORRUPT with the file, the byte and what is wrong there. */
enum err qlog_segment_damaged(const struct qlog_segment *seg, uint64_t at, const char *what,
                              struct error *error);

/* What a sealed segment's index says about a key; ERR_CORRUPT for damage. */
ERR_CHECK enum err qlog_sealed_around(struct qlog_segment *seg, uint64_t partition_id,
                                      uint64_t offset, struct qlog_around *out,
                                      struct error *error);
/* Position and stamp of a run from which a scan for the first run with stamp >= `stamp` may start.
 */
ERR_CHECK enum err qlog_sealed_seek_mark(struct qlog_segment *seg, int64_t stamp,
                                         uint64_t *position_out, int64_t *stamp_out,
                                         struct error *error);

/* ---- Boot (qlog_open.c) ---- */

/* Fills a new log from its folder, cut to `length`. */
ERR_CHECK enum err qlog_recover(struct qlog *q, uint64_t start, uint64_t length,
                                struct error *error);

#endif
