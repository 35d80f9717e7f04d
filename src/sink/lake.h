/* The lake: object keys, JSONL lines, compression, manifests, checkpoints (spec/objects.md 1-9),
 * and building the object of a window from a queue log. Everything here is a fixed function of its
 * arguments: the same window gives the same key and the same bytes, for ever (docs/architecture.md,
 * The one idea). */
#ifndef SINK_LAKE_H
#define SINK_LAKE_H

#include "base/hash.h"
#include "base/uuid.h"
#include "sink/settings.h"
#include "store/qlog.h"

#include <stdatomic.h>

/* Everything that keys and bytes of a window depend on. An intent names all of it; a redo uses the
 * intent's. */
struct lake_spec {
    struct span endpoint, bucket, prefix; /* borrowed */
    struct span tenant;                   /* uuid text */
    struct span queue;                    /* raw name */
    enum sink_format format;
    enum sink_compression compression;
    enum sink_layout layout;
    enum sink_align align;
    uint32_t segment_max;
    bool raw; /* quoting of unreadable payloads switched off */
};

struct lake_window {
    struct lake_spec spec;
    uint64_t k;
    int64_t t_start, t_end;
};

void lake_key_object(struct buf *out, const struct lake_window *w);
void lake_key_manifest(struct buf *out, const struct lake_spec *s, uint64_t k);
void lake_key_checkpoint(struct buf *out, const struct lake_spec *s, uint64_t k);
void lake_key_checkpoint_prefix(struct buf *out,
                                const struct lake_spec *s); /* ends in "checkpoint/" */
bool lake_key_checkpoint_parse(struct span key, uint64_t *k_out);
/* queue name in the sink's KV keys: percent-encoded, shortened to 300 bytes. */
void lake_kv_name(struct buf *out, struct span queue);

/* Writer identity (objects.md 6, decisions.md 6): "queen-s3/2.0.0 jsonl+zstd" with " zstd/<v>" or "
 * zlib/<v>" when the library is not the one the built-in digest was made with, and " raw". */
void lake_writer(struct buf *out, enum sink_format f, enum sink_compression c, bool raw);
/* Boot self-check on a generated 4 MiB text: is the library's output the built-in digest's? Any
 * thread, once. */
bool lake_compressor_known(enum sink_compression c);

struct lake_record {
    struct span partition;
    uint64_t offset;
    struct span transaction_id;
    int64_t stamp;
    struct span payload; /* stored text */
    bool undecryptable;
};

/* Appends one line with its '\n'. quoted_out: payload was written as a JSON string because readers
 * could not parse it (decisions.md 1). */
void lake_jsonl_line(struct buf *out, const struct lake_record *r, bool raw, bool *quoted_out);

/* Streaming compressor of one object (objects.md 4 Compression); SHA-256 and size of the output. */
struct lake_compressor;
struct lake_compressor *lake_compressor_new(enum sink_compression c);
void lake_compressor_free(struct lake_compressor *c);
void lake_compressor_write(struct lake_compressor *c, struct span in, struct buf *out);
void lake_compressor_end(struct lake_compressor *c, struct buf *out);

/* A built object: in memory up to memory_max, beyond that in an unlinked temporary file. */
struct lake_object {
    struct buf bytes; /* owned */
    int fd;           /* >= 0: the file, owned */
    uint64_t size;
    uint8_t sha256[SHA256_SIZE];
    uint64_t records, partitions, quoted;
    int64_t min_ts, max_ts; /* when records > 0 */
};

void lake_object_deinit(struct lake_object *o);

struct lake_build_options {
    const struct lake_window *window;
    struct qlog *log; /* referenced by the caller for the time of the build */
    uint64_t from,
        to; /* positions to look at: a superset of the window's runs; 0,0 = find by stamp */
    const struct qlog_near *near; /* to find by; may be NULL */
    uint64_t index_bytes_max;     /* memory for run positions; beyond it several passes by partition
                                  ranges */
    uint64_t memory_max;          /* of compressed bytes held in memory */
    const char *spool_dir;        /* for O_TMPFILE */
    const atomic_bool *cancel;    /* may be NULL: looked at between runs: ERR_STOPPED */
};

/* Collects the runs of the queue with t_start <= stamp < t_end, orders them by (partition, stamp,
 * offset), encodes, compresses. Blocks; worker thread. The order inside a partition: objects.md 3.
 */
ERR_CHECK enum err lake_build(const struct lake_build_options *options, struct lake_object *out,
                              struct error *error);

struct lake_lost {
    struct span partition;
    uint64_t from, to;
};

struct lake_manifest {
    struct span sink, tenant, queue;
    uint64_t k;
    int64_t t_start, t_end;
    struct span format, compression, layout;
    struct lake_manifest_object {
        struct span key;
        uint64_t bytes, records;
        char sha256[65];
    } * objects;
    size_t n_objects;
    uint64_t records, bytes, partitions;
    bool has_ts;
    int64_t min_ts, max_ts;
    struct lake_lost *lost;
    size_t n_lost;
    struct span writer;
    int64_t committed_at; /* wall us; written in millisecond resolution */
    struct buf text;      /* owned by a parsed one: what the spans point into */
};

void lake_manifest_put(struct buf *out,
                       const struct lake_manifest *m); /* compact JSON, fields in order */
ERR_CHECK enum err lake_manifest_parse(struct span text,
                                       struct lake_manifest *out); /* ERR_INVALID */
void lake_manifest_deinit(struct lake_manifest *m);

struct lake_checkpoint_row {
    struct span partition;
    uint64_t next_offset;
    struct uuid id;
    bool has_id;
};

/* checkpoint/<k>.json.zst */
void lake_checkpoint_put(struct buf *out, uint64_t k, int64_t t_end,
                         const struct lake_checkpoint_row *rows, size_t n);
struct lake_checkpoint {
    uint64_t k;
    int64_t t_end;
    struct lake_checkpoint_row *rows;
    size_t n;
    struct buf text;
};
ERR_CHECK enum err lake_checkpoint_parse(struct span bytes, struct lake_checkpoint *out);
void lake_checkpoint_deinit(struct lake_checkpoint *c);

#endif
