/* A pull scanner of the small XML documents that S3 servers answer with. Nothing of the input is
 * trusted: no entities are defined, nothing is fetched, nothing is allocated but by
 * xml_put_text(). */
#ifndef S3_XML_H
#define S3_XML_H

#include "base/buf.h"

enum xml_kind {
    XML_OPEN,  /* <name ...>; <name/> is an OPEN and a CLOSE */
    XML_CLOSE, /* </name> */
    XML_TEXT,  /* between them, raw: decoded by xml_put_text() */
    XML_CDATA, /* verbatim */
    XML_END,   /* of the input, outside of any element */
    XML_BAD,   /* no such document; stays */
};

#define XML_DEPTH_MAX 16

struct xml {
    struct span in;
    size_t at;
    struct span path[XML_DEPTH_MAX]; /* names of the open elements, without their prefixes */
    unsigned depth;
    bool close_next; /* after <name/> */
    bool had_root, bad;
    struct span name; /* of the last OPEN or CLOSE */
    struct span text; /* of the last TEXT or CDATA */
};

#define XML_INIT(span) ((struct xml){.in = (span)})

/* White space between elements is a TEXT too. Comments, declarations and the prolog are skipped. */
enum xml_kind xml_next(struct xml *x);
/* Is the open element this path, e.g. {"ListBucketResult", "Contents", "Key"}? */
bool xml_is_at(const struct xml *x, const char *const *path, unsigned n);
/* Appends with &amp; &lt; &gt; &quot; &apos; &#N; &#xN; decoded; what is no reference is kept. */
void xml_put_text(struct buf *b, struct span raw);
/* Does the document begin with an element of that name? */
bool xml_has_root(struct span body, const char *name);
/* Text of the first element of that name (at that depth; 0 = any). False: there is none.
 * *whole_out (may be NULL): the document is complete. */
bool xml_find(struct span body, const char *name, unsigned depth, struct buf *out, bool *whole_out);

#endif
