/* The route table's rows, and what is said of each route: docs/api.md is made from them.
 *
 * A new route is one row in routes.c, a handler, and a struct route_doc in the doc_*.c of its kind.
 * The unit test wants all of it filled in. Texts are Markdown cells: no line breaks, no bare '|'. */
#ifndef API_ROUTE_H
#define API_ROUTE_H

#include "base/buf.h"
#include "http/http.h"

#include <stdint.h>

struct api;

/* Who may call a route once tokens are checked (spec/security.md); not enforced yet. */
enum route_access { ACCESS_PUBLIC, ACCESS_WRITE, ACCESS_READ, ACCESS_READ_WRITE, ACCESS_ADMIN };

enum field_type {
    FIELD_TEXT,
    FIELD_INT,
    FIELD_NUMBER,
    FIELD_BOOL,
    FIELD_LIST,
    FIELD_OBJECT,
    FIELD_JSON, /* any value */
    FIELD_TIME, /* RFC 3339 and its shorter forms */
    FIELD_TYPE_COUNT,
};

#define FIELD_REQUIRED "required" /* instead of a default */

/* One field of a request: of its body ("items[].queue"), path (":queue") or query ("?limit"). */
struct route_field {
    const char *name; /* NULL ends an array */
    enum field_type type;
    const char *fallback; /* FIELD_REQUIRED, a default, or NULL where absence means nothing */
    int64_t min, max;     /* shown when they differ: of an integer, or the bytes of a text */
    const char *text;
};

struct route_answer {
    unsigned status;  /* 0 ends an array */
    const char *code; /* of an error: the word for programs; NULL: none */
    const char *text; /* of a success: what is in it; of a refusal: when */
};

/* Rows that many routes share. */
#define ANSWERS_STOPPING                                                                           \
    {                                                                                              \
        503, "retry", "this node is stopped or stopping: again after `Retry-After`"                \
    }
#define ANSWERS_TIMEOUT                                                                            \
    {                                                                                              \
        503, "timeout", "the outcome was not known in time: it may have happened or not"           \
    }
#define ANSWERS_FULL                                                                               \
    {                                                                                              \
        507, "storage_full", "the disk is full: docs/operations.md"                                \
    }
#define ANSWERS_TOO_LARGE                                                                          \
    {                                                                                              \
        400, "too_large", "as a command larger than `QUEEN_RAFT_ENTRY_MAX_BYTES` allows"           \
    }
#define ANSWERS_END                                                                                \
    {                                                                                              \
        0                                                                                          \
    }

struct route_doc {
    const char *text;                   /* what it does, one line */
    const struct route_field *fields;   /* NULL: none; of a POST: route_no_fields */
    const struct route_answer *answers; /* successes first */
};

struct route {
    enum http_method method; /* HTTP_GET answers HEAD too */
    const char *pattern;     /* the path; a trailing '*' takes the rest, which is not empty */
    void (*handler)(struct api *a, struct http_request *http, struct span rest);
    enum route_access access;
    const struct route_doc *doc;
};

extern const struct route api_routes[];
extern const size_t api_route_count;
extern const struct route_field route_no_fields[];

const char *route_method_text(enum http_method method);

/* doc_records.c */
extern const struct route_doc push_doc, fetch_doc, changed_doc;
/* doc_queues.c */
extern const struct route_doc configure_doc, queue_delete_doc;
/* doc_resources.c */
extern const struct route_doc queue_list_doc, queue_get_doc, partitions_doc, overview_doc,
    namespaces_doc, tasks_doc, stats_refresh_doc;
/* doc_kv.c */
extern const struct route_doc kv_doc, kv_get_doc, kv_put_doc, kv_delete_doc, kv_namespaces_doc,
    kv_list_doc;
/* doc_status.c */
extern const struct route_doc health_doc, status_doc, metrics_doc, metrics_text_doc;

#endif
