/* Reading a queue log: by position, by stamp, by partition and offset.
 *
 * A reader takes the list of segments, works without a lock, and puts the list back. It goes by the
 * published end, so it sees whole runs only; a run that reaches past its segment's end is damage.
 *
 * Scanning reads heads. Small runs are read in windows, so one call of the disk serves hundreds; of
 * large ones only the header is read. The size of the run before decides, as runs of one queue tend
 * to be alike. */
#include "store/qlog_internal.h"

#include "base/crc32c.h"
#include "base/mem.h"

#include <inttypes.h>

#define WINDOW (64u * 1024)
#define READ_FIRST 4096u /* bytes read when nothing is known: a page */
#define SKIP_ABOVE 4096u /* a run larger than this is cheaper to skip than to read */

static enum err trimmed(struct qlog *q, uint64_t position, struct error *error)
{
    return error_set(error, ERR_NOT_FOUND,
                     "queue log %" PRIu64 ": position %" PRIu64 " is below its start", q->id,
                     position);
}

/* The segment that holds the position; NULL when it was trimmed. */
static struct qlog_segment *list_find(const struct qlog_list *list, uint64_t position)
{
    size_t at = qlog_list_at(list, position);
    return at < list->n ? list->segs[at] : NULL;
}

/* ---- Heads ---- */

struct scan {
    struct qlog_segment *seg;
    struct qlog_handle *h;
    uint64_t limit;  /* end of the segment's runs */
    uint8_t *window; /* of WINDOW bytes */
    uint64_t at;     /* position of window[0] */
    size_t len;
    uint64_t run_size; /* of the run before, 0 at first */
    struct error *error;
};

static size_t window_size(const struct scan *s, size_t left, uint64_t available)
{
    uint64_t want = READ_FIRST;
    if (s->run_size > SKIP_ABOVE)
        want = QLOG_RUN_HEADER_SIZE;
    else if (s->run_size > 0)
        want = s->run_size * left;
    if (s->run_size <= SKIP_ABOVE && want < READ_FIRST)
        want = READ_FIRST;
    if (want > WINDOW)
        want = WINDOW;
    return (size_t)(want < available ? want : available);
}

/* The head at `position`; left: heads the caller can still take, this one included. */
static enum err scan_head(struct scan *s, uint64_t position, size_t left, struct qlog_run_head *out)
{
    uint64_t byte = qlog_segment_byte(s->seg, position);
    if (position > s->limit || s->limit - position < QLOG_RUN_HEADER_SIZE)
        return qlog_segment_damaged(s->seg, byte, "a run passes its segment's end", s->error);
    if (position < s->at || position + QLOG_RUN_HEADER_SIZE > s->at + s->len) {
        size_t size = window_size(s, left, s->limit - position);
        s->len = 0;
        TRY(qlog_segment_read(s->seg, s->h, byte, s->window, size, s->error));
        s->at = position;
        s->len = size;
    }
    struct qlog_run_head head;
    uint32_t body_crc;
    if (qlog_run_head_decode(s->window + (position - s->at), position, &head, &body_crc) != ERR_OK)
        return qlog_segment_damaged(s->seg, byte, "bad run header", s->error);
    if (head.next_position > s->limit)
        return qlog_segment_damaged(s->seg, byte, "a run passes its segment's end", s->error);
    s->run_size = head.next_position - position;
    *out = head;
    return ERR_OK;
}

/* Heads of one segment. *position moves on. */
static enum err scan_segment(struct qlog_segment *seg, uint8_t *window, uint64_t end,
                             struct qlog_run_head *heads, size_t max, size_t *n, uint64_t *position,
                             struct error *error)
{
    struct scan s = {.seg = seg, .limit = qlog_segment_end(seg), .window = window, .error = error};
    TRY(qlog_handle_acquire(seg, &s.h, error));
    enum err err = ERR_OK;
    if (*position >= s.limit)
        err = qlog_segment_damaged(seg, qlog_segment_byte(seg, *position),
                                   "no run behind the segment's end", error);
    while (err == ERR_OK && *n < max && *position < end && *position < s.limit) {
        err = scan_head(&s, *position, max - *n, &heads[*n]);
        if (err != ERR_OK)
            break;
        *position = heads[*n].next_position;
        ++*n;
    }
    qlog_handle_release(s.h);
    return err;
}

enum err qlog_scan(struct qlog *q, uint64_t position, uint64_t end, struct qlog_run_head *heads,
                   size_t max, size_t *n_out, uint64_t *next_out, struct error *error)
{
    ASSERT(end <= qlog_end(q));
    struct qlog_list *list = qlog_list_take(q);
    uint8_t *window = mem_grow(NULL, WINDOW);
    size_t n = 0;
    enum err err = ERR_OK;
    while (err == ERR_OK && n < max && position < end) {
        struct qlog_segment *seg = list_find(list, position);
        err = seg == NULL ? trimmed(q, position, error)
                          : scan_segment(seg, window, end, heads, max, &n, &position, error);
    }
    mem_free(window);
    qlog_list_put(q, list);
    if (err != ERR_OK)
        return err;
    *n_out = n;
    *next_out = position;
    return ERR_OK;
}

/* The head of one run alone. */
static enum err read_head(struct qlog_segment *seg, uint64_t position, struct qlog_run_head *out,
                          struct error *error)
{
    uint8_t bytes[QLOG_RUN_HEADER_SIZE];
    struct scan s = {.seg = seg, .error = error, .window = bytes, .run_size = UINT64_MAX};
    s.limit = qlog_segment_end(seg);
    TRY(qlog_handle_acquire(seg, &s.h, error));
    enum err err = scan_head(&s, position, 1, out);
    qlog_handle_release(s.h);
    return err;
}

/* ---- By stamp ---- */

/* The first run with that stamp or a later one, from `position` on; the segment's end if it has
 * none. Reads in steps that grow, so that little is read behind a run that is near. */
static enum err scan_for_stamp(struct qlog_segment *seg, uint64_t position, int64_t stamp,
                               uint64_t *position_out, struct error *error)
{
    struct scan s = {.seg = seg, .limit = qlog_segment_end(seg), .error = error};
    TRY(qlog_handle_acquire(seg, &s.h, error));
    s.window = mem_grow(NULL, WINDOW);
    enum err err = ERR_OK;
    for (size_t passed = 0; position < s.limit; passed++) {
        struct qlog_run_head head;
        err = scan_head(&s, position, passed + 1, &head);
        if (err != ERR_OK || head.stamp >= stamp)
            break;
        position = head.next_position;
    }
    mem_free(s.window);
    qlog_handle_release(s.h);
    if (err == ERR_OK)
        *position_out = position;
    return err;
}

/* Moves *from, a place below `stamp`, up to behind the run that `near` names. What this costs, a few
 * index blocks, is less than what lies between two marks, unless runs are so large that a scan skips
 * them. */
static enum err come_nearer(struct qlog_segment *seg, int64_t stamp, const struct qlog_near *near,
                            uint64_t *from, struct error *error)
{
    struct qlog_around around;
    struct qlog_run_head head;
    if (seg->footer.run_bytes / seg->footer.runs > SKIP_ABOVE)
        return ERR_OK;
    TRY(qlog_sealed_around(seg, near->partition_id, near->offset, &around, error));
    if (!around.has_floor || around.floor < *from)
        return ERR_OK;
    TRY(read_head(seg, around.floor, &head, error));
    if (head.stamp < stamp)
        *from = head.next_position;
    return ERR_OK;
}

static enum err segment_seek_stamp(struct qlog_segment *seg, int64_t stamp,
                                   const struct qlog_near *near, uint64_t *position_out,
                                   struct error *error)
{
    struct qlog *q = seg->q;
    pthread_mutex_lock(&q->shared.lock);
    bool active = q->shared.active_seg == seg;
    /* The end belongs to the look at the index: a run appended between the two would be skipped. */
    if (active && !qlog_active_seek_stamp(&q->shared.active, stamp, position_out))
        *position_out = qlog_end(q);
    pthread_mutex_unlock(&q->shared.lock);
    if (active)
        return ERR_OK;
    if (seg->footer.last_stamp < stamp) {
        *position_out = qlog_segment_end(seg);
        return ERR_OK;
    }
    uint64_t from;
    int64_t mark;
    TRY(qlog_sealed_seek_mark(seg, stamp, &from, &mark, error));
    if (near != NULL && mark < near->below)
        TRY(come_nearer(seg, stamp, near, &from, error));
    return scan_for_stamp(seg, from, stamp, position_out, error);
}

enum err qlog_seek_stamp_near(struct qlog *q, int64_t stamp, const struct qlog_near *near,
                              uint64_t *position_out, struct error *error)
{
    const uint64_t end = qlog_end(q); /* before the list: for one that is empty */
    struct qlog_list *list = qlog_list_take(q);
    size_t lo = 0; /* segments that start below the stamp */
    size_t hi = list->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (list->segs[mid]->first_stamp < stamp)
            lo = mid + 1;
        else
            hi = mid;
    }
    /* The run is in the last segment that starts below the stamp, or it is the first one behind it,
     * which is at that segment's end. */
    enum err err = ERR_OK;
    if (lo > 0)
        err = segment_seek_stamp(list->segs[lo - 1], stamp, near, position_out, error);
    else
        *position_out = list->n > 0 ? list->segs[0]->first : end;
    qlog_list_put(q, list);
    return err;
}

enum err qlog_seek_stamp(struct qlog *q, int64_t stamp, uint64_t *position_out, struct error *error)
{
    return qlog_seek_stamp_near(q, stamp, NULL, position_out, error);
}

/* ---- Whole runs ---- */

void qlog_run_data_deinit(struct qlog_run_data *d)
{
    if (d == NULL)
        return;
    buf_deinit(&d->bytes);
    mem_free(d->records);
    *d = (struct qlog_run_data){0};
}

/* Header and body into data->bytes: one read for a small run, two for a large one. */
static enum err read_bytes(struct qlog_segment *seg, struct qlog_handle *h, uint64_t position,
                           struct qlog_run_data *data, struct qlog_run_head *head,
                           uint32_t *body_crc, struct error *error)
{
    const uint64_t byte = qlog_segment_byte(seg, position);
    const uint64_t limit = qlog_segment_end(seg);
    if (position >= limit || limit - position < QLOG_RUN_HEADER_SIZE)
        return qlog_segment_damaged(seg, byte, "a run passes its segment's end", error);
    size_t first = limit - position < READ_FIRST ? (size_t)(limit - position) : READ_FIRST;
    buf_reset(&data->bytes);
    TRY(qlog_segment_read(seg, h, byte, buf_extend(&data->bytes, first), first, error));
    if (qlog_run_head_decode(data->bytes.ptr, position, head, body_crc) != ERR_OK)
        return qlog_segment_damaged(seg, byte, "bad run header", error);
    if (head->next_position > limit)
        return qlog_segment_damaged(seg, byte, "a run passes its segment's end", error);
    size_t size = (size_t)(head->next_position - position);
    if (size > first)
        TRY(qlog_segment_read(seg, h, byte + first, buf_extend(&data->bytes, size - first),
                              size - first, error));
    data->bytes.len = size;
    return ERR_OK;
}

static enum err read_run(struct qlog_segment *seg, struct qlog_handle *h, uint64_t position,
                         struct qlog_run_data *data, struct error *error)
{
    struct qlog_run_head head;
    uint32_t body_crc;
    TRY(read_bytes(seg, h, position, data, &head, &body_crc, error));
    struct span body = span_sub(buf_span(&data->bytes), QLOG_RUN_HEADER_SIZE, data->bytes.len);
    if (crc32c(0, body.ptr, body.len) != body_crc)
        return qlog_segment_damaged(seg, qlog_segment_byte(seg, position),
                                    "bad checksum of a run's body", error);
    if (head.count > data->records_cap) { /* the body is there, so its count is bounded by it */
        data->records = mem_grow(data->records, head.count * sizeof(data->records[0]));
        data->records_cap = head.count;
    }
    struct span partition;
    if (qlog_run_body_decode(&head, body, &partition, data->records) != ERR_OK)
        return qlog_segment_damaged(seg, qlog_segment_byte(seg, position),
                                    "a run's body does not add up", error);
    data->head = head;
    data->partition = partition;
    return ERR_OK;
}

enum err qlog_read(struct qlog *q, uint64_t position, struct qlog_run_data *data,
                   struct error *error)
{
    if (position >= qlog_end(q))
        return error_set(error, ERR_NOT_FOUND,
                         "queue log %" PRIu64 ": position %" PRIu64 " is at or above its end",
                         q->id, position);
    struct qlog_list *list = qlog_list_take(q);
    struct qlog_segment *seg = list_find(list, position);
    enum err err;
    if (seg == NULL) {
        err = trimmed(q, position, error);
        goto out;
    }
    struct qlog_handle *h = NULL;
    err = qlog_handle_acquire(seg, &h, error);
    if (err == ERR_OK)
        err = read_run(seg, h, position, data, error);
    qlog_handle_release(h);
out:
    qlog_list_put(q, list);
    return err;
}

/* ---- By partition and offset ---- */

/* A trimmed segment knows nothing. */
static enum err segment_around(struct qlog_segment *seg, uint64_t partition_id, uint64_t offset,
                               struct qlog_around *out, struct error *error)
{
    struct qlog *q = seg->q;
    pthread_mutex_lock(&q->shared.lock);
    bool active = q->shared.active_seg == seg;
    if (active)
        qlog_active_around(&q->shared.active, partition_id, offset, out);
    pthread_mutex_unlock(&q->shared.lock);
    if (active)
        return ERR_OK;
    enum err err = qlog_sealed_around(seg, partition_id, offset, out, error);
    if (err == ERR_NOT_FOUND) {
        *out = (struct qlog_around){0};
        return ERR_OK;
    }
    return err;
}

/* The partition's last run in the whole log that starts at or below the offset, and its first that
 * starts above it. Bisects the segments, the last one first because most readers are near the end.
 * A segment without the partition tells nothing, so the one before it is asked: a rare partition
 * costs a look at each segment whose range of partition ids holds it. */
static enum err list_around(const struct qlog_list *list, uint64_t partition_id, uint64_t offset,
                            struct qlog_around *out, struct error *error)
{
    struct qlog_around best = {0};
    size_t lo = 0; /* segments that may still tell: [lo, hi) */
    size_t hi = list->n;
    for (size_t mid = hi; lo < hi; mid = lo + (hi - lo) / 2) {
        struct qlog_around here = {0};
        size_t i = mid < hi ? mid : hi - 1;
        const size_t last = i;
        for (;; i--) {
            TRY(segment_around(list->segs[i], partition_id, offset, &here, error));
            if (here.has_floor || here.has_above || i == lo)
                break;
        }
        if (here.has_above) {
            best.has_above = true;
            best.above = here.above;
        }
        if (here.has_floor) {
            best.has_floor = true;
            best.floor = here.floor;
            best.floor_behind = here.floor_behind;
        }
        if (here.has_floor && here.has_above)
            break;
        if (here.has_above)
            hi = i;
        else
            lo = last + 1;
    }
    *out = best;
    return ERR_OK;
}

/* The offset behind the run at `position`, from its header. */
static enum err read_behind(const struct qlog_list *list, uint64_t position, uint64_t *out,
                            struct error *error)
{
    struct qlog_segment *seg = list_find(list, position);
    struct qlog_run_head head;
    ASSERT(seg != NULL);
    TRY(read_head(seg, position, &head, error));
    *out = head.first_offset + head.count;
    return ERR_OK;
}

static enum err list_find_run(const struct qlog_list *list, uint64_t partition_id, uint64_t offset,
                              uint64_t *position_out, struct error *error)
{
    struct qlog_around around;
    TRY(list_around(list, partition_id, offset, &around, error));
    if (around.has_floor && around.floor_behind == 0) {
        enum err err = read_behind(list, around.floor, &around.floor_behind, error);
        if (err != ERR_OK && err != ERR_NOT_FOUND) /* the latter: just trimmed */
            return err;
    }
    if (around.has_floor && offset < around.floor_behind) {
        *position_out = around.floor;
        return ERR_OK;
    }
    if (around.has_above) {
        *position_out = around.above;
        return ERR_OK;
    }
    return error_set(error, ERR_NOT_FOUND,
                     "partition %" PRIu64 " has no record at or above offset %" PRIu64,
                     partition_id, offset);
}

enum err qlog_find(struct qlog *q, uint64_t partition_id, uint64_t offset, uint64_t *position_out,
                   struct error *error)
{
    struct qlog_list *list = qlog_list_take(q);
    enum err err = list_find_run(list, partition_id, offset, position_out, error);
    qlog_list_put(q, list);
    return err;
}
