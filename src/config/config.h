/* The broker's settings: environment variables, read once at boot (spec of each: docs/settings.md).
 *
 * One table (table.c) has a row for every variable: name, kind, default, range, group, text.
 * Reading, the `config: <group>` lines of the boot log, `queen check-config`, `queen --help` and
 * docs/settings.md all come from it. The sink's own variables (QUEEN_S3_*) have a table like it in
 * sink/settings.c. */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "base/buf.h"
#include "base/err.h"

/* The process environment as main() gets it: "NAME=value" strings, ended by NULL. Borrowed. */
struct config_env {
    const char *const *list;
    uint32_t random; /* for a generated server id */
};

/* NULL when unset. ctx is a struct config_env (shaped for sink_settings_read()). */
const char *config_env_get(void *ctx, const char *name);

/* Every setting that has an effect. Strings are owned, never NULL. */
struct config {
    /* server */
    uint64_t port; /* 0 = any free one */
    char *bind_addr;
    char *server_id; /* for display */
    uint64_t max_body_bytes;
    uint64_t max_json_depth;
    uint64_t request_timeout_ms;
    /* storage */
    char *dir;
    uint64_t node_id;
    uint64_t durable_every_ms, durable_every_bytes;
    uint64_t segment_bytes;
    uint64_t entry_max_bytes;
    uint64_t batch_max_commands, batch_max_bytes;
    uint64_t admit_max_mb; /* 0 = no admission control */
    uint64_t admit_hold_ms;
    double disk_high_pct, disk_low_pct;
    /* key-value store */
    uint64_t kv_value_max, kv_ops_max, kv_keys_max;
    uint64_t kv_read_rate, kv_read_burst, kv_write_rate, kv_write_burst; /* rate 0 = no limit */
    /* security */
    bool core_dumps;
    bool has_secrets; /* some secret is configured, the sink's included */
    /* logging */
    bool log_json;
    char *log_filter;
    /* What to say at boot: whole sentences, each a line of the log. */
    struct config_notice {
        bool warning; /* WARN, else INFO */
        char *text;
    } * notices;
    size_t n_notices;
};

/* Reads and checks every value. ERR_INVALID: *error holds the sentence for "FATAL: ", and *out is
 * untouched. */
ERR_CHECK enum err config_read(const struct config_env *env, struct config *out,
                               struct error *error);
/* Refuses what asks for a feature that is not built yet, by name. Call it when everything else was
 * checked, the sink's settings too: a wrong value keeps its own sentence. */
ERR_CHECK enum err config_check_built(const struct config_env *env, struct error *error);
void config_deinit(struct config *c); /* zeroed or read */

/* Just QUEEN_LOG_JSON, for lines before the rest is read; a bad spelling counts as false. */
bool config_peek_log_json(const struct config_env *env);

/* The notices and one line per group (target "boot"). Secrets appear as <unset> or <set:N chars>.
 */
void config_log(const struct config *c, const struct config_env *env);

/* For --help: one line per variable that has an effect. */
void config_help_put(struct buf *out);
/* The broker's half of docs/settings.md. */
void config_doc_put(struct buf *out);

#endif
