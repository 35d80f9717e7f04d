/* Segments of a queue log: names, lists, open files.
 *
 * Lists are immutable and counted, so a reader that took one keeps its segments while the appender
 * rolls and retention trims; it holds no lock while it reads. A trimmed segment's file may be
 * unlinked under a reader: an open one reads on, one that was not open yet is "not found".
 *
 * Open files live in one cache for all logs of the set; a file in use is never closed. */
#include "store/qlog_internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>

#define NAME_PREFIX "seg-"
#define NAME_SUFFIX ".qlog"
#define NAME_DIGITS 16u

void qlog_folder_path(const struct qlog_set *s, uint64_t id, char out[QLOG_PATH_MAX])
{
    int len = snprintf(out, QLOG_PATH_MAX, "%s/%" PRIu64, s->dir, id);
    ASSERT(len > 0 && (unsigned)len < QLOG_PATH_MAX);
}

void qlog_segment_path(const struct qlog *q, uint64_t first, char out[QLOG_PATH_MAX])
{
    int len = snprintf(out, QLOG_PATH_MAX, "%s/%" PRIu64 "/" NAME_PREFIX "%016" PRIx64 NAME_SUFFIX,
                       q->set->dir, q->id, first);
    ASSERT(len > 0 && (unsigned)len < QLOG_PATH_MAX);
}

bool qlog_segment_name_parse(const char *name, uint64_t *first_out)
{
    const size_t prefix = sizeof(NAME_PREFIX) - 1;
    if (strlen(name) != prefix + NAME_DIGITS + sizeof(NAME_SUFFIX) - 1 ||
        memcmp(name, NAME_PREFIX, prefix) != 0 ||
        strcmp(name + prefix + NAME_DIGITS, NAME_SUFFIX) != 0)
        return false;
    uint64_t first = 0;
    for (size_t i = prefix; i < prefix + NAME_DIGITS; i++) {
        char c = name[i];
        if (c >= '0' && c <= '9')
            first = first << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            first = first << 4 | (uint64_t)(c - 'a' + 10);
        else
            return false;
    }
    *first_out = first;
    return true;
}

enum err qlog_folder_empty(struct qlog_set *s, uint64_t id, struct error *error)
{
    char folder[QLOG_PATH_MAX];
    qlog_folder_path(s, id, folder);
    struct disk_list list = {0};
    enum err err = disk_list(s->disk, folder, &list, error);
    if (err == ERR_NOT_FOUND)
        return ERR_OK;
    if (err != ERR_OK)
        return err;
    struct buf path = BUF_INIT;
    for (size_t i = 0; i < list.count && err == ERR_OK; i++) {
        buf_reset(&path);
        buf_printf(&path, "%s/%s", folder, list.entries[i].name);
        buf_putc(&path, 0);
        err = disk_unlink(s->disk, (const char *)path.ptr, error);
        if (err == ERR_NOT_FOUND)
            err = ERR_OK;
    }
    buf_deinit(&path);
    disk_list_deinit(&list);
    return err;
}

/* ---- Open files ---- */

struct qlog_handle {
    struct disk_file *file;
    struct qlog_segment *seg;
    unsigned refs;
    struct qlog_handle *newer, *older;
};

static struct qlog_handles *cache_of(const struct qlog_segment *seg)
{
    return &seg->q->set->handles;
}

static void cache_remove(struct qlog_handles *c, struct qlog_handle *h)
{
    *(h->newer != NULL ? &h->newer->older : &c->newest) = h->older;
    *(h->older != NULL ? &h->older->newer : &c->oldest) = h->newer;
    h->newer = h->older = NULL;
}

static void cache_push(struct qlog_handles *c, struct qlog_handle *h)
{
    h->newer = NULL;
    h->older = c->newest;
    *(c->newest != NULL ? &c->newest->newer : &c->oldest) = h;
    c->newest = h;
}

/* Takes files out of the cache until it fits, those in use excepted; returns them chained by
 * `older`, to be closed without the lock. */
static struct qlog_handle *cache_evict(struct qlog_handles *c)
{
    struct qlog_handle *victims = NULL;
    struct qlog_handle *newer;
    for (struct qlog_handle *h = c->oldest; h != NULL && c->open > c->max; h = newer) {
        newer = h->newer;
        if (h->refs > 0)
            continue;
        cache_remove(c, h);
        c->open--;
        h->seg->handle = NULL;
        h->older = victims;
        victims = h;
    }
    return victims;
}

static void close_all(struct disk *disk, struct qlog_handle *victims)
{
    while (victims != NULL) {
        struct qlog_handle *next = victims->older;
        disk_close(disk, victims->file);
        mem_free(victims);
        victims = next;
    }
}

/* Puts an open file into the cache (takes it), or closes it when another thread was faster; returns
 * the cached one, in use by the caller. */
static struct qlog_handle *cache_add(struct qlog_segment *seg, struct disk_file *file)
{
    struct qlog_handles *c = cache_of(seg);
    struct disk *disk = seg->q->set->disk;
    struct qlog_handle *mine = mem_new(sizeof(*mine));
    mine->file = file;
    mine->seg = seg;

    pthread_mutex_lock(&c->lock);
    struct qlog_handle *h = seg->handle;
    if (h == NULL) {
        h = mine;
        mine = NULL;
        seg->handle = h;
        c->open++;
    } else {
        cache_remove(c, h);
    }
    cache_push(c, h);
    h->refs++;
    struct qlog_handle *victims = cache_evict(c);
    pthread_mutex_unlock(&c->lock);

    close_all(disk, mine);
    close_all(disk, victims);
    return h;
}

static enum err segment_open_file(struct qlog_segment *seg, struct disk_file **out,
                                  struct error *error)
{
    char path[QLOG_PATH_MAX];
    qlog_segment_path(seg->q, seg->first, path);
    unsigned flags = qlog_segment_sealed(seg) ? DISK_READ : DISK_WRITE;
    enum err err = disk_open(seg->q->set->disk, path, flags, out, error);
    if (err != ERR_NOT_FOUND)
        return err;
    if (atomic_load_explicit(&seg->gone, memory_order_acquire))
        return error_set(error, ERR_NOT_FOUND, "%s: trimmed", path);
    return error_set(error, ERR_CORRUPT, "%s: missing", path);
}

enum err qlog_handle_acquire(struct qlog_segment *seg, struct qlog_handle **out,
                             struct error *error)
{
    struct qlog_handles *c = cache_of(seg);
    pthread_mutex_lock(&c->lock);
    struct qlog_handle *h = seg->handle;
    if (h != NULL) {
        h->refs++;
        if (c->newest != h) {
            cache_remove(c, h);
            cache_push(c, h);
        }
    }
    pthread_mutex_unlock(&c->lock);
    if (h == NULL) {
        struct disk_file *file;
        TRY(segment_open_file(seg, &file, error));
        h = cache_add(seg, file);
    }
    *out = h;
    return ERR_OK;
}

struct disk_file *qlog_handle_file(struct qlog_handle *h)
{
    return h->file;
}

void qlog_handle_release(struct qlog_handle *h)
{
    if (h == NULL)
        return;
    struct disk *disk = h->seg->q->set->disk;
    struct qlog_handles *c = cache_of(h->seg);
    pthread_mutex_lock(&c->lock);
    h->refs--;
    struct qlog_handle *victims = c->open > c->max ? cache_evict(c) : NULL;
    pthread_mutex_unlock(&c->lock);
    close_all(disk, victims);
}

void qlog_handle_install(struct qlog_segment *seg, struct disk_file *file)
{
    qlog_handle_release(cache_add(seg, file));
}

/* ---- Segments ---- */

struct qlog_segment *qlog_segment_new(struct qlog *q, uint64_t first, int64_t first_stamp)
{
    struct qlog_segment *seg = mem_new(sizeof(*seg));
    seg->q = q;
    seg->first = first;
    seg->first_stamp = first_stamp;
    return seg;
}

void qlog_segment_free(struct qlog_segment *seg)
{
    if (seg == NULL)
        return;
    struct qlog_handles *c = cache_of(seg);
    pthread_mutex_lock(&c->lock);
    struct qlog_handle *h = seg->handle;
    if (h != NULL) {
        ASSERT(h->refs == 0);
        cache_remove(c, h);
        c->open--;
    }
    pthread_mutex_unlock(&c->lock);
    close_all(seg->q->set->disk, h);
    mem_free(seg);
}

bool qlog_segment_sealed(const struct qlog_segment *seg)
{
    return atomic_load_explicit(&seg->sealed, memory_order_acquire);
}

uint64_t qlog_segment_end(const struct qlog_segment *seg)
{
    /* The end is read first: when the segment turns out to be unsealed after it, the end cannot
     * belong to a later segment. */
    uint64_t end = qlog_end(seg->q);
    return qlog_segment_sealed(seg) ? seg->first + seg->footer.run_bytes : end;
}

uint64_t qlog_segment_byte(const struct qlog_segment *seg, uint64_t position)
{
    return QLOG_SEGMENT_HEADER_SIZE + (position - seg->first);
}

enum err qlog_segment_read(struct qlog_segment *seg, struct qlog_handle *h, uint64_t at, void *out,
                           size_t len, struct error *error)
{
    enum err err = disk_read(seg->q->set->disk, h->file, at, out, len, error);
    if (err == ERR_SHORT)
        return qlog_segment_damaged(seg, at, "the file ends early", error);
    return err; /* the disk names file and offset */
}

enum err qlog_segment_damaged(const struct qlog_segment *seg, uint64_t at, const char *what,
                              struct error *error)
{
    char path[QLOG_PATH_MAX];
    qlog_segment_path(seg->q, seg->first, path);
    return error_set(error, ERR_CORRUPT, "%s at byte %" PRIu64 ": %s", path, at, what);
}

/* ---- Lists ---- */

struct qlog_list *qlog_list_take(struct qlog *q)
{
    pthread_mutex_lock(&q->shared.lock);
    struct qlog_list *list = q->shared.list;
    list->refs++;
    pthread_mutex_unlock(&q->shared.lock);
    return list;
}

void qlog_list_put(struct qlog *q, struct qlog_list *list)
{
    if (list == NULL)
        return;
    pthread_mutex_lock(&q->shared.lock);
    bool last = --list->refs == 0;
    size_t freed = 0; /* the segments nobody else holds, gathered at the front */
    for (size_t i = 0; last && i < list->n; i++) {
        struct qlog_segment *seg = list->segs[i];
        if (--seg->lists == 0)
            list->segs[freed++] = seg;
    }
    pthread_mutex_unlock(&q->shared.lock);
    if (!last)
        return;
    for (size_t i = 0; i < freed; i++)
        qlog_segment_free(list->segs[i]);
    mem_free(list);
}

/* A list of the current one's segments from `from` on with room for one more. Lock held. */
static struct qlog_list *list_copy(struct qlog *q, size_t from)
{
    const struct qlog_list *old = q->shared.list;
    size_t kept = old != NULL ? old->n - from : 0;
    struct qlog_list *list = mem_new(sizeof(*list) + (kept + 1) * sizeof(list->segs[0]));
    list->refs = 1;
    for (size_t i = 0; i < kept; i++) {
        list->segs[i] = old->segs[from + i];
        list->segs[i]->lists++;
    }
    list->n = kept;
    return list;
}

struct qlog_list *qlog_list_add(struct qlog *q, struct qlog_segment *seg)
{
    struct qlog_list *old = q->shared.list;
    struct qlog_list *list = list_copy(q, 0);
    if (seg != NULL) {
        if (list->n == 0)
            atomic_store_explicit(&q->start, seg->first, memory_order_release);
        list->segs[list->n++] = seg;
        seg->lists++;
        if (!qlog_segment_sealed(seg)) {
            q->shared.active_seg = seg;
            qlog_active_init(&q->shared.active, seg->first);
        }
    }
    q->shared.list = list;
    return old;
}

struct qlog_list *qlog_list_trim(struct qlog *q, uint64_t position, size_t *n_out)
{
    pthread_mutex_lock(&q->shared.lock);
    struct qlog_list *old = q->shared.list;
    size_t n = 0;
    while (n < old->n && qlog_segment_sealed(old->segs[n]) &&
           qlog_segment_end(old->segs[n]) <= position)
        n++;
    for (size_t i = 0; i < n; i++)
        atomic_store_explicit(&old->segs[i]->gone, true, memory_order_release);
    q->shared.list = list_copy(q, n);
    uint64_t start = n < old->n ? old->segs[n]->first : qlog_end(q);
    atomic_store_explicit(&q->start, start, memory_order_release);
    pthread_mutex_unlock(&q->shared.lock);
    *n_out = n;
    return old;
}

size_t qlog_list_at(const struct qlog_list *list, uint64_t position)
{
    size_t lo = 0; /* segments that start at or below the position */
    size_t hi = list->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (list->segs[mid]->first <= position)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 ? lo - 1 : list->n;
}
