/* What docs/api.md says of pushing and reading records. */
#include "api/request.h"
#include "api/route.h"

static const struct route_field push_fields[] = {
    {"items", FIELD_LIST, FIELD_REQUIRED, 0, 0, "any number of objects; none is fine"},
    {"items[].queue", FIELD_TEXT, FIELD_REQUIRED, 1, NAME_BYTES_MAX - TENANT_TEXT_LEN,
     "made when it is not there; the bytes are those of queue and partition together"},
    {"items[].payload", FIELD_JSON, FIELD_REQUIRED, 0, 0,
     "kept as the text it is; nested no deeper than `QUEEN_MAX_JSON_DEPTH`"},
    {"items[].partition", FIELD_TEXT, "Default", 0, 0,
     "order holds within a partition; null and an empty text mean the default"},
    {"items[].transactionId", FIELD_TEXT, NULL, 0, PUSH_TRANSACTION_ID_MAX,
     "absent or null: a new UUID. One that the partition has seen within the queue's "
     "`dedupWindowSeconds` makes the item a duplicate"},
    {0},
};

static const struct route_answer push_answers[] = {
    {201, NULL,
     "an object per item, in order: `index`, `message_id`, `transaction_id`, `queueName`, "
     "`status` (`queued` or `duplicate`), `offset`"},
    {400, "bad_body",
     "not JSON, a field missing or of another type: the text names the item or the byte"},
    ANSWERS_TOO_LARGE,
    {413, "name_too_long", "queue and partition together are too long"},
    {429, "overloaded",
     "too much is in flight (`QUEEN_RAFT_ADMIT_MAX_MB`): again after "
     "`Retry-After`"},
    ANSWERS_STOPPING,
    ANSWERS_TIMEOUT,
    ANSWERS_FULL,
    ANSWERS_END,
};

const struct route_doc push_doc = {"Appends records to queues.", push_fields, push_answers};

static const struct route_field fetch_fields[] = {
    {"entries", FIELD_LIST, FIELD_REQUIRED, 0, FETCH_ENTRIES_MAX, "one object per partition"},
    {"entries[].queue", FIELD_TEXT, FIELD_REQUIRED, 0, 0, "its name"},
    {"entries[].offset", FIELD_INT, FIELD_REQUIRED, 0, INT64_MAX, "of the first record wanted"},
    {"entries[].partition", FIELD_TEXT, "Default", 0, 0, "a number is taken as its digits"},
    {"entries[].maxBytes", FIELD_INT, "1048576", 1, FETCH_BYTES_MAX,
     "of payloads; the first record is given whatever its size. Clamped"},
    {"maxWaitMs", FIELD_INT, "0", 0, FETCH_WAIT_MS_MAX,
     "waits so long until there are `minBytes`. Clamped"},
    {"minBytes", FIELD_INT, "1", 0, INT64_MAX, "of payloads in all entries; 0 never waits"},
    {"maxBytes", FIELD_INT, "67108864", 1, FETCH_TOTAL_BYTES_MAX, "of the whole answer. Clamped"},
    {0},
};

static const struct route_answer fetch_answers[] = {
    {200, NULL,
     "`entries`, an object per entry, in order: `queue`, `partition`, `records` (`offset`, "
     "`transactionId`, `payload`, `ts`; at most 10,000), `highWatermark`, `logStartOffset`, and "
     "`error` where there is one"},
    {400, "bad_body", "not JSON, a field missing or of another type"},
    {400, NULL, "too many entries, or a negative offset"},
    ANSWERS_STOPPING,
    ANSWERS_END,
};

const struct route_doc fetch_doc = {"Reads records by offset, waiting for them when asked to.",
                                    fetch_fields, fetch_answers};

static const struct route_field changed_fields[] = {
    {"entries", FIELD_LIST, FIELD_REQUIRED, 0, FETCH_ENTRIES_MAX,
     "one object per queue; none answers the clock alone"},
    {"entries[].queue", FIELD_TEXT, FIELD_REQUIRED, 0, 0, "its name"},
    {"entries[].since", FIELD_TIME, NULL, 0, 0,
     "only partitions written at or after it; `2026-10-03` and longer forms, UTC where no zone is "
     "given"},
    {"entries[].after", FIELD_TEXT, NULL, 0, 0, "the `next` of the page before"},
    {"entries[].limit", FIELD_INT, "1000", 1, CHANGED_LIMIT_MAX, "partitions a page. Clamped"},
    {0},
};

static const struct route_answer changed_answers[] = {
    {200, NULL,
     "`safeTime`, up to which nothing is missing, `safeTimeDegraded` (false), and `entries`, an "
     "object per entry: `queue`, `partitions` in the order of their making (`name`, `id`, "
     "`lastOffset`, `logStart`, `lastWriteAt`), `next` (null after the last page), or `error`: "
     "`UNKNOWN_TOPIC_OR_PARTITION`, `BAD_CURSOR`"},
    {400, "bad_body", "not JSON, a field missing or of another type"},
    {400, NULL, "too many entries, or a `since` that is no time"},
    ANSWERS_STOPPING,
    ANSWERS_END,
};

const struct route_doc changed_doc = {"Lists the partitions of queues that were written to.",
                                      changed_fields, changed_answers};
