/* The library cuts texts at a NUL byte, takes a line that begins with one for the end of the headers,
 * takes names with blanks, ends lines at a bare LF and joins folded ones; it lets Content-Length
 * stand beside Transfer-Encoding, and takes the first of two lengths. All of that is refused here.
 *
 * It replaces each colon and line end by NULs and hands out pointers into its buffer. So in a
 * well-formed request, with a CRLF behind each line, each text begins at a known distance from the
 * end of the one before; whatever was cut off, folded or ended otherwise leaves a gap. (Behind the
 * last header a single bare LF may go unseen: what follows the empty line is not ours to know.) */
#include "http/framing.h"

#include <microhttpd.h>
#include <strings.h>

#define VERSION_LEN 8u /* HTTP/1.1 */
#define CRLF_LEN 2u

static const char malformed[] = "malformed request\n";
static const char ambiguous[] = "ambiguous length of the request body\n";

struct walk {
    struct http_framing *framing;
    const char *next; /* where the next name has to begin */
    unsigned lengths, encodings;
};

static bool is_token(const char *text)
{
    static const char specials[] = "\"(),/:;<=>?@[\\]{}";
    if (*text == 0)
        return false;
    for (; *text != 0; text++) {
        unsigned char c = (unsigned char)*text;
        if (c <= ' ' || c >= 0x7f || strchr(specials, c) != NULL)
            return false;
    }
    return true;
}

static bool has_control(struct span text, uint8_t from)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if ((c < from && c != '\t') || c == 0x7f)
            return true;
    }
    return false;
}

static enum MHD_Result take_header(void *ctx, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    (void)kind;
    struct walk *w = ctx;
    struct http_framing *f = w->framing;
    struct span text = value == NULL ? (struct span){NULL, 0} : span_str(value);
    if (value == NULL || name != w->next || !is_token(name) || has_control(text, ' ') ||
        value[text.len + 1] != 0) { /* where the LF was */
        f->wrong = malformed;
        return MHD_NO;
    }
    w->next = value + text.len + CRLF_LEN;
    text = span_trim(text);
    if (strcasecmp(name, "Content-Length") == 0) {
        w->lengths++;
        if (!span_parse_u64(text, &f->length))
            f->length = UINT64_MAX;
    } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
        w->encodings++;
        f->chunked = span_eq_nocase(text, SPAN_LIT("chunked"));
    }
    return MHD_YES;
}

struct http_framing http_framing_read(struct MHD_Connection *connection, struct span target,
                                      const char *target_at, const char *version)
{
    struct http_framing f = {0};
    if (version != target_at + target.len + 1 || target.len == 0 || has_control(target, ' ' + 1) ||
        memchr(target.ptr, '\t', target.len) != NULL) {
        f.wrong = malformed;
        return f;
    }
    struct walk w = {.framing = &f, .next = version + VERSION_LEN + CRLF_LEN};
    (void)MHD_get_connection_values(connection, MHD_HEADER_KIND, take_header, &w);
    if (f.wrong == NULL && (w.next[0] != 0 || w.next[1] != 0)) /* the empty line */
        f.wrong = malformed;
    if (f.wrong == NULL && (w.lengths > 1 || w.encodings > 1 ||
                            (w.lengths > 0 && w.encodings > 0) || (w.encodings > 0 && !f.chunked)))
        f.wrong = ambiguous;
    if (w.encodings > 0)
        f.length = UINT64_MAX;
    f.has_body = w.encodings > 0 || f.length > 0;
    return f;
}
