/* The state database on RocksDB, through its C interface.
 *
 * One column family: flushing several is not atomic through the C interface. Its own WAL is on, and
 * a batch is synced, so a batch is durable as a whole when the write returns. After a crash RocksDB
 * drops a torn batch at the end of its WAL (point in time recovery). Should damage take an older
 * batch with it, the state falls back to an earlier checkpoint, and the node notices: its own WAL
 * then lacks entries behind that checkpoint, or a queue log is longer than it may be without them
 * (storage rule 4).
 *
 * A full disk: the info log is at level fatal, because Debian's build has asserts on and aborts
 * when its info log cannot be written. After "no space" RocksDB refuses writes until there is more
 * room than its write buffers need, so these are small, and the node stops writing before. It then
 * goes on by flushing its memtable, which begins another log; with an empty one it would go on in
 * the log that failed, and abort there: see never_empty(). */
#include "store/db.h"

#include "base/mem.h"

#include <rocksdb/c.h>

#define INFO_LOG_FATAL 4
#define OPEN_FILES_DEFAULT 256
#define METADATA_BLOCK_BYTES 4096
#define MEMTABLE_BLOOM_SHARE 0.05 /* of a write buffer */
#define BLOOM_BITS 10.0
#define WRITE_BUFFERS 2
#define BACKGROUND_JOBS 2
#define DELETED_WINDOW 4096 /* rows of a file */
#define DELETED_MANY 2048
#define MANIFEST_BYTES_MAX (4u * 1024 * 1024)

struct rocks {
    struct db db; /* first */
    rocksdb_t *handle;
    rocksdb_options_t *options;
    rocksdb_block_based_table_options_t *table;
    rocksdb_cache_t *cache;
    rocksdb_readoptions_t *read;
    rocksdb_writeoptions_t *write, *unlogged;
};

struct db_iter {
    rocksdb_iterator_t *it;
    rocksdb_readoptions_t *read; /* with the bound, which it borrows */
    struct buf to;
};

struct db_batch {
    rocksdb_writebatch_t *batch;
};

static struct rocks *rocks_of(struct db *db)
{
    return (struct rocks *)(void *)db;
}

static const char *text(struct span s)
{
    return s.len > 0 ? (const char *)s.ptr : "";
}

/* A sync that failed may have lost what it was for, whatever it gives as the reason. */
static bool of_a_sync(const char *status)
{
    return strstr(status, "While fdatasync") != NULL || strstr(status, "While fsync") != NULL ||
           strstr(status, "While sync_file_range") != NULL ||
           strstr(status, "While range sync") != NULL || strstr(status, "Directory fsync") != NULL;
}

static enum err status_code(const char *status)
{
    if (of_a_sync(status))
        return ERR_IO;
    if (strstr(status, "No space left") != NULL || strstr(status, "Disk quota exceeded") != NULL ||
        strstr(status, "NoSpace") != NULL || strstr(status, "Space limit") != NULL)
        return ERR_NO_SPACE;
    if (strncmp(status, "Corruption", 10) == 0)
        return ERR_CORRUPT;
    if (strstr(status, "lock") != NULL && strstr(status, "LOCK") != NULL)
        return ERR_LOCKED;
    return ERR_IO;
}

/* To RocksDB a quota is an error like any other: it writes no more, whatever room there is later. */
static const char *way_out(const char *status)
{
    return strstr(status, "Disk quota exceeded") == NULL
               ? ""
               : " (a quota: when there is room again, it needs a restart)";
}

/* Maps a status text of the library, which it frees. */
static enum err fail(const char *call, char *status, struct error *error)
{
    enum err err = error_set(error, status_code(status), "state database: %s: %s%s", call, status,
                             way_out(status));
    rocksdb_free(status);
    return err;
}

static void rocks_close(struct db *db)
{
    if (db == NULL)
        return;
    struct rocks *r = rocks_of(db);
    if (r->handle != NULL)
        rocksdb_close(r->handle);
    rocksdb_writeoptions_destroy(r->write);
    rocksdb_writeoptions_destroy(r->unlogged);
    rocksdb_readoptions_destroy(r->read);
    rocksdb_options_destroy(r->options);
    rocksdb_block_based_options_destroy(r->table);
    rocksdb_cache_destroy(r->cache);
    mem_free(r);
}

static enum err rocks_get(struct db *db, struct span key, struct buf *value_out,
                          struct error *error)
{
    struct rocks *r = rocks_of(db);
    char *status = NULL;
    rocksdb_pinnableslice_t *slice =
        rocksdb_get_pinned(r->handle, r->read, text(key), key.len, &status);
    if (status != NULL)
        return fail("get", status, error);
    if (slice == NULL)
        return ERR_NOT_FOUND;
    size_t len;
    const char *value = rocksdb_pinnableslice_value(slice, &len);
    buf_append(value_out, value, len);
    rocksdb_pinnableslice_destroy(slice);
    return ERR_OK;
}

static rocksdb_readoptions_t *read_options(void)
{
    rocksdb_readoptions_t *read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(read, 1);
    return read;
}

static struct db_iter *rocks_iter_new(struct db *db, struct span to)
{
    struct rocks *r = rocks_of(db);
    struct db_iter *it = mem_new(sizeof(*it));
    it->read = read_options();
    buf_put_span(&it->to, to);
    if (to.len != 0)
        rocksdb_readoptions_set_iterate_upper_bound(it->read, text(buf_span(&it->to)), to.len);
    it->it = rocksdb_create_iterator(r->handle, it->read);
    return it;
}

static void rocks_iter_free(struct db_iter *it)
{
    if (it == NULL)
        return;
    rocksdb_iter_destroy(it->it);
    rocksdb_readoptions_destroy(it->read);
    buf_deinit(&it->to);
    mem_free(it);
}

static void rocks_iter_seek(struct db_iter *it, struct span from)
{
    rocksdb_iter_seek(it->it, text(from), from.len);
}

static void rocks_iter_next(struct db_iter *it)
{
    rocksdb_iter_next(it->it);
}

static bool rocks_iter_valid(struct db_iter *it)
{
    return rocksdb_iter_valid(it->it) != 0;
}

static struct span rocks_iter_key(struct db_iter *it)
{
    size_t len;
    const char *key = rocksdb_iter_key(it->it, &len);
    return span_make(key, len);
}

static struct span rocks_iter_value(struct db_iter *it)
{
    size_t len;
    const char *value = rocksdb_iter_value(it->it, &len);
    return span_make(value, len);
}

static enum err rocks_iter_error(struct db_iter *it, struct error *error)
{
    char *status = NULL;
    rocksdb_iter_get_error(it->it, &status);
    return status == NULL ? ERR_OK : fail("iterate", status, error);
}

static struct db_batch *rocks_batch_new(struct db *db)
{
    (void)db;
    struct db_batch *b = mem_new(sizeof(*b));
    b->batch = rocksdb_writebatch_create();
    return b;
}

static void rocks_batch_free(struct db_batch *b)
{
    if (b == NULL)
        return;
    rocksdb_writebatch_destroy(b->batch);
    mem_free(b);
}

static void rocks_batch_put(struct db_batch *b, struct span key, struct span value)
{
    rocksdb_writebatch_put(b->batch, text(key), key.len, text(value), value.len);
}

static void rocks_batch_delete(struct db_batch *b, struct span key)
{
    rocksdb_writebatch_delete(b->batch, text(key), key.len);
}

static void rocks_batch_delete_range(struct db_batch *b, struct span from, struct span to)
{
    rocksdb_writebatch_delete_range(b->batch, text(from), from.len, text(to), to.len);
}

/* Puts something into an empty memtable: the deletion of a row that never was, not logged. */
static char *never_empty(struct rocks *r)
{
    static const char key[] = "\xff";
    uint64_t entries = 0;
    char *status = NULL;
    if (rocksdb_property_int(r->handle, "rocksdb.num-entries-active-mem-table", &entries) == 0 &&
        entries == 0)
        rocksdb_delete(r->handle, r->unlogged, key, 1, &status);
    return status;
}

static enum err rocks_batch_write(struct db *db, struct db_batch *b, struct error *error)
{
    struct rocks *r = rocks_of(db);
    char *status = never_empty(r);
    if (status != NULL)
        return fail("write", status, error);
    rocksdb_write(r->handle, r->write, b->batch, &status);
    return status == NULL ? ERR_OK : fail("write", status, error);
}

static uint64_t rocks_bytes(struct db *db)
{
    static const char *const properties[] = {
        "rocksdb.total-sst-files-size",
        "rocksdb.size-all-mem-tables",
        "rocksdb.estimate-table-readers-mem",
        "rocksdb.block-cache-usage",
    };
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(properties) / sizeof(properties[0]); i++) {
        uint64_t value = 0;
        if (rocksdb_property_int(rocks_of(db)->handle, properties[i], &value) == 0)
            sum += value;
    }
    return sum;
}

static uint64_t rocks_buffered(struct db *db)
{
    uint64_t value = 0;
    if (rocksdb_property_int(rocks_of(db)->handle, "rocksdb.cur-size-all-mem-tables", &value) != 0)
        return 0;
    return value;
}

static const struct db_ops rocks_ops = {
    .close = rocks_close,
    .get = rocks_get,
    .iter_new = rocks_iter_new,
    .iter_free = rocks_iter_free,
    .iter_seek = rocks_iter_seek,
    .iter_next = rocks_iter_next,
    .iter_valid = rocks_iter_valid,
    .iter_key = rocks_iter_key,
    .iter_value = rocks_iter_value,
    .iter_error = rocks_iter_error,
    .batch_new = rocks_batch_new,
    .batch_free = rocks_batch_free,
    .batch_put = rocks_batch_put,
    .batch_delete = rocks_batch_delete,
    .batch_delete_range = rocks_batch_delete_range,
    .batch_write = rocks_batch_write,
    .bytes = rocks_bytes,
    .buffered = rocks_buffered,
};

static void make_options(struct rocks *r, const struct db_rocks_options *options)
{
    r->cache = rocksdb_cache_create_lru((size_t)options->block_cache_bytes);
    r->table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(r->table, r->cache);
    rocksdb_block_based_options_set_whole_key_filtering(r->table, 1);
    rocksdb_block_based_options_set_filter_policy(
        r->table, rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS)); /* takes it */
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(r->table,
                                                                  1); /* within its bound */

    rocksdb_options_t *o = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(o, 1);
    /* Filters and indexes in pieces of a block each: a lookup reads one, not the whole of a large
     * table's, which would not stay in the block cache. */
    rocksdb_block_based_options_set_index_type(
        r->table, rocksdb_block_based_table_index_type_two_level_index_search);
    rocksdb_block_based_options_set_partition_filters(r->table, 1);
    rocksdb_block_based_options_set_metadata_block_size(r->table, METADATA_BLOCK_BYTES);
    rocksdb_block_based_options_set_pin_top_level_index_and_filter(r->table, 1);
    rocksdb_options_set_memtable_prefix_bloom_size_ratio(o, MEMTABLE_BLOOM_SHARE);
    rocksdb_options_set_memtable_whole_key_filtering(o, 1);
    rocksdb_options_set_block_based_table_factory(o, r->table);
    rocksdb_options_set_write_buffer_size(o, (size_t)options->write_buffer_bytes);
    rocksdb_options_set_max_write_buffer_number(o, WRITE_BUFFERS);
    rocksdb_options_set_max_total_wal_size(o, WRITE_BUFFERS * options->write_buffer_bytes);
    rocksdb_options_set_max_open_files(o, options->open_files_max > 0 ? (int)options->open_files_max
                                                                      : OPEN_FILES_DEFAULT);
    rocksdb_options_set_max_background_jobs(o, BACKGROUND_JOBS);
    rocksdb_options_set_info_log_level(o, INFO_LOG_FATAL);
    rocksdb_options_set_keep_log_file_num(o, 1);
    rocksdb_options_set_max_manifest_file_size(o, MANIFEST_BYTES_MAX);
    rocksdb_options_set_stats_dump_period_sec(o, 0);
    rocksdb_options_set_stats_persist_period_sec(o, 0);
    rocksdb_options_set_paranoid_checks(o, 1);
    rocksdb_options_set_wal_recovery_mode(o, rocksdb_point_in_time_recovery);
    /* Iterators walk over deleted rows: files that hold many of them in a row are rewritten. */
    rocksdb_options_add_compact_on_deletion_collector_factory(o, DELETED_WINDOW, DELETED_MANY);
    r->options = o;

    r->read = read_options();
    r->write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(r->write, 1);
    r->unlogged = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(r->unlogged, 1);
}

enum err db_rocks_open(const struct db_rocks_options *options, struct db **out, struct error *error)
{
    struct rocks *r = mem_new(sizeof(*r));
    r->db.ops = &rocks_ops;
    make_options(r, options);
    char *status = NULL;
    r->handle = rocksdb_open(r->options, options->path, &status);
    if (status != NULL) {
        rocks_close(&r->db);
        return fail("open", status, error);
    }
    *out = &r->db;
    return ERR_OK;
}
