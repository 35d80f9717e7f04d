/* Fuzz target of the queue log's segment files: opens a log made of any bytes and reads all it
 * shows.
 *
 * Input: a byte of flags, two bytes, then the bytes of the log's first segment file.
 *   flags bit 0  the file is a sealed segment: a valid one follows where its footer says it ends.
 *                Else the file is the log's last, and the length is the two bytes in front of the
 * file, or the end of the file when they are 0. flags bit 1  checksums are made right first, so
 * that what lies behind them is reached.
 *
 * Checked: nothing crashes; damage is ERR_CORRUPT or ERR_VERSION and nothing else; a scan that
 * works covers every byte once; what an index points to is read or is damage; a log that opened
 * takes an append and opens again. */
#include "fuzz/fuzz.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "sim/sim_disk.h"
#include "store/qlog_format.h"

#include <stdio.h>

#define ID 7u
#define PREFIX 3u /* bytes in front of the file */
#define HEADS 32u

static void reseal_part(uint8_t *part, size_t size)
{
    le32_put(part, crc32c(0, part + 4, size - 4));
}

/* Runs as far as their lengths lead; returns where they end. */
static size_t reseal_runs(uint8_t *file, size_t end)
{
    size_t at = QLOG_SEGMENT_HEADER_SIZE;
    while (end - at >= QLOG_RUN_HEADER_SIZE) {
        uint64_t body = le32_get(file + at + 8);
        if (body > end - at - QLOG_RUN_HEADER_SIZE)
            break;
        le32_put(file + at + 4, crc32c(0, file + at + QLOG_RUN_HEADER_SIZE, (size_t)body));
        reseal_part(file + at, QLOG_RUN_HEADER_SIZE);
        at += QLOG_RUN_HEADER_SIZE + (size_t)body;
    }
    return at;
}

static void reseal(uint8_t *file, size_t size, bool sealed)
{
    if (size < QLOG_SEGMENT_HEADER_SIZE)
        return;
    reseal_part(file, QLOG_SEGMENT_HEADER_SIZE);
    if (!sealed || size < QLOG_SEGMENT_HEADER_SIZE + QLOG_FOOTER_SIZE) {
        (void)reseal_runs(file, size);
        return;
    }
    size_t footer = size - QLOG_FOOTER_SIZE;
    uint64_t run_bytes = le64_get(file + footer + 16);
    uint64_t blocks = le32_get(file + footer + 68);
    if (run_bytes > footer - QLOG_SEGMENT_HEADER_SIZE)
        run_bytes = footer - QLOG_SEGMENT_HEADER_SIZE;
    size_t at = QLOG_SEGMENT_HEADER_SIZE + (size_t)run_bytes;
    (void)reseal_runs(file, at);
    for (; blocks > 0 && footer - at >= QLOG_BLOCK_SIZE; blocks--, at += QLOG_BLOCK_SIZE)
        reseal_part(file + at, QLOG_BLOCK_SIZE);
    le32_put(file + footer + 76, crc32c(0, file + at, footer - at));
    reseal_part(file + footer, QLOG_FOOTER_SIZE);
}

static struct qlog_run one_run(int64_t stamp)
{
    static const struct qlog_record record = {.payload = {(const uint8_t *)"{}", 2}};
    return (struct qlog_run){.partition_id = UINT64_MAX - 1,
                             .partition = SPAN_LIT("p"),
                             .first_offset = UINT64_MAX - 10,
                             .stamp = stamp,
                             .records = &record,
                             .count = 1};
}

/* A segment with one run at `first`, as the next file; returns its end. */
static uint64_t put_next(struct disk *disk, uint64_t first)
{
    struct qlog_run run = one_run(INT64_MAX);
    const struct qlog_segment_header header = {
        .queue_id = ID, .first = first, .first_stamp = run.stamp};
    struct buf file = BUF_INIT;
    char path[64];
    qlog_segment_header_encode(&header, buf_extend(&file, QLOG_SEGMENT_HEADER_SIZE));
    qlog_run_encode(&run, first, &file);
    (void)snprintf(path, sizeof(path), "qlog/7/seg-%016llx.qlog", (unsigned long long)first);
    sim_disk_put(disk, path, buf_span(&file));
    uint64_t end = first + file.len - QLOG_SEGMENT_HEADER_SIZE;
    buf_deinit(&file);
    return end;
}

static void expect_damage(enum err err)
{
    ASSERT(err == ERR_CORRUPT || err == ERR_VERSION);
}

/* Reads the run, and looks for it by what it says of itself. */
static void check_run(struct qlog *q, const struct qlog_run_head *head, struct qlog_run_data *data)
{
    struct error error;
    enum err err = qlog_read(q, head->position, data, &error);
    if (err != ERR_OK) {
        expect_damage(err);
        return;
    }
    ASSERT(data->head.position == head->position);
    ASSERT(data->head.next_position == head->next_position);
    ASSERT(data->head.stamp == head->stamp);
    ASSERT(data->head.count == head->count);
    for (uint32_t i = 0; i < head->count; i++) {
        const struct qlog_record *r = &data->records[i];
        ASSERT(r->transaction_id.ptr >= data->bytes.ptr);
        ASSERT(r->payload.ptr + r->payload.len <= data->bytes.ptr + data->bytes.len);
    }
    uint64_t position;
    err = qlog_find(q, head->partition_id, head->first_offset, &position, &error);
    if (err != ERR_OK && err != ERR_NOT_FOUND)
        expect_damage(err);
    if (err == ERR_OK)
        ASSERT(position < qlog_end(q));
    err = qlog_seek_stamp(q, head->stamp, &position, &error);
    if (err == ERR_OK)
        ASSERT(position <= qlog_end(q));
    else
        expect_damage(err);
}

static void check_reads(struct qlog *q)
{
    struct qlog_run_data data = {0};
    struct qlog_run_head heads[HEADS];
    uint64_t position = qlog_start(q);
    const uint64_t end = qlog_end(q);
    while (position < end) {
        struct error error;
        size_t n;
        uint64_t next;
        enum err err = qlog_scan(q, position, end, heads, HEADS, &n, &next, &error);
        if (err != ERR_OK) {
            expect_damage(err);
            break;
        }
        ASSERT(n > 0 && next > position && next <= end);
        for (size_t i = 0; i < n; i++) {
            ASSERT(heads[i].position == position);
            position = heads[i].next_position;
            check_run(q, &heads[i], &data);
        }
        ASSERT(position == next);
    }
    qlog_run_data_deinit(&data);
}

static struct qlog_set *set_open(struct disk *disk)
{
    const struct qlog_set_options options = {
        .disk = disk, .dir = "qlog", .segment_bytes = 4096, .handles_max = 1};
    struct qlog_set *s;
    enum err err = qlog_set_open(&options, &s, NULL);
    ASSERT(err == ERR_OK);
    return s;
}

/* A log that opened goes on, unless the run would not fit behind what is there. */
static void check_append(struct disk *disk, struct qlog_set *s, struct qlog *q)
{
    struct qlog_run run = one_run(INT64_MAX);
    uint64_t position;
    enum err err = qlog_find(q, run.partition_id, 0, &position, NULL);
    if (err == ERR_NOT_FOUND) {
        err = qlog_append(q, &run, &position, NULL);
        ASSERT(err == ERR_OK);
    }
    uint64_t start = qlog_start(q);
    uint64_t end = qlog_end(q);
    qlog_set_close(s);
    s = set_open(disk);
    err = qlog_open(s, ID, start, end, &q, NULL);
    ASSERT(err == ERR_OK);
    check_reads(q);
    qlog_set_close(s);
}

static void run_file(uint8_t *file, size_t size, bool sealed, uint64_t length)
{
    struct disk *disk = sim_disk_new(1);
    if (sealed && size >= QLOG_FOOTER_SIZE) {
        uint64_t run_bytes = le64_get(file + size - QLOG_FOOTER_SIZE + 16);
        if (run_bytes > 0 && run_bytes < UINT64_MAX - 4096)
            length = put_next(disk, run_bytes);
    }
    sim_disk_put(disk, "qlog/7/seg-0000000000000000.qlog", span_make(file, size));
    struct qlog_set *s = set_open(disk);
    struct qlog *q;
    struct error error;
    enum err err = qlog_open(s, ID, 0, length, &q, &error);
    if (err == ERR_OK) {
        ASSERT(qlog_end(q) == length);
        check_reads(q);
        check_append(disk, s, q);
    } else {
        expect_damage(err);
        ASSERT(error.code == err);
        qlog_set_close(s);
    }
    sim_disk_free(disk);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < PREFIX)
        return 0;
    struct buf file = BUF_INIT;
    buf_append(&file, data + PREFIX, size - PREFIX);
    bool sealed = data[0] & 1;
    uint64_t length = le16_get(data + 1);
    if (length == 0 && file.len > QLOG_SEGMENT_HEADER_SIZE)
        length = file.len - QLOG_SEGMENT_HEADER_SIZE;
    if (data[0] & 2)
        reseal(file.ptr, file.len, sealed);
    run_file(file.ptr, file.len, sealed, length);
    buf_deinit(&file);
    return 0;
}
