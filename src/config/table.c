/* The rows of the broker's settings, in the order of the documentation.
 *
 * A row BINDS (it is read into struct config), is NOT_BUILT (a value that asks for the feature
 * stops the boot: nothing may be ignored that changes what a user gets), is IGNORED (it tunes a
 * part that is made differently here or is not there yet; named in one line when set), or is read
 * ELSEWHERE (a secret of the sink, whose length the boot log tells like that of the others). */
#include "config/internal.h"

#include <stddef.h>

const char *const config_group_names[CONFIG_GROUP_COUNT] = {
    "server", "storage", "auth", "security", "kv_timers", "ephemeral", "logging",
};

#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define DAY_MS 86400000ull

/* Offset of a field that has the type its kind needs. */
#define FIELD(field, type)                                                                         \
    (offsetof(struct config, field) +                                                              \
     0 * sizeof(char[_Generic(((struct config *)0)->field, type : 1)]))

#define INT(group, name, field, fallback, min, max, text)                                          \
    {                                                                                              \
        name, NULL, CONFIG_BINDS, CONFIG_INT, group, fallback, min, max, FIELD(field, uint64_t),   \
            text                                                                                   \
    }
#define BOOL(group, name, field, fallback, text)                                                   \
    {                                                                                              \
        name, NULL, CONFIG_BINDS, CONFIG_BOOL, group, fallback, 0, 0, FIELD(field, bool), text     \
    }
#define PERCENT(group, name, field, fallback, text)                                                \
    {                                                                                              \
        name, NULL, CONFIG_BINDS, CONFIG_PERCENT, group, fallback, 1, 100, FIELD(field, double),   \
            text                                                                                   \
    }
#define TEXT(group, name, field, fallback, text)                                                   \
    {                                                                                              \
        name, NULL, CONFIG_BINDS, CONFIG_TEXT, group, fallback, 0, 0, FIELD(field, char *), text   \
    }
#define NOT_BUILT(group, name, kind, neutral, text)                                                \
    {                                                                                              \
        name, NULL, CONFIG_NOT_BUILT, kind, group, neutral, 0, 0, 0, text                          \
    }
#define SINK_SECRET(name)                                                                          \
    {                                                                                              \
        name, NULL, CONFIG_ELSEWHERE, CONFIG_SECRET, CONFIG_SECURITY, "", 0, 0, 0, "the sink"      \
    }
#define IGNORED(group, name, text)                                                                 \
    {                                                                                              \
        name, NULL, CONFIG_IGNORED, CONFIG_TEXT, group, "", 0, 0, 0, text                          \
    }

const struct config_row config_rows[] = {
    {"PORT", NULL, CONFIG_BINDS, CONFIG_PORT, CONFIG_SERVER, "6632", 0, 65535,
     FIELD(port, uint64_t), "HTTP port of the API, health and metrics; 0 takes any free one"},
    {"QUEEN_BIND_ADDR", NULL, CONFIG_BINDS, CONFIG_HOST, CONFIG_SERVER, "0.0.0.0", 0, 0,
     FIELD(bind_addr, char *), "host or IP address to listen on, without a port"},
    TEXT(CONFIG_SERVER, "QUEEN_SERVER_ID", server_id, "",
         "name of this node, for display; default HOSTNAME, else queen-<8 hex digits>"),
    INT(CONFIG_SERVER, "QUEEN_MAX_BODY_BYTES", max_body_bytes, "67108864", 1024, GIB,
        "larger request bodies are answered 413"),
    {"QUEEN_MAX_JSON_DEPTH", NULL, CONFIG_BINDS, CONFIG_STRICT, CONFIG_SERVER, "500", 64, 10000,
     FIELD(max_json_depth, uint64_t),
     "a pushed payload nested deeper is refused, because lake readers refuse it later"},
    {"DEFAULT_TIMEOUT", "POP_DEFAULT_TIMEOUT_MS", CONFIG_BINDS, CONFIG_INT, CONFIG_SERVER, "30000",
     1, 60000, FIELD(request_timeout_ms, uint64_t), "deadline of a request, in ms"},
    IGNORED(CONFIG_SERVER, "QUEEN_STMT_TIMEOUT_MS", "deadline of consumer calls"),
    IGNORED(CONFIG_SERVER, "DEFAULT_SUBSCRIPTION_MODE", "start of a new consumer group"),
    IGNORED(CONFIG_SERVER, "METRICS_FLUSH_MS", "dashboard history"),
    IGNORED(CONFIG_SERVER, "QUEEN_CELL_ID", "name on the dashboard"),

    {"QUEEN_RAFT_DIR", NULL, CONFIG_BINDS, CONFIG_FOLDER, CONFIG_STORAGE, "/var/lib/queen/raft", 0,
     0, FIELD(dir, char *),
     "folder of everything this node keeps; made when missing, used by one process at a time"},
    {"QUEEN_RAFT_NODE_ID", NULL, CONFIG_BINDS, CONFIG_NODE_ID, CONFIG_STORAGE, "1", 1, UINT64_MAX,
     FIELD(node_id, uint64_t),
     "number of this node, or `ordinal`: 1 + the digits at the end of HOSTNAME"},
    INT(CONFIG_STORAGE, "QUEEN_RAFT_DURABLE_EVERY_MS", durable_every_ms, "1000", 10, DAY_MS,
        "a checkpoint of the state is made this often; bounds what a restart replays"),
    INT(CONFIG_STORAGE, "QUEEN_RAFT_DURABLE_EVERY_BYTES", durable_every_bytes, "268435456",
        64 * KIB, 64 * GIB, "... or after this many bytes of log"),
    INT(CONFIG_STORAGE, "QUEEN_RAFT_SEGMENT_BYTES", segment_bytes, "67108864", 64 * KIB,
        4 * GIB - 1, "size at which a file of a queue's log is sealed and a new one begins"),
    INT(CONFIG_STORAGE, "QUEEN_RAFT_ENTRY_MAX_BYTES", entry_max_bytes, "100663296", 4 * KIB,
        96 * MIB, "largest single command: one push, one KV call"),
    INT(CONFIG_STORAGE, "QUEEN_RAFT_BATCH_MAX_CMDS", batch_max_commands, "4096", 1, 65536,
        "most commands of one log entry"),
    INT(CONFIG_STORAGE, "QUEEN_RAFT_BATCH_MAX_BYTES", batch_max_bytes, "4194304", 4 * KIB, 96 * MIB,
        "most bytes of one log entry that holds several commands"),
    INT(CONFIG_STORAGE, "QUEEN_RAFT_ADMIT_MAX_MB", admit_max_mb, "128", 0, 1048576,
        "MiB of writes that may wait for the log, at least ten entries' worth by default; 0 = no "
        "limit"),
    INT(CONFIG_STORAGE, "QUEEN_RAFT_ADMIT_HOLD_MS", admit_hold_ms, "15000", 0, 60000,
        "how long a write waits for room before 429, +-25 %"),
    PERCENT(CONFIG_STORAGE, "QUEEN_RAFT_DISK_HIGH_PCT", disk_high_pct, "85",
            "filesystem use from which writes that grow storage are answered 507"),
    PERCENT(CONFIG_STORAGE, "QUEEN_RAFT_DISK_LOW_PCT", disk_low_pct, "80",
            "use below which they are taken again"),
    NOT_BUILT(CONFIG_STORAGE, "QUEEN_RAFT_REPLICATOR", CONFIG_TEXT, "local", "a cluster"),
    NOT_BUILT(CONFIG_STORAGE, "QUEEN_RAFT_PEERS", CONFIG_TEXT, "", "a cluster"),
    NOT_BUILT(CONFIG_STORAGE, "QUEEN_RAFT_LISTEN", CONFIG_TEXT, "", "a cluster"),
    NOT_BUILT(CONFIG_STORAGE, "QUEEN_RAFT_JOIN", CONFIG_BOOL, "false", "joining a cluster"),
    NOT_BUILT(CONFIG_STORAGE, "QUEEN_RAFT_FORCE_RECOVER", CONFIG_TEXT, "",
              "recovery of a cluster from one survivor"),
    NOT_BUILT(CONFIG_STORAGE, "QUEEN_RAFT_APPLY_SKIP", CONFIG_TEXT, "", "skipping a log entry"),
    NOT_BUILT(CONFIG_STORAGE, "QUEEN_RAFT_GROUPS", CONFIG_TEXT, "1", "several logs in one process"),
    NOT_BUILT(CONFIG_STORAGE, "QUEEN_TENANT_GROUPS", CONFIG_TEXT, "",
              "several logs in one process"),
    NOT_BUILT(CONFIG_STORAGE, "QUEEN_RAFT_QLOG_ZSTD_LEVEL", CONFIG_TEXT, "0",
              "compressed queue logs"),
    NOT_BUILT(CONFIG_STORAGE, "QUEEN_TEST_FAULTS", CONFIG_TEXT, "", "crash points in the store"),
    NOT_BUILT(CONFIG_STORAGE, "QUEEN_LINK_*", CONFIG_TEXT, "", "a standby cluster"),
    IGNORED(CONFIG_STORAGE, "QUEEN_RAFT_ANSWER_AT_COMMIT", "answers follow commit and apply"),
    IGNORED(CONFIG_STORAGE, "QUEEN_RAFT_FOLLOWER_ANSWER_AT_DONE",
            "answers follow commit and apply"),
    IGNORED(CONFIG_STORAGE, "QUEEN_CONSUME_*", "consumer groups"),
    IGNORED(CONFIG_STORAGE, "QUEEN_RAFT_*", "tuning of a part that is made differently here"),
    IGNORED(CONFIG_STORAGE, "QUEEN_QLOG_*", "tuning of a part that is made differently here"),
    IGNORED(CONFIG_STORAGE, "QUEEN_LANES", "tuning of a part that is made differently here"),
    IGNORED(CONFIG_STORAGE, "QUEEN_STORE_SCRUB_*", "the background scrub"),
    IGNORED(CONFIG_STORAGE, "RETENTION_INTERVAL", "retention"),
    IGNORED(CONFIG_STORAGE, "RETENTION_BATCH_SIZE", "retention"),
    IGNORED(CONFIG_STORAGE, "PARTITION_CLEANUP_DAYS", "removal of unused partitions"),
    IGNORED(CONFIG_STORAGE, "QUEEN_PARTITION_CLEANUP_ENABLED", "removal of unused partitions"),

    NOT_BUILT(CONFIG_AUTH, "JWT_ENABLED", CONFIG_BOOL, "false", "client tokens"),
    {"JWT_SECRET", NULL, CONFIG_IGNORED, CONFIG_SECRET, CONFIG_AUTH, "", 0, 0, 0,
     "client tokens, which are off"},
    IGNORED(CONFIG_AUTH, "JWT_*", "client tokens, which are off"),

    NOT_BUILT(CONFIG_SECURITY, "QUEEN_TENANCY_HEADER", CONFIG_BOOL, "false", "tenants"),
    NOT_BUILT(CONFIG_SECURITY, "QUEEN_KV_TRUSTED_PROXY", CONFIG_BOOL, "false", "tenants"),
    NOT_BUILT(CONFIG_SECURITY, "QUEEN_KV_REQUIRE_GRANT", CONFIG_BOOL, "false", "tenants"),
    NOT_BUILT(CONFIG_SECURITY, "QUEEN_ENCRYPTION_KEY", CONFIG_SECRET, "", "encryption at rest"),
    NOT_BUILT(CONFIG_SECURITY, "QUEEN_RAFT_TOKEN", CONFIG_SECRET, "", "a cluster"),
    SINK_SECRET("QUEEN_S3_ACCESS_KEY"),
    SINK_SECRET("QUEEN_S3_SECRET_KEY"),
    NOT_BUILT(CONFIG_SECURITY, "QUEEN_PROXY_*", CONFIG_SECRET, "",
              "the embedded proxy and its control plane"),
    NOT_BUILT(CONFIG_SECURITY, "QUEEN_TLS_*", CONFIG_SECRET, "", "TLS"),
    BOOL(CONFIG_SECURITY, "QUEEN_CORE_DUMPS", core_dumps, "false",
         "allows core dumps and debuggers although secrets are configured"),

    INT(CONFIG_KV_TIMERS, "QUEEN_KV_MAX_VALUE_BYTES", kv_value_max, "65536", 1, MIB,
        "largest value of the key-value store, in compact form"),
    INT(CONFIG_KV_TIMERS, "QUEEN_KV_MAX_OPS_PER_CALL", kv_ops_max, "256", 1, 4096,
        "most operations of one call of it"),
    INT(CONFIG_KV_TIMERS, "QUEEN_KV_MAX_KEYS_PER_CALL", kv_keys_max, "1024", 1, 4096,
        "most keys of one call of it"),
    INT(CONFIG_KV_TIMERS, "QUEEN_KV_READ_RATE", kv_read_rate, "200", 0, 1000000,
        "reads of it a second, by operation, for each tenant; 0 = no limit"),
    INT(CONFIG_KV_TIMERS, "QUEEN_KV_READ_BURST", kv_read_burst, "400", 1, 1000000,
        "... and so many at once"),
    INT(CONFIG_KV_TIMERS, "QUEEN_KV_WRITE_RATE", kv_write_rate, "100", 0, 1000000,
        "writes and checks of it a second, by operation, for each tenant; 0 = no limit"),
    INT(CONFIG_KV_TIMERS, "QUEEN_KV_WRITE_BURST", kv_write_burst, "200", 1, 1000000,
        "... and so many at once"),
    IGNORED(CONFIG_KV_TIMERS, "QUEEN_KV_*", "tenants of the key-value store"),
    IGNORED(CONFIG_KV_TIMERS, "QUEEN_TIMER_*", "timers"),

    NOT_BUILT(CONFIG_EPHEMERAL, "QUEEN_KAFKA_*", CONFIG_SECRET, "", "the Kafka front"),
    NOT_BUILT(CONFIG_EPHEMERAL, "QUEEN_EDGE_*", CONFIG_SECRET, "", "the edge front"),
    IGNORED(CONFIG_EPHEMERAL, "QUEEN_EPHEMERAL_*", "ephemeral queues"),

    BOOL(CONFIG_LOGGING, "QUEEN_LOG_JSON", log_json, "false", "one JSON object per log line"),
    {"RUST_LOG", "LOG_LEVEL", CONFIG_BINDS, CONFIG_TEXT, CONFIG_LOGGING, "info", 0, 0,
     FIELD(log_filter, char *), "log filter, such as `info,queen-s3=debug`"},
};

const size_t config_row_count = sizeof(config_rows) / sizeof(config_rows[0]);

static bool row_covers(const struct config_row *row, struct span name)
{
    struct span pattern = span_str(row->name);
    if (pattern.ptr[pattern.len - 1] == '*')
        return span_starts_with(name, span_sub(pattern, 0, pattern.len - 1));
    return span_eq(name, pattern) || (row->alias != NULL && span_eq(name, span_str(row->alias)));
}

const struct config_row *config_row_find(struct span name)
{
    const struct config_row *by_prefix = NULL;
    for (size_t i = 0; i < config_row_count; i++) {
        const struct config_row *row = &config_rows[i];
        if (!row_covers(row, name))
            continue;
        if (row->name[strlen(row->name) - 1] != '*')
            return row;
        if (by_prefix == NULL)
            by_prefix = row;
    }
    return by_prefix;
}
