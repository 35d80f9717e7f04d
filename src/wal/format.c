/* Encoding and decoding of the tables in format.h. */
#include "wal/format.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "wal/wal.h"

enum { HARD_CRC_AT = 8, HARD_VERSION_AT = 12 };
enum { SEGMENT_CRC_AT = 8, SEGMENT_VERSION_AT = 12 };
enum { WRITE_CRC_AT = 4, WRITE_SALT_AT = 8 };
enum { ENTRY_CRC_AT = 0, ENTRY_LEN_AT = 4, ENTRY_INDEX_AT = 8, ENTRY_TERM_AT = 16 };

static const char hard_magic[8] = "QUEENWHS";
static const char segment_magic[8] = "QUEENWSG";
static const char write_magic[4] = "QWRT";

void wal_hard_put(const struct wal_hard *hard, uint8_t out[WAL_HARD_SIZE])
{
    memset(out, 0, WAL_HARD_SIZE);
    memcpy(out, hard_magic, sizeof(hard_magic));
    le32_put(out + HARD_VERSION_AT, WAL_VERSION);
    le64_put(out + 16, hard->log_id);
    le64_put(out + 24, hard->term);
    le64_put(out + 32, hard->vote);
    le64_put(out + 40, hard->synced_through);
    le32_put(out + HARD_CRC_AT, crc32c(0, out + HARD_VERSION_AT, WAL_HARD_SIZE - HARD_VERSION_AT));
}

enum err wal_hard_get(const uint8_t in[WAL_HARD_SIZE], struct wal_hard *out)
{
    if (memcmp(in, hard_magic, sizeof(hard_magic)) != 0 ||
        crc32c(0, in + HARD_VERSION_AT, WAL_HARD_SIZE - HARD_VERSION_AT) !=
            le32_get(in + HARD_CRC_AT))
        return ERR_CORRUPT;
    if (le32_get(in + HARD_VERSION_AT) != WAL_VERSION)
        return ERR_VERSION;
    struct wal_hard hard = {
        .log_id = le64_get(in + 16),
        .term = le64_get(in + 24),
        .vote = le64_get(in + 32),
        .synced_through = le64_get(in + 40),
    };
    if (hard.term > WAL_NUMBER_MAX || hard.synced_through > WAL_NUMBER_MAX)
        return ERR_CORRUPT;
    *out = hard;
    return ERR_OK;
}

void wal_segment_header_put(const struct wal_segment_header *h,
                            uint8_t out[WAL_SEGMENT_HEADER_SIZE])
{
    memset(out, 0, WAL_SEGMENT_HEADER_SIZE);
    memcpy(out, segment_magic, sizeof(segment_magic));
    le32_put(out + SEGMENT_VERSION_AT, WAL_VERSION);
    le64_put(out + 16, h->log_id);
    le64_put(out + 24, h->n);
    le64_put(out + 32, h->salt);
    le64_put(out + 40, h->size);
    le64_put(out + 48, h->first_write);
    le64_put(out + 56, h->first_index);
    le32_put(out + 64, h->prev_chain);
    le32_put(out + SEGMENT_CRC_AT,
             crc32c(0, out + SEGMENT_VERSION_AT, WAL_SEGMENT_HEADER_SIZE - SEGMENT_VERSION_AT));
}

enum err wal_segment_header_get(const uint8_t in[WAL_SEGMENT_HEADER_SIZE],
                                struct wal_segment_header *out)
{
    if (memcmp(in, segment_magic, sizeof(segment_magic)) != 0 ||
        crc32c(0, in + SEGMENT_VERSION_AT, WAL_SEGMENT_HEADER_SIZE - SEGMENT_VERSION_AT) !=
            le32_get(in + SEGMENT_CRC_AT))
        return ERR_CORRUPT;
    if (le32_get(in + SEGMENT_VERSION_AT) != WAL_VERSION)
        return ERR_VERSION;
    struct wal_segment_header h = {
        .log_id = le64_get(in + 16),
        .n = le64_get(in + 24),
        .salt = le64_get(in + 32),
        .size = le64_get(in + 40),
        .first_write = le64_get(in + 48),
        .first_index = le64_get(in + 56),
        .prev_chain = le32_get(in + 64),
    };
    if (h.n == 0 || h.n > WAL_NUMBER_MAX || h.salt == 0 || h.size < 2 * WAL_BLOCK ||
        h.size > WAL_SEGMENT_MAX || h.size % WAL_BLOCK != 0 || h.first_write == 0 ||
        h.first_write > WAL_NUMBER_MAX || h.first_index == 0 || h.first_index > WAL_NUMBER_MAX)
        return ERR_CORRUPT;
    *out = h;
    return ERR_OK;
}

void wal_write_header_put(struct wal_write_header *h, uint8_t out[WAL_WRITE_HEADER_SIZE])
{
    memset(out, 0, WAL_WRITE_HEADER_SIZE);
    memcpy(out, write_magic, sizeof(write_magic));
    le64_put(out + WRITE_SALT_AT, h->salt);
    le64_put(out + 16, h->number);
    le64_put(out + 24, h->synced_through);
    le64_put(out + 32, h->first_index);
    le64_put(out + 40, h->length);
    le32_put(out + 48, h->prev_chain);
    le32_put(out + 52, h->entries);
    h->crc = crc32c(0, out + WRITE_SALT_AT, WAL_WRITE_HEADER_SIZE - WRITE_SALT_AT);
    le32_put(out + WRITE_CRC_AT, h->crc);
}

bool wal_write_header_get(const uint8_t in[WAL_WRITE_HEADER_SIZE], struct wal_write_header *out)
{
    if (memcmp(in, write_magic, sizeof(write_magic)) != 0)
        return false;
    struct wal_write_header h = {
        .salt = le64_get(in + WRITE_SALT_AT),
        .number = le64_get(in + 16),
        .synced_through = le64_get(in + 24),
        .first_index = le64_get(in + 32),
        .length = le64_get(in + 40),
        .prev_chain = le32_get(in + 48),
        .entries = le32_get(in + 52),
        .crc = le32_get(in + WRITE_CRC_AT),
    };
    if (crc32c(0, in + WRITE_SALT_AT, WAL_WRITE_HEADER_SIZE - WRITE_SALT_AT) != h.crc)
        return false;
    if (h.number == 0 || h.number > WAL_NUMBER_MAX || h.first_index == 0 ||
        h.first_index > WAL_NUMBER_MAX || h.synced_through >= h.first_index ||
        h.length > WAL_BODY_MAX || h.entries == 0 || h.entries > h.length / WAL_ENTRY_HEADER_SIZE ||
        h.entries > WAL_NUMBER_MAX - h.first_index)
        return false;
    *out = h;
    return true;
}

void wal_entry_header_put(const struct wal_entry_header *h, uint8_t out[WAL_ENTRY_HEADER_SIZE])
{
    le32_put(out + ENTRY_CRC_AT, 0);
    le32_put(out + ENTRY_LEN_AT, h->len);
    le64_put(out + ENTRY_INDEX_AT, h->index);
    le64_put(out + ENTRY_TERM_AT, h->term);
}

bool wal_entry_get(struct span *body, uint32_t crc, struct wal_entry_header *header_out,
                   struct span *payload_out)
{
    if (body->len < WAL_ENTRY_HEADER_SIZE)
        return false;
    struct wal_entry_header h = {
        .crc = le32_get(body->ptr + ENTRY_CRC_AT),
        .len = le32_get(body->ptr + ENTRY_LEN_AT),
        .index = le64_get(body->ptr + ENTRY_INDEX_AT),
        .term = le64_get(body->ptr + ENTRY_TERM_AT),
    };
    if (h.len > WAL_ENTRY_MAX || h.len > body->len - WAL_ENTRY_HEADER_SIZE)
        return false;
    size_t size = WAL_ENTRY_HEADER_SIZE + h.len;
    if (crc32c(crc, body->ptr + ENTRY_LEN_AT, size - ENTRY_LEN_AT) != h.crc)
        return false;
    if (h.index == 0 || h.index > WAL_NUMBER_MAX || h.term == 0 || h.term > WAL_NUMBER_MAX)
        return false;
    *header_out = h;
    *payload_out = span_make(body->ptr + WAL_ENTRY_HEADER_SIZE, h.len);
    *body = span_sub(*body, size, body->len);
    return true;
}
