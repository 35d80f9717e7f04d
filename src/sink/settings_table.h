/* The table behind settings.h: one row a variable. Reading, validation, the sentences of a refused
 * boot, names and the documentation all come from it. */
#ifndef SINK_SETTINGS_TABLE_H
#define SINK_SETTINGS_TABLE_H

#include "sink/settings.h"

enum setting_id {
    /* Per sink, in the order of the documentation. */
    S_QUEUES,
    S_ENDPOINT,
    S_REGION,
    S_BUCKET,
    S_ACCESS_KEY,
    S_SECRET_KEY,
    S_PREFIX,
    S_PATH_STYLE,
    S_SSE,
    S_SSE_KMS_KEY_ID,
    S_FORMAT,
    S_COMPRESSION,
    S_PARQUET_CODEC,
    S_LAYOUT,
    S_ALIGN,
    S_START,
    S_TARGET_MB,
    S_MAX_WINDOW_MS,
    S_SINK,
    S_KEY_SEGMENT_MAX,
    S_JSONL_QUOTE_UNREADABLE,
    S_PARTITIONS, /* always refused */
    /* Node-wide, in the order they are checked. */
    S_THREADS,
    S_SHUTDOWN_GRACE_MS,
    S_CHECKPOINT_EVERY,
    S_MEMORY_MB,
    S_FETCH_CONCURRENCY,
    S_DISCOVERY_INTERVAL_MS,
    S_SAFE_GUARD_MS,
    S_LEASE_TTL_MS,
    S_MULTIPART_THRESHOLD_MB,
    S_INSTANCE,
    S_CRASH_AT,
    SETTING_COUNT,
};

enum setting_kind { KIND_TEXT, KIND_LIST, KIND_BOOL, KIND_INT, KIND_ENUM };

/* An accepted spelling, lower case; the first of a value is the canonical one. */
struct setting_spelling {
    const char *text; /* NULL ends the list */
    const char *canonical;
    int value;
};

struct setting {
    const char *variable;
    const char *field; /* in a tenant's document; of a node-wide one the name that is refused */
    enum setting_kind kind;
    uint64_t min, max, fallback; /* KIND_INT; fallback of a KIND_BOOL: 0 or 1 */
    const struct setting_spelling *spellings;
    const char *noun;          /* KIND_ENUM: what a wrong value is not */
    const char *fallback_text; /* shown in the documentation; NULL: none */
    const char *what;          /* "It is <what>" */
};

const struct setting *setting_row(enum setting_id id);

/* First error wins: settings.md 3.3. Both arrays end in SETTING_COUNT. */
extern const enum setting_id setting_check_order[];
/* Which variable is named when QUEEN_S3_QUEUES is missing. */
extern const enum setting_id setting_on_off_order[];

/* "`a`, `b` or `c`": the canonical spellings. */
void setting_put_accepted(struct buf *out, const struct setting *row);
/* Markdown tables of every variable, for docs/config.md. */
void setting_put_docs(struct buf *out);

#endif
