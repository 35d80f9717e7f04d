/* Fuzz target of the write-ahead log's recovery: opens a log made of any bytes and replays it.
 *
 * Input: a byte of flags, a byte `applied`, then a list of records of 8 bytes that build the log's
 * files on a simulated disk, write by write (build() has them). Damage comes with checksums made
 * right, so that what lies behind them is reached, or without. With bit 0 of the flags the rest is
 * instead the raw bytes of the only segment, behind a hard state that fits.
 *
 * Checked: nothing crashes; refusal is ERR_CORRUPT or ERR_VERSION, names a place and changes
 * nothing; a log that opens replays exactly the indexes it claims, takes a write, and opens again
 * with both. */
#include "fuzz/fuzz.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/mem.h"
#include "sim/sim_disk.h"
#include "wal/format.h"
#include "wal/wal.h"

#include <stdio.h>

#define LOG_ID 9u
#define RECORD 8u
#define BLOCKS_MAX 64u
#define SEGMENTS_MAX 8u

struct builder {
    struct disk *disk;
    struct buf file; /* of the segment being built */
    struct wal_segment_header segment;
    struct wal_write_header next; /* of the next good write */
    uint64_t term;
    unsigned segments;
};

static void put_file(struct builder *b)
{
    char path[64];
    if (b->file.len < 2 * WAL_BLOCK)
        memset(buf_extend(&b->file, WAL_BLOCK), 0, WAL_BLOCK);
    if (b->segment.size == 0) /* else damaged on purpose */
        b->segment.size = b->file.len;
    wal_segment_header_put(&b->segment, b->file.ptr);
    (void)snprintf(path, sizeof(path), "wal/seg-%016x.wal", ++b->segments);
    sim_disk_put(b->disk, path, buf_span(&b->file));
}

static void start_segment(struct builder *b)
{
    buf_reset(&b->file);
    memset(buf_extend(&b->file, WAL_BLOCK), 0, WAL_BLOCK);
    b->segment = (struct wal_segment_header){
        .log_id = LOG_ID,
        .n = b->segments + 1,
        .salt = 100 + b->segments,
        .first_write = b->next.number,
        .first_index = b->next.first_index,
        .prev_chain = b->next.prev_chain,
    };
    b->next.salt = b->segment.salt;
}

/* Changes one field of a header by xor. */
static void damage_write(struct wal_write_header *h, uint8_t which, uint64_t value)
{
    switch (which % 7) {
    case 0:
        h->salt ^= value;
        break;
    case 1:
        h->number ^= value;
        break;
    case 2:
        h->synced_through ^= value;
        break;
    case 3:
        h->first_index ^= value;
        break;
    case 4:
        h->length ^= value;
        break;
    case 5:
        h->prev_chain ^= (uint32_t)value;
        break;
    default:
        h->entries ^= (uint32_t)value;
        break;
    }
}

static void damage_segment(struct wal_segment_header *h, uint8_t which, uint64_t value)
{
    switch (which % 7) {
    case 0:
        h->log_id ^= value;
        break;
    case 1:
        h->n ^= value;
        break;
    case 2:
        h->salt ^= value;
        break;
    case 3:
        h->size ^= value;
        break;
    case 4:
        h->first_write ^= value;
        break;
    case 5:
        h->first_index ^= value;
        break;
    default:
        h->prev_chain ^= (uint32_t)value;
        break;
    }
}

/* Appends a write of n entries of len bytes; `damaged` header fields or entry fields get their CRC
 * made right all the same. */
static void put_write(struct builder *b, unsigned n, uint32_t len, const uint8_t *record)
{
    uint8_t kind = record[0] % 8, which = record[1];
    uint64_t value = le32_get(record + 4);
    struct wal_write_header h = b->next;
    h.entries = n;
    h.length = n * (uint64_t)(WAL_ENTRY_HEADER_SIZE + len);
    if (kind == 2)
        damage_write(&h, which, value);
    size_t start = b->file.len;
    wal_write_header_put(&h, buf_extend(&b->file, WAL_WRITE_HEADER_SIZE));
    uint32_t crc = h.crc;
    for (unsigned i = 0; i < n; i++) {
        struct wal_entry_header e = {.len = len, .index = b->next.first_index + i, .term = b->term};
        if (kind == 3 && which % 4 == 0)
            e.len ^= (uint32_t)value;
        else if (kind == 3 && which % 4 == 1)
            e.index ^= value;
        else if (kind == 3 && which % 4 == 2)
            e.term ^= value;
        uint8_t *out = buf_extend(&b->file, WAL_ENTRY_HEADER_SIZE + len);
        memset(out, which, WAL_ENTRY_HEADER_SIZE + len);
        wal_entry_header_put(&e, out);
        crc = crc32c(crc, out + 4, WAL_ENTRY_HEADER_SIZE - 4 + len);
        le32_put(out, crc);
    }
    size_t padding = (size_t)wal_align(b->file.len) - b->file.len;
    memset(buf_extend(&b->file, padding), 0, padding);
    if (kind == 6 && value != 0)
        b->file.ptr[start + value % (b->file.len - start)] ^= which;
    b->next.number++;
    b->next.synced_through += n;
    b->next.first_index += n;
    b->next.prev_chain = crc;
}

static void build(struct builder *b, const uint8_t *data, size_t size)
{
    size_t blocks = 0;
    b->next = (struct wal_write_header){.number = 1, .first_index = 1};
    b->term = 1;
    start_segment(b);
    for (; size >= RECORD && blocks < BLOCKS_MAX; data += RECORD, size -= RECORD) {
        size_t before = b->file.len;
        uint32_t len = (uint32_t)le16_get(data + 2) % 6000;
        switch (data[0] % 8) {
        case 4: /* bytes that are no write */
            memset(buf_extend(&b->file, WAL_BLOCK), data[1], WAL_BLOCK);
            break;
        case 5:
            b->term += data[1];
            break;
        case 7:
            if (data[1] % 2 == 1)
                damage_segment(&b->segment, data[2], le32_get(data + 4));
            if (b->segments + 1 < SEGMENTS_MAX) {
                put_file(b);
                start_segment(b);
            }
            break;
        default: /* a write of up to three entries, perhaps damaged */
            put_write(b, 1 + data[0] / 8 % 3, len, data);
            break;
        }
        blocks += (b->file.len - before) / WAL_BLOCK + 1;
    }
    put_file(b);
}

static void build_raw(struct builder *b, const uint8_t *data, size_t size)
{
    size_t whole = (size_t)wal_align(size);
    start_segment(b);
    buf_reset(&b->file);
    memset(buf_extend(&b->file, whole + WAL_BLOCK), 0, whole + WAL_BLOCK);
    memcpy(b->file.ptr, data, size);
    sim_disk_put(b->disk, "wal/seg-0000000000000001.wal", buf_span(&b->file));
}

static void put_hard(struct disk *d, uint64_t synced_through)
{
    struct wal_hard hard = {.log_id = LOG_ID, .term = 600, .synced_through = synced_through};
    uint8_t bytes[WAL_HARD_SIZE];
    wal_hard_put(&hard, bytes);
    sim_disk_put(d, "wal/hard", span_make(bytes, sizeof(bytes)));
}

static enum err count_entry(void *ctx, const struct wal_entry *entry, struct error *error)
{
    uint64_t *next = (uint64_t *)ctx;
    (void)error;
    ASSERT(entry->index == *next && entry->term > 0 && entry->payload.len <= WAL_ENTRY_MAX);
    (*next)++;
    return ERR_OK;
}

static void fixed_bytes(struct entropy *e, void *out, size_t len)
{
    (void)e;
    memset(out, 0x5a, len);
}

/* Opens; when that works checks the replay and returns true with *wal_out open. */
static bool open_log(struct disk *d, uint64_t applied, struct wal **wal_out)
{
    static struct entropy entropy = {fixed_bytes};
    struct wal_options options = {
        .disk = d, .entropy = &entropy, .dir = "wal", .segment_bytes = 16 * 1024};
    struct error error = {0};
    enum err err = wal_open(&options, applied, wal_out, &error);
    if (err != ERR_OK) {
        ASSERT(err == ERR_CORRUPT || err == ERR_VERSION);
        ASSERT(strncmp(error.text, "wal", 3) == 0);
        return false;
    }
    uint64_t next = applied + 1;
    ASSERT(wal_replay(*wal_out, applied, count_entry, &next, NULL) == ERR_OK);
    ASSERT(next == wal_last_index(*wal_out) + 1);
    return true;
}

static void try_log(struct disk *d, uint64_t applied)
{
    uint64_t changes = sim_disk_changes(d);
    struct wal *w = NULL;
    if (!open_log(d, applied, &w)) {
        ASSERT(sim_disk_changes(d) - changes <= 1); /* the parent folder was synced */
        return;
    }
    uint64_t last = wal_last_index(w);
    struct span part = SPAN_LIT("one more");
    struct wal_append append = {.index = last + 1, .parts = &part, .n_parts = 1};
    ASSERT(wal_write(w, &append, 1, NULL) == ERR_OK);
    wal_close(w);
    ASSERT(open_log(d, applied, &w));
    ASSERT(wal_last_index(w) == last + 1);
    wal_close(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 64 * 1024)
        return 0;
    struct builder b = {.disk = sim_disk_new(1)};
    if ((data[0] & 1) != 0)
        build_raw(&b, data + 2, size - 2);
    else
        build(&b, data + 2, size - 2);
    put_hard(b.disk, data[0] >> 2);
    try_log(b.disk, data[1]);
    buf_deinit(&b.file);
    sim_disk_free(b.disk);
    return 0;
}
