/* Every variable of the sink (settings.md 2-5, decisions.md New settings). */
#include "sink/settings_table.h"

static const struct setting_spelling formats[] = {
    {"jsonl", "jsonl", SINK_JSONL},
    {"json", "jsonl", SINK_JSONL},
    {"ndjson", "jsonl", SINK_JSONL},
    {"parquet", "parquet", SINK_PARQUET},
    {0},
};
static const struct setting_spelling compressions[] = {
    {"zstd", "zstd", SINK_ZSTD},
    {"zst", "zstd", SINK_ZSTD},
    {"gzip", "gzip", SINK_GZIP},
    {"gz", "gzip", SINK_GZIP},
    {"none", "none", SINK_NONE},
    {"off", "none", SINK_NONE},
    {0},
};
static const struct setting_spelling parquet_codecs[] = {
    {"zstd", "zstd", 0}, {"zst", "zstd", 0}, {"snappy", "snappy", 1}, {"snap", "snappy", 1}, {0},
};
static const struct setting_spelling layouts[] = {
    {"merged", "merged", SINK_MERGED},
    {"per-partition", "per-partition", SINK_PER_PARTITION},
    {"per_partition", "per-partition", SINK_PER_PARTITION},
    {"perpartition", "per-partition", SINK_PER_PARTITION},
    {0},
};
static const struct setting_spelling aligns[] = {
    {"hour", "hour", SINK_ALIGN_HOUR},
    {"hourly", "hour", SINK_ALIGN_HOUR},
    {"day", "day", SINK_ALIGN_DAY},
    {"daily", "day", SINK_ALIGN_DAY},
    {"none", "none", SINK_ALIGN_NONE},
    {"off", "none", SINK_ALIGN_NONE},
    {0},
};
static const struct setting_spelling starts[] = {
    {"latest", "latest", SINK_LATEST},        {"now", "latest", SINK_LATEST},
    {"end", "latest", SINK_LATEST},           {"earliest", "earliest", SINK_EARLIEST},
    {"beginning", "earliest", SINK_EARLIEST}, {0},
};
static const struct setting_spelling sses[] = {
    {"aes256", "AES256", 0},
    {"aws:kms", "aws:kms", 1},
    {"kms", "aws:kms", 1},
    {0},
};
static const struct setting_spelling crash_points[] = {
    {"never", "never", SINK_CRASH_NEVER},
    {"off", "never", SINK_CRASH_NEVER},
    {"none", "never", SINK_CRASH_NEVER},
    {"after_intent", "after_intent", SINK_CRASH_AFTER_INTENT},
    {"mid_upload", "mid_upload", SINK_CRASH_MID_UPLOAD},
    {"after_upload", "after_upload", SINK_CRASH_AFTER_UPLOAD},
    {"before_commit", "before_commit", SINK_CRASH_BEFORE_COMMIT},
    {"after_commit", "after_commit", SINK_CRASH_AFTER_COMMIT},
    {0},
};

#define INT(min_, max_, fallback_)                                                                 \
    .kind = KIND_INT, .min = (min_), .max = (max_), .fallback = (fallback_)
#define ENUM(spellings_, noun_, fallback_)                                                         \
    .kind = KIND_ENUM, .spellings = (spellings_), .noun = (noun_), .fallback_text = (fallback_)
#define BOOL(fallback_)                                                                            \
    .kind = KIND_BOOL, .fallback = (fallback_), .fallback_text = (fallback_) ? "true" : "false"

static const struct setting rows[SETTING_COUNT] = {
    [S_QUEUES] = {.variable = "QUEEN_S3_QUEUES",
                  .field = "queues",
                  .kind = KIND_LIST,
                  .what =
                      "the queues to mirror: `*` for all of them, or names with commas between"},
    [S_ENDPOINT] = {.variable = "QUEEN_S3_ENDPOINT",
                    .field = "endpoint",
                    .what = "the base URL of the S3 API, http:// or https:// with a host and "
                            "nothing behind it, or file:///absolute/path for a local folder"},
    [S_REGION] = {.variable = "QUEEN_S3_REGION",
                  .field = "region",
                  .what = "the region that requests are signed for, for instance us-east-1"},
    [S_BUCKET] = {.variable = "QUEEN_S3_BUCKET",
                  .field = "bucket",
                  .what = "the bucket's name, without `/` or spaces"},
    [S_ACCESS_KEY] = {.variable = "QUEEN_S3_ACCESS_KEY",
                      .field = "accessKey",
                      .what = "the access key id that requests are signed with"},
    [S_SECRET_KEY] = {.variable = "QUEEN_S3_SECRET_KEY",
                      .field = NULL,
                      .what = "the secret key that requests are signed with"},
    [S_PREFIX] = {.variable = "QUEEN_S3_PREFIX",
                  .field = "prefix",
                  .fallback_text = "queen",
                  .what = "the root of every key in the bucket, for instance lake/queen"},
    [S_PATH_STYLE] = {.variable = "QUEEN_S3_PATH_STYLE",
                      .field = "pathStyle",
                      BOOL(0),
                      .what = "whether the bucket stands in the URL's path (MinIO) and not in its "
                              "host name"},
    [S_SSE] = {.variable = "QUEEN_S3_SSE",
               .field = "sse",
               ENUM(sses, "mode", NULL),
               .what = "the server-side encryption asked for; unset asks for none"},
    [S_SSE_KMS_KEY_ID] = {.variable = "QUEEN_S3_SSE_KMS_KEY_ID",
                          .field = "sseKmsKeyId",
                          .what = "the KMS key of aws:kms"},
    [S_FORMAT] = {.variable = "QUEEN_S3_FORMAT",
                  .field = "format",
                  ENUM(formats, "format", "jsonl"),
                  .what = "the format of the objects"},
    [S_COMPRESSION] = {.variable = "QUEEN_S3_COMPRESSION",
                       .field = "compression",
                       ENUM(compressions, "codec", "zstd"),
                       .what = "the compression of JSONL objects"},
    [S_PARQUET_CODEC] = {.variable = "QUEEN_S3_PARQUET_CODEC",
                         .field = "parquetCodec",
                         ENUM(parquet_codecs, "codec", "zstd"),
                         .what = "the compression inside Parquet objects"},
    [S_LAYOUT] = {.variable = "QUEEN_S3_LAYOUT",
                  .field = "layout",
                  ENUM(layouts, "layout", "merged"),
                  .what = "one object a window, or one a window and partition"},
    [S_ALIGN] = {.variable = "QUEEN_S3_ALIGN",
                 .field = "align",
                 ENUM(aligns, "alignment", "hour"),
                 .what = "the boundary (UTC) that no window crosses"},
    [S_START] = {.variable = "QUEEN_S3_START",
                 .field = "start",
                 ENUM(starts, "start", "latest"),
                 .what = "where a queue that was never mirrored begins"},
    [S_TARGET_MB] = {.variable = "QUEEN_S3_TARGET_MB",
                     .field = "targetMb",
                     INT(1, 5120, 128),
                     .what = "the uncompressed MiB of records that close a window"},
    [S_MAX_WINDOW_MS] = {.variable = "QUEEN_S3_MAX_WINDOW_MS",
                         .field = "maxWindowMs",
                         INT(100, 86400000, 300000),
                         .what = "how long a window may stay open; the lag SLO is about this plus "
                                 "the safe lag"},
    [S_SINK] = {.variable = "QUEEN_S3_SINK",
                .field = "sink",
                .fallback_text = "default",
                .what = "the sink's name: 1 to 64 of A-Z a-z 0-9 . _ -. It scopes the sink's "
                        "documents in the KV store, and stands in no object key: two sinks that "
                        "write one queue into one bucket need different prefixes"},
    [S_KEY_SEGMENT_MAX] = {.variable = "QUEEN_S3_KEY_SEGMENT_MAX",
                           .field = "keySegmentMax",
                           INT(255, 1024, 1024),
                           .what = "the longest path segment of a key, in bytes; stores that keep "
                                   "keys as folders take 255"},
    [S_JSONL_QUOTE_UNREADABLE] = {.variable = "QUEEN_S3_JSONL_QUOTE_UNREADABLE",
                                  .field = "jsonlQuoteUnreadable",
                                  BOOL(1),
                                  .what = "whether a payload that lake readers cannot parse is "
                                          "written as a JSON string"},
    [S_PARTITIONS] = {.variable = "QUEEN_S3_PARTITIONS",
                      .field = NULL,
                      .what = "refused: the sink finds partitions by itself"},
    [S_THREADS] = {.variable = "QUEEN_S3_THREADS",
                   .field = NULL,
                   INT(1, 64, 0),
                   .fallback_text = "cores/4, 1 or 2",
                   .what = "the worker threads of the sink"},
    [S_SHUTDOWN_GRACE_MS] = {.variable = "QUEEN_S3_SHUTDOWN_GRACE_MS",
                             .field = NULL,
                             INT(100, 3600000, 30000),
                             .what = "how long the drain may take, from the signal on"},
    [S_CHECKPOINT_EVERY] = {.variable = "QUEEN_S3_CHECKPOINT_EVERY",
                            .field = "checkpointEvery",
                            INT(1, 100000, 20),
                            .what = "how many windows lie between two checkpoints"},
    [S_MEMORY_MB] = {.variable = "QUEEN_S3_MEMORY_MB",
                     .field = "memoryMb",
                     INT(1, 1048576, 512),
                     .what = "the MiB of buffered records of all sinks on the node"},
    [S_FETCH_CONCURRENCY] = {.variable = "QUEEN_S3_FETCH_CONCURRENCY",
                             .field = "fetchConcurrency",
                             INT(1, 256, 4),
                             .what = "how many reads a queue may have in flight"},
    [S_DISCOVERY_INTERVAL_MS] = {.variable = "QUEEN_S3_DISCOVERY_INTERVAL_MS",
                                 .field = "discoveryIntervalMs",
                                 INT(10, 3600000, 2000),
                                 .what = "how often an idle queue is looked at"},
    [S_SAFE_GUARD_MS] = {.variable = "QUEEN_S3_SAFE_GUARD_MS",
                         .field = "safeGuardMs",
                         INT(0, 3600000, 5000),
                         .what = "how far behind the broker's safe time a window closes"},
    [S_LEASE_TTL_MS] = {.variable = "QUEEN_S3_LEASE_TTL_MS",
                        .field = "leaseTtlMs",
                        INT(1000, 3600000, 30000),
                        .what = "how long a queue's lease outlives a node that is gone"},
    [S_MULTIPART_THRESHOLD_MB] = {.variable = "QUEEN_S3_MULTIPART_THRESHOLD_MB",
                                  .field = "multipartThresholdMb",
                                  INT(5, 5120, 64),
                                  .what = "the MiB above which an object goes up in parts"},
    [S_INSTANCE] = {.variable = "QUEEN_S3_INSTANCE",
                    .field = "instance",
                    .fallback_text = "node-<id>@<host>",
                    .what = "this node's name in lease rows"},
    [S_CRASH_AT] = {.variable = "QUEEN_S3_CRASH_AT",
                    .field = "crashAt",
                    ENUM(crash_points, "crash point", "never"),
                    .what = "where to abort, for crash tests only"},
};

const enum setting_id setting_check_order[] = {
    S_QUEUES,     S_SINK,        S_KEY_SEGMENT_MAX, S_JSONL_QUOTE_UNREADABLE,
    S_PARTITIONS, S_ENDPOINT,    S_REGION,          S_BUCKET,
    S_PREFIX,     S_ACCESS_KEY,  S_PATH_STYLE,      S_SSE,
    S_FORMAT,     S_COMPRESSION, S_PARQUET_CODEC,   S_LAYOUT,
    S_ALIGN,      S_START,       S_TARGET_MB,       S_MAX_WINDOW_MS,
    S_SECRET_KEY, SETTING_COUNT,
};

const enum setting_id setting_on_off_order[] = {
    S_PARTITIONS,     S_ENDPOINT,        S_REGION,
    S_BUCKET,         S_PREFIX,          S_ACCESS_KEY,
    S_SECRET_KEY,     S_PATH_STYLE,      S_SSE,
    S_SSE_KMS_KEY_ID, S_FORMAT,          S_COMPRESSION,
    S_PARQUET_CODEC,  S_LAYOUT,          S_ALIGN,
    S_START,          S_TARGET_MB,       S_MAX_WINDOW_MS,
    S_SINK,           S_KEY_SEGMENT_MAX, S_JSONL_QUOTE_UNREADABLE,
    SETTING_COUNT,
};

const struct setting *setting_row(enum setting_id id)
{
    ASSERT(id < SETTING_COUNT);
    return &rows[id];
}

static const char *canonical_of(const struct setting_spelling *spellings, int value)
{
    for (; spellings->text != NULL; spellings++) {
        if (spellings->value == value)
            return spellings->canonical;
    }
    ASSERT(false); /* every value has a spelling */
    return "";
}

const char *sink_format_name(enum sink_format f)
{
    return canonical_of(formats, (int)f);
}

const char *sink_compression_name(enum sink_compression c)
{
    return canonical_of(compressions, (int)c);
}

const char *sink_layout_name(enum sink_layout l)
{
    return canonical_of(layouts, (int)l);
}

const char *sink_align_name(enum sink_align a)
{
    return canonical_of(aligns, (int)a);
}

const char *sink_start_name(enum sink_start s)
{
    return canonical_of(starts, (int)s);
}

const char *sink_crash_point_name(enum sink_crash_point p)
{
    return canonical_of(crash_points, (int)p);
}

void setting_put_accepted(struct buf *out, const struct setting *row)
{
    const struct setting_spelling *s = row->spellings;
    const char *pending = NULL; /* a name goes out when it is known whether it is the last */
    bool any = false;
    for (; s->text != NULL; s++) {
        if (pending != NULL && strcmp(pending, s->canonical) == 0)
            continue;
        if (pending != NULL) {
            buf_printf(out, "%s`%s`", any ? ", " : "", pending);
            any = true;
        }
        pending = s->canonical;
    }
    buf_printf(out, "%s`%s`", any ? " or " : "", pending);
}

/* "`a` (`b`, `c`), `d`": every canonical spelling, and behind it the others of the same value. */
static void put_spellings(struct buf *out, const struct setting_spelling *s)
{
    for (const struct setting_spelling *first = s; s->text != NULL; s++) {
        bool canonical = s == first || strcmp(s[-1].canonical, s->canonical) != 0;
        bool last = s[1].text == NULL || strcmp(s[1].canonical, s->canonical) != 0;
        bool second = !canonical && (s - 1 == first || strcmp(s[-2].canonical, s->canonical) != 0);
        if (canonical)
            buf_printf(out, "%s`%s`", s == first ? " " : ", ", s->canonical);
        else
            buf_printf(out, "%s`%s`%s", second ? " (" : ", ", s->text, last ? ")" : "");
    }
}

static void put_docs_row(struct buf *out, const struct setting *row)
{
    static const char *const kinds[] = {"text", "list", "bool", "int", "one of"};
    buf_printf(out, "| `%s` | %s | %s", row->variable, row->field != NULL ? row->field : "-",
               kinds[row->kind]);
    if (row->kind == KIND_ENUM)
        put_spellings(out, row->spellings);
    if (row->kind == KIND_INT)
        buf_printf(out, ", %llu..=%llu", (unsigned long long)row->min,
                   (unsigned long long)row->max);
    if (row->fallback_text != NULL)
        buf_printf(out, " | `%s`", row->fallback_text);
    else if (row->kind == KIND_INT)
        buf_printf(out, " | `%llu`", (unsigned long long)row->fallback);
    else
        buf_puts(out, " | -");
    buf_printf(out, " | %s |\n", row->what);
}

void setting_put_docs(struct buf *out)
{
    static const char head[] = "| variable | document field | type | default | meaning |\n"
                               "|---|---|---|---|---|\n";
    buf_puts(out, "Per sink:\n\n");
    buf_puts(out, head);
    for (unsigned i = 0; i < SETTING_COUNT; i++) {
        if (i == S_THREADS) {
            buf_puts(out, "\nNode-wide:\n\n");
            buf_puts(out, head);
        }
        put_docs_row(out, &rows[i]);
    }
}
