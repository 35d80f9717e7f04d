/* What docs/api.md says of the key-value store. */
#include "api/request.h"
#include "api/route.h"

#define KV_ANSWERS_LIMITED                                                                         \
    {429, "rate_limited", "more operations than the rate allows: again after `Retry-After`"},      \
    {                                                                                              \
        503, "kv_unavailable", "`reason`: `kv_timeout` (the outcome is open), `kv_retry`"          \
    }
#define KV_FIELD_NS                                                                                \
    {                                                                                              \
        ":ns", FIELD_TEXT, FIELD_REQUIRED, 1, 64,                                                  \
            "the namespace: matches `^[a-z0-9][a-z0-9._-]{0,63}$`"                                 \
    }
#define KV_FIELD_KEY                                                                               \
    {                                                                                              \
        ":key", FIELD_TEXT, FIELD_REQUIRED, 1, KV_KEY_MAX,                                         \
            "the rest of the path, percent-decoded once: `/` and `%2F` are the same"               \
    }
#define KV_PATH_REASONS "`kv_no_query_string`, `kv_bad_namespace`, `kv_bad_key`"

static const struct route_field kv_fields[] = {
    {"operations", FIELD_LIST, FIELD_REQUIRED, 0, KV_OPS_MAX,
     "the body may also be the array itself; `QUEEN_KV_MAX_OPS_PER_CALL` sets the most"},
    {"operations[].op", FIELD_TEXT, FIELD_REQUIRED, 0, 0,
     "`get`, `getMany`, `getPrefix`, `put`, `putIfAbsent`, `delete`, `incr`, `check`"},
    {"operations[].ns", FIELD_TEXT, FIELD_REQUIRED, 1, 64, "matches `^[a-z0-9][a-z0-9._-]{0,63}$`"},
    {"operations[].key", FIELD_TEXT, FIELD_REQUIRED, 1, KV_KEY_MAX,
     "no NUL; of all but `getMany` and `getPrefix`"},
    {"operations[].keys", FIELD_LIST, FIELD_REQUIRED, 0, KV_KEYS_MAX,
     "`getMany`: texts; the most is of all keys in a call, `QUEEN_KV_MAX_KEYS_PER_CALL`"},
    {"operations[].prefix", FIELD_TEXT, FIELD_REQUIRED, 1, KV_KEY_MAX, "`getPrefix`"},
    {"operations[].after", FIELD_TEXT, NULL, 0, KV_KEY_MAX,
     "`getPrefix`: the `nextAfter` of the page before"},
    {"operations[].limit", FIELD_INT, "100", 1, 1000,
     "`getPrefix`: rows a page, counted as keys. Clamped"},
    {"operations[].keysOnly", FIELD_BOOL, "false", 0, 0, "`getPrefix`: without the values"},
    {"operations[].value", FIELD_JSON, FIELD_REQUIRED, 0, 0,
     "`put`, `putIfAbsent`: stored normalised, at most `QUEEN_KV_MAX_VALUE_BYTES`"},
    {"operations[].delta", FIELD_NUMBER, FIELD_REQUIRED, 0, 0, "`incr`"},
    {"operations[].min", FIELD_NUMBER, NULL, 0, 0, "`incr`: what a sum may not go below"},
    {"operations[].max", FIELD_NUMBER, NULL, 0, 0, "`incr`: what a sum may not go above"},
    {"operations[].ttlSeconds", FIELD_INT, NULL, 1, 200000000000,
     "`put`, `putIfAbsent`, `incr`: this or `forever` is required"},
    {"operations[].forever", FIELD_BOOL, "false", 0, 0, "the row never expires"},
    {"operations[].expect", FIELD_INT, NULL, 0, INT64_MAX,
     "`put`, `delete`, `check` (required there), `putIfAbsent` (0 only): the version that the row "
     "must have, 0 for none"},
    {"operations[].required", FIELD_BOOL, "false", 0, 0,
     "writes and `check`: when it is not applied, the whole call is undone"},
    {0},
};

static const struct route_answer kv_answers[] = {
    {200, NULL, "`results`, an object per operation, in order"},
    {200, "kv_precondition",
     "an operation with `required` was not applied, so nothing was: "
     "`{\"ok\":false,\"reason\":\"kv_precondition\",…}`"},
    {400, "kv_bad_request",
     "`reason` is one of `kv_bad_body`, `kv_unknown_op`, `kv_bad_namespace`, `kv_bad_key`, "
     "`kv_bad_expect`, `kv_bad_ttl`, `kv_expiry_not_specified`, `kv_prefix_required`, "
     "`kv_too_many_ops`, `kv_too_many_keys`, `kv_duplicate_key_in_call`, `kv_tenant_not_an_input`"},
    {413, "payload_too_large", "`reason`: `kv_value_too_large`, `kv_key_too_large`"},
    KV_ANSWERS_LIMITED,
    ANSWERS_FULL,
    ANSWERS_END,
};

const struct route_doc kv_doc = {"Reads and writes rows, all of a call in one transaction.",
                                 kv_fields, kv_answers};

static const struct route_field get_fields[] = {KV_FIELD_NS, KV_FIELD_KEY, {0}};

static const struct route_answer get_answers[] = {
    {200, NULL,
     "the element of `get`; `found` is false where there is no row. With a row, `ETag` is its "
     "version in quotes"},
    {400, "kv_bad_request", "`reason`: " KV_PATH_REASONS},
    {413, "payload_too_large", "`reason`: `kv_key_too_large`"},
    KV_ANSWERS_LIMITED,
    ANSWERS_END,
};

const struct route_doc kv_get_doc = {"Reads one row.", get_fields, get_answers};

static const struct route_field put_fields[] = {
    KV_FIELD_NS,
    KV_FIELD_KEY,
    {"value", FIELD_JSON, FIELD_REQUIRED, 0, 0, "as in `put`"},
    {"ttlSeconds", FIELD_INT, NULL, 1, 200000000000, "this or `forever` is required"},
    {"forever", FIELD_BOOL, "false", 0, 0, "the row never expires"},
    {"expect", FIELD_INT, NULL, 0, INT64_MAX, "the version that the row must have, 0 for none"},
    {"required", FIELD_BOOL, "false", 0, 0, "a lost `expect` answers `kv_precondition`"},
    {0},
};

static const struct route_answer put_answers[] = {
    {200, NULL, "the element of `put`; a lost `expect` is 200 with `\"applied\":false`"},
    {200, "kv_precondition", "a lost `expect` with `required`"},
    {400, "kv_bad_request",
     "`reason`: " KV_PATH_REASONS ", `kv_field_in_path` (the body names `op`, `ns`, `namespace` or "
     "`key`), `kv_bad_body`, `kv_bad_expect`, `kv_bad_ttl`, `kv_expiry_not_specified`, "
     "`kv_tenant_not_an_input`"},
    {413, "payload_too_large", "`reason`: `kv_value_too_large`, `kv_key_too_large`"},
    KV_ANSWERS_LIMITED,
    ANSWERS_FULL,
    ANSWERS_END,
};

const struct route_doc kv_put_doc = {"Writes one row.", put_fields, put_answers};

static const struct route_field delete_fields[] = {
    KV_FIELD_NS,
    KV_FIELD_KEY,
    {"expect", FIELD_INT, NULL, 0, INT64_MAX,
     "the version that the row must have, 0 for none; the body may be left out"},
    {"required", FIELD_BOOL, "false", 0, 0, "a lost one answers `kv_precondition`"},
    {0},
};

static const struct route_answer delete_answers[] = {
    {200, NULL, "the element of `delete`; `\"applied\":false` where there was no row"},
    {200, "kv_precondition", "a lost one with `required`"},
    {400, "kv_bad_request",
     "`reason`: " KV_PATH_REASONS ", `kv_field_in_path`, `kv_bad_body`, `kv_bad_expect`, "
     "`kv_tenant_not_an_input`"},
    {413, "payload_too_large", "`reason`: `kv_key_too_large`"},
    KV_ANSWERS_LIMITED,
    ANSWERS_END,
};

const struct route_doc kv_delete_doc = {"Deletes one row.", delete_fields, delete_answers};

static const struct route_answer namespaces_answers[] = {
    {200, NULL,
     "`namespaces`: for each `namespace` its `keys`, rows that expired and were not removed yet "
     "included; `\"truncated\":true` beyond 100,000"},
    KV_ANSWERS_LIMITED,
    ANSWERS_END,
};

const struct route_doc kv_namespaces_doc = {"The namespaces that have rows, in byte order.", NULL,
                                            namespaces_answers};

static const struct route_field list_fields[] = {
    {"namespace", FIELD_TEXT, FIELD_REQUIRED, 1, 64, "matches `^[a-z0-9][a-z0-9._-]{0,63}$`"},
    {"prefix", FIELD_TEXT, "", 0, KV_KEY_MAX, "empty: all of them"},
    {"after", FIELD_TEXT, NULL, 0, KV_KEY_MAX, "the `nextAfter` of the page before"},
    {"limit", FIELD_INT, "100", 1, 1000, "rows a page. Clamped"},
    {"keysOnly", FIELD_BOOL, "false", 0, 0, "without the values"},
    {"includeExpired", FIELD_BOOL, "false", 0, 0,
     "rows that expired and were not removed yet too, with `\"expired\":true`"},
    {0},
};

static const struct route_answer list_answers[] = {
    {200, NULL,
     "`rows` (`key`, `value`, `version`, `expiresAt`, `updatedAt`), `truncated`, `nextAfter`, "
     "`bytes` of the keys and values given"},
    {400, "kv_bad_request",
     "`reason`: `kv_bad_body`, `kv_bad_namespace`, `kv_bad_key`, `kv_tenant_not_an_input`"},
    {413, "payload_too_large", "`reason`: `kv_key_too_large`"},
    KV_ANSWERS_LIMITED,
    ANSWERS_END,
};

const struct route_doc kv_list_doc = {"A page of a namespace's rows, in byte order.", list_fields,
                                      list_answers};
