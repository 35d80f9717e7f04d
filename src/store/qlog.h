/* Queue log: one append-only log per queue, the place the sink and fetch read from.
 *
 * <dir>/<id>/ holds segments seg-<first position, 16 hex digits>.qlog; every one but the last is
 * sealed: it ends in an index (partition id, first offset, position, stamp) sorted by (partition
 * id, first offset) and a footer with CRCs, first and last stamp, run count. The exact tables stand
 * in store/qlog_format.h (version 1).
 *
 * A *run* is what one push appended to one partition: consecutive offsets, one stamp. It is the
 * unit of appending and of checksumming: a fixed header with a CRC32C of its own (so that a scan
 * can skip bodies), then the body (partition name and records) with a CRC32C named in the header.
 *
 * A *position* is a byte position in the whole log of the queue: it never moves and is never
 * reused, over segments. Positions rise with appends, and so do stamps (docs/architecture.md: the
 * log of one queue is sorted by ts).
 *
 * Threads: one appender (the apply thread) and any number of readers. Readers see whole runs below
 * the published end only. Durability is the checkpoint's business (sync_all on the disk, then the
 * length goes into the state): nothing here syncs, not even the folder entry of a new segment.
 *
 * Readers get ERR_NOT_FOUND for a position below the log's start, also when retention passes it
 * while they read.
 *
 * File handles: at most `handles_max` files, active and sealed, stay open over all logs of a set
 * (LRU), more only while more are in use at one moment. */
#ifndef STORE_QLOG_H
#define STORE_QLOG_H

#include "base/buf.h"
#include "base/uuid.h"
#include "io/disk.h"

#define QLOG_RUN_RECORDS_MAX 1000000u

struct qlog_set; /* all queue logs of one node */
struct qlog;     /* one queue's log */

struct qlog_set_options {
    struct disk *disk; /* borrowed */
    const char *dir;   /* "qlog", made when missing */
    uint64_t segment_bytes;
    unsigned handles_max;
};

ERR_CHECK enum err qlog_set_open(const struct qlog_set_options *options, struct qlog_set **out,
                                 struct error *error);
void qlog_set_close(struct qlog_set *s); /* closes every log; NULL is allowed */
/* Ids of the folders found on disk, ascending: those the state does not know are removed at boot.
 * ids_out: mem_free(). */
ERR_CHECK enum err qlog_set_list(struct qlog_set *s, uint64_t **ids_out, size_t *n_out,
                                 struct error *error);

/* A new, empty log (its folder is made by the first append). Files left by a crash are removed. */
ERR_CHECK enum err qlog_create(struct qlog_set *s, uint64_t id, struct qlog **out,
                               struct error *error);
/* Opens at boot and cuts to `length` (the position the checkpoint recorded): later bytes and later
 * segments go. start: the position retention had reached; segments below it may be missing. Checks
 * presence, length and seal of every file, and reads what lies above the last seal; a missing byte
 * or a bad CRC below `length` is ERR_CORRUPT naming file and offset. */
ERR_CHECK enum err qlog_open(struct qlog_set *s, uint64_t id, uint64_t start, uint64_t length,
                             struct qlog **out, struct error *error);
/* Unlinks the files and the folder and frees the log, whatever it returns: what could not be
 * removed is found by qlog_set_list() at the next boot. No reader may be left (node counts them).
 */
ERR_CHECK enum err qlog_destroy(struct qlog *q, struct error *error);

struct qlog_record {
    struct uuid message_id;
    struct span transaction_id;
    struct span payload;
};

/* One run to append; everything borrowed until the call returns. */
struct qlog_run {
    uint64_t partition_id;
    struct span partition; /* its name */
    uint64_t first_offset;
    int64_t stamp; /* us; rises strictly from push to push, equal within a push */
    const struct qlog_record *records;
    uint32_t count; /* 1..QLOG_RUN_RECORDS_MAX */
};

/* Bytes the run takes in the log, to reserve room before an entry is started. */
uint64_t qlog_run_size(const struct qlog_run *run);

/* Appends and publishes. position_out (may be NULL): where it starts. ERR_NO_SPACE leaves the log
 * as it was (a later append overwrites torn bytes); other errors stop the node. Appender only. */
ERR_CHECK enum err qlog_append(struct qlog *q, const struct qlog_run *run, uint64_t *position_out,
                               struct error *error);

uint64_t qlog_id(const struct qlog *q);
uint64_t qlog_end(const struct qlog *q);   /* next position; acquire order. Any thread */
uint64_t qlog_start(const struct qlog *q); /* first position still there. Any thread */
uint64_t qlog_disk_bytes(const struct qlog *q);
size_t qlog_segment_count(struct qlog *q); /* files that its runs are in. Any thread */

/* What a scan sees of a run without reading its body. */
struct qlog_run_head {
    uint64_t position, next_position; /* of this run, of the run behind it */
    uint64_t partition_id;
    uint64_t first_offset;
    uint32_t count;
    int64_t stamp;
    uint64_t weight; /* sum over records of 64 + transactionId + partition + payload (sink.md 11) */
    uint16_t partition_len;
    uint32_t body_len;
};

/* Position of the first run with stamp >= `stamp`, at or above the log's start; qlog_end() when
 * there is none: of the moment of the look, so a run appended meanwhile is never passed. Any
 * thread; blocks. */
ERR_CHECK enum err qlog_seek_stamp(struct qlog *q, int64_t stamp, uint64_t *position_out,
                                   struct error *error);
/* A record that is thought to lie below a stamp, and not far from it. */
struct qlog_near {
    uint64_t partition_id, offset;
    int64_t below; /* its stamp is below this one: a mark at or above it tells more */
};

/* The same answer, found with fewer bytes read when `near` (may be NULL) is right. Nothing of it is
 * relied on: of whatever it names only a run of this log with a stamp below `stamp` counts. */
ERR_CHECK enum err qlog_seek_stamp_near(struct qlog *q, int64_t stamp, const struct qlog_near *near,
                                        uint64_t *position_out, struct error *error);
/* The heads of up to max runs from `position` (a run's start or the end) on, below `end` (<=
 * qlog_end). ERR_CORRUPT for damage. *next_out: where to go on. Any thread; blocks. */
ERR_CHECK enum err qlog_scan(struct qlog *q, uint64_t position, uint64_t end,
                             struct qlog_run_head *heads, size_t max, size_t *n_out,
                             uint64_t *next_out, struct error *error);

/* A run read whole, its checksum verified. Everything points into `bytes`. */
struct qlog_run_data {
    struct buf bytes; /* owned; reused from call to call */
    struct qlog_run_head head;
    struct span partition;
    struct qlog_record *records; /* head.count of them; owned */
    size_t records_cap;
};

void qlog_run_data_deinit(struct qlog_run_data *d);
ERR_CHECK enum err qlog_read(struct qlog *q, uint64_t position, struct qlog_run_data *data,
                             struct error *error);

/* Position of the run of `partition_id` that holds `offset`, or of its next later run;
 * ERR_NOT_FOUND when the partition has none at or above `offset` (below end). Uses the sealed
 * segments' indexes and the active one's in memory. Any thread; blocks. */
ERR_CHECK enum err qlog_find(struct qlog *q, uint64_t partition_id, uint64_t offset,
                             uint64_t *position_out, struct error *error);

/* Unlinks sealed segments that end at or below `position` (retention; later issues). Any thread,
 * one at a time; blocks. */
ERR_CHECK enum err qlog_trim(struct qlog *q, uint64_t position, struct error *error);

#endif
