/* Bytes of a queue log's segment file, version 1. Integers are little-endian.
 *
 *   segment header                       QLOG_SEGMENT_HEADER_SIZE, at 0
 *   runs, one behind the other           from QLOG_SEGMENT_HEADER_SIZE on
 *   --- what follows is there in a sealed segment only ---
 *   index blocks                         QLOG_BLOCK_SIZE each
 *   stamp marks                          QLOG_MARK_SIZE each
 *   footer                               QLOG_FOOTER_SIZE, the last bytes of the file
 *
 * A position counts run bytes over all segments of a log: the run at position p lies at byte
 * QLOG_SEGMENT_HEADER_SIZE + p - (first position) of its segment. Headers, indexes and footers have
 * no positions, so the positions of a queue do not depend on where a node happened to roll its
 * segments.
 *
 * Segment header v1:
 *   offset  size  field
 *        0     4  crc32c of bytes [4, 64)
 *        4     4  magic "QLGS"
 *        8     4  version, 1
 *       12     4  reserved, 0
 *       16     8  queue id
 *       24     8  first position
 *       32     8  first stamp, microseconds: the stamp of the first run
 *       40    24  reserved, 0
 *
 * Run v1: a header of 64 bytes, then the body.
 *   offset  size  field
 *        0     4  crc32c of bytes [4, 64)
 *        4     4  crc32c of the body
 *        8     4  body length in bytes
 *       12     4  count of records, 1..QLOG_RUN_RECORDS_MAX
 *       16     8  position: finds a block that was written to a wrong place
 *       24     8  partition id
 *       32     8  first offset
 *       40     8  stamp, microseconds
 *       48     8  weight (struct qlog_run_head)
 *       56     2  length of the partition's name
 *       58     6  reserved, 0
 *       64     -  body: the partition's name, then the records one behind the other
 * Record v1:
 *   offset  size  field
 *        0    16  message id
 *       16     4  t, length of the transaction id
 *       20     4  p, length of the payload
 *       24     t  transaction id
 *     24+t     p  payload
 *
 * Index: a static B-tree of blocks. Leaf blocks come first, in key order; then the inner blocks of
 * each level over them; the last block is the root. Key: (partition id, first offset).
 *   offset  size  field
 *        0     4  crc32c of bytes [4, 4096)
 *        4     4  block number, counted from 0 at the first leaf
 *        8     8  first position of the segment
 *       16     2  count of entries, 1..QLOG_BLOCK_ENTRIES
 *       18     2  level, 0 for a leaf
 *       20     4  reserved, 0
 *       24  32*n  entries, keys rising; the rest of the block is 0
 * Entry v1:
 *        0     8  partition id
 *        8     8  first offset
 *       16     8  position of the run; in an inner block the number of the child that starts with
 * the key 24     8  stamp; 0 in an inner block
 *
 * Stamp marks, rising, at most one for every QLOG_MARK_SPACING run bytes, the first one for the
 * first run: they bound what a search by stamp has to scan. 0     8  stamp 8     8  position of a
 * run with that stamp
 *
 * Footer v1:
 *   offset  size  field
 *        0     4  crc32c of bytes [4, 96)
 *        4     4  magic "QLGF"
 *        8     8  first position
 *       16     8  run bytes
 *       24     8  count of runs
 *       32     8  first stamp
 *       40     8  last stamp
 *       48     8  least partition id
 *       56     8  greatest partition id
 *       64     4  count of leaf blocks
 *       68     4  count of blocks, all levels
 *       72     4  count of stamp marks
 *       76     4  crc32c of the stamp marks
 *       80    16  reserved, 0
 *
 * The codec below is pure; any thread. Decoders trust nothing. */
#ifndef STORE_QLOG_FORMAT_H
#define STORE_QLOG_FORMAT_H

#include "store/qlog.h"

#define QLOG_SEGMENT_HEADER_SIZE 64u
#define QLOG_RUN_HEADER_SIZE 64u
#define QLOG_RECORD_HEADER_SIZE 24u
#define QLOG_BLOCK_SIZE 4096u
#define QLOG_BLOCK_HEADER_SIZE 24u
#define QLOG_ENTRY_SIZE 32u
#define QLOG_BLOCK_ENTRIES 127u /* (4096 - 24) / 32 */
#define QLOG_MARK_SIZE 16u
#define QLOG_MARK_SPACING (256u * 1024)
#define QLOG_FOOTER_SIZE 96u

struct qlog_segment_header {
    uint64_t queue_id;
    uint64_t first;
    int64_t first_stamp;
};

void qlog_segment_header_encode(const struct qlog_segment_header *h,
                                uint8_t out[QLOG_SEGMENT_HEADER_SIZE]);
/* ERR_CORRUPT, or ERR_VERSION for a whole header of another version. */
ERR_CHECK enum err qlog_segment_header_decode(const uint8_t in[QLOG_SEGMENT_HEADER_SIZE],
                                              struct qlog_segment_header *out);

/* Appends header and body of the run to `out`. */
void qlog_run_encode(const struct qlog_run *run, uint64_t position, struct buf *out);
/* head->position must be what the caller expects there: other bytes are ERR_CORRUPT. */
ERR_CHECK enum err qlog_run_head_decode(const uint8_t in[QLOG_RUN_HEADER_SIZE], uint64_t position,
                                        struct qlog_run_head *head_out, uint32_t *body_crc_out);
/* Splits a body whose checksum was verified. records: head->count of them, pointing into `body`.
 * ERR_CORRUPT when the lengths or the weight do not add up. */
ERR_CHECK enum err qlog_run_body_decode(const struct qlog_run_head *head, struct span body,
                                        struct span *partition_out, struct qlog_record *records);

struct qlog_entry {
    uint64_t partition_id;
    uint64_t first_offset;
    uint64_t position; /* or the number of the child block */
    int64_t stamp;
};

struct qlog_block {
    uint32_t number;
    uint16_t level;
    uint16_t count;
    const uint8_t *entries; /* borrowed from the bytes decoded */
};

/* count: 1..QLOG_BLOCK_ENTRIES. */
void qlog_block_encode(uint64_t first, uint32_t number, uint16_t level,
                       const struct qlog_entry *entries, size_t count,
                       uint8_t out[QLOG_BLOCK_SIZE]);
ERR_CHECK enum err qlog_block_decode(const uint8_t in[QLOG_BLOCK_SIZE], uint64_t first,
                                     uint32_t number, struct qlog_block *out);
struct qlog_entry qlog_block_entry(const struct qlog_block *b, size_t at); /* at < count */
/* Order of two keys: < 0, 0, > 0. */
int qlog_key_cmp(uint64_t partition_a, uint64_t offset_a, uint64_t partition_b, uint64_t offset_b);

struct qlog_footer {
    uint64_t first;
    uint64_t run_bytes;
    uint64_t runs;
    int64_t first_stamp, last_stamp;
    uint64_t partition_min, partition_max;
    uint32_t leaves, blocks, marks;
    uint32_t marks_crc;
};

void qlog_footer_encode(const struct qlog_footer *f, uint8_t out[QLOG_FOOTER_SIZE]);
/* Checks that the fields agree with each other too. */
ERR_CHECK enum err qlog_footer_decode(const uint8_t in[QLOG_FOOTER_SIZE], struct qlog_footer *out);
/* Blocks of all levels over `leaves` leaf blocks. */
uint32_t qlog_blocks_over(uint32_t leaves);
/* Size of the sealed file, and where its parts begin. */
uint64_t qlog_footer_blocks_at(const struct qlog_footer *f);
uint64_t qlog_footer_marks_at(const struct qlog_footer *f);
uint64_t qlog_footer_file_size(const struct qlog_footer *f);

#endif
