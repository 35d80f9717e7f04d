/* The set of queue logs of a node, and the writing side of one log.
 *
 * Nothing here is made durable: not the runs, not the folders and files that the first append
 * makes, not a cut or an unlinked file. The log's length goes into the state only after a
 * checkpoint's syncfs, which carries data, sizes and folder entries alike; whatever lies above that
 * length after a crash is cut, whole or torn, and written again from the WAL (storage rules 1, 3
 * and 4). So a sync at the creation of a segment would buy nothing.
 *
 * Appending: the run is encoded with its header into one buffer and written at its place with one
 * call; then it goes into the active segment's index and only then the end is published, under the
 * log's lock. A run that would take the active segment past segment_bytes seals it first; a larger
 * run so gets a segment of its own. Where segments end is this node's own affair: positions do not
 * depend on it.
 *
 * A full disk: the end, the index and the list change after a write succeeded, so a failed append
 * leaves torn bytes behind the end at most. They are cut off again if possible, and written over in
 * any case. Sealing may succeed and the next segment's creation fail: then the log has no active
 * segment until an append makes one. */
#include "store/qlog_internal.h"

#include "base/mem.h"

#include <stdlib.h>

#define SCRATCH_KEPT_MAX (1024u * 1024) /* bytes; a larger encoding buffer is freed after use */

/* ---- The set ---- */

enum err qlog_set_open(const struct qlog_set_options *options, struct qlog_set **out,
                       struct error *error)
{
    size_t dir_len = strlen(options->dir);
    if (dir_len == 0 || dir_len > QLOG_DIR_MAX)
        return error_set(error, ERR_INVALID, "queue log folder: name of %zu bytes", dir_len);
    if (options->segment_bytes == 0 || options->segment_bytes > QLOG_SEGMENT_BYTES_MAX)
        return error_set(error, ERR_INVALID, "queue log segments must be 1 byte to 4 GiB - 1");
    TRY(disk_make_dirs(options->disk, options->dir, error));

    struct qlog_set *s = mem_new(sizeof(*s));
    s->disk = options->disk;
    s->dir = span_dup(span_str(options->dir));
    s->segment_bytes = options->segment_bytes;
    s->handles.max = options->handles_max > 0 ? options->handles_max : 1;
    pthread_mutex_init(&s->handles.lock, NULL);
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return ERR_OK;
}

/* Closes the files and frees the log; the disk stays as it is. */
static void qlog_free(struct qlog *q)
{
    if (q == NULL)
        return;
    struct qlog_set *s = q->set;
    pthread_mutex_lock(&s->lock);
    *q->link = q->next;
    if (q->next != NULL)
        q->next->link = q->link;
    pthread_mutex_unlock(&s->lock);

    ASSERT(q->shared.list->refs == 1); /* no reader is left */
    qlog_list_put(q, q->shared.list);
    qlog_active_deinit(&q->shared.active);
    pthread_mutex_destroy(&q->shared.lock);
    mem_free(q);
}

static void scratch_free(struct buf *b)
{
    buf_deinit(b);
    mem_free(b);
}

void qlog_set_close(struct qlog_set *s)
{
    if (s == NULL)
        return;
    while (s->logs != NULL)
        qlog_free(s->logs);
    ASSERT(s->handles.open == 0);
    scratch_free(atomic_load(&s->scratch));
    pthread_mutex_destroy(&s->handles.lock);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->dir);
    mem_free(s);
}

static int id_cmp(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

enum err qlog_set_list(struct qlog_set *s, uint64_t **ids_out, size_t *n_out, struct error *error)
{
    struct disk_list list = {0};
    TRY(disk_list(s->disk, s->dir, &list, error));
    uint64_t *ids = MEM_ARRAY(uint64_t, list.count);
    size_t n = 0;
    for (size_t i = 0; i < list.count; i++) {
        if (list.entries[i].is_dir && span_parse_u64(span_str(list.entries[i].name), &ids[n]))
            n++;
    }
    disk_list_deinit(&list);
    qsort(ids, n, sizeof(ids[0]), id_cmp);
    *ids_out = ids;
    *n_out = n;
    return ERR_OK;
}

static struct qlog *qlog_new(struct qlog_set *s, uint64_t id)
{
    struct qlog *q = mem_new(sizeof(*q));
    q->set = s;
    q->id = id;
    q->last_stamp = INT64_MIN;
    pthread_mutex_init(&q->shared.lock, NULL);
    (void)qlog_list_add(q, NULL); /* there is no list before the first */

    pthread_mutex_lock(&s->lock);
    q->next = s->logs;
    q->link = &s->logs;
    if (q->next != NULL)
        q->next->link = &q->next;
    s->logs = q;
    pthread_mutex_unlock(&s->lock);
    return q;
}

/* ---- Create, open, destroy ---- */

enum err qlog_create(struct qlog_set *s, uint64_t id, struct qlog **out, struct error *error)
{
    TRY(qlog_folder_empty(s, id, error));
    *out = qlog_new(s, id);
    return ERR_OK;
}

enum err qlog_open(struct qlog_set *s, uint64_t id, uint64_t start, uint64_t length,
                   struct qlog **out, struct error *error)
{
    struct qlog *q = qlog_new(s, id);
    enum err err = qlog_recover(q, start, length, error);
    if (err != ERR_OK) {
        qlog_free(q);
        return err;
    }
    *out = q;
    return ERR_OK;
}

enum err qlog_destroy(struct qlog *q, struct error *error)
{
    struct qlog_set *s = q->set;
    uint64_t id = q->id;
    qlog_free(q);
    TRY(qlog_folder_empty(s, id, error));
    char folder[QLOG_PATH_MAX];
    qlog_folder_path(s, id, folder);
    enum err err = disk_rmdir(s->disk, folder, error);
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

/* ---- Plain values ---- */

uint64_t qlog_id(const struct qlog *q)
{
    return q->id;
}

uint64_t qlog_end(const struct qlog *q)
{
    return atomic_load_explicit(&q->end, memory_order_acquire);
}

uint64_t qlog_start(const struct qlog *q)
{
    return atomic_load_explicit(&q->start, memory_order_acquire);
}

uint64_t qlog_disk_bytes(const struct qlog *q)
{
    return atomic_load_explicit(&q->disk_bytes, memory_order_relaxed);
}

size_t qlog_segment_count(struct qlog *q)
{
    pthread_mutex_lock(&q->shared.lock);
    size_t n = q->shared.list->n;
    pthread_mutex_unlock(&q->shared.lock);
    return n;
}

static void disk_bytes_add(struct qlog *q, uint64_t bytes)
{
    atomic_fetch_add_explicit(&q->disk_bytes, bytes, memory_order_relaxed);
}

/* ---- Appending ---- */

/* One encoding buffer serves the one appender there is; another finds none and makes its own. */
static struct buf *scratch_take(struct qlog_set *s)
{
    struct buf *b = atomic_exchange(&s->scratch, NULL);
    if (b == NULL)
        b = mem_new(sizeof(*b));
    buf_reset(b);
    return b;
}

static void scratch_give(struct qlog_set *s, struct buf *b)
{
    if (b->cap > SCRATCH_KEPT_MAX)
        buf_deinit(b);
    b = atomic_exchange(&s->scratch, b);
    if (b != NULL)
        scratch_free(b);
}

static enum err write_at(struct qlog *q, struct qlog_handle *h, uint64_t at,
                         const struct buf *bytes, struct error *error)
{
    struct disk *disk = q->set->disk;
    struct span part = buf_span(bytes);
    enum err err = disk_write(disk, qlog_handle_file(h), at, &part, 1, error);
    if (err == ERR_NO_SPACE && disk_truncate(disk, qlog_handle_file(h), at, NULL) != ERR_OK)
        q->torn = true; /* the space of a partial write could not be given back */
    return err;
}

static enum err write_seal(struct qlog *q, struct qlog_handle *h, const struct buf *tail,
                           const struct qlog_footer *footer, struct error *error)
{
    TRY(write_at(q, h, qlog_footer_blocks_at(footer), tail, error));
    if (q->torn) { /* the footer must be the file's last bytes */
        TRY(disk_truncate(q->set->disk, qlog_handle_file(h), qlog_footer_file_size(footer), error));
        q->torn = false;
    }
    return ERR_OK;
}

/* Writes index and footer behind the active segment's runs; afterwards there is no active segment.
 */
static enum err seal_active(struct qlog *q, struct error *error)
{
    struct qlog_segment *seg = q->shared.active_seg;
    struct buf *tail = scratch_take(q->set);
    struct qlog_footer footer;
    qlog_active_seal(&q->shared.active, qlog_end(q) - seg->first, tail, &footer);
    struct qlog_handle *h = NULL;
    enum err err = qlog_handle_acquire(seg, &h, error);
    if (err == ERR_OK)
        err = write_seal(q, h, tail, &footer, error);
    qlog_handle_release(h);
    uint64_t tail_len = tail->len;
    scratch_give(q->set, tail);
    if (err != ERR_OK)
        return err;

    disk_bytes_add(q, tail_len);
    pthread_mutex_lock(&q->shared.lock);
    struct qlog_active active = q->shared.active;
    q->shared.active = (struct qlog_active){.by_id = MAP64_INIT};
    q->shared.active_seg = NULL;
    seg->footer = footer;
    atomic_store_explicit(&seg->sealed, true, memory_order_release);
    pthread_mutex_unlock(&q->shared.lock);
    qlog_active_deinit(&active);
    return ERR_OK;
}

/* Creates the file of the segment that starts at the end, with its folder when that is missing. */
static enum err create_file(struct qlog *q, struct disk_file **out, struct error *error)
{
    const unsigned flags = DISK_WRITE | DISK_CREATE | DISK_TRUNCATE;
    struct disk *disk = q->set->disk;
    char path[QLOG_PATH_MAX];
    qlog_segment_path(q, qlog_end(q), path);
    enum err err = disk_open(disk, path, flags, out, error);
    if (err != ERR_NOT_FOUND)
        return err;
    char folder[QLOG_PATH_MAX];
    qlog_folder_path(q->set, q->id, folder);
    err = disk_mkdir(disk, folder, error);
    if (err != ERR_OK && err != ERR_EXISTS)
        return err;
    return disk_open(disk, path, flags, out, error);
}

/* Takes back what create_file() made; what cannot be removed is removed or written over later. */
static void remove_file(struct qlog *q, struct disk_file *file)
{
    struct disk *disk = q->set->disk;
    char path[QLOG_PATH_MAX];
    disk_close(disk, file);
    qlog_segment_path(q, qlog_end(q), path);
    enum err ignored = disk_unlink(disk, path, NULL);
    qlog_folder_path(q->set, q->id, path);
    ignored = disk_rmdir(disk, path, NULL); /* fails when it holds other segments */
    (void)ignored;
}

/* Starts a segment with the encoded run. */
static enum err append_first(struct qlog *q, const struct qlog_run_head *head,
                             const struct buf *bytes, struct error *error)
{
    uint8_t header[QLOG_SEGMENT_HEADER_SIZE];
    qlog_segment_header_encode(&(struct qlog_segment_header){.queue_id = q->id,
                                                             .first = head->position,
                                                             .first_stamp = head->stamp},
                               header);
    struct disk_file *file;
    TRY(create_file(q, &file, error));
    const struct span parts[] = {{header, sizeof(header)}, buf_span(bytes)};
    enum err err = disk_write(q->set->disk, file, 0, parts, 2, error);
    if (err != ERR_OK) {
        remove_file(q, file);
        return err;
    }
    q->torn = false;
    disk_bytes_add(q, sizeof(header));
    struct qlog_segment *seg = qlog_segment_new(q, head->position, head->stamp);
    qlog_handle_install(seg, file);
    pthread_mutex_lock(&q->shared.lock);
    struct qlog_list *old = qlog_list_add(q, seg);
    pthread_mutex_unlock(&q->shared.lock);
    qlog_list_put(q, old);
    return ERR_OK;
}

static enum err append_next(struct qlog *q, const struct qlog_run_head *head,
                            const struct buf *bytes, struct error *error)
{
    struct qlog_segment *seg = q->shared.active_seg;
    struct qlog_handle *h;
    TRY(qlog_handle_acquire(seg, &h, error));
    enum err err = write_at(q, h, qlog_segment_byte(seg, head->position), bytes, error);
    qlog_handle_release(h);
    return err;
}

static void publish(struct qlog *q, const struct qlog_run_head *head)
{
    pthread_mutex_lock(&q->shared.lock);
    bool added = qlog_active_add(&q->shared.active, head);
    ASSERT(added);
    atomic_store_explicit(&q->end, head->next_position, memory_order_release);
    pthread_mutex_unlock(&q->shared.lock);
    q->last_stamp = head->stamp;
    disk_bytes_add(q, head->next_position - head->position);
}

enum err qlog_append(struct qlog *q, const struct qlog_run *run, uint64_t *position_out,
                     struct error *error)
{
    struct qlog_segment *seg = q->shared.active_seg; /* only the appender changes it */
    const uint64_t position = qlog_end(q);
    ASSERT(run->stamp >= q->last_stamp);
    if (seg != NULL &&
        qlog_segment_byte(seg, position) + qlog_run_size(run) > q->set->segment_bytes) {
        TRY(seal_active(q, error));
        seg = NULL;
    }

    struct buf *bytes = scratch_take(q->set);
    qlog_run_encode(run, position, bytes);
    struct qlog_run_head head = {
        .position = position,
        .next_position = position + bytes->len,
        .partition_id = run->partition_id,
        .first_offset = run->first_offset,
        .count = run->count,
        .stamp = run->stamp,
    };
    enum err err =
        seg == NULL ? append_first(q, &head, bytes, error) : append_next(q, &head, bytes, error);
    scratch_give(q->set, bytes);
    if (err != ERR_OK)
        return err;
    publish(q, &head);
    if (position_out != NULL)
        *position_out = position;
    return ERR_OK;
}

/* ---- Retention ---- */

enum err qlog_trim(struct qlog *q, uint64_t position, struct error *error)
{
    size_t n;
    struct qlog_list *old = qlog_list_trim(q, position, &n);
    enum err err = ERR_OK;
    for (size_t i = 0; i < n && err == ERR_OK; i++) {
        char path[QLOG_PATH_MAX];
        qlog_segment_path(q, old->segs[i]->first, path);
        err = disk_unlink(q->set->disk, path, error);
        if (err == ERR_NOT_FOUND)
            err = ERR_OK;
        atomic_fetch_sub_explicit(&q->disk_bytes, qlog_footer_file_size(&old->segs[i]->footer),
                                  memory_order_relaxed);
    }
    qlog_list_put(q, old);
    return err;
}
