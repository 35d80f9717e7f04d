/* The XML scanner; what it accepts is in xml.h. Element names must nest; attributes are skipped. */
#include "s3/xml.h"

#include "base/bytes.h"
#include "base/utf8.h"

static enum xml_kind fail(struct xml *x)
{
    x->bad = true;
    return XML_BAD;
}

static struct span rest(const struct xml *x)
{
    return span_sub(x->in, x->at, x->in.len);
}

/* Moves behind the next `end`; false when there is none. *before_out: what was before it. */
static bool skip_to(struct xml *x, const char *end, struct span *before_out)
{
    struct span s = rest(x);
    const uint8_t *at = s.len > 0 ? memmem(s.ptr, s.len, end, strlen(end)) : NULL;
    if (at == NULL)
        return false;
    *before_out = span_make(s.ptr, (size_t)(at - s.ptr));
    x->at += before_out->len + strlen(end);
    return true;
}

/* Moves behind the '>' of a tag, over quoted attribute values. *inside_out: without the '>'. */
static bool skip_tag(struct xml *x, struct span *inside_out)
{
    struct span s = rest(x);
    uint8_t quote = 0;
    for (size_t i = 0; i < s.len; i++) {
        uint8_t c = s.ptr[i];
        if (quote != 0) {
            quote = c == quote ? 0 : quote;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '>') {
            *inside_out = span_sub(s, 0, i);
            x->at += i + 1;
            return true;
        }
    }
    return false;
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* The name at the start of a tag, without its prefix. */
static struct span tag_name(struct span inside)
{
    size_t len = 0;
    size_t from = 0;
    while (len < inside.len && !is_blank(inside.ptr[len]) && inside.ptr[len] != '/') {
        if (inside.ptr[len] == ':')
            from = len + 1;
        len++;
    }
    return span_sub(inside, from, len);
}

static enum xml_kind close_element(struct xml *x)
{
    x->name = x->path[--x->depth];
    return XML_CLOSE;
}

static enum xml_kind open_tag(struct xml *x)
{
    struct span inside;
    if (!skip_tag(x, &inside))
        return fail(x);
    x->close_next = inside.len > 0 && inside.ptr[inside.len - 1] == '/';
    x->name = tag_name(inside);
    if (x->name.len == 0 || x->depth == XML_DEPTH_MAX || (x->depth == 0 && x->had_root))
        return fail(x);
    x->path[x->depth++] = x->name;
    x->had_root = true;
    return XML_OPEN;
}

static enum xml_kind close_tag(struct xml *x)
{
    struct span inside;
    x->at++; /* the '/' */
    if (!skip_to(x, ">", &inside))
        return fail(x);
    if (x->depth == 0 || !span_eq(tag_name(inside), x->path[x->depth - 1]))
        return fail(x);
    return close_element(x);
}

/* Text up to the next '<', or the end of the input. */
static enum xml_kind text(struct xml *x)
{
    struct span s = rest(x);
    const uint8_t *end = memchr(s.ptr, '<', s.len);
    x->text = span_sub(s, 0, end != NULL ? (size_t)(end - s.ptr) : s.len);
    x->at += x->text.len;
    if (x->depth == 0 && span_trim(x->text).len > 0)
        return fail(x);
    return XML_TEXT;
}

enum xml_kind xml_next(struct xml *x)
{
    struct span skipped;
    if (x->bad)
        return XML_BAD;
    if (x->close_next) {
        x->close_next = false;
        return close_element(x);
    }
    if (x->at == 0 && span_starts_with(x->in, SPAN_LIT("\xEF\xBB\xBF")))
        x->at = 3;
    while (x->at < x->in.len) {
        struct span s = rest(x);
        if (s.ptr[0] != '<')
            return text(x);
        x->at++;
        if (span_starts_with(s, SPAN_LIT("<?"))) {
            if (!skip_to(x, "?>", &skipped))
                return fail(x);
        } else if (span_starts_with(s, SPAN_LIT("<!--"))) {
            if (!skip_to(x, "-->", &skipped))
                return fail(x);
        } else if (span_starts_with(s, SPAN_LIT("<![CDATA["))) {
            x->at += 8;
            if (x->depth == 0 || !skip_to(x, "]]>", &x->text))
                return fail(x);
            return XML_CDATA;
        } else if (span_starts_with(s, SPAN_LIT("<!"))) {
            if (!skip_tag(x, &skipped))
                return fail(x);
        } else if (span_starts_with(s, SPAN_LIT("</"))) {
            return close_tag(x);
        } else {
            return open_tag(x);
        }
    }
    return x->depth == 0 && x->had_root ? XML_END : fail(x);
}

bool xml_is_at(const struct xml *x, const char *const *path, unsigned n)
{
    if (x->depth != n)
        return false;
    for (unsigned i = 0; i < n; i++) {
        if (!span_eq(x->path[i], span_str(path[i])))
            return false;
    }
    return true;
}

/* &#N; and &#xN;. */
static bool put_numeric(struct buf *b, struct span digits)
{
    bool hex = digits.len > 0 && (digits.ptr[0] == 'x' || digits.ptr[0] == 'X');
    uint32_t value = 0;
    if (digits.len < 1u + hex)
        return false;
    for (size_t i = hex; i < digits.len; i++) {
        int digit = hex_value(digits.ptr[i]);
        if (digit < 0 || (!hex && digit > 9))
            return false;
        value = value * (hex ? 16 : 10) + (uint32_t)digit;
        if (value > 0x10FFFF)
            return false;
    }
    if (value == 0 || (value >= 0xD800 && value <= 0xDFFF))
        return false;
    buf_put_codepoint(b, value);
    return true;
}

static bool put_reference(struct buf *b, struct span name)
{
    static const struct {
        const char *name;
        char value;
    } known[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (span_eq(name, span_str(known[i].name))) {
            buf_putc(b, (uint8_t)known[i].value);
            return true;
        }
    }
    return name.len > 1 && name.ptr[0] == '#' && put_numeric(b, span_sub(name, 1, name.len));
}

void xml_put_text(struct buf *b, struct span raw)
{
    for (size_t i = 0; i < raw.len;) {
        if (raw.ptr[i] == '&') {
            struct span s = span_sub(raw, i + 1, raw.len);
            const uint8_t *end = s.len > 0 ? memchr(s.ptr, ';', s.len < 12 ? s.len : 12) : NULL;
            if (end != NULL && put_reference(b, span_sub(s, 0, (size_t)(end - s.ptr)))) {
                i += (size_t)(end - s.ptr) + 2;
                continue;
            }
        }
        buf_putc(b, raw.ptr[i++]);
    }
}

bool xml_has_root(struct span body, const char *name)
{
    struct xml x = XML_INIT(span_trim(body));
    enum xml_kind kind;
    while ((kind = xml_next(&x)) == XML_TEXT)
        ;
    return kind == XML_OPEN && span_eq(x.name, span_str(name));
}

bool xml_find(struct span body, const char *name, unsigned depth, struct buf *out, bool *whole_out)
{
    struct xml x = XML_INIT(body);
    bool found = false;
    unsigned inside = 0; /* depth of the element that is read */
    enum xml_kind kind;
    while ((kind = xml_next(&x)) != XML_END && kind != XML_BAD) {
        if (kind == XML_OPEN && !found && span_eq(x.name, span_str(name)) &&
            (depth == 0 || x.depth == depth)) {
            found = true;
            inside = x.depth;
        } else if (kind == XML_CLOSE && x.depth < inside) {
            inside = 0;
        } else if (inside > 0 && x.depth == inside && kind == XML_TEXT) {
            xml_put_text(out, x.text);
        } else if (inside > 0 && x.depth == inside && kind == XML_CDATA) {
            buf_put_span(out, x.text);
        }
    }
    if (whole_out != NULL)
        *whole_out = kind == XML_END;
    return found;
}
