/* The simulated disk's counters, and direct access to it, past them and the faults. */
#include "sim/sim_disk_internal.h"

#include "base/mem.h"

uint64_t sim_disk_count(struct disk *d, enum sim_disk_op op)
{
    struct sim *s = sim_disk_enter(d);
    uint64_t count = s->counts[op];
    (void)sim_disk_leave(s, ERR_OK);
    return count;
}

uint64_t sim_disk_changes(struct disk *d)
{
    struct sim *s = sim_disk_enter(d);
    uint64_t changes = s->changes;
    (void)sim_disk_leave(s, ERR_OK);
    return changes;
}

/* The folder of a path, made durably when missing, and the last part of the path. */
static struct node *make_parent(struct sim *s, const char *path, char **leaf_out)
{
    for (size_t i = 1; path[i] != '\0'; i++) {
        if (path[i] != '/' || path[i - 1] == '/')
            continue;
        char *prefix = span_dup(span_make(path, i)), *leaf;
        struct node *dir = sim_disk_find_parent(s, prefix, &leaf);
        if (leaf[0] != '\0' && sim_disk_names_get(&dir->names_now, leaf) == NULL) {
            sim_disk_move_name(s, sim_disk_node_new(s, true), NULL, NULL, dir, leaf);
            sim_disk_persist_names(s, dir);
        }
        mem_free(leaf);
        mem_free(prefix);
    }
    return sim_disk_find_parent(s, path, leaf_out);
}

void sim_disk_put(struct disk *d, const char *path, struct span bytes)
{
    struct sim *s = sim_disk_enter(d);
    char *leaf;
    struct node *dir = make_parent(s, path, &leaf);
    struct node *node = sim_disk_names_get(&dir->names_now, leaf);
    if (node == NULL) {
        node = sim_disk_node_new(s, false);
        sim_disk_move_name(s, node, NULL, NULL, dir, leaf);
        sim_disk_persist_names(s, dir);
    }
    sim_disk_file_resize(s, node, 0);
    sim_disk_file_write(s, node, 0, bytes.ptr, bytes.len);
    sim_disk_file_persist(node);
    mem_free(leaf);
    (void)sim_disk_leave(s, ERR_OK);
}

bool sim_disk_get(struct disk *d, const char *path, struct buf *out)
{
    struct sim *s = sim_disk_enter(d);
    struct node *node = sim_disk_find(s, path);
    bool found = node != NULL && !node->is_dir;
    if (found && node->now.len > 0)
        buf_append(out, node->now.ptr, node->now.len);
    (void)sim_disk_leave(s, ERR_OK);
    return found;
}

void sim_disk_damage(struct disk *d, const char *path, uint64_t at, struct span bytes)
{
    struct sim *s = sim_disk_enter(d);
    struct node *node = sim_disk_find(s, path);
    ASSERT(node != NULL && at + bytes.len <= node->now.len);
    sim_disk_image_write(&node->now, at, bytes.ptr, bytes.len);
    sim_disk_image_write(&node->then, at, bytes.ptr, bytes.len);
    (void)sim_disk_leave(s, ERR_OK);
}

static void copy_dir(struct sim *to_sim, struct node *to, const struct node *from)
{
    for (size_t i = 0; i < from->names_now.n; i++) {
        const struct name *name = &from->names_now.items[i];
        struct node *node = sim_disk_node_new(to_sim, name->node->is_dir);
        sim_disk_move_name(to_sim, node, NULL, NULL, to, name->text);
        if (node->is_dir) {
            copy_dir(to_sim, node, name->node);
        } else {
            sim_disk_image_copy(&node->now, &name->node->now);
            sim_disk_image_copy(&node->then, &name->node->now);
            to_sim->used += node->now.len;
        }
    }
}

struct disk *sim_disk_copy(struct disk *d, uint64_t seed)
{
    struct disk *copy = sim_disk_new(seed);
    struct sim *s = sim_disk_enter(d), *to = (struct sim *)copy;
    to->capacity = s->capacity;
    copy_dir(to, to->root, s->root);
    sim_disk_persist_names(to, NULL);
    (void)sim_disk_leave(s, ERR_OK);
    return copy;
}
