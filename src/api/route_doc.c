/* `queen --api-doc`: the generated parts of docs/api.md, from the route table.
 *
 * Each part begins with a line `<!-- NAME -->`, NAME being "routes" (the list of all) or a route's
 * method and path, and ends with `<!-- end -->`. scripts/docs puts them between the prose. */
#include "api/route.h"

#include "api/api.h"

static const char *const access_texts[] = {
    [ACCESS_PUBLIC] = "public",         [ACCESS_WRITE] = "write", [ACCESS_READ] = "read",
    [ACCESS_READ_WRITE] = "read-write", [ACCESS_ADMIN] = "admin",
};

static const char *const type_texts[FIELD_TYPE_COUNT] = {
    [FIELD_TEXT] = "text",     [FIELD_INT] = "integer", [FIELD_NUMBER] = "number",
    [FIELD_BOOL] = "boolean",  [FIELD_LIST] = "array",  [FIELD_OBJECT] = "object",
    [FIELD_JSON] = "any JSON", [FIELD_TIME] = "time",
};

const char *route_method_text(enum http_method method)
{
    switch (method) {
    case HTTP_GET:
        return "GET";
    case HTTP_POST:
        return "POST";
    case HTTP_PUT:
        return "PUT";
    case HTTP_DELETE:
        return "DELETE";
    case HTTP_HEAD:
        return "HEAD";
    case HTTP_OTHER:
        break;
    }
    return "";
}

static void put_name(struct buf *out, const struct route *r)
{
    buf_printf(out, "%s %s", route_method_text(r->method), r->pattern);
}

static void put_range(struct buf *out, const struct route_field *f)
{
    if (f->min == f->max)
        return;
    if (f->type == FIELD_INT && f->min == INT32_MIN && f->max == INT32_MAX)
        buf_puts(out, ", 32 bits");
    else if (f->max == INT64_MAX)
        buf_printf(out, ", %lld and more", (long long)f->min);
    else
        buf_printf(out, ", %lld..%lld%s", (long long)f->min, (long long)f->max,
                   f->type == FIELD_TEXT   ? " bytes"
                   : f->type == FIELD_LIST ? " elements"
                                           : "");
}

static void put_fields(struct buf *out, const struct route_field *fields)
{
    buf_puts(out, "\n| Field | Type | Default | |\n|---|---|---|---|\n");
    for (const struct route_field *f = fields; f->name != NULL; f++) {
        buf_printf(out, "| `%s` | %s", f->name, type_texts[f->type]);
        put_range(out, f);
        buf_puts(out, " | ");
        if (f->fallback != NULL && f->fallback[0] != 0)
            buf_printf(out, strcmp(f->fallback, FIELD_REQUIRED) == 0 ? "%s" : "`%s`", f->fallback);
        buf_printf(out, " | %s |\n", f->text);
    }
}

static void put_answers(struct buf *out, const struct route_answer *answers)
{
    buf_puts(out, "\n| Answer | |\n|---|---|\n");
    for (const struct route_answer *a = answers; a->status != 0; a++) {
        buf_printf(out, "| %u", a->status);
        if (a->code != NULL)
            buf_printf(out, " `%s`", a->code);
        buf_printf(out, " | %s |\n", a->text);
    }
}

static void put_list(struct buf *out)
{
    buf_puts(out, "<!-- routes -->\n| Route | | Access |\n|---|---|---|\n");
    for (size_t i = 0; i < api_route_count; i++) {
        buf_puts(out, "| `");
        put_name(out, &api_routes[i]);
        buf_printf(out, "` | %s | %s |\n", api_routes[i].doc->text,
                   access_texts[api_routes[i].access]);
    }
    buf_puts(out, "<!-- end -->\n");
}

void api_doc_put(struct buf *out)
{
    put_list(out);
    for (size_t i = 0; i < api_route_count; i++) {
        const struct route *r = &api_routes[i];
        buf_puts(out, "<!-- ");
        put_name(out, r);
        buf_puts(out, " -->\n**`");
        put_name(out, r);
        buf_printf(out, "`**: %s\n", r->doc->text);
        if (r->doc->fields != NULL && r->doc->fields != route_no_fields)
            put_fields(out, r->doc->fields);
        put_answers(out, r->doc->answers);
        buf_puts(out, "<!-- end -->\n");
    }
}
