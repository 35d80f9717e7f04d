/* Counts the bytes that are read from a disk, for tests of what a look costs. */
#ifndef TESTS_LIB_COUNTED_DISK_H
#define TESTS_LIB_COUNTED_DISK_H

#include "io/disk.h"

struct counted_disk {
    struct disk_ops ops; /* first: found from the disk's `ops` */
    const struct disk_ops *inner;
    uint64_t bytes_read;
};

static inline enum err counted_disk_read(struct disk *d, struct disk_file *f, uint64_t at,
                                         void *out, size_t len, struct error *error)
{
    struct counted_disk *c = (struct counted_disk *)(uintptr_t)d->ops;
    c->bytes_read += len;
    return c->inner->read(d, f, at, out, len, error);
}

/* From here to counted_disk_end(); c stays where it is meanwhile. */
static inline void counted_disk_begin(struct counted_disk *c, struct disk *d)
{
    *c = (struct counted_disk){.ops = *d->ops, .inner = d->ops};
    c->ops.read = counted_disk_read;
    d->ops = &c->ops;
}

static inline void counted_disk_end(struct counted_disk *c, struct disk *d)
{
    d->ops = c->inner;
}

#endif
