/* Codec of the queue log's bytes; the tables are in qlog_format.h.
 *
 * Decoding is the trust boundary of recovery and of every read: the checksum comes first, then
 * every field is checked against its range, because a test or an attacker can compute checksums
 * too. */
#include "store/qlog_format.h"

#include "base/bytes.h"
#include "base/crc32c.h"

#define SEGMENT_MAGIC 0x53474C51u /* "QLGS" */
#define FOOTER_MAGIC 0x46474C51u  /* "QLGF" */
#define VERSION 1u
#define RECORD_WEIGHT 64u /* spec/sink.md 11 */
/* Above any segment: the last run starts below 4 GiB (QLOG_SEGMENT_BYTES_MAX) and has a 32-bit
 * length. */
#define RUN_BYTES_MAX (UINT64_C(1) << 34)

static bool all_zero(const uint8_t *p, size_t len)
{
    uint8_t any = 0;
    for (size_t i = 0; i < len; i++)
        any |= p[i];
    return any == 0;
}

static void seal_crc(uint8_t *bytes, size_t size)
{
    le32_put(bytes, crc32c(0, bytes + 4, size - 4));
}

static bool crc_holds(const uint8_t *bytes, size_t size)
{
    return le32_get(bytes) == crc32c(0, bytes + 4, size - 4);
}

void qlog_segment_header_encode(const struct qlog_segment_header *h,
                                uint8_t out[QLOG_SEGMENT_HEADER_SIZE])
{
    memset(out, 0, QLOG_SEGMENT_HEADER_SIZE);
    le32_put(out + 4, SEGMENT_MAGIC);
    le32_put(out + 8, VERSION);
    le64_put(out + 16, h->queue_id);
    le64_put(out + 24, h->first);
    le64_put(out + 32, (uint64_t)h->first_stamp);
    seal_crc(out, QLOG_SEGMENT_HEADER_SIZE);
}

enum err qlog_segment_header_decode(const uint8_t in[QLOG_SEGMENT_HEADER_SIZE],
                                    struct qlog_segment_header *out)
{
    if (!crc_holds(in, QLOG_SEGMENT_HEADER_SIZE) || le32_get(in + 4) != SEGMENT_MAGIC)
        return ERR_CORRUPT;
    if (le32_get(in + 8) != VERSION)
        return ERR_VERSION;
    if (!all_zero(in + 12, 4) || !all_zero(in + 40, 24))
        return ERR_CORRUPT;
    *out = (struct qlog_segment_header){
        .queue_id = le64_get(in + 16),
        .first = le64_get(in + 24),
        .first_stamp = (int64_t)le64_get(in + 32),
    };
    return ERR_OK;
}

static uint64_t body_size(const struct qlog_run *run)
{
    uint64_t size = run->partition.len + (uint64_t)run->count * QLOG_RECORD_HEADER_SIZE;
    for (uint32_t i = 0; i < run->count; i++)
        size += run->records[i].transaction_id.len + run->records[i].payload.len;
    return size;
}

uint64_t qlog_run_size(const struct qlog_run *run)
{
    return QLOG_RUN_HEADER_SIZE + body_size(run);
}

static void put_record(uint8_t *p, const struct qlog_record *r)
{
    memcpy(p, r->message_id.bytes, sizeof(r->message_id.bytes));
    le32_put(p + 16, (uint32_t)r->transaction_id.len);
    le32_put(p + 20, (uint32_t)r->payload.len);
    p += QLOG_RECORD_HEADER_SIZE;
    if (r->transaction_id.len > 0)
        memcpy(p, r->transaction_id.ptr, r->transaction_id.len);
    if (r->payload.len > 0)
        memcpy(p + r->transaction_id.len, r->payload.ptr, r->payload.len);
}

void qlog_run_encode(const struct qlog_run *run, uint64_t position, struct buf *out)
{
    uint64_t body_len = body_size(run);
    ASSERT(run->count > 0 && run->count <= QLOG_RUN_RECORDS_MAX);
    ASSERT(run->partition.len <= UINT16_MAX);
    ASSERT(body_len <= UINT32_MAX);

    uint8_t *head = buf_extend(out, QLOG_RUN_HEADER_SIZE + (size_t)body_len);
    uint8_t *body = head + QLOG_RUN_HEADER_SIZE;
    uint8_t *p = body;
    if (run->partition.len > 0)
        memcpy(p, run->partition.ptr, run->partition.len);
    p += run->partition.len;
    for (uint32_t i = 0; i < run->count; i++) {
        const struct qlog_record *r = &run->records[i];
        put_record(p, r);
        p += QLOG_RECORD_HEADER_SIZE + r->transaction_id.len + r->payload.len;
    }

    /* Weight: what the body holds besides the record headers, the name once for every record. */
    uint64_t weight = (uint64_t)run->count * (RECORD_WEIGHT + run->partition.len) + body_len -
                      run->partition.len - (uint64_t)run->count * QLOG_RECORD_HEADER_SIZE;
    memset(head, 0, QLOG_RUN_HEADER_SIZE);
    le32_put(head + 4, crc32c(0, body, (size_t)body_len));
    le32_put(head + 8, (uint32_t)body_len);
    le32_put(head + 12, run->count);
    le64_put(head + 16, position);
    le64_put(head + 24, run->partition_id);
    le64_put(head + 32, run->first_offset);
    le64_put(head + 40, (uint64_t)run->stamp);
    le64_put(head + 48, weight);
    le16_put(head + 56, (uint16_t)run->partition.len);
    seal_crc(head, QLOG_RUN_HEADER_SIZE);
}

enum err qlog_run_head_decode(const uint8_t in[QLOG_RUN_HEADER_SIZE], uint64_t position,
                              struct qlog_run_head *head_out, uint32_t *body_crc_out)
{
    if (!crc_holds(in, QLOG_RUN_HEADER_SIZE) || le64_get(in + 16) != position ||
        !all_zero(in + 58, 6))
        return ERR_CORRUPT;
    uint32_t body_len = le32_get(in + 8);
    uint32_t count = le32_get(in + 12);
    uint64_t first_offset = le64_get(in + 32);
    uint16_t partition_len = le16_get(in + 56);
    if (count == 0 || count > QLOG_RUN_RECORDS_MAX || first_offset > UINT64_MAX - count ||
        body_len < partition_len + (uint64_t)count * QLOG_RECORD_HEADER_SIZE ||
        position > UINT64_MAX - QLOG_RUN_HEADER_SIZE - body_len)
        return ERR_CORRUPT;
    *head_out = (struct qlog_run_head){
        .position = position,
        .next_position = position + QLOG_RUN_HEADER_SIZE + body_len,
        .partition_id = le64_get(in + 24),
        .first_offset = first_offset,
        .count = count,
        .stamp = (int64_t)le64_get(in + 40),
        .weight = le64_get(in + 48),
        .partition_len = partition_len,
        .body_len = body_len,
    };
    *body_crc_out = le32_get(in + 4);
    return ERR_OK;
}

enum err qlog_run_body_decode(const struct qlog_run_head *head, struct span body,
                              struct span *partition_out, struct qlog_record *records)
{
    struct cursor c = {.in = body};
    *partition_out = cursor_bytes(&c, head->partition_len);
    uint64_t weight = 0;
    for (uint32_t i = 0; i < head->count && !c.bad; i++) {
        struct span id = cursor_bytes(&c, sizeof(records[i].message_id.bytes));
        uint32_t transaction_len = cursor_le32(&c);
        uint32_t payload_len = cursor_le32(&c);
        records[i].transaction_id = cursor_bytes(&c, transaction_len);
        records[i].payload = cursor_bytes(&c, payload_len);
        if (c.bad)
            break;
        memcpy(records[i].message_id.bytes, id.ptr, id.len);
        weight += RECORD_WEIGHT + (uint64_t)transaction_len + payload_len + head->partition_len;
    }
    return !c.bad && c.in.len == 0 && weight == head->weight ? ERR_OK : ERR_CORRUPT;
}

int qlog_key_cmp(uint64_t partition_a, uint64_t offset_a, uint64_t partition_b, uint64_t offset_b)
{
    if (partition_a != partition_b)
        return partition_a < partition_b ? -1 : 1;
    return offset_a < offset_b ? -1 : offset_a > offset_b;
}

void qlog_block_encode(uint64_t first, uint32_t number, uint16_t level,
                       const struct qlog_entry *entries, size_t count, uint8_t out[QLOG_BLOCK_SIZE])
{
    ASSERT(count > 0 && count <= QLOG_BLOCK_ENTRIES);
    memset(out, 0, QLOG_BLOCK_SIZE);
    le32_put(out + 4, number);
    le64_put(out + 8, first);
    le16_put(out + 16, (uint16_t)count);
    le16_put(out + 18, level);
    uint8_t *p = out + QLOG_BLOCK_HEADER_SIZE;
    for (size_t i = 0; i < count; i++, p += QLOG_ENTRY_SIZE) {
        le64_put(p, entries[i].partition_id);
        le64_put(p + 8, entries[i].first_offset);
        le64_put(p + 16, entries[i].position);
        le64_put(p + 24, (uint64_t)entries[i].stamp);
    }
    seal_crc(out, QLOG_BLOCK_SIZE);
}

enum err qlog_block_decode(const uint8_t in[QLOG_BLOCK_SIZE], uint64_t first, uint32_t number,
                           struct qlog_block *out)
{
    uint16_t count = le16_get(in + 16);
    if (!crc_holds(in, QLOG_BLOCK_SIZE) || le32_get(in + 4) != number ||
        le64_get(in + 8) != first || count == 0 || count > QLOG_BLOCK_ENTRIES)
        return ERR_CORRUPT;
    *out = (struct qlog_block){
        .number = number,
        .level = le16_get(in + 18),
        .count = count,
        .entries = in + QLOG_BLOCK_HEADER_SIZE,
    };
    return ERR_OK;
}

struct qlog_entry qlog_block_entry(const struct qlog_block *b, size_t at)
{
    ASSERT(at < b->count);
    const uint8_t *p = b->entries + at * QLOG_ENTRY_SIZE;
    return (struct qlog_entry){
        .partition_id = le64_get(p),
        .first_offset = le64_get(p + 8),
        .position = le64_get(p + 16),
        .stamp = (int64_t)le64_get(p + 24),
    };
}

void qlog_footer_encode(const struct qlog_footer *f, uint8_t out[QLOG_FOOTER_SIZE])
{
    memset(out, 0, QLOG_FOOTER_SIZE);
    le32_put(out + 4, FOOTER_MAGIC);
    le64_put(out + 8, f->first);
    le64_put(out + 16, f->run_bytes);
    le64_put(out + 24, f->runs);
    le64_put(out + 32, (uint64_t)f->first_stamp);
    le64_put(out + 40, (uint64_t)f->last_stamp);
    le64_put(out + 48, f->partition_min);
    le64_put(out + 56, f->partition_max);
    le32_put(out + 64, f->leaves);
    le32_put(out + 68, f->blocks);
    le32_put(out + 72, f->marks);
    le32_put(out + 76, f->marks_crc);
    seal_crc(out, QLOG_FOOTER_SIZE);
}

uint32_t qlog_blocks_over(uint32_t leaves)
{
    uint32_t blocks = leaves;
    for (uint32_t n = leaves; n > 1; blocks += n)
        n = (n - 1) / QLOG_BLOCK_ENTRIES + 1;
    return blocks;
}

enum err qlog_footer_decode(const uint8_t in[QLOG_FOOTER_SIZE], struct qlog_footer *out)
{
    if (!crc_holds(in, QLOG_FOOTER_SIZE) || le32_get(in + 4) != FOOTER_MAGIC ||
        !all_zero(in + 80, 16))
        return ERR_CORRUPT;
    struct qlog_footer f = {
        .first = le64_get(in + 8),
        .run_bytes = le64_get(in + 16),
        .runs = le64_get(in + 24),
        .first_stamp = (int64_t)le64_get(in + 32),
        .last_stamp = (int64_t)le64_get(in + 40),
        .partition_min = le64_get(in + 48),
        .partition_max = le64_get(in + 56),
        .leaves = le32_get(in + 64),
        .blocks = le32_get(in + 68),
        .marks = le32_get(in + 72),
        .marks_crc = le32_get(in + 76),
    };
    /* The runs bound the leaves, the bytes bound the runs: so no size below comes from nowhere. */
    if (f.run_bytes > RUN_BYTES_MAX || f.runs == 0 || f.runs > f.run_bytes / QLOG_RUN_HEADER_SIZE ||
        f.first > UINT64_MAX - f.run_bytes || f.first_stamp > f.last_stamp ||
        f.partition_min > f.partition_max || f.leaves != (f.runs - 1) / QLOG_BLOCK_ENTRIES + 1 ||
        f.blocks != qlog_blocks_over(f.leaves) || f.marks == 0 || f.marks > f.runs ||
        f.marks > f.run_bytes / QLOG_MARK_SPACING + 1)
        return ERR_CORRUPT;
    *out = f;
    return ERR_OK;
}

uint64_t qlog_footer_blocks_at(const struct qlog_footer *f)
{
    return QLOG_SEGMENT_HEADER_SIZE + f->run_bytes;
}

uint64_t qlog_footer_marks_at(const struct qlog_footer *f)
{
    return qlog_footer_blocks_at(f) + (uint64_t)f->blocks * QLOG_BLOCK_SIZE;
}

uint64_t qlog_footer_file_size(const struct qlog_footer *f)
{
    return qlog_footer_marks_at(f) + (uint64_t)f->marks * QLOG_MARK_SIZE + QLOG_FOOTER_SIZE;
}
