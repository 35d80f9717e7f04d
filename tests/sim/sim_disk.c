/* The simulated disk; what it promises is in sim_disk.h.
 *
 * A node is a file or a folder. Each has a current and a durable state: two images of a file's
 * bytes, or two sorted lists of a folder's names. A file keeps its own list of changes since its
 * last sync. Names that are not durable yet stand in one list for the whole disk, in order, because
 * a rename touches two folders at once and because a journal keeps that order.
 *
 * Nodes live until nothing can reach them: neither folder state, nor a pending name, nor an open
 * file. A mark and sweep now and then finds that out. */
#include "sim/sim_disk.h"

#include "base/mem.h"

#include <pthread.h>

#define SECTOR 512u
#define CAPACITY (UINT64_C(1) << 40)
#define SWEEP_MIN 256 /* nodes before the first sweep */

struct image {
    uint8_t *ptr;
    size_t len, cap;
};

struct change { /* of a file: bytes written, or a new size */
    bool is_size;
    uint64_t at; /* offset, or the size */
    size_t len;
    uint8_t *bytes; /* NULL: zeros */
};

struct name {
    char *text;
    struct node *node;
};

struct names {
    struct name *items; /* sorted by text */
    size_t n, cap;
};

struct node {
    struct node *next; /* all nodes of the disk */
    bool is_dir, marked;
    uint32_t links, opens;
    struct disk_file *locked_by;
    struct image now, then; /* file: page cache, disk */
    struct change *changes;
    size_t n_changes, changes_cap;
    struct names names_now, names_then; /* folder */
};

struct move { /* of a name: from nothing = made, to nothing = removed */
    struct node *node;
    struct node *from_dir, *to_dir;
    char *from, *to;
};

struct disk_file {
    struct disk_file *next; /* all open files */
    struct node *node;      /* NULL after a reboot */
    bool writable;
    char *path;
};

struct sim {
    struct disk disk;
    pthread_mutex_t mutex;
    struct prng prng;
    struct node *root, *nodes;
    size_t n_nodes, sweep_at;
    struct move *moves;
    size_t n_moves, moves_cap;
    struct disk_file *files;
    uint64_t capacity, used;

    bool down, crash_armed;
    uint64_t crash_left;
    bool fail_armed;
    enum sim_disk_op fail_op;
    enum err fail_err;
    uint64_t fail_skip;
    uint64_t counts[SIM_DISK_OPS], changes;
};

/* What becomes of an operation. */
struct verdict {
    enum err err; /* ERR_OK: it runs */
    bool struck;  /* it fails here and now: part of it may happen */
};

static const char *const op_names[SIM_DISK_OPS] = {
    "open",     "read",   "write",  "truncate", "preallocate", "datasync", "sync_dir",
    "sync_all", "rename", "unlink", "mkdir",    "rmdir",       "list",
};

/* ---- images and names ---- */

static void image_resize(struct image *image, size_t len)
{
    if (len > image->cap) {
        size_t cap = image->cap < 4096 ? 4096 : image->cap;
        while (cap < len)
            cap *= 2;
        image->ptr = mem_grow(image->ptr, cap);
        image->cap = cap;
    }
    if (len > image->len)
        memset(image->ptr + image->len, 0, len - image->len);
    image->len = len;
}

static void image_write(struct image *image, uint64_t at, const uint8_t *bytes, size_t len)
{
    if (len == 0)
        return;
    if (at + len > image->len)
        image_resize(image, (size_t)(at + len));
    if (bytes == NULL)
        memset(image->ptr + at, 0, len);
    else
        memcpy(image->ptr + at, bytes, len);
}

static void image_copy(struct image *to, const struct image *from)
{
    to->len = 0;
    image_resize(to, from->len);
    if (from->len > 0)
        memcpy(to->ptr, from->ptr, from->len);
}

/* Index of the first name >= text. */
static size_t names_seek(const struct names *names, const char *text)
{
    size_t low = 0, high = names->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(names->items[middle].text, text) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct node *names_get(const struct names *names, const char *text)
{
    size_t i = names_seek(names, text);
    return i < names->n && strcmp(names->items[i].text, text) == 0 ? names->items[i].node : NULL;
}

static void names_set(struct names *names, const char *text, struct node *node)
{
    size_t i = names_seek(names, text);
    if (i < names->n && strcmp(names->items[i].text, text) == 0) {
        names->items[i].node = node;
        return;
    }
    if (names->n == names->cap) {
        names->cap = names->cap == 0 ? 8 : 2 * names->cap;
        names->items = mem_grow(names->items, names->cap * sizeof(*names->items));
    }
    memmove(names->items + i + 1, names->items + i, (names->n - i) * sizeof(*names->items));
    names->items[i] = (struct name){mem_copy(text, strlen(text) + 1), node};
    names->n++;
}

static void names_remove(struct names *names, const char *text)
{
    size_t i = names_seek(names, text);
    mem_free(names->items[i].text);
    names->n--;
    memmove(names->items + i, names->items + i + 1, (names->n - i) * sizeof(*names->items));
}

static void names_deinit(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        mem_free(names->items[i].text);
    mem_free(names->items);
    *names = (struct names){0};
}

static void names_copy(struct names *to, const struct names *from)
{
    names_deinit(to);
    for (size_t i = 0; i < from->n; i++)
        names_set(to, from->items[i].text, from->items[i].node);
}

/* ---- nodes ---- */

static struct node *node_new(struct sim *s, bool is_dir)
{
    struct node *node = mem_new(sizeof(*node));
    node->is_dir = is_dir;
    node->next = s->nodes;
    s->nodes = node;
    s->n_nodes++;
    return node;
}

static void changes_clear(struct node *node)
{
    for (size_t i = 0; i < node->n_changes; i++)
        mem_free(node->changes[i].bytes);
    node->n_changes = 0;
}

static void node_free(struct node *node)
{
    changes_clear(node);
    mem_free(node->changes);
    mem_free(node->now.ptr);
    mem_free(node->then.ptr);
    names_deinit(&node->names_now);
    names_deinit(&node->names_then);
    mem_free(node);
}

static void mark(struct node *node)
{
    if (node == NULL || node->marked)
        return;
    node->marked = true;
    for (size_t i = 0; i < node->names_now.n; i++)
        mark(node->names_now.items[i].node);
    for (size_t i = 0; i < node->names_then.n; i++)
        mark(node->names_then.items[i].node);
}

static void sweep(struct sim *s)
{
    mark(s->root);
    for (size_t i = 0; i < s->n_moves; i++) {
        mark(s->moves[i].node);
        mark(s->moves[i].from_dir);
        mark(s->moves[i].to_dir);
    }
    for (struct disk_file *f = s->files; f != NULL; f = f->next)
        mark(f->node);
    for (struct node **at = &s->nodes; *at != NULL;) {
        struct node *node = *at;
        if (node->marked) {
            node->marked = false;
            at = &node->next;
            continue;
        }
        *at = node->next;
        node_free(node);
        s->n_nodes--;
    }
    s->sweep_at = 2 * s->n_nodes > SWEEP_MIN ? 2 * s->n_nodes : SWEEP_MIN;
}

static void sweep_sometimes(struct sim *s)
{
    if (s->n_nodes >= s->sweep_at)
        sweep(s);
}

static bool in_use(const struct node *node)
{
    return node->links > 0 || node->opens > 0;
}

/* Counts the space of a file that nothing names or holds any more as free. */
static void drop_link(struct sim *s, struct node *node)
{
    ASSERT(node->links > 0);
    node->links--;
    if (!in_use(node))
        s->used -= node->now.len;
}

/* ---- changes of files ---- */

static void add_change(struct node *node, struct change change)
{
    if (node->n_changes == node->changes_cap) {
        node->changes_cap = node->changes_cap == 0 ? 8 : 2 * node->changes_cap;
        node->changes = mem_grow(node->changes, node->changes_cap * sizeof(*node->changes));
    }
    node->changes[node->n_changes++] = change;
}

static void file_write(struct sim *s, struct node *node, uint64_t at, const uint8_t *bytes,
                       size_t len)
{
    if (len == 0)
        return;
    size_t before = node->now.len;
    image_write(&node->now, at, bytes, len);
    s->used += node->now.len - before;
    add_change(node, (struct change){
                         .at = at,
                         .len = len,
                         .bytes = bytes == NULL ? NULL : mem_copy(bytes, len),
                     });
}

static void file_resize(struct sim *s, struct node *node, uint64_t size)
{
    s->used = s->used - node->now.len + size;
    image_resize(&node->now, (size_t)size);
    add_change(node, (struct change){.is_size = true, .at = size});
}

static void apply_change(struct image *image, const struct change *c)
{
    if (c->is_size)
        image_resize(image, (size_t)c->at);
    else
        image_write(image, c->at, c->bytes, c->len);
}

static void file_persist(struct node *node)
{
    for (size_t i = 0; i < node->n_changes; i++)
        apply_change(&node->then, &node->changes[i]);
    changes_clear(node);
}

/* Applies the sectors of one write that survive. */
static void survive_write(struct image *image, const struct change *c, unsigned keep_percent,
                          struct prng *rng)
{
    for (size_t done = 0; done < c->len;) {
        size_t len = SECTOR - (size_t)((c->at + done) % SECTOR);
        if (len > c->len - done)
            len = c->len - done;
        const uint8_t *bytes = c->bytes == NULL ? NULL : c->bytes + done;
        if (prng_chance(rng, keep_percent))
            image_write(image, c->at + done, bytes, len);
        else if (keep_percent > 0 && prng_chance(rng, 5)) /* torn inside a sector */
            image_write(image, c->at + done, bytes, (size_t)prng_below(rng, len));
        done += len;
    }
}

/* The durable image after a power cut: each change survives or not. */
static void file_survive(struct node *node, struct prng *rng)
{
    static const unsigned percents[] = {0, 10, 50, 90, 100};
    unsigned keep = percents[prng_below(rng, 5)];
    if (node->n_changes == 0 || keep == 0) {
        changes_clear(node);
        return;
    }
    uint64_t size = node->then.len; /* as the calls made it, one after another */
    uint64_t chosen = size;
    uint64_t pick = prng_below(rng, node->n_changes);
    for (size_t i = 0; i < node->n_changes; i++) {
        const struct change *c = &node->changes[i];
        if (!c->is_size) {
            survive_write(&node->then, c, keep, rng);
            if (c->at + c->len > size)
                size = c->at + c->len;
        } else {
            if (prng_chance(rng, keep))
                image_resize(&node->then, (size_t)c->at);
            size = c->at;
        }
        if (i == pick)
            chosen = size;
    }
    if (keep == 100 || prng_chance(rng, 50))
        chosen = size;
    image_resize(&node->then, (size_t)chosen);
    changes_clear(node);
}

/* A sync that failed: each change may have reached the disk or not, and none is tried again. */
static void file_sync_failed(struct sim *s, struct node *node)
{
    for (size_t i = 0; i < node->n_changes; i++)
        if (prng_chance(&s->prng, 50))
            apply_change(&node->then, &node->changes[i]);
    changes_clear(node);
}

/* ---- names ---- */

static void apply_move(const struct move *m)
{
    if (m->from != NULL && names_get(&m->from_dir->names_then, m->from) == m->node)
        names_remove(&m->from_dir->names_then, m->from);
    if (m->to != NULL)
        names_set(&m->to_dir->names_then, m->to, m->node);
}

static void move_deinit(struct move *m)
{
    mem_free(m->from);
    mem_free(m->to);
}

/* Makes, renames or removes a name: at once in the current state, later in the durable one. */
static void move_name(struct sim *s, struct node *node, struct node *from_dir, const char *from,
                      struct node *to_dir, const char *to)
{
    struct move m = {.node = node, .from_dir = from_dir, .to_dir = to_dir};
    if (to != NULL) {
        m.to = mem_copy(to, strlen(to) + 1);
        struct node *old = names_get(&to_dir->names_now, to);
        names_set(&to_dir->names_now, to, node);
        node->links++;
        if (old != NULL)
            drop_link(s, old);
    }
    if (from != NULL) {
        m.from = mem_copy(from, strlen(from) + 1);
        names_remove(&from_dir->names_now, from);
        drop_link(s, node);
    }
    if (s->n_moves == s->moves_cap) {
        s->moves_cap = s->moves_cap == 0 ? 8 : 2 * s->moves_cap;
        s->moves = mem_grow(s->moves, s->moves_cap * sizeof(*s->moves));
    }
    s->moves[s->n_moves++] = m;
}

/* Makes the pending names of one folder durable, or of all (NULL). */
static void persist_names(struct sim *s, const struct node *dir)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n_moves; i++) {
        struct move *m = &s->moves[i];
        if (dir != NULL && m->from_dir != dir && m->to_dir != dir) {
            s->moves[kept++] = *m;
            continue;
        }
        apply_move(m);
        move_deinit(m);
    }
    s->n_moves = kept;
}

static void survive_names(struct sim *s, struct prng *rng)
{
    bool journal = prng_chance(rng, 50);
    uint64_t prefix = prng_below(rng, s->n_moves + 1);
    for (size_t i = 0; i < s->n_moves; i++) {
        if (journal ? i < prefix : prng_chance(rng, 50))
            apply_move(&s->moves[i]);
        move_deinit(&s->moves[i]);
    }
    s->n_moves = 0;
}

/* Finds the folder of the last part of a path, and that part: "" for the root itself; mem_free().
 */
static struct node *find_parent(struct sim *s, const char *path, char **leaf_out)
{
    struct node *dir = s->root;
    char *leaf = mem_copy("", 1);
    for (const char *at = path; *at != '\0';) {
        size_t len = strcspn(at, "/");
        if (len > 0 && !(len == 1 && at[0] == '.')) {
            if (leaf[0] != '\0')
                dir = names_get(&dir->names_now, leaf);
            mem_free(leaf);
            leaf = span_dup(span_make(at, len));
            if (dir == NULL || !dir->is_dir) {
                mem_free(leaf);
                *leaf_out = NULL;
                return NULL;
            }
        }
        at += len + (at[len] == '/');
    }
    *leaf_out = leaf;
    return dir;
}

static struct node *find(struct sim *s, const char *path)
{
    char *leaf;
    struct node *dir = find_parent(s, path, &leaf);
    struct node *node = dir;
    if (dir != NULL && leaf[0] != '\0')
        node = names_get(&dir->names_now, leaf);
    mem_free(leaf);
    return node;
}

/* ---- faults ---- */

static struct sim *enter(struct disk *d)
{
    struct sim *s = (struct sim *)d;
    pthread_mutex_lock(&s->mutex);
    return s;
}

static enum err leave(struct sim *s, enum err err)
{
    pthread_mutex_unlock(&s->mutex);
    return err;
}

static enum err fail(struct error *error, enum err err, enum sim_disk_op op, const char *path)
{
    return error_set(error, err, "%s %s: %s", op_names[op], path, err_text(err));
}

static struct verdict judge(struct sim *s, enum sim_disk_op op, bool changes)
{
    if (s->down)
        return (struct verdict){.err = ERR_IO};
    s->counts[op]++;
    if (changes) {
        s->changes++;
        if (s->crash_armed && s->crash_left-- == 0) {
            s->crash_armed = false;
            s->down = true;
            return (struct verdict){.err = ERR_IO, .struck = true};
        }
    }
    if (s->fail_armed && s->fail_op == op && s->fail_skip-- == 0) {
        s->fail_armed = false;
        return (struct verdict){.err = s->fail_err, .struck = true};
    }
    return (struct verdict){.err = ERR_OK};
}

/* Whether an operation that is done whole or not at all is done. */
static bool happens(struct sim *s, struct verdict v)
{
    return v.err == ERR_OK || (v.struck && s->down && prng_chance(&s->prng, 50));
}

/* ---- operations ---- */

static enum err sim_open(struct disk *d, const char *path, unsigned flags, struct disk_file **out,
                         struct error *error)
{
    struct sim *s = enter(d);
    char *leaf;
    struct node *dir = find_parent(s, path, &leaf);
    struct node *node = dir == NULL || leaf[0] == '\0' ? dir : names_get(&dir->names_now, leaf);
    bool make = dir != NULL && node == NULL && (flags & DISK_CREATE) != 0;
    bool cut = node != NULL && (flags & DISK_TRUNCATE) != 0 && node->now.len > 0;
    struct verdict v = judge(s, SIM_DISK_OPEN, make || cut);
    if (v.err == ERR_OK && node == NULL && !make)
        v.err = ERR_NOT_FOUND;
    else if (v.err == ERR_OK && node != NULL && (flags & DISK_EXCLUSIVE) != 0)
        v.err = ERR_EXISTS;
    else if (v.err == ERR_OK && node != NULL && node->is_dir)
        v.err = ERR_IO;
    else if (happens(s, v) && make)
        move_name(s, node = node_new(s, false), NULL, NULL, dir, leaf);
    else if (happens(s, v) && cut)
        file_resize(s, node, 0);
    mem_free(leaf);
    if (v.err != ERR_OK)
        return leave(s, fail(error, v.err, SIM_DISK_OPEN, path));

    struct disk_file *f = mem_new(sizeof(*f));
    f->node = node;
    f->writable = (flags & DISK_WRITE) != 0;
    f->path = mem_copy(path, strlen(path) + 1);
    f->next = s->files;
    s->files = f;
    node->opens++;
    *out = f;
    return leave(s, ERR_OK);
}

static void sim_close(struct disk *d, struct disk_file *f)
{
    struct sim *s = enter(d);
    struct disk_file **at = &s->files;
    while (*at != f) {
        ASSERT(*at != NULL);
        at = &(*at)->next;
    }
    *at = f->next;
    if (f->node != NULL) {
        if (f->node->locked_by == f)
            f->node->locked_by = NULL;
        f->node->opens--;
        if (!in_use(f->node))
            s->used -= f->node->now.len;
    }
    mem_free(f->path);
    mem_free(f);
    (void)leave(s, ERR_OK);
}

static enum err stale(const struct disk_file *f, struct error *error)
{
    return error_set(error, ERR_IO, "%s: opened before the reboot", f->path);
}

static enum err sim_read(struct disk *d, struct disk_file *f, uint64_t at, void *out, size_t len,
                         struct error *error)
{
    struct sim *s = enter(d);
    struct verdict v = judge(s, SIM_DISK_READ, false);
    if (v.err != ERR_OK)
        return leave(s, fail(error, v.err, SIM_DISK_READ, f->path));
    if (f->node == NULL)
        return leave(s, stale(f, error));
    size_t size = f->node->now.len;
    if (at > size || len > size - at)
        return leave(s, fail(error, ERR_SHORT, SIM_DISK_READ, f->path));
    if (len > 0)
        memcpy(out, f->node->now.ptr + at, len);
    return leave(s, ERR_OK);
}

/* The parts one after another, as far as `limit` bytes go. */
static void write_parts(struct sim *s, struct node *node, uint64_t at, const struct span *parts,
                        size_t n, uint64_t limit)
{
    for (size_t i = 0; i < n && limit > 0; i++) {
        size_t len = parts[i].len < limit ? parts[i].len : (size_t)limit;
        file_write(s, node, at, parts[i].ptr, len);
        at += len;
        limit -= len;
    }
}

/* How many of `len` bytes at `at` fit into the capacity. */
static uint64_t fits(const struct sim *s, const struct node *node, uint64_t at, uint64_t len)
{
    uint64_t free = s->used < s->capacity ? s->capacity - s->used : 0;
    uint64_t end = node->now.len + free;
    if (at + len <= end)
        return len;
    return at < end ? end - at : 0;
}

static enum err sim_write(struct disk *d, struct disk_file *f, uint64_t at,
                          const struct span *parts, size_t n, struct error *error)
{
    struct sim *s = enter(d);
    uint64_t len = 0;
    for (size_t i = 0; i < n; i++)
        len += parts[i].len;
    struct verdict v = judge(s, SIM_DISK_WRITE, true);
    if (f->node == NULL)
        return leave(s, stale(f, error));
    ASSERT(f->writable);
    uint64_t limit = fits(s, f->node, at, len);
    if (v.struck)
        limit = prng_below(&s->prng, limit + 1);
    else if (v.err == ERR_OK && limit < len)
        v.err = ERR_NO_SPACE;
    if (v.err != ERR_IO || v.struck)
        write_parts(s, f->node, at, parts, n, limit);
    if (v.err != ERR_OK)
        return leave(s, fail(error, v.err, SIM_DISK_WRITE, f->path));
    return leave(s, ERR_OK);
}

static enum err sim_size(struct disk *d, struct disk_file *f, uint64_t *out, struct error *error)
{
    struct sim *s = enter(d);
    if (s->down || f->node == NULL)
        return leave(s, stale(f, error));
    *out = f->node->now.len;
    return leave(s, ERR_OK);
}

static enum err sim_truncate(struct disk *d, struct disk_file *f, uint64_t size,
                             struct error *error)
{
    struct sim *s = enter(d);
    struct verdict v = judge(s, SIM_DISK_TRUNCATE, true);
    if (f->node == NULL)
        return leave(s, stale(f, error));
    ASSERT(f->writable);
    if (v.err == ERR_OK && size > f->node->now.len && fits(s, f->node, 0, size) < size)
        v.err = ERR_NO_SPACE;
    if (happens(s, v))
        file_resize(s, f->node, size);
    if (v.err != ERR_OK)
        return leave(s, fail(error, v.err, SIM_DISK_TRUNCATE, f->path));
    return leave(s, ERR_OK);
}

static enum err sim_preallocate(struct disk *d, struct disk_file *f, uint64_t size,
                                struct error *error)
{
    struct sim *s = enter(d);
    struct verdict v = judge(s, SIM_DISK_PREALLOCATE, true);
    if (f->node == NULL)
        return leave(s, stale(f, error));
    ASSERT(f->writable);
    uint64_t limit = fits(s, f->node, 0, size);
    if (v.struck)
        limit = prng_below(&s->prng, limit + 1);
    else if (v.err == ERR_OK && limit < size)
        v.err = ERR_NO_SPACE;
    if (v.err != ERR_IO || v.struck)
        file_write(s, f->node, 0, NULL, (size_t)limit);
    if (v.err != ERR_OK)
        return leave(s, fail(error, v.err, SIM_DISK_PREALLOCATE, f->path));
    return leave(s, ERR_OK);
}

static enum err sim_datasync(struct disk *d, struct disk_file *f, struct error *error)
{
    struct sim *s = enter(d);
    struct verdict v = judge(s, SIM_DISK_DATASYNC, true);
    if (f->node == NULL)
        return leave(s, stale(f, error));
    if (v.err == ERR_OK) {
        file_persist(f->node);
        return leave(s, ERR_OK);
    }
    if (v.struck && !s->down)
        file_sync_failed(s, f->node);
    return leave(s, fail(error, ERR_IO, SIM_DISK_DATASYNC, f->path));
}

static enum err sim_sync_dir(struct disk *d, const char *path, struct error *error)
{
    struct sim *s = enter(d);
    struct verdict v = judge(s, SIM_DISK_SYNC_DIR, true);
    struct node *dir = find(s, path);
    if (v.err != ERR_OK)
        return leave(s, fail(error, ERR_IO, SIM_DISK_SYNC_DIR, path));
    if (dir == NULL || !dir->is_dir)
        return leave(s, fail(error, ERR_NOT_FOUND, SIM_DISK_SYNC_DIR, path));
    persist_names(s, dir);
    sweep_sometimes(s);
    return leave(s, ERR_OK);
}

static enum err sim_sync_all(struct disk *d, struct error *error)
{
    struct sim *s = enter(d);
    struct verdict v = judge(s, SIM_DISK_SYNC_ALL, true);
    for (struct node *node = s->nodes; node != NULL; node = node->next) {
        if (v.err == ERR_OK)
            file_persist(node);
        else if (v.struck && !s->down)
            file_sync_failed(s, node);
    }
    if (v.err != ERR_OK)
        return leave(s, fail(error, ERR_IO, SIM_DISK_SYNC_ALL, "everything"));
    persist_names(s, NULL);
    sweep_sometimes(s);
    return leave(s, ERR_OK);
}

static enum err sim_rename(struct disk *d, const char *from, const char *to, struct error *error)
{
    struct sim *s = enter(d);
    struct verdict v = judge(s, SIM_DISK_RENAME, true);
    char *from_leaf, *to_leaf;
    struct node *from_dir = find_parent(s, from, &from_leaf);
    struct node *to_dir = find_parent(s, to, &to_leaf);
    struct node *node = from_dir == NULL ? NULL : names_get(&from_dir->names_now, from_leaf);
    struct node *old = to_dir == NULL ? NULL : names_get(&to_dir->names_now, to_leaf);
    if (v.err == ERR_OK && (node == NULL || to_dir == NULL))
        v.err = ERR_NOT_FOUND;
    else if (v.err == ERR_OK && old != NULL && (old->is_dir || node->is_dir))
        v.err = ERR_IO;
    else if (happens(s, v) && node != NULL && to_dir != NULL && node != old)
        move_name(s, node, from_dir, from_leaf, to_dir, to_leaf);
    mem_free(from_leaf);
    mem_free(to_leaf);
    return leave(s, v.err == ERR_OK ? ERR_OK : fail(error, v.err, SIM_DISK_RENAME, from));
}

static enum err remove_name(struct disk *d, const char *path, bool is_dir, struct error *error)
{
    enum sim_disk_op op = is_dir ? SIM_DISK_RMDIR : SIM_DISK_UNLINK;
    struct sim *s = enter(d);
    struct verdict v = judge(s, op, true);
    char *leaf;
    struct node *dir = find_parent(s, path, &leaf);
    struct node *node = dir == NULL ? NULL : names_get(&dir->names_now, leaf);
    if (v.err == ERR_OK && node == NULL)
        v.err = ERR_NOT_FOUND;
    else if (v.err == ERR_OK && (node->is_dir != is_dir || node->names_now.n > 0))
        v.err = ERR_IO;
    else if (happens(s, v) && node != NULL && node->is_dir == is_dir && node->names_now.n == 0)
        move_name(s, node, dir, leaf, NULL, NULL);
    mem_free(leaf);
    return leave(s, v.err == ERR_OK ? ERR_OK : fail(error, v.err, op, path));
}

static enum err sim_unlink(struct disk *d, const char *path, struct error *error)
{
    return remove_name(d, path, false, error);
}

static enum err sim_rmdir(struct disk *d, const char *path, struct error *error)
{
    return remove_name(d, path, true, error);
}

static enum err sim_mkdir(struct disk *d, const char *path, struct error *error)
{
    struct sim *s = enter(d);
    char *leaf;
    struct node *dir = find_parent(s, path, &leaf);
    bool exists = dir != NULL && (leaf[0] == '\0' || names_get(&dir->names_now, leaf) != NULL);
    struct verdict v = judge(s, SIM_DISK_MKDIR, dir != NULL && !exists);
    if (v.err == ERR_OK && dir == NULL)
        v.err = ERR_NOT_FOUND;
    else if (v.err == ERR_OK && exists)
        v.err = ERR_EXISTS;
    else if (happens(s, v) && dir != NULL && !exists)
        move_name(s, node_new(s, true), NULL, NULL, dir, leaf);
    mem_free(leaf);
    return leave(s, v.err == ERR_OK ? ERR_OK : fail(error, v.err, SIM_DISK_MKDIR, path));
}

static enum err sim_list(struct disk *d, const char *path, struct disk_list *out,
                         struct error *error)
{
    struct sim *s = enter(d);
    struct verdict v = judge(s, SIM_DISK_LIST, false);
    struct node *dir = find(s, path);
    if (v.err == ERR_OK && dir == NULL)
        v.err = ERR_NOT_FOUND;
    else if (v.err == ERR_OK && !dir->is_dir)
        v.err = ERR_IO;
    if (v.err != ERR_OK)
        return leave(s, fail(error, v.err, SIM_DISK_LIST, path));
    struct disk_list list = {.count = dir->names_now.n};
    if (list.count > 0)
        list.entries = MEM_ARRAY(struct disk_entry, list.count);
    for (size_t i = 0; i < list.count; i++) {
        const struct name *name = &dir->names_now.items[i];
        list.entries[i] = (struct disk_entry){
            .name = mem_copy(name->text, strlen(name->text) + 1),
            .is_dir = name->node->is_dir,
            .size = name->node->now.len,
        };
    }
    *out = list;
    return leave(s, ERR_OK);
}

static enum err sim_usage(struct disk *d, struct disk_usage *out, struct error *error)
{
    struct sim *s = enter(d);
    if (s->down)
        return leave(s, error_set(error, ERR_IO, "usage: %s", err_text(ERR_IO)));
    out->total_bytes = s->capacity;
    out->free_bytes = s->used < s->capacity ? s->capacity - s->used : 0;
    return leave(s, ERR_OK);
}

static enum err sim_lock(struct disk *d, struct disk_file *f, struct error *error)
{
    struct sim *s = enter(d);
    if (s->down || f->node == NULL)
        return leave(s, stale(f, error));
    if (f->node->locked_by != NULL && f->node->locked_by != f)
        return leave(s, error_set(error, ERR_LOCKED, "lock %s", f->path));
    f->node->locked_by = f;
    return leave(s, ERR_OK);
}

static const struct disk_ops sim_ops = {
    .open = sim_open,
    .close = sim_close,
    .read = sim_read,
    .write = sim_write,
    .size = sim_size,
    .truncate = sim_truncate,
    .preallocate = sim_preallocate,
    .datasync = sim_datasync,
    .sync_dir = sim_sync_dir,
    .sync_all = sim_sync_all,
    .rename = sim_rename,
    .unlink = sim_unlink,
    .mkdir = sim_mkdir,
    .rmdir = sim_rmdir,
    .list = sim_list,
    .usage = sim_usage,
    .lock = sim_lock,
};

/* ---- control ---- */

struct disk *sim_disk_new(uint64_t seed)
{
    struct sim *s = mem_new(sizeof(*s));
    s->disk.ops = &sim_ops;
    pthread_mutex_init(&s->mutex, NULL);
    prng_init(&s->prng, seed);
    s->capacity = CAPACITY;
    s->sweep_at = SWEEP_MIN;
    s->root = node_new(s, true);
    s->root->links = 1;
    return &s->disk;
}

void sim_disk_free(struct disk *d)
{
    if (d == NULL)
        return;
    struct sim *s = (struct sim *)d;
    ASSERT(s->files == NULL);
    while (s->nodes != NULL) {
        struct node *node = s->nodes;
        s->nodes = node->next;
        node_free(node);
    }
    for (size_t i = 0; i < s->n_moves; i++)
        move_deinit(&s->moves[i]);
    mem_free(s->moves);
    pthread_mutex_destroy(&s->mutex);
    mem_free(s);
}

static void reboot(struct sim *s)
{
    for (struct disk_file *f = s->files; f != NULL; f = f->next)
        f->node = NULL;
    for (struct node *node = s->nodes; node != NULL; node = node->next) {
        node->locked_by = NULL;
        node->opens = 0;
    }
    s->down = s->crash_armed = s->fail_armed = false;
    sweep(s);
    s->used = 0;
    for (struct node *node = s->nodes; node != NULL; node = node->next)
        s->used += node->links > 0 ? node->now.len : 0;
}

/* Links of the current names below a folder; every node's count is 0 before. */
static void count_links(struct node *dir)
{
    for (size_t i = 0; i < dir->names_now.n; i++) {
        struct node *node = dir->names_now.items[i].node;
        node->links++;
        if (node->is_dir && node->links == 1)
            count_links(node);
    }
}

void sim_disk_crash(struct disk *d, struct prng *rng)
{
    struct sim *s = enter(d);
    survive_names(s, rng);
    /* In an order that depends on the seed only: nodes are listed by age. */
    for (struct node *node = s->nodes; node != NULL; node = node->next) {
        node->links = 0;
        if (node->is_dir) {
            names_copy(&node->names_now, &node->names_then);
        } else {
            file_survive(node, rng);
            image_copy(&node->now, &node->then);
        }
    }
    s->root->links = 1;
    count_links(s->root);
    reboot(s);
    (void)leave(s, ERR_OK);
}

void sim_disk_kill(struct disk *d)
{
    struct sim *s = enter(d);
    reboot(s);
    (void)leave(s, ERR_OK);
}

void sim_disk_crash_after(struct disk *d, uint64_t n)
{
    struct sim *s = enter(d);
    s->crash_armed = true;
    s->crash_left = n;
    (void)leave(s, ERR_OK);
}

bool sim_disk_down(struct disk *d)
{
    struct sim *s = enter(d);
    bool down = s->down;
    (void)leave(s, ERR_OK);
    return down;
}

void sim_disk_fail_next(struct disk *d, enum sim_disk_op op, enum err err, uint64_t skip)
{
    struct sim *s = enter(d);
    s->fail_armed = true;
    s->fail_op = op;
    s->fail_err = err;
    s->fail_skip = skip;
    (void)leave(s, ERR_OK);
}

void sim_disk_set_capacity(struct disk *d, uint64_t bytes)
{
    struct sim *s = enter(d);
    s->capacity = bytes;
    (void)leave(s, ERR_OK);
}

uint64_t sim_disk_used(struct disk *d)
{
    struct sim *s = enter(d);
    uint64_t used = s->used;
    (void)leave(s, ERR_OK);
    return used;
}

uint64_t sim_disk_count(struct disk *d, enum sim_disk_op op)
{
    struct sim *s = enter(d);
    uint64_t count = s->counts[op];
    (void)leave(s, ERR_OK);
    return count;
}

uint64_t sim_disk_changes(struct disk *d)
{
    struct sim *s = enter(d);
    uint64_t changes = s->changes;
    (void)leave(s, ERR_OK);
    return changes;
}

/* The folder of a path, made durably when missing, and the last part of the path. */
static struct node *make_parent(struct sim *s, const char *path, char **leaf_out)
{
    for (size_t i = 1; path[i] != '\0'; i++) {
        if (path[i] != '/' || path[i - 1] == '/')
            continue;
        char *prefix = span_dup(span_make(path, i)), *leaf;
        struct node *dir = find_parent(s, prefix, &leaf);
        if (leaf[0] != '\0' && names_get(&dir->names_now, leaf) == NULL) {
            move_name(s, node_new(s, true), NULL, NULL, dir, leaf);
            persist_names(s, dir);
        }
        mem_free(leaf);
        mem_free(prefix);
    }
    return find_parent(s, path, leaf_out);
}

void sim_disk_put(struct disk *d, const char *path, struct span bytes)
{
    struct sim *s = enter(d);
    char *leaf;
    struct node *dir = make_parent(s, path, &leaf);
    struct node *node = names_get(&dir->names_now, leaf);
    if (node == NULL) {
        node = node_new(s, false);
        move_name(s, node, NULL, NULL, dir, leaf);
        persist_names(s, dir);
    }
    file_resize(s, node, 0);
    file_write(s, node, 0, bytes.ptr, bytes.len);
    file_persist(node);
    mem_free(leaf);
    (void)leave(s, ERR_OK);
}

bool sim_disk_get(struct disk *d, const char *path, struct buf *out)
{
    struct sim *s = enter(d);
    struct node *node = find(s, path);
    bool found = node != NULL && !node->is_dir;
    if (found && node->now.len > 0)
        buf_append(out, node->now.ptr, node->now.len);
    (void)leave(s, ERR_OK);
    return found;
}

void sim_disk_damage(struct disk *d, const char *path, uint64_t at, struct span bytes)
{
    struct sim *s = enter(d);
    struct node *node = find(s, path);
    ASSERT(node != NULL && at + bytes.len <= node->now.len);
    image_write(&node->now, at, bytes.ptr, bytes.len);
    image_write(&node->then, at, bytes.ptr, bytes.len);
    (void)leave(s, ERR_OK);
}

static void copy_dir(struct sim *to_sim, struct node *to, const struct node *from)
{
    for (size_t i = 0; i < from->names_now.n; i++) {
        const struct name *name = &from->names_now.items[i];
        struct node *node = node_new(to_sim, name->node->is_dir);
        move_name(to_sim, node, NULL, NULL, to, name->text);
        if (node->is_dir) {
            copy_dir(to_sim, node, name->node);
        } else {
            image_copy(&node->now, &name->node->now);
            image_copy(&node->then, &name->node->now);
            to_sim->used += node->now.len;
        }
    }
}

struct disk *sim_disk_copy(struct disk *d, uint64_t seed)
{
    struct disk *copy = sim_disk_new(seed);
    struct sim *s = enter(d), *to = (struct sim *)copy;
    to->capacity = s->capacity;
    copy_dir(to, to->root, s->root);
    persist_names(to, NULL);
    (void)leave(s, ERR_OK);
    return copy;
}
