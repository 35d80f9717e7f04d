/* The simulated disk's operations, faults and reboots; what it promises is in sim_disk.h, how it
 * keeps its two states in sim_disk_state.c. */
#include "sim/sim_disk_internal.h"

#include "base/mem.h"

#define CAPACITY (UINT64_C(1) << 40)

/* What becomes of an operation. */
struct verdict {
    enum err err; /* ERR_OK: it runs */
    bool struck;  /* it fails here and now: part of it may happen */
};

static const char *const op_names[SIM_DISK_OPS] = {
    "open",     "read",   "write",  "truncate", "preallocate", "datasync", "sync_dir",
    "sync_all", "rename", "unlink", "mkdir",    "rmdir",       "list",
};

/* ---- faults ---- */

struct sim *sim_disk_enter(struct disk *d)
{
    struct sim *s = (struct sim *)d;
    pthread_mutex_lock(&s->mutex);
    return s;
}

static struct sim *enter_slowly(struct disk *d)
{
    struct sim *s = (struct sim *)d;
    if (s->meanwhile != NULL)
        s->meanwhile(s->meanwhile_ctx);
    return sim_disk_enter(d);
}

enum err sim_disk_leave(struct sim *s, enum err err)
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
    if (s->pace != NULL)
        s->pace(s->pace_ctx, op);
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
        s->failed = op;
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
    struct sim *s = sim_disk_enter(d);
    char *leaf;
    struct node *dir = sim_disk_find_parent(s, path, &leaf);
    struct node *node =
        dir == NULL || leaf[0] == '\0' ? dir : sim_disk_names_get(&dir->names_now, leaf);
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
        sim_disk_move_name(s, node = sim_disk_node_new(s, false), NULL, NULL, dir, leaf);
    else if (happens(s, v) && cut)
        sim_disk_file_resize(s, node, 0);
    mem_free(leaf);
    if (v.err != ERR_OK)
        return sim_disk_leave(s, fail(error, v.err, SIM_DISK_OPEN, path));

    struct disk_file *f = mem_new(sizeof(*f));
    f->node = node;
    f->writable = (flags & DISK_WRITE) != 0;
    f->path = mem_copy(path, strlen(path) + 1);
    f->next = s->files;
    s->files = f;
    node->opens++;
    *out = f;
    return sim_disk_leave(s, ERR_OK);
}

static void sim_close(struct disk *d, struct disk_file *f)
{
    struct sim *s = sim_disk_enter(d);
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
        if (!sim_disk_in_use(f->node))
            s->used -= f->node->now.len;
    }
    mem_free(f->path);
    mem_free(f);
    (void)sim_disk_leave(s, ERR_OK);
}

static enum err stale(const struct disk_file *f, struct error *error)
{
    return error_set(error, ERR_IO, "%s: opened before the reboot", f->path);
}

static enum err sim_read(struct disk *d, struct disk_file *f, uint64_t at, void *out, size_t len,
                         struct error *error)
{
    struct sim *s = enter_slowly(d);
    struct verdict v = judge(s, SIM_DISK_READ, false);
    if (v.err != ERR_OK)
        return sim_disk_leave(s, error_set(error, v.err, "read %s: offset %llu: %s", f->path,
                                           (unsigned long long)at, err_text(v.err)));
    if (f->node == NULL)
        return sim_disk_leave(s, stale(f, error));
    size_t size = f->node->now.len;
    if (at > size || len > size - at)
        return sim_disk_leave(s, fail(error, ERR_SHORT, SIM_DISK_READ, f->path));
    if (len > 0)
        memcpy(out, f->node->now.ptr + at, len);
    return sim_disk_leave(s, ERR_OK);
}

/* The parts one after another, as far as `limit` bytes go. */
static void write_parts(struct sim *s, struct node *node, uint64_t at, const struct span *parts,
                        size_t n, uint64_t limit)
{
    for (size_t i = 0; i < n && limit > 0; i++) {
        size_t len = parts[i].len < limit ? parts[i].len : (size_t)limit;
        sim_disk_file_write(s, node, at, parts[i].ptr, len);
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
    struct sim *s = sim_disk_enter(d);
    uint64_t len = 0;
    for (size_t i = 0; i < n; i++)
        len += parts[i].len;
    struct verdict v = judge(s, SIM_DISK_WRITE, true);
    if (f->node == NULL)
        return sim_disk_leave(s, stale(f, error));
    ASSERT(f->writable);
    uint64_t limit = fits(s, f->node, at, len);
    if (v.struck)
        limit = prng_below(&s->prng, limit + 1);
    else if (v.err == ERR_OK && limit < len)
        v.err = ERR_NO_SPACE;
    if (v.err != ERR_IO || v.struck)
        write_parts(s, f->node, at, parts, n, limit);
    if (v.err != ERR_OK)
        return sim_disk_leave(s, fail(error, v.err, SIM_DISK_WRITE, f->path));
    return sim_disk_leave(s, ERR_OK);
}

static enum err sim_size(struct disk *d, struct disk_file *f, uint64_t *out, struct error *error)
{
    struct sim *s = sim_disk_enter(d);
    if (s->down || f->node == NULL)
        return sim_disk_leave(s, stale(f, error));
    *out = f->node->now.len;
    return sim_disk_leave(s, ERR_OK);
}

static enum err sim_truncate(struct disk *d, struct disk_file *f, uint64_t size,
                             struct error *error)
{
    struct sim *s = sim_disk_enter(d);
    struct verdict v = judge(s, SIM_DISK_TRUNCATE, true);
    if (f->node == NULL)
        return sim_disk_leave(s, stale(f, error));
    ASSERT(f->writable);
    if (v.err == ERR_OK && size > f->node->now.len && fits(s, f->node, 0, size) < size)
        v.err = ERR_NO_SPACE;
    if (happens(s, v))
        sim_disk_file_resize(s, f->node, size);
    if (v.err != ERR_OK)
        return sim_disk_leave(s, fail(error, v.err, SIM_DISK_TRUNCATE, f->path));
    return sim_disk_leave(s, ERR_OK);
}

static enum err sim_preallocate(struct disk *d, struct disk_file *f, uint64_t size,
                                struct error *error)
{
    struct sim *s = sim_disk_enter(d);
    struct verdict v = judge(s, SIM_DISK_PREALLOCATE, true);
    if (f->node == NULL)
        return sim_disk_leave(s, stale(f, error));
    ASSERT(f->writable);
    uint64_t limit = fits(s, f->node, 0, size);
    if (v.struck)
        limit = prng_below(&s->prng, limit + 1);
    else if (v.err == ERR_OK && limit < size)
        v.err = ERR_NO_SPACE;
    if (v.err != ERR_IO || v.struck)
        sim_disk_file_write(s, f->node, 0, NULL, (size_t)limit);
    if (v.err != ERR_OK)
        return sim_disk_leave(s, fail(error, v.err, SIM_DISK_PREALLOCATE, f->path));
    return sim_disk_leave(s, ERR_OK);
}

static enum err sim_datasync(struct disk *d, struct disk_file *f, struct error *error)
{
    struct sim *s = sim_disk_enter(d);
    struct verdict v = judge(s, SIM_DISK_DATASYNC, true);
    if (f->node == NULL)
        return sim_disk_leave(s, stale(f, error));
    if (v.err == ERR_OK) {
        sim_disk_file_persist(f->node);
        return sim_disk_leave(s, ERR_OK);
    }
    if (v.struck && !s->down)
        sim_disk_file_sync_failed(s, f->node);
    return sim_disk_leave(s, fail(error, ERR_IO, SIM_DISK_DATASYNC, f->path));
}

static enum err sim_sync_dir(struct disk *d, const char *path, struct error *error)
{
    struct sim *s = sim_disk_enter(d);
    struct verdict v = judge(s, SIM_DISK_SYNC_DIR, true);
    struct node *dir = sim_disk_find(s, path);
    if (v.err != ERR_OK)
        return sim_disk_leave(s, fail(error, ERR_IO, SIM_DISK_SYNC_DIR, path));
    if (dir == NULL || !dir->is_dir)
        return sim_disk_leave(s, fail(error, ERR_NOT_FOUND, SIM_DISK_SYNC_DIR, path));
    sim_disk_persist_names(s, dir);
    sim_disk_sweep_sometimes(s);
    return sim_disk_leave(s, ERR_OK);
}

static enum err sim_sync_all(struct disk *d, struct error *error)
{
    struct sim *s = enter_slowly(d);
    struct verdict v = judge(s, SIM_DISK_SYNC_ALL, true);
    for (struct node *node = s->nodes; node != NULL; node = node->next) {
        if (v.err == ERR_OK)
            sim_disk_file_persist(node);
        else if (v.struck && !s->down)
            sim_disk_file_sync_failed(s, node);
    }
    if (v.err != ERR_OK)
        return sim_disk_leave(s, fail(error, ERR_IO, SIM_DISK_SYNC_ALL, "everything"));
    sim_disk_persist_names(s, NULL);
    sim_disk_sweep_sometimes(s);
    return sim_disk_leave(s, ERR_OK);
}

static enum err sim_rename(struct disk *d, const char *from, const char *to, struct error *error)
{
    struct sim *s = sim_disk_enter(d);
    struct verdict v = judge(s, SIM_DISK_RENAME, true);
    char *from_leaf, *to_leaf;
    struct node *from_dir = sim_disk_find_parent(s, from, &from_leaf);
    struct node *to_dir = sim_disk_find_parent(s, to, &to_leaf);
    struct node *node =
        from_dir == NULL ? NULL : sim_disk_names_get(&from_dir->names_now, from_leaf);
    struct node *old = to_dir == NULL ? NULL : sim_disk_names_get(&to_dir->names_now, to_leaf);
    if (v.err == ERR_OK && (node == NULL || to_dir == NULL))
        v.err = ERR_NOT_FOUND;
    else if (v.err == ERR_OK && old != NULL && (old->is_dir || node->is_dir))
        v.err = ERR_IO;
    else if (happens(s, v) && node != NULL && to_dir != NULL && node != old)
        sim_disk_move_name(s, node, from_dir, from_leaf, to_dir, to_leaf);
    mem_free(from_leaf);
    mem_free(to_leaf);
    return sim_disk_leave(s, v.err == ERR_OK ? ERR_OK : fail(error, v.err, SIM_DISK_RENAME, from));
}

static enum err remove_name(struct disk *d, const char *path, bool is_dir, struct error *error)
{
    enum sim_disk_op op = is_dir ? SIM_DISK_RMDIR : SIM_DISK_UNLINK;
    struct sim *s = sim_disk_enter(d);
    struct verdict v = judge(s, op, true);
    char *leaf;
    struct node *dir = sim_disk_find_parent(s, path, &leaf);
    struct node *node = dir == NULL ? NULL : sim_disk_names_get(&dir->names_now, leaf);
    if (v.err == ERR_OK && node == NULL)
        v.err = ERR_NOT_FOUND;
    else if (v.err == ERR_OK && (node->is_dir != is_dir || node->names_now.n > 0))
        v.err = ERR_IO;
    else if (happens(s, v) && node != NULL && node->is_dir == is_dir && node->names_now.n == 0)
        sim_disk_move_name(s, node, dir, leaf, NULL, NULL);
    mem_free(leaf);
    return sim_disk_leave(s, v.err == ERR_OK ? ERR_OK : fail(error, v.err, op, path));
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
    struct sim *s = sim_disk_enter(d);
    char *leaf;
    struct node *dir = sim_disk_find_parent(s, path, &leaf);
    bool exists =
        dir != NULL && (leaf[0] == '\0' || sim_disk_names_get(&dir->names_now, leaf) != NULL);
    struct verdict v = judge(s, SIM_DISK_MKDIR, dir != NULL && !exists);
    if (v.err == ERR_OK && dir == NULL)
        v.err = ERR_NOT_FOUND;
    else if (v.err == ERR_OK && exists)
        v.err = ERR_EXISTS;
    else if (happens(s, v) && dir != NULL && !exists)
        sim_disk_move_name(s, sim_disk_node_new(s, true), NULL, NULL, dir, leaf);
    mem_free(leaf);
    return sim_disk_leave(s, v.err == ERR_OK ? ERR_OK : fail(error, v.err, SIM_DISK_MKDIR, path));
}

static enum err sim_list(struct disk *d, const char *path, struct disk_list *out,
                         struct error *error)
{
    struct sim *s = sim_disk_enter(d);
    struct verdict v = judge(s, SIM_DISK_LIST, false);
    struct node *dir = sim_disk_find(s, path);
    if (v.err == ERR_OK && dir == NULL)
        v.err = ERR_NOT_FOUND;
    else if (v.err == ERR_OK && !dir->is_dir)
        v.err = ERR_IO;
    if (v.err != ERR_OK)
        return sim_disk_leave(s, fail(error, v.err, SIM_DISK_LIST, path));
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
    return sim_disk_leave(s, ERR_OK);
}

static enum err sim_usage(struct disk *d, struct disk_usage *out, struct error *error)
{
    struct sim *s = sim_disk_enter(d);
    if (s->down)
        return sim_disk_leave(s, error_set(error, ERR_IO, "usage: %s", err_text(ERR_IO)));
    out->total_bytes = s->capacity;
    out->free_bytes = s->used < s->capacity ? s->capacity - s->used : 0;
    return sim_disk_leave(s, ERR_OK);
}

static enum err sim_lock(struct disk *d, struct disk_file *f, struct error *error)
{
    struct sim *s = sim_disk_enter(d);
    if (s->down || f->node == NULL)
        return sim_disk_leave(s, stale(f, error));
    if (f->node->locked_by != NULL && f->node->locked_by != f)
        return sim_disk_leave(s, error_set(error, ERR_LOCKED, "lock %s", f->path));
    f->node->locked_by = f;
    return sim_disk_leave(s, ERR_OK);
}

static const struct disk_ops sim_ops = {
    .open = sim_open,
    .close = sim_close,
    .read = sim_read,
    .write = sim_write,
    .size = sim_size,
    .truncate = sim_truncate,
    .preallocate = sim_preallocate,
    .reserve = sim_preallocate,
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
    s->failed = SIM_DISK_OPS;
    s->sweep_at = SIM_DISK_SWEEP_MIN;
    s->root = sim_disk_node_new(s, true);
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
        sim_disk_node_free(node);
    }
    for (size_t i = 0; i < s->n_moves; i++)
        sim_disk_move_deinit(&s->moves[i]);
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
    s->failed = SIM_DISK_OPS;
    sim_disk_sweep(s);
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
    struct sim *s = sim_disk_enter(d);
    sim_disk_survive_names(s, rng);
    /* In an order that depends on the seed only: nodes are listed by age. */
    for (struct node *node = s->nodes; node != NULL; node = node->next) {
        node->links = 0;
        if (node->is_dir) {
            sim_disk_names_copy(&node->names_now, &node->names_then);
        } else {
            sim_disk_file_survive(node, rng);
            sim_disk_image_copy(&node->now, &node->then);
        }
    }
    s->root->links = 1;
    count_links(s->root);
    reboot(s);
    (void)sim_disk_leave(s, ERR_OK);
}

void sim_disk_kill(struct disk *d)
{
    struct sim *s = sim_disk_enter(d);
    reboot(s);
    (void)sim_disk_leave(s, ERR_OK);
}

void sim_disk_crash_after(struct disk *d, uint64_t n)
{
    struct sim *s = sim_disk_enter(d);
    s->crash_armed = true;
    s->crash_left = n;
    (void)sim_disk_leave(s, ERR_OK);
}

bool sim_disk_down(struct disk *d)
{
    struct sim *s = sim_disk_enter(d);
    bool down = s->down;
    (void)sim_disk_leave(s, ERR_OK);
    return down;
}

void sim_disk_fail_next(struct disk *d, enum sim_disk_op op, enum err err, uint64_t skip)
{
    struct sim *s = sim_disk_enter(d);
    s->fail_armed = true;
    s->fail_op = op;
    s->fail_err = err;
    s->fail_skip = skip;
    (void)sim_disk_leave(s, ERR_OK);
}

enum sim_disk_op sim_disk_failed(struct disk *d)
{
    struct sim *s = sim_disk_enter(d);
    enum sim_disk_op failed = s->failed;
    (void)sim_disk_leave(s, ERR_OK);
    return failed;
}

const char *sim_disk_op_name(enum sim_disk_op op)
{
    return op < SIM_DISK_OPS ? op_names[op] : "nothing";
}

void sim_disk_set_pace(struct disk *d, void (*pace)(void *ctx, enum sim_disk_op op), void *ctx)
{
    struct sim *s = sim_disk_enter(d);
    s->pace = pace;
    s->pace_ctx = ctx;
    (void)sim_disk_leave(s, ERR_OK);
}

void sim_disk_set_meanwhile(struct disk *d, void (*meanwhile)(void *ctx), void *ctx)
{
    struct sim *s = sim_disk_enter(d);
    s->meanwhile = meanwhile;
    s->meanwhile_ctx = ctx;
    (void)sim_disk_leave(s, ERR_OK);
}

void sim_disk_set_capacity(struct disk *d, uint64_t bytes)
{
    struct sim *s = sim_disk_enter(d);
    s->capacity = bytes;
    (void)sim_disk_leave(s, ERR_OK);
}

uint64_t sim_disk_used(struct disk *d)
{
    struct sim *s = sim_disk_enter(d);
    uint64_t used = s->used;
    (void)sim_disk_leave(s, ERR_OK);
    return used;
}
