/* What docs/api.md says of the key-value store. */
#include "api/request.h"
#include "api/route.h"

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
    {"operations[].after", FIELD_TEXT, NULL, 0, 0, "`getPrefix`: the `next` of the page before"},
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
    {503, "kv_unavailable", "`reason`: `kv_timeout` (the outcome is open), `kv_retry`"},
    ANSWERS_FULL,
    ANSWERS_END,
};

const struct route_doc kv_doc = {"Reads and writes rows, all of a call in one transaction.",
                                 kv_fields, kv_answers};
