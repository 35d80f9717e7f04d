/* The two states of the simulated disk; what it promises is in sim_disk.h.
 *
 * A node is a file or a folder. Each has a current and a durable state: two images of a file's
 * bytes, or two sorted lists of a folder's names. A file keeps its own list of changes since its
 * last sync. Names that are not durable yet stand in one list for the whole disk, in order, because
 * a rename touches two folders at once and because a journal keeps that order.
 *
 * Nodes live until nothing can reach them: neither folder state, nor a pending name, nor an open
 * file. A mark and sweep now and then finds that out. */
#include "sim/sim_disk_internal.h"

#include "base/mem.h"

#define SECTOR 512u

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

void sim_disk_image_write(struct image *image, uint64_t at, const uint8_t *bytes, size_t len)
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

void sim_disk_image_copy(struct image *to, const struct image *from)
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

struct node *sim_disk_names_get(const struct names *names, const char *text)
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

void sim_disk_names_copy(struct names *to, const struct names *from)
{
    names_deinit(to);
    for (size_t i = 0; i < from->n; i++)
        names_set(to, from->items[i].text, from->items[i].node);
}

/* ---- nodes ---- */

struct node *sim_disk_node_new(struct sim *s, bool is_dir)
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

void sim_disk_node_free(struct node *node)
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

void sim_disk_sweep(struct sim *s)
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
        sim_disk_node_free(node);
        s->n_nodes--;
    }
    s->sweep_at = 2 * s->n_nodes > SIM_DISK_SWEEP_MIN ? 2 * s->n_nodes : SIM_DISK_SWEEP_MIN;
}

void sim_disk_sweep_sometimes(struct sim *s)
{
    if (s->n_nodes >= s->sweep_at)
        sim_disk_sweep(s);
}

bool sim_disk_in_use(const struct node *node)
{
    return node->links > 0 || node->opens > 0;
}

/* Counts the space of a file that nothing names or holds any more as free. */
static void drop_link(struct sim *s, struct node *node)
{
    ASSERT(node->links > 0);
    node->links--;
    if (!sim_disk_in_use(node))
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

void sim_disk_file_write(struct sim *s, struct node *node, uint64_t at, const uint8_t *bytes,
                         size_t len)
{
    if (len == 0)
        return;
    size_t before = node->now.len;
    sim_disk_image_write(&node->now, at, bytes, len);
    s->used += node->now.len - before;
    add_change(node, (struct change){
                         .at = at,
                         .len = len,
                         .bytes = bytes == NULL ? NULL : mem_copy(bytes, len),
                     });
}

void sim_disk_file_resize(struct sim *s, struct node *node, uint64_t size)
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
        sim_disk_image_write(image, c->at, c->bytes, c->len);
}

void sim_disk_file_persist(struct node *node)
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
            sim_disk_image_write(image, c->at + done, bytes, len);
        else if (keep_percent > 0 && prng_chance(rng, 5)) /* torn inside a sector */
            sim_disk_image_write(image, c->at + done, bytes, (size_t)prng_below(rng, len));
        done += len;
    }
}

/* The durable image after a power cut: each change survives or not. */
void sim_disk_file_survive(struct node *node, struct prng *rng)
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
void sim_disk_file_sync_failed(struct sim *s, struct node *node)
{
    for (size_t i = 0; i < node->n_changes; i++)
        if (prng_chance(&s->prng, 50))
            apply_change(&node->then, &node->changes[i]);
    changes_clear(node);
}

/* ---- names ---- */

static void apply_move(const struct move *m)
{
    if (m->from != NULL && sim_disk_names_get(&m->from_dir->names_then, m->from) == m->node)
        names_remove(&m->from_dir->names_then, m->from);
    if (m->to != NULL)
        names_set(&m->to_dir->names_then, m->to, m->node);
}

void sim_disk_move_deinit(struct move *m)
{
    mem_free(m->from);
    mem_free(m->to);
}

/* Makes, renames or removes a name: at once in the current state, later in the durable one. */
void sim_disk_move_name(struct sim *s, struct node *node, struct node *from_dir, const char *from,
                        struct node *to_dir, const char *to)
{
    struct move m = {.node = node, .from_dir = from_dir, .to_dir = to_dir};
    if (to != NULL) {
        m.to = mem_copy(to, strlen(to) + 1);
        struct node *old = sim_disk_names_get(&to_dir->names_now, to);
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
void sim_disk_persist_names(struct sim *s, const struct node *dir)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n_moves; i++) {
        struct move *m = &s->moves[i];
        if (dir != NULL && m->from_dir != dir && m->to_dir != dir) {
            s->moves[kept++] = *m;
            continue;
        }
        apply_move(m);
        sim_disk_move_deinit(m);
    }
    s->n_moves = kept;
}

void sim_disk_survive_names(struct sim *s, struct prng *rng)
{
    bool journal = prng_chance(rng, 50);
    uint64_t prefix = prng_below(rng, s->n_moves + 1);
    for (size_t i = 0; i < s->n_moves; i++) {
        if (journal ? i < prefix : prng_chance(rng, 50))
            apply_move(&s->moves[i]);
        sim_disk_move_deinit(&s->moves[i]);
    }
    s->n_moves = 0;
}

/* Finds the folder of the last part of a path, and that part: "" for the root itself; mem_free().
 */
struct node *sim_disk_find_parent(struct sim *s, const char *path, char **leaf_out)
{
    struct node *dir = s->root;
    char *leaf = mem_copy("", 1);
    for (const char *at = path; *at != '\0';) {
        size_t len = strcspn(at, "/");
        if (len > 0 && !(len == 1 && at[0] == '.')) {
            if (leaf[0] != '\0')
                dir = sim_disk_names_get(&dir->names_now, leaf);
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

struct node *sim_disk_find(struct sim *s, const char *path)
{
    char *leaf;
    struct node *dir = sim_disk_find_parent(s, path, &leaf);
    struct node *node = dir;
    if (dir != NULL && leaf[0] != '\0')
        node = sim_disk_names_get(&dir->names_now, leaf);
    mem_free(leaf);
    return node;
}
