/* Fuzz target of the JSONL lines: no stored bytes may break a lake (decisions.md 1).
 *
 * Input: one byte of flags (1: undecryptable, 2: quoting off), one with the length of the names,
 * the names, then the payload. Checked on any bytes: the output is one line of valid JSON with the
 * five fields in order; it can be read by the readers that give up on lone surrogates and depth,
 * unless quoting is off; a payload that was quoted, or is no JSON but valid UTF-8, reads back as
 * what is stored; one that was copied is the stored text but for line breaks. */
#include "fuzz/fuzz.h"

#include "base/utf8.h"
#include "json/json.h"
#include "sink/lake.h"

#define DEPTH_READERS 500

enum { UNDECRYPTABLE = 1, RAW = 2 };

static struct json_raw field(struct json_reader *r, const char *name)
{
    struct json_raw key, value;
    bool more;
    ASSERT(json_next_key(r, &key, &more) == ERR_OK && more);
    ASSERT(json_string_is(key.text, span_str(name)));
    ASSERT(json_take(r, &value) == ERR_OK);
    return value;
}

static void check_name(const struct json_raw *got, struct span want)
{
    struct buf text = BUF_INIT;
    struct buf lossy = BUF_INIT;
    ASSERT(got->type == JSON_STRING && !got->lone_surrogate);
    ASSERT(json_string_decode(got->text, &text) == ERR_OK);
    buf_put_utf8_lossy(&lossy, want);
    ASSERT(span_eq(buf_span(&text), buf_span(&lossy)));
    buf_deinit(&text);
    buf_deinit(&lossy);
}

static void check_copied(struct span got, struct span stored)
{
    ASSERT(got.len == stored.len);
    for (size_t i = 0; i < got.len; i++) {
        bool is_break = stored.ptr[i] == '\n' || stored.ptr[i] == '\r';
        ASSERT(got.ptr[i] == (is_break ? ' ' : stored.ptr[i]));
    }
}

static void check_payload(const struct json_raw *got, const struct lake_record *r, bool raw,
                          bool quoted)
{
    struct json_raw stored;
    bool valid = json_valid(r->payload, JSON_DEPTH_MAX, &stored);
    bool unreadable = valid && (stored.lone_surrogate || stored.depth > DEPTH_READERS);
    ASSERT(quoted == (unreadable && !raw && !r->undecryptable));
    if (r->payload.len == 0)
        ASSERT(got->type == JSON_NULL);
    else if (r->undecryptable || !valid || quoted)
        check_name(got, r->payload);
    else
        check_copied(got->text, stored.text);
    ASSERT(raw || (!got->lone_surrogate && got->depth <= DEPTH_READERS));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t names = data[1] < size - 2 ? data[1] : size - 2;
    struct lake_record r = {
        .partition = span_make(data + 2, names / 2),
        .transaction_id = span_make(data + 2 + names / 2, names - names / 2),
        .offset = size,
        .stamp = (int64_t)size * -1000003,
        .payload = span_make(data + 2 + names, size - 2 - names),
        .undecryptable = (data[0] & UNDECRYPTABLE) != 0,
    };
    bool raw = (data[0] & RAW) != 0;
    bool quoted;
    struct buf out = BUF_INIT;
    lake_jsonl_line(&out, &r, raw, &quoted);
    ASSERT(out.len > 0 && memchr(out.ptr, '\n', out.len) == out.ptr + out.len - 1);
    ASSERT(memchr(out.ptr, '\r', out.len) == NULL);
    ASSERT(utf8_valid(buf_span(&out)));

    struct json_reader reader;
    bool more;
    json_reader_init(&reader, buf_span(&out), JSON_DEPTH_MAX);
    ASSERT(json_enter_object(&reader) == ERR_OK);
    struct json_raw value = field(&reader, "partition");
    check_name(&value, r.partition);
    value = field(&reader, "offset");
    ASSERT(value.type == JSON_NUMBER);
    value = field(&reader, "transactionId");
    check_name(&value, r.transaction_id);
    value = field(&reader, "ts");
    ASSERT(value.type == JSON_STRING);
    value = field(&reader, "payload");
    check_payload(&value, &r, raw, quoted);
    ASSERT(json_next_key(&reader, &value, &more) == ERR_OK && !more);
    ASSERT(json_end(&reader) == ERR_OK);
    buf_deinit(&out);
    return 0;
}
