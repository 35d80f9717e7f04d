/* Strict JSON reader over byte-exact slices (RFC 8259; valid UTF-8 required), and a writer.
 *
 * The reader is a pull parser: it never builds a tree and never recurses, so depth and size cost
 * nothing; values are handed out as slices of the input. Duplicate keys are the caller's business.
 * After the first error every call returns that error and the position stays where it was found. */
#ifndef JSON_JSON_H
#define JSON_JSON_H

#include "base/buf.h"
#include "base/err.h"

enum json_type {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT
};

#define JSON_DEPTH_MAX 10000 /* ceiling of QUEEN_MAX_JSON_DEPTH */

struct json_reader {
    struct span text;
    size_t at;          /* byte offset of the next character to look at */
    unsigned depth_max; /* containers inside one another; exceeded: ERR_TOO_DEEP */
    unsigned depth;
    enum err err;
    const char *why; /* static text of the first error, for messages: "expected ':'" */
    bool value_next; /* internal: between elements */
};

/* A whole value as a slice. */
struct json_raw {
    enum json_type type;
    struct span text;    /* first to last character, white space outside not included */
    unsigned depth;      /* containers nested in it, itself included: 0 for a scalar */
    bool lone_surrogate; /* an unpaired \uD800-\uDFFF escape in a string or key inside */
};

void json_reader_init(struct json_reader *r, struct span text, unsigned depth_max);
/* Type of the value that comes next, without taking it. */
ERR_CHECK enum err json_peek(struct json_reader *r, enum json_type *type_out);
/* Takes the value that comes next, checking its grammar and UTF-8 to its end. */
ERR_CHECK enum err json_take(struct json_reader *r, struct json_raw *raw_out);
/* Enters an object or array (ERR_INVALID when the next value is something else). */
ERR_CHECK enum err json_enter_object(struct json_reader *r);
ERR_CHECK enum err json_enter_array(struct json_reader *r);
/* In an object: *more_out false at its end (which is then left); else key_out is the raw slice of
 * the key with its quotes and the value comes next. In an array: the same without the key. */
ERR_CHECK enum err json_next_key(struct json_reader *r, struct json_raw *key_out, bool *more_out);
ERR_CHECK enum err json_next_element(struct json_reader *r, bool *more_out);
/* After the top-level value: nothing but white space may follow. */
ERR_CHECK enum err json_end(struct json_reader *r);

/* Appends the decoded form of a raw string slice (with quotes; already checked by the reader).
 * A lone surrogate escape has no UTF-8 form: ERR_INVALID, nothing appended. */
ERR_CHECK enum err json_string_decode(struct span raw, struct buf *out);
/* Does the raw string slice spell exactly this text? No allocation for escape-free strings. */
bool json_string_is(struct span raw, struct span text);
/* A JSON number slice that is an integer without fraction or exponent and fits. */
bool json_int64(struct span raw, int64_t *out);
bool json_uint64(struct span raw, uint64_t *out);

/* Is this one valid UTF-8 JSON document? raw_out (may be NULL) as for json_take. */
bool json_valid(struct span text, unsigned depth_max, struct json_raw *raw_out);

/* KV values (spec/kv.md 1): compact, object keys sorted bytewise by decoded form (the last of equal
 * keys wins), numbers as 64-bit integer or shortest double, strings re-escaped minimally.
 * ERR_TOO_LARGE beyond max bytes of output, repeated keys included; ERR_TOO_DEEP beyond depth_max;
 * ERR_INVALID for a lone surrogate or a number that no double holds (1E400). On failure out is as
 * it was. Does not recurse. */
ERR_CHECK enum err json_normalise(struct span text, unsigned depth_max, size_t max, struct buf *out,
                                  struct error *error);

/* Appends a JSON string with quotes, escaped as spec/objects.md 4: \" \\ \b \f \n \r \t, other
 * bytes below 0x20 as \u00xx, nothing else. text must be valid UTF-8. */
void json_put_string(struct buf *b, struct span text);
void json_put_double(struct buf *b, double value); /* shortest round-trip; integral with ".0" */

/* Writer with automatic commas. Depth <= 31. */
struct json_writer {
    struct buf *out;
    uint32_t has_member; /* bit per depth */
    unsigned depth;
    bool after_key;
};

void json_writer_init(struct json_writer *w, struct buf *out);
void json_begin_object(struct json_writer *w);
void json_end_object(struct json_writer *w);
void json_begin_array(struct json_writer *w);
void json_end_array(struct json_writer *w);
void json_key(struct json_writer *w, const char *key);
void json_key_span(struct json_writer *w, struct span key);
void json_str(struct json_writer *w, struct span value);
void json_cstr(struct json_writer *w, const char *value); /* NULL writes null */
void json_i64(struct json_writer *w, int64_t value);
void json_u64(struct json_writer *w, uint64_t value);
void json_f64(struct json_writer *w, double value);
void json_bool(struct json_writer *w, bool value);
void json_null(struct json_writer *w);
void json_splice(struct json_writer *w, struct span raw); /* a value verbatim */

#endif
