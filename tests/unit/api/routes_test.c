/* The route table and what docs/api.md says of it. */
#include "api/route.h"

#include "api/api.h"

#include "lib/test.h"

/* A cell of a Markdown table: something in it, on one line, no cell border. */
static bool is_cell(const char *text)
{
    return text != NULL && text[0] != 0 && strpbrk(text, "|\r\n") == NULL;
}

static bool fields_are_said(const struct route_field *fields)
{
    for (const struct route_field *f = fields; f != NULL && f->name != NULL; f++) {
        bool fallback = f->fallback == NULL || f->fallback[0] == 0 || is_cell(f->fallback);
        if (!is_cell(f->name) || !is_cell(f->text) || f->type >= FIELD_TYPE_COUNT ||
            f->min > f->max || !fallback)
            return false;
    }
    return true;
}

/* A success first; whatever reads a body can be given a bad one. */
static bool answers_are_said(const struct route *r, bool has_body)
{
    bool refuses = false;
    const struct route_answer *a = r->doc->answers;
    if (a == NULL || a->status < 200 || a->status > 299)
        return false;
    for (; a->status != 0; a++) {
        if (a->status > 599 || !is_cell(a->text) || (a->code != NULL && !is_cell(a->code)))
            return false;
        refuses = refuses || a->status == 400;
    }
    return refuses || !has_body;
}

static bool is_said(const struct route *r)
{
    bool none = r->doc != NULL && r->doc->fields == route_no_fields;
    bool has_body = (r->method == HTTP_POST || r->method == HTTP_PUT) && !none;
    bool takes = has_body || strchr(r->pattern, '*') != NULL;
    return r->doc != NULL && is_cell(r->doc->text) && (r->doc->fields != NULL || !takes) &&
           fields_are_said(r->doc->fields) && answers_are_said(r, has_body);
}

/* Goal: no route without its documentation. */
TEST(every_route_says_what_it_does_takes_and_answers)
{
    for (size_t i = 0; i < api_route_count; i++) {
        if (!is_said(&api_routes[i]))
            print_error("%s %s\n", route_method_text(api_routes[i].method), api_routes[i].pattern);
        CHECK(is_said(&api_routes[i]));
        CHECK(api_routes[i].handler != NULL);
    }
}

/* Goal: a row that is there twice, or behind one that takes its paths, would never be reached. */
TEST(every_route_is_reached)
{
    for (size_t i = 0; i < api_route_count; i++) {
        for (size_t j = 0; j < i; j++) {
            const char *earlier = api_routes[j].pattern, *star = strchr(earlier, '*');
            bool taken = star == NULL ? strcmp(api_routes[i].pattern, earlier) == 0
                                      : strncmp(api_routes[i].pattern, earlier,
                                                (size_t)(star - earlier)) == 0;
            CHECK(!taken || api_routes[i].method != api_routes[j].method);
        }
    }
}

/* Goal: a part of the document for each route, found by its name. */
TEST(the_document_has_every_route_once)
{
    struct buf text = BUF_INIT;
    api_doc_put(&text);
    buf_putc(&text, 0);
    for (size_t i = 0; i < api_route_count; i++) {
        struct buf mark = BUF_INIT;
        buf_printf(&mark, "<!-- %s %s -->\n", route_method_text(api_routes[i].method),
                   api_routes[i].pattern);
        buf_putc(&mark, 0);
        const char *found = strstr((const char *)text.ptr, (const char *)mark.ptr);
        CHECK(found != NULL);
        CHECK(strstr(found + 1, (const char *)mark.ptr) == NULL);
        buf_deinit(&mark);
    }
    buf_deinit(&text);
}

TEST_MAIN()
