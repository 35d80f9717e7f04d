/* Bytes of the write-ahead log. Version 1, integers little-endian, CRC32C (RFC 3720 appendix B.4).
 *
 * Files of <dir>/:
 *   hard             hard state, replaced atomically (hard.tmp, rename)
 *   seg-<n>.wal      segment n of the log (16 hex digits); consecutive numbers
 *   spare-<id>.wal   a preallocated file that waits to become a segment; what it holds means
 * nothing tmp-<id>.wal     a file being preallocated; unlinked at the next start A file gets its
 * segment name only after its header is durable. So a seg-<n>.wal whose header does not decode was
 * damaged, never just left behind by a crash.
 *
 * Hard state (64 bytes):
 *   offset  size  field
 *        0     8  magic "QUEENWHS"
 *        8     4  crc32c of bytes [12, 64)
 *       12     4  version
 *       16     8  log id, random, made with the log; every segment carries it
 *       24     8  term of the last start; 0 until the log's first segment was made
 *       32     8  vote in that term, 0 = none
 *       40     8  synced_through: highest index known durable when this was written
 *       48    16  zero
 *
 * Segment: a block of 4096 bytes that starts with the header, then writes, each on a 4096-byte
 * boundary, then bytes that mean nothing (zeros, or writes of an earlier life of a recycled file).
 *   offset  size  field
 *        0     8  magic "QUEENWSG"
 *        8     4  crc32c of bytes [12, 80)
 *       12     4  version
 *       16     8  log id
 *       24     8  n, as in the file's name, >= 1
 *       32     8  salt, random, new for each life of the file, never 0
 *       40     8  file size, a multiple of 4096
 *       48     8  number of the segment's first write, >= 1
 *       56     8  index of its first entry, >= 1: everything before was durable when this was
 * written 64     4  chain value of the write before, 0 for the first one 68    12  zero
 *
 * Write: header, entries, zeros up to the next 4096-byte boundary.
 *   offset  size  field
 *        0     4  magic "QWRT"
 *        4     4  crc32c of bytes [8, 64): seeds the CRC of the first entry
 *        8     8  salt of the segment
 *       16     8  number of the write, +1 from write to write over the whole log
 *       24     8  synced_through: highest index known durable when this write was made
 *       32     8  index of the first entry
 *       40     8  length: bytes of the entries
 *       48     4  chain value of the previous write
 *       52     4  entries, >= 1
 *       56     8  zero
 * Entry:
 *        0     4  crc32c, seeded with the CRC before it, of bytes [4, 24 + len)
 *        4     4  len, payload bytes, at most WAL_ENTRY_MAX
 *        8     8  index, +1 from entry to entry
 *       16     8  term, never falls
 *       24   len  payload
 * The chain value of a write is the CRC of its last entry.
 *
 * Decoding is pure: it says what the bytes are and never trusts one of them. */
#ifndef WAL_FORMAT_H
#define WAL_FORMAT_H

#include "base/err.h"
#include "base/span.h"

#define WAL_VERSION 1u
#define WAL_BLOCK 4096u /* writes start on multiples: no sector holds two of them */
#define WAL_HARD_SIZE 64u
#define WAL_SEGMENT_HEADER_SIZE 80u
#define WAL_WRITE_HEADER_SIZE 64u
#define WAL_ENTRY_HEADER_SIZE 24u
#define WAL_BODY_MAX (512u * 1024 * 1024)   /* bytes of one write's entries, read in one piece */
#define WAL_SEGMENT_MAX (UINT64_C(1) << 40) /* bytes; beyond any size that makes sense */
#define WAL_NUMBER_MAX                                                                             \
    (UINT64_MAX -                                                                                  \
     WAL_BLOCK) /* of terms, indexes and counters: +1 never wraps                     \
                              */

struct wal_hard {
    uint64_t log_id, term, vote, synced_through;
};

struct wal_segment_header {
    uint64_t log_id, n, salt, size, first_write, first_index;
    uint32_t prev_chain;
};

struct wal_write_header {
    uint64_t salt, number, synced_through, first_index, length;
    uint32_t prev_chain, entries;
    uint32_t crc; /* own CRC; set by both put and get */
};

struct wal_entry_header {
    uint32_t crc;
    uint32_t len;
    uint64_t index, term;
};

static inline uint64_t wal_align(uint64_t size)
{
    return (size + WAL_BLOCK - 1) / WAL_BLOCK * WAL_BLOCK;
}

void wal_hard_put(const struct wal_hard *hard, uint8_t out[WAL_HARD_SIZE]);
void wal_segment_header_put(const struct wal_segment_header *h,
                            uint8_t out[WAL_SEGMENT_HEADER_SIZE]);
void wal_write_header_put(struct wal_write_header *h, uint8_t out[WAL_WRITE_HEADER_SIZE]);
/* Without the CRC, which the caller computes over out + 4 and the payload, then puts at out. */
void wal_entry_header_put(const struct wal_entry_header *h, uint8_t out[WAL_ENTRY_HEADER_SIZE]);

/* ERR_CORRUPT, or ERR_VERSION when only the version is unknown. Exactly the given size is read. */
ERR_CHECK enum err wal_hard_get(const uint8_t in[WAL_HARD_SIZE], struct wal_hard *out);
ERR_CHECK enum err wal_segment_header_get(const uint8_t in[WAL_SEGMENT_HEADER_SIZE],
                                          struct wal_segment_header *out);
/* False when the bytes are no write header: other magic or CRC, or a field out of range. */
bool wal_write_header_get(const uint8_t in[WAL_WRITE_HEADER_SIZE], struct wal_write_header *out);

/* Takes the first entry off *body, the rest of a write's entries. crc: of the entry before it, or
 * the write header's own. False when it ends too early, a field is out of range or the CRC differs;
 * then nothing is changed. The payload borrows from *body. */
bool wal_entry_get(struct span *body, uint32_t crc, struct wal_entry_header *header_out,
                   struct span *payload_out);

#endif
