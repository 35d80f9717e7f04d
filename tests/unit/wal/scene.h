/* What the tests of wal share: a log on a simulated disk beside a model of what it must hold.
 *
 * The model keeps every acknowledged entry, the one write that may or may not have survived, and
 * the index of the state's checkpoint. Payloads are made from a nonce, so the model need not keep
 * them. */
#ifndef TESTS_WAL_SCENE_H
#define TESTS_WAL_SCENE_H

#include "base/buf.h"
#include "base/mem.h"
#include "lib/test.h"
#include "sim/sim_disk.h"
#include "wal/format.h"
#include "wal/wal.h"

#define SCENE_ENTRIES_MAX 4096
#define SCENE_SEGMENT (16u * 1024) /* the smallest: a header and three blocks */

struct scene_entry {
    uint64_t nonce;
    size_t len;
};

struct scene {
    struct disk *disk;
    struct wal *wal; /* NULL when not open */
    struct entropy entropy;
    struct prng prng;
    struct error error;
    uint64_t segment_bytes;
    struct scene_entry entries[SCENE_ENTRIES_MAX]; /* [i] is index i */
    uint64_t acked;                                /* index of the last acknowledged entry */
    uint64_t pending;                              /* entries of the write in doubt, after acked */
    uint64_t applied;                              /* of the checkpoint */
    uint64_t terms[SCENE_ENTRIES_MAX];
};

static inline void scene_fill_entropy(struct entropy *e, void *out, size_t len)
{
    struct scene *s = (struct scene *)((char *)e - offsetof(struct scene, entropy));
    prng_fill(&s->prng, out, len);
}

static inline struct scene *scene_new(uint64_t seed)
{
    struct scene *s = mem_new(sizeof(*s));
    s->disk = sim_disk_new(seed);
    s->entropy.fill = scene_fill_entropy;
    s->segment_bytes = SCENE_SEGMENT;
    prng_init(&s->prng, seed);
    return s;
}

static inline void scene_close(struct scene *s)
{
    wal_close(s->wal);
    s->wal = NULL;
}

static inline void scene_free(struct scene *s)
{
    scene_close(s);
    sim_disk_free(s->disk);
    mem_free(s);
}

/* Payload of an entry, into out of e->len bytes. */
static inline void scene_payload(const struct scene_entry *e, uint8_t *out)
{
    struct prng p;
    prng_init(&p, e->nonce);
    prng_fill(&p, out, e->len);
}

static inline enum err scene_open(struct scene *s)
{
    struct wal_options options = {
        .disk = s->disk,
        .entropy = &s->entropy,
        .dir = "wal",
        .segment_bytes = s->segment_bytes,
    };
    return wal_open(&options, s->applied, &s->wal, &s->error);
}

/* Writes n entries of `len` bytes each, the payload cut into two parts. The model follows. */
static inline enum err scene_write(struct scene *s, size_t n, size_t len)
{
    struct wal_append *appends = MEM_ARRAY(struct wal_append, n);
    struct span *parts = MEM_ARRAY(struct span, 2 * n);
    uint8_t *bytes = mem_new(n * len + 1);
    for (size_t i = 0; i < n; i++) {
        uint64_t index = s->acked + 1 + i;
        ASSERT(index < SCENE_ENTRIES_MAX);
        s->entries[index] = (struct scene_entry){prng_u64(&s->prng), len};
        s->terms[index] = wal_term(s->wal);
        scene_payload(&s->entries[index], bytes + i * len);
        parts[2 * i] = span_make(bytes + i * len, len / 3);
        parts[2 * i + 1] = span_make(bytes + i * len + len / 3, len - len / 3);
        appends[i] = (struct wal_append){index, parts + 2 * i, 2};
    }
    enum err err = wal_write(s->wal, appends, n, &s->error);
    if (err == ERR_OK) {
        s->acked += n;
        s->pending = 0;
    } else {
        s->pending = err == ERR_NO_SPACE ? 0 : n; /* a refused write must not come back */
    }
    mem_free(bytes);
    mem_free(parts);
    mem_free(appends);
    return err;
}

struct scene_check {
    struct scene *scene;
    uint64_t next;
};

static inline enum err scene_check_entry(void *ctx, const struct wal_entry *entry,
                                         struct error *error)
{
    (void)error;
    struct scene_check *check = (struct scene_check *)ctx;
    struct scene *s = check->scene;
    CHECK_EQ(entry->index, check->next);
    CHECK(entry->index <= s->acked + s->pending);
    const struct scene_entry *want = &s->entries[entry->index];
    CHECK_EQ(entry->payload.len, want->len);
    CHECK_EQ(entry->term, s->terms[entry->index]);
    uint8_t *bytes = mem_new(want->len + 1);
    scene_payload(want, bytes);
    CHECK(want->len == 0 || memcmp(bytes, entry->payload.ptr, want->len) == 0);
    mem_free(bytes);
    check->next++;
    return ERR_OK;
}

/* The open log holds every acknowledged entry above applied, and the write in doubt whole or not at
 * all; from here on that is settled. */
static inline void scene_check(struct scene *s)
{
    uint64_t last = wal_last_index(s->wal);
    CHECK(last == s->acked || last == s->acked + s->pending);
    struct scene_check check = {s, s->applied + 1};
    CHECK_EQ(wal_replay(s->wal, s->applied, scene_check_entry, &check, &s->error), ERR_OK);
    CHECK_EQ(check.next, last + 1);
    s->acked = last;
    s->pending = 0;
}

static inline void scene_open_checked(struct scene *s)
{
    enum err err = scene_open(s);
    if (err != ERR_OK)
        print_error("%s\n", s->error.text);
    CHECK_EQ(err, ERR_OK);
    scene_check(s);
}

#endif
