/* Fuzz target of the JSON reader and the normal form.
 *
 * Checked on any bytes: nothing crashes; taking a document and walking it member by member agree on
 * whether it is valid; a value that was taken is taken the same from its own slice; a string that
 * decodes is written and read as the same text; normalising what was normalised changes nothing. */
#include "fuzz/fuzz.h"

#include "base/utf8.h"
#include "json/json.h"

#define DEPTH_MAX 300         /* of any document, below the fuzzer's usual input size */
#define NORMAL_MAX (1u << 20) /* bytes: larger than any input's normal form gets here */

static void check_string(const struct json_raw *raw)
{
    struct buf text = BUF_INIT;
    struct buf again = BUF_INIT;
    struct buf back = BUF_INIT;
    if (json_string_decode(raw->text, &text) == ERR_OK) {
        ASSERT(!raw->lone_surrogate);
        ASSERT(utf8_valid(buf_span(&text)));
        ASSERT(json_string_is(raw->text, buf_span(&text)));
        json_put_string(&again, buf_span(&text));
        ASSERT(json_valid(buf_span(&again), 0, NULL));
        ASSERT(json_string_decode(buf_span(&again), &back) == ERR_OK);
        ASSERT(span_eq(buf_span(&back), buf_span(&text)));
    } else {
        ASSERT(raw->lone_surrogate);
    }
    buf_deinit(&text);
    buf_deinit(&again);
    buf_deinit(&back);
}

/* Into *lone: does a string or key inside hold a lone surrogate. Recursion bounded by DEPTH_MAX. */
static enum err walk(struct json_reader *r, bool *lone)
{
    enum json_type type;
    struct json_raw raw;
    bool more;
    TRY(json_peek(r, &type));
    if (type == JSON_OBJECT || type == JSON_ARRAY) {
        TRY(type == JSON_OBJECT ? json_enter_object(r) : json_enter_array(r));
        for (;;) {
            TRY(type == JSON_OBJECT ? json_next_key(r, &raw, &more) : json_next_element(r, &more));
            if (!more)
                return ERR_OK;
            if (type == JSON_OBJECT) {
                check_string(&raw);
                *lone |= raw.lone_surrogate;
            }
            TRY(walk(r, lone));
        }
    }
    TRY(json_take(r, &raw));
    ASSERT(raw.type == type);
    ASSERT(raw.depth == 0);
    if (type == JSON_STRING)
        check_string(&raw);
    *lone |= raw.lone_surrogate;
    return ERR_OK;
}

static void check_reader(struct span text)
{
    struct json_reader r;
    struct json_raw raw;
    struct json_raw again;
    bool lone = false;
    json_reader_init(&r, text, DEPTH_MAX);
    enum err walked = walk(&r, &lone);
    if (walked == ERR_OK)
        walked = json_end(&r);
    ASSERT(r.at <= text.len);
    ASSERT(walked == r.err);
    ASSERT(json_valid(text, DEPTH_MAX, &raw) == (walked == ERR_OK));
    if (walked != ERR_OK)
        return;
    ASSERT(utf8_valid(text));
    ASSERT(raw.depth <= DEPTH_MAX);
    ASSERT(raw.lone_surrogate == lone);
    ASSERT(json_valid(raw.text, raw.depth, &again));
    ASSERT(span_eq(again.text, raw.text));
    ASSERT(again.type == raw.type);
    ASSERT(again.depth == raw.depth);
    ASSERT(again.lone_surrogate == raw.lone_surrogate);
    ASSERT(raw.depth == 0 || !json_valid(raw.text, raw.depth - 1, NULL));
}

static void check_normal_form(struct span text)
{
    struct buf once = BUF_INIT;
    struct buf twice = BUF_INIT;
    struct json_raw raw;
    struct error error = {.code = ERR_OK};
    enum err err = json_normalise(text, DEPTH_MAX, NORMAL_MAX, &once, &error);
    ASSERT(err == error.code);
    if (err == ERR_OK) {
        ASSERT(json_valid(text, DEPTH_MAX, &raw));
        ASSERT(!raw.lone_surrogate);
        ASSERT(json_valid(buf_span(&once), raw.depth, NULL));
        ASSERT(json_normalise(buf_span(&once), DEPTH_MAX, once.len, &twice, NULL) == ERR_OK);
        ASSERT(span_eq(buf_span(&once), buf_span(&twice)));
    } else {
        ASSERT(once.len == 0);
    }
    buf_deinit(&once);
    buf_deinit(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_reader(span_make(data, size));
    check_normal_form(span_make(data, size));
    return 0;
}
