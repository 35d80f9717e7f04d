/* The state database behind an ordered-map interface: RocksDB (db_rocks.c), and a model in memory
 * for the simulator (tests/sim) that falls back to its last durable batch after a crash.
 *
 * Written by the checkpoint only: one synced batch per checkpoint (storage rule 3). One column
 * family; a kind byte leads the key. Any thread may read while one thread writes. */
#ifndef STORE_DB_H
#define STORE_DB_H

#include "base/buf.h"
#include "base/err.h"

struct db;
struct db_iter;
struct db_batch;

struct db_ops {
    void (*close)(struct db *db);
    /* ERR_NOT_FOUND; otherwise appends the value. */
    enum err (*get)(struct db *db, struct span key, struct buf *value_out, struct error *error);
    /* Iterator over a snapshot of now, keys in bytewise order, that ends before `to` (empty: at the
     * end): deleted rows from there on are not walked over, which may take long. */
    struct db_iter *(*iter_new)(struct db *db, struct span to);
    void (*iter_free)(struct db_iter *it);
    void (*iter_seek)(struct db_iter *it, struct span from); /* first key >= from */
    void (*iter_next)(struct db_iter *it);
    bool (*iter_valid)(struct db_iter *it);
    struct span (*iter_key)(struct db_iter *it);   /* until the next move */
    struct span (*iter_value)(struct db_iter *it); /* until the next move */
    enum err (*iter_error)(struct db_iter *it, struct error *error);
    struct db_batch *(*batch_new)(struct db *db);
    void (*batch_free)(struct db_batch *b);
    void (*batch_put)(struct db_batch *b, struct span key, struct span value);
    void (*batch_delete)(struct db_batch *b, struct span key);
    void (*batch_delete_range)(struct db_batch *b, struct span from,
                               struct span to); /* [from, to) */
    /* Durable when it returns ERR_OK. ERR_NO_SPACE is told apart. */
    enum err (*batch_write)(struct db *db, struct db_batch *b, struct error *error);
    /* Bytes on disk and in memory, for metrics; may be 0. */
    uint64_t (*bytes)(struct db *db);
    /* What it holds in memory and will write to the disk by itself. May be NULL: nothing. */
    uint64_t (*buffered)(struct db *db);
};

struct db {
    const struct db_ops *ops;
};

struct db_rocks_options {
    const char *path; /* absolute or relative to the process */
    uint64_t block_cache_bytes;
    uint64_t write_buffer_bytes;
    unsigned open_files_max; /* 0: 256 */
};

/* WAL of RocksDB on with sync for the batch; info log level fatal (a full disk aborts otherwise);
 * bloom filters of 10 bits on whole keys; single background thread pool, small buffers. */
ERR_CHECK enum err db_rocks_open(const struct db_rocks_options *options, struct db **out,
                                 struct error *error);

#endif
