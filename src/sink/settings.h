/* The sink's settings: spec/settings.md 2-6 and decisions.md "New settings", one table row each
 * (settings.c), read from the environment once at boot. */
#ifndef SINK_SETTINGS_H
#define SINK_SETTINGS_H

#include "base/buf.h"
#include "base/err.h"

enum sink_format { SINK_JSONL, SINK_PARQUET };
enum sink_compression { SINK_ZSTD, SINK_GZIP, SINK_NONE };
enum sink_layout { SINK_MERGED, SINK_PER_PARTITION };
enum sink_align { SINK_ALIGN_HOUR, SINK_ALIGN_DAY, SINK_ALIGN_NONE };
enum sink_start { SINK_LATEST, SINK_EARLIEST };
enum sink_crash_point {
    SINK_CRASH_NEVER,
    SINK_CRASH_AFTER_INTENT,
    SINK_CRASH_MID_UPLOAD,
    SINK_CRASH_AFTER_UPLOAD,
    SINK_CRASH_BEFORE_COMMIT,
    SINK_CRASH_AFTER_COMMIT
};

const char *sink_format_name(enum sink_format f); /* canonical spellings */
const char *sink_compression_name(enum sink_compression c);
const char *sink_layout_name(enum sink_layout l);
const char *sink_align_name(enum sink_align a);
const char *sink_start_name(enum sink_start s);
const char *sink_crash_point_name(enum sink_crash_point p);

/* Per sink. Strings are owned. */
struct sink_settings {
    bool all_queues; /* "*" */
    char **queues;   /* else these, order kept, repeats dropped */
    size_t n_queues;
    char *endpoint, *region /* NULL for file:// */, *bucket, *prefix, *access_key, *secret_key;
    bool is_file; /* endpoint is file:///path */
    bool path_style;
    char *sse, *sse_kms_key_id; /* NULL = off */
    enum sink_format format;
    enum sink_compression compression;
    enum sink_layout layout;
    enum sink_align align;
    enum sink_start start;
    uint64_t target_mb, max_window_ms;
    char *sink;
    uint64_t key_segment_max; /* 255 for file:// whatever was set */
    bool quote_unreadable;
};

/* Node-wide. */
struct sink_node_settings {
    bool embedded;
    uint64_t threads, shutdown_grace_ms;
    uint64_t memory_mb, fetch_concurrency, discovery_interval_ms, safe_guard_ms, lease_ttl_ms;
    uint64_t multipart_threshold_mb, checkpoint_every;
    char *instance;
    bool instance_generated;
    enum sink_crash_point crash_at;
};

struct sink_boot_settings {
    struct sink_node_settings node;
    bool has_sink; /* the environment configures the default tenant's sink */
    struct sink_settings sink;
    char *ignored; /* "QUEEN_S3_LISTEN, QUEEN_S3_LOG_FORMAT" for the one warning, or NULL */
};

typedef const char *(*env_get_fn)(void *ctx, const char *name); /* NULL = unset */

/* Reads and validates everything in the orders of settings.md 3.3 and 4. On refusal: ERR_INVALID
 * and the whole sentence in *error, ready for "ERROR boot: FATAL: " (with the
 * "QUEEN_S3_EMBEDDED=true: " prefix where settings.md 7 wants it). node_id and host: for the
 * default instance. */
ERR_CHECK enum err sink_settings_read(env_get_fn get, void *ctx, uint64_t node_id, const char *host,
                                      unsigned cores, struct sink_boot_settings *out,
                                      struct error *error);
/* Refuses parquet and per-partition by name, like config_check_built(). */
ERR_CHECK enum err sink_settings_check_built(const struct sink_boot_settings *s,
                                             struct error *error);
void sink_boot_settings_deinit(struct sink_boot_settings *s);
/* Logs "queen-s3 2.0.0 tenant=... " of settings.md 8 for target "queen-s3". */
void sink_settings_log(const struct sink_settings *s, const struct sink_node_settings *n,
                       struct span tenant);

#define SINK_VERSION "2.0.0"

#endif
