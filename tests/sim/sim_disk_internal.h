/* What the two files of the simulated disk share. */
#ifndef TESTS_SIM_DISK_INTERNAL_H
#define TESTS_SIM_DISK_INTERNAL_H

#include "sim/sim_disk.h"

#include <pthread.h>

#define SIM_DISK_SWEEP_MIN 256 /* nodes before the first sweep */

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
    enum sim_disk_op failed;
    void (*pace)(void *ctx, enum sim_disk_op op);
    void *pace_ctx;
    void (*meanwhile)(void *ctx);
    void *meanwhile_ctx;
    uint64_t counts[SIM_DISK_OPS], changes;
};

/* sim_disk.c */
struct sim *sim_disk_enter(struct disk *d); /* takes the mutex */
enum err sim_disk_leave(struct sim *s, enum err err);

/* sim_disk_state.c; under the mutex */

/* bytes NULL: zeros. */
void sim_disk_image_write(struct image *image, uint64_t at, const uint8_t *bytes, size_t len);
void sim_disk_image_copy(struct image *to, const struct image *from);
struct node *sim_disk_names_get(const struct names *names, const char *text);
void sim_disk_names_copy(struct names *to, const struct names *from);
struct node *sim_disk_node_new(struct sim *s, bool is_dir);
void sim_disk_node_free(struct node *node);
bool sim_disk_in_use(const struct node *node);
/* Frees what nothing can reach. */
void sim_disk_sweep(struct sim *s);
void sim_disk_sweep_sometimes(struct sim *s);
void sim_disk_file_write(struct sim *s, struct node *node, uint64_t at, const uint8_t *bytes,
                         size_t len);
void sim_disk_file_resize(struct sim *s, struct node *node, uint64_t size);
void sim_disk_file_persist(struct node *node);
/* The durable image after a power cut: each change survives or not. */
void sim_disk_file_survive(struct node *node, struct prng *rng);
/* A sync that failed: each change may have reached the disk or not, and none is tried again. */
void sim_disk_file_sync_failed(struct sim *s, struct node *node);
/* Makes (from NULL), renames or removes (to NULL) a name: at once in the current state, later in
 * the durable one. */
void sim_disk_move_name(struct sim *s, struct node *node, struct node *from_dir, const char *from,
                        struct node *to_dir, const char *to);
void sim_disk_move_deinit(struct move *m);
/* Makes the pending names of one folder durable, or of all (NULL). */
void sim_disk_persist_names(struct sim *s, const struct node *dir);
void sim_disk_survive_names(struct sim *s, struct prng *rng);
/* Finds the folder of the last part of a path, and that part: "" for the root itself; mem_free().
 * NULL (and no part) when a folder on the way is missing. */
struct node *sim_disk_find_parent(struct sim *s, const char *path, char **leaf_out);
struct node *sim_disk_find(struct sim *s, const char *path);

#endif
