/* What boot does with the folder of a queue log: storage rule 4.
 *
 * The checkpoint recorded the log's length after a syncfs. So below the length everything must be
 * there and whole: that is checked, and anything else refuses the start. Above it anything may be
 * there: a torn write, a seal, later segments; all of it goes and is written again from the WAL.
 *
 * A segment with another one behind it, below the length, was sealed before that one began: its
 * footer must be there. The last one, which holds the byte before the length, is read whole and
 * becomes the active segment, whatever stands behind its runs: a seal found there was perhaps
 * written after the checkpoint, and then its footer may have reached the disk without its index.
 *
 * Segments below `start` may be missing: unlinking is not durable before the next checkpoint, so
 * even some in the middle. What is left in front of such a gap is removed.
 *
 * Nothing on disk changes before everything was checked. */
#include "store/qlog_internal.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/mem.h"

#include <inttypes.h>

#define READ_SIZE (256u * 1024)

struct recovery {
    struct qlog *q;
    uint64_t start, length;
    uint64_t *firsts;           /* first position of every segment file found, rising */
    size_t found;               /* files */
    size_t kept;                /* of them below the length: the first ones */
    size_t gone;                /* of those in front of a gap below start: the very first ones */
    struct qlog_segment **segs; /* of the kept ones; owned until they go into the list */
    struct error *error;
};

static struct disk *disk_of(const struct recovery *r)
{
    return r->q->set->disk;
}

static enum err find_files(struct recovery *r)
{
    char folder[QLOG_PATH_MAX];
    qlog_folder_path(r->q->set, r->q->id, folder);
    struct disk_list list = {0};
    enum err err = disk_list(disk_of(r), folder, &list, r->error);
    if (err == ERR_NOT_FOUND)
        return ERR_OK;
    if (err != ERR_OK)
        return err;
    r->firsts = MEM_ARRAY(uint64_t, list.count);
    r->segs = MEM_ARRAY(struct qlog_segment *, list.count);
    for (size_t i = 0; i < list.count; i++) { /* names sort like their positions */
        if (!list.entries[i].is_dir &&
            qlog_segment_name_parse(list.entries[i].name, &r->firsts[r->found]))
            r->found++;
    }
    disk_list_deinit(&list);
    while (r->kept < r->found && r->firsts[r->kept] < r->length)
        r->kept++;
    return ERR_OK;
}

/* Reads and checks the header, which exists in every file below the length. */
static enum err load_header(struct recovery *r, struct qlog_segment *seg, struct qlog_handle *h)
{
    uint8_t bytes[QLOG_SEGMENT_HEADER_SIZE];
    struct qlog_segment_header header;
    TRY(qlog_segment_read(seg, h, 0, bytes, sizeof(bytes), r->error));
    enum err err = qlog_segment_header_decode(bytes, &header);
    if (err == ERR_VERSION) {
        char path[QLOG_PATH_MAX];
        qlog_segment_path(r->q, seg->first, path);
        return error_set(r->error, err, "%s: format version %" PRIu32, path, le32_get(bytes + 8));
    }
    if (err != ERR_OK || header.queue_id != r->q->id || header.first != seg->first)
        return qlog_segment_damaged(seg, 0, "bad segment header", r->error);
    seg->first_stamp = header.first_stamp;
    return ERR_OK;
}

/* ---- Sealed segments ---- */

static enum err load_footer(struct recovery *r, struct qlog_segment *seg, struct qlog_handle *h)
{
    uint64_t size;
    TRY(disk_size(disk_of(r), qlog_handle_file(h), &size, r->error));
    uint64_t at = size < QLOG_FOOTER_SIZE ? 0 : size - QLOG_FOOTER_SIZE;
    uint8_t bytes[QLOG_FOOTER_SIZE];
    TRY(qlog_segment_read(seg, h, at, bytes, sizeof(bytes), r->error));
    struct qlog_footer f;
    if (qlog_footer_decode(bytes, &f) != ERR_OK || f.first != seg->first ||
        f.first_stamp != seg->first_stamp)
        return qlog_segment_damaged(seg, at, "bad or missing footer of a sealed segment", r->error);
    if (qlog_footer_file_size(&f) != size)
        return qlog_segment_damaged(seg, at, "the file's length differs from its footer", r->error);
    seg->footer = f;
    atomic_store_explicit(&seg->sealed, true, memory_order_release);
    return ERR_OK;
}

static enum err check_sealed(struct recovery *r, struct qlog_segment *seg)
{
    struct qlog_handle *h;
    TRY(qlog_handle_acquire(seg, &h, r->error));
    enum err err = load_header(r, seg, h);
    if (err == ERR_OK)
        err = load_footer(r, seg, h);
    qlog_handle_release(h);
    return err;
}

/* Segment i must end where i + 1 starts, or lie in front of a gap below start. */
static enum err check_joint(struct recovery *r, size_t i)
{
    const struct qlog_segment *seg = r->segs[i];
    uint64_t end = seg->first + seg->footer.run_bytes;
    uint64_t next = r->firsts[i + 1];
    if (end < next && next <= r->start) {
        r->gone = i + 1;
        return ERR_OK;
    }
    if (end < next) {
        char path[QLOG_PATH_MAX];
        qlog_segment_path(r->q, end, path);
        return error_set(r->error, ERR_CORRUPT, "%s: missing", path);
    }
    if (end > next)
        return qlog_segment_damaged(seg, qlog_segment_byte(seg, next),
                                    "the next segment starts inside this one", r->error);
    return ERR_OK;
}

/* ---- The last segment ---- */

struct reader { /* a window over the last segment's runs */
    struct recovery *r;
    struct qlog_segment *seg;
    struct qlog_handle *h;
    uint8_t *window;
    uint64_t at; /* position of window[0] */
    size_t len;
};

/* Makes `want` bytes at `position`, all below the length, readable; want <= READ_SIZE. */
static enum err reader_fill(struct reader *in, uint64_t position, size_t want, const uint8_t **out)
{
    if (position < in->at || position + want > in->at + in->len) {
        uint64_t left = in->r->length - position;
        in->at = position;
        in->len = left < READ_SIZE ? (size_t)left : READ_SIZE;
        TRY(qlog_segment_read(in->seg, in->h, qlog_segment_byte(in->seg, position), in->window,
                              in->len, in->r->error));
    }
    *out = in->window + (position - in->at);
    return ERR_OK;
}

static enum err reader_damaged(struct reader *in, uint64_t position, const char *what)
{
    return qlog_segment_damaged(in->seg, qlog_segment_byte(in->seg, position), what, in->r->error);
}

static enum err check_body(struct reader *in, const struct qlog_run_head *head, uint32_t want)
{
    uint32_t crc = 0;
    uint64_t at = head->position + QLOG_RUN_HEADER_SIZE;
    while (at < head->next_position) {
        uint64_t left = head->next_position - at;
        /* What is left of the window first, so that it is read once. */
        uint64_t here = at >= in->at && at < in->at + in->len ? in->at + in->len - at : READ_SIZE;
        size_t len = (size_t)(left < here ? left : here);
        const uint8_t *bytes;
        TRY(reader_fill(in, at, len, &bytes));
        crc = crc32c(crc, bytes, len);
        at += len;
    }
    return crc == want ? ERR_OK
                       : reader_damaged(in, head->position, "bad checksum of a run's body");
}

static enum err check_run(struct reader *in, uint64_t position, struct qlog_run_head *head)
{
    const uint8_t *bytes;
    uint32_t body_crc;
    if (in->r->length - position < QLOG_RUN_HEADER_SIZE)
        return reader_damaged(in, position, "a run does not end at the log's length");
    TRY(reader_fill(in, position, QLOG_RUN_HEADER_SIZE, &bytes));
    if (qlog_run_head_decode(bytes, position, head, &body_crc) != ERR_OK)
        return reader_damaged(in, position, "bad run header");
    if (head->next_position > in->r->length)
        return reader_damaged(in, position, "a run does not end at the log's length");
    return check_body(in, head, body_crc);
}

/* Reads every run of the last segment into the index of the active one. */
static enum err rebuild(struct reader *in)
{
    struct qlog *q = in->r->q;
    struct qlog_active *active = &q->shared.active;
    uint64_t position = in->seg->first;
    while (position < in->r->length) {
        struct qlog_run_head head;
        TRY(check_run(in, position, &head));
        if (position == in->seg->first && head.stamp != in->seg->first_stamp)
            return reader_damaged(in, position, "the first stamp differs from the header's");
        if (!qlog_active_add(active, &head))
            return reader_damaged(in, position, "a run out of order");
        q->last_stamp = head.stamp;
        position = head.next_position;
    }
    return ERR_OK;
}

static enum err check_last(struct recovery *r, struct qlog_segment *seg)
{
    struct reader in = {.r = r, .seg = seg};
    uint64_t size;
    TRY(qlog_handle_acquire(seg, &in.h, r->error));
    in.window = mem_new(READ_SIZE);
    enum err err = load_header(r, seg, in.h);
    if (err == ERR_OK)
        err = disk_size(disk_of(r), qlog_handle_file(in.h), &size, r->error);
    if (err == ERR_OK && size < qlog_segment_byte(seg, r->length))
        err = qlog_segment_damaged(seg, size, "the file ends before the log's length", r->error);
    if (err == ERR_OK) {
        qlog_active_init(&r->q->shared.active, seg->first);
        err = rebuild(&in);
    }
    mem_free(in.window);
    qlog_handle_release(in.h);
    return err;
}

/* ---- All of it ---- */

static enum err check_all(struct recovery *r)
{
    for (size_t i = 0; i < r->kept; i++) {
        r->segs[i] = qlog_segment_new(r->q, r->firsts[i], 0);
        if (i + 1 == r->kept)
            TRY(check_last(r, r->segs[i]));
        else
            TRY(check_sealed(r, r->segs[i]));
        if (i > r->gone && r->segs[i]->first_stamp < r->segs[i - 1]->footer.last_stamp)
            return qlog_segment_damaged(r->segs[i], 0, "stamps below the segment before", r->error);
        if (i + 1 < r->kept)
            TRY(check_joint(r, i));
    }
    uint64_t first = r->kept > r->gone ? r->firsts[r->gone] : r->length;
    if (first > r->start) {
        char folder[QLOG_PATH_MAX];
        qlog_folder_path(r->q->set, r->q->id, folder);
        return error_set(r->error, ERR_CORRUPT,
                         "%s: nothing between position %" PRIu64 " and %" PRIu64, folder, r->start,
                         first);
    }
    return ERR_OK;
}

static enum err remove_files(struct recovery *r, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        char path[QLOG_PATH_MAX];
        qlog_segment_path(r->q, r->firsts[i], path);
        TRY(disk_unlink(disk_of(r), path, r->error));
    }
    return ERR_OK;
}

static enum err cut_last(struct recovery *r)
{
    if (r->kept == 0)
        return ERR_OK;
    struct qlog_segment *seg = r->segs[r->kept - 1];
    uint64_t size;
    uint64_t want = qlog_segment_byte(seg, r->length);
    struct qlog_handle *h;
    TRY(qlog_handle_acquire(seg, &h, r->error));
    enum err err = disk_size(disk_of(r), qlog_handle_file(h), &size, r->error);
    if (err == ERR_OK && size > want)
        err = disk_truncate(disk_of(r), qlog_handle_file(h), want, r->error);
    qlog_handle_release(h);
    return err;
}

static void fill_log(struct recovery *r)
{
    struct qlog *q = r->q;
    uint64_t bytes = 0;
    struct qlog_active active = q->shared.active;
    atomic_store_explicit(&q->end, r->length, memory_order_release);
    atomic_store_explicit(&q->start, r->length, memory_order_release);
    for (size_t i = r->gone; i < r->kept; i++) {
        struct qlog_segment *seg = r->segs[i];
        r->segs[i] = NULL;
        bytes += qlog_segment_sealed(seg) ? qlog_footer_file_size(&seg->footer)
                                          : qlog_segment_byte(seg, r->length);
        pthread_mutex_lock(&q->shared.lock);
        struct qlog_list *old = qlog_list_add(q, seg);
        pthread_mutex_unlock(&q->shared.lock);
        qlog_list_put(q, old);
    }
    q->shared.active = active; /* the last one's, which was read before it went into the list */
    atomic_store_explicit(&q->disk_bytes, bytes, memory_order_relaxed);
}

enum err qlog_recover(struct qlog *q, uint64_t start, uint64_t length, struct error *error)
{
    struct recovery r = {.q = q, .start = start, .length = length, .error = error};
    enum err err = ERR_OK;
    if (start > length) {
        err = error_set(error, ERR_CORRUPT,
                        "queue log %" PRIu64 ": start %" PRIu64 " is above its length %" PRIu64,
                        q->id, start, length);
        goto out;
    }
    err = find_files(&r);
    if (err == ERR_OK)
        err = check_all(&r);
    if (err == ERR_OK)
        err = remove_files(&r, r.kept, r.found);
    if (err == ERR_OK)
        err = cut_last(&r);
    if (err == ERR_OK)
        err = remove_files(&r, 0, r.gone);
    if (err == ERR_OK)
        fill_log(&r);
out:
    for (size_t i = 0; i < r.kept; i++)
        qlog_segment_free(r.segs[i]);
    mem_free(r.segs);
    mem_free(r.firsts);
    return err;
}
