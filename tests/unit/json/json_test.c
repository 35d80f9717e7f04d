#include "json/json.h"

#include "base/utf8.h"
#include "lib/test.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DEPTH 100

static const char *const valid[] = {
    "null",
    "true",
    "false",
    "0",
    "-0",
    "10",
    "-1.5e+10",
    "0.0E-0",
    "123456789012345678901234567890",
    "1e400",
    "\"\"",
    "\"plain text that is longer than one step of the scanner, by far\"",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uFFFF\\uabCD\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud800\"",
    "\"0123456789abcde\\n0123456789abcdef0123456789abcdef\\u0041\"",
    "\"\xc3\xa8 \xe2\x82\xac \xf0\x9f\x98\x80 \x7f\"",
    "[]",
    "{}",
    " [ ] ",
    "\t{\r\n} ",
    "[1,2,3]",
    "[ 1 , \"a\" , null , true , false , [ ] , { } ]",
    "{\"a\":1}",
    "{\"a\":1,\"a\":2}",
    "{ \"\" : { \"b\" : [ { \"c\" : [ [ ] ] } , -1 ] } , \"d\\n\" : \"\xc3\xa8\" }",
    "[[[[[[[[[[{\"a\":[[[{}]]]}]]]]]]]]]]",
};

static const char *const invalid[] = {
    "",
    " ",
    "nul",
    "nulll",
    "True",
    "truefalse",
    "NaN",
    "Infinity",
    "-",
    "+1",
    "-a",
    "01",
    "-01",
    "1.",
    ".5",
    "1.e1",
    "1e",
    "1e+",
    "1E-",
    "0x1",
    "1 2",
    "--1",
    "1.2.3",
    "\"",
    "\"a",
    "\"\\\"",
    "\"\\x\"",
    "\"\\u\"",
    "\"\\u12\"",
    "\"\\u123g\"",
    "\"\\ud800\\u12\"",
    "\"\\U0041\"",
    "\"a\nb\"",
    "\"a\tb\"",
    "\"\x01\"",
    "\"\x1f 0123456789abcdef\"",
    "\"0123456789abcdef\x1f\"",
    "'a'",
    "\"\x80\"",
    "\"\xc3\"",
    "\"\xc0\x80\"",
    "\"\xed\xa0\x80\"",
    "\"\xf5\x80\x80\x80\"",
    "\"0123456789abcdef\xe2\x82\"",
    "\xef\xbb\xbf{}",
    "\xc2\xa0[]",
    "\v[]",
    "[",
    "]",
    "[1",
    "[1,",
    "[1,]",
    "[,1]",
    "[,]",
    "[1 2]",
    "[1}",
    "[1]]",
    "{",
    "}",
    "{]",
    "{a:1}",
    "{1:1}",
    "{\"a\"}",
    "{\"a\",1}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{,}",
    "{\"a\":1 \"b\":2}",
    "{\"a\":1]",
    "{\"a\"::1}",
    "{\"a\":1}}",
    "{\"a\":1,,\"b\":2}",
    "{null:1}",
    "[1]x",
    "// comment\n1",
    "[1/**/]",
};

TEST(valid_texts_are_taken_whole)
{
    for (size_t i = 0; i < COUNT(valid); i++) {
        struct json_raw raw;
        CHECK(json_valid(span_str(valid[i]), DEPTH, &raw));
        CHECK_SPAN(raw.text, span_trim(span_str(valid[i])));
        CHECK(json_valid(span_str(valid[i]), DEPTH, NULL));
    }
}

TEST(invalid_texts_are_refused)
{
    for (size_t i = 0; i < COUNT(invalid); i++) {
        struct json_raw raw = {.depth = 99};
        if (json_valid(span_str(invalid[i]), DEPTH, &raw))
            print_error("taken: %s\n", invalid[i]);
        CHECK(!json_valid(span_str(invalid[i]), DEPTH, &raw));
        CHECK_EQ(raw.depth, 99);
    }
}

TEST(a_nul_byte_is_refused_anywhere)
{
    CHECK(!json_valid(SPAN_LIT("[]\0"), DEPTH, NULL));
    CHECK(!json_valid(SPAN_LIT("\0[]"), DEPTH, NULL));
    CHECK(!json_valid(SPAN_LIT("[\0]"), DEPTH, NULL));
    CHECK(!json_valid(SPAN_LIT("\"\0\""), DEPTH, NULL));
    CHECK(!json_valid(SPAN_LIT("1\0"), DEPTH, NULL));
    CHECK(!json_valid((struct span){NULL, 0}, DEPTH, NULL));
}

/* Walks the next value member by member instead of taking it. Returns how many values it met. */
static enum err walk(struct json_reader *r, size_t *values)
{
    enum json_type type;
    struct json_raw raw;
    bool more;
    TRY(json_peek(r, &type));
    ++*values;
    if (type == JSON_ARRAY) {
        TRY(json_enter_array(r));
        for (;;) {
            TRY(json_next_element(r, &more));
            if (!more)
                return ERR_OK;
            TRY(walk(r, values));
        }
    }
    if (type == JSON_OBJECT) {
        TRY(json_enter_object(r));
        for (;;) {
            TRY(json_next_key(r, &raw, &more));
            if (!more)
                return ERR_OK;
            TRY(walk(r, values));
        }
    }
    TRY(json_take(r, &raw));
    return raw.type == type ? ERR_OK : ERR_CORRUPT;
}

static enum err walk_text(struct span text, unsigned depth_max, size_t *at_out)
{
    struct json_reader r;
    size_t values = 0;
    json_reader_init(&r, text, depth_max);
    enum err err = walk(&r, &values);
    if (err == ERR_OK)
        err = json_end(&r);
    *at_out = r.at;
    return err;
}

static enum err take_text(struct span text, unsigned depth_max, size_t *at_out)
{
    struct json_reader r;
    struct json_raw raw;
    json_reader_init(&r, text, depth_max);
    enum err err = json_take(&r, &raw);
    if (err == ERR_OK)
        err = json_end(&r);
    *at_out = r.at;
    return err;
}

/* A second opinion on the grammar: recursive, byte by byte, from RFC 8259's rules. */
static bool ref_value(const char **p);

static void ref_blanks(const char **p)
{
    *p += strspn(*p, " \t\r\n");
}

static bool ref_digits(const char **p)
{
    size_t n = strspn(*p, "0123456789");
    *p += n;
    return n > 0;
}

static bool ref_number(const char **p)
{
    *p += **p == '-';
    if (**p == '0')
        ++*p;
    else if (!ref_digits(p))
        return false;
    if (**p == '.' && (++*p, !ref_digits(p)))
        return false;
    if (**p != 'e' && **p != 'E')
        return true;
    ++*p;
    *p += **p == '+' || **p == '-';
    return ref_digits(p);
}

static bool ref_string(const char **p)
{
    if (*(*p)++ != '"')
        return false;
    for (;;) {
        unsigned char c = (unsigned char)*(*p)++;
        if (c == '"')
            return true;
        if (c < 0x20)
            return false;
        if (c != '\\')
            continue;
        c = (unsigned char)*(*p)++;
        if (c == '\0' || strchr("\"\\/bfnrtu", c) == NULL)
            return false;
        for (int i = 0; c == 'u' && i < 4; i++) {
            if (**p == '\0' || strchr("0123456789abcdefABCDEF", **p) == NULL)
                return false;
            ++*p;
        }
    }
}

static bool ref_members(const char **p, char close)
{
    ++*p;
    ref_blanks(p);
    if (**p == close)
        return ++*p, true;
    for (;; ++*p) {
        ref_blanks(p);
        if (close == '}') {
            if (!ref_string(p))
                return false;
            ref_blanks(p);
            if (*(*p)++ != ':')
                return false;
            ref_blanks(p);
        }
        if (!ref_value(p))
            return false;
        ref_blanks(p);
        if (**p == close)
            return ++*p, true;
        if (**p != ',')
            return false;
    }
}

static bool ref_value(const char **p)
{
    static const char *const words[] = {"null", "true", "false"};
    if (**p == '{' || **p == '[')
        return ref_members(p, **p == '{' ? '}' : ']');
    if (**p == '"')
        return ref_string(p);
    for (size_t i = 0; i < COUNT(words); i++) {
        if (strncmp(*p, words[i], strlen(words[i])) == 0) {
            *p += strlen(words[i]);
            return true;
        }
    }
    return ref_number(p);
}

/* text ends in NUL, which the grammar has no place for. */
static bool ref_valid(const char *text, size_t len)
{
    const char *p = text;
    ref_blanks(&p);
    if (!ref_value(&p))
        return false;
    ref_blanks(&p);
    return p == text + len && utf8_valid(span_make(text, len));
}

/* Taking and walking must agree with the second opinion, and with one another on the place. The
 * copy is of exactly the text's size, so that a read past it is caught by the sanitizer. */
static void check_opinions(const char *text, size_t len)
{
    char *copy = test_malloc(len > 0 ? len : 1);
    memcpy(copy, text, len);
    size_t take_at = 0;
    size_t walk_at = 0;
    enum err take = take_text(span_make(copy, len), DEPTH, &take_at);
    enum err walked = walk_text(span_make(copy, len), DEPTH, &walk_at);
    if ((take == ERR_OK) != ref_valid(text, len))
        print_error("text: %.*s\n", (int)len, text);
    CHECK_EQ(take == ERR_OK, ref_valid(text, len));
    CHECK_EQ(take, walked);
    CHECK_EQ(take_at, walk_at);
    test_free(copy);
}

TEST(every_truncation)
{
    for (size_t i = 0; i < COUNT(valid); i++) {
        char text[256];
        size_t whole = strlen(valid[i]);
        CHECK(whole < sizeof(text));
        for (size_t len = 0; len <= whole; len++) {
            memcpy(text, valid[i], len);
            text[len] = '\0';
            check_opinions(text, len);
        }
    }
    for (size_t i = 0; i < COUNT(invalid); i++)
        check_opinions(invalid[i], strlen(invalid[i]));
}

TEST(every_bit_flip)
{
    for (size_t i = 0; i < COUNT(valid); i++) {
        char text[256];
        size_t len = strlen(valid[i]);
        memcpy(text, valid[i], len + 1);
        for (size_t bit = 0; bit < 8 * len; bit++) {
            text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
            check_opinions(text, len);
            text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        }
    }
}

/* Goal: the same where tokens meet in ways nobody thought of. Method: random sequences of tokens.
 */
TEST(random_tokens)
{
    static const char *const tokens[] = {"{",     "}",           "[",  "]",  ":",   ",",
                                         "\"a\"", "\"\\u12Aa\"", "1",  "-0", "1.5", "null",
                                         " ",     "true",        "\"", "e1"};
    uint64_t random = 3;
    size_t good = 0;
    for (unsigned i = 0; i < 300000; i++) {
        char text[128] = "";
        size_t len = 0;
        random = random * 6364136223846793005u + 1442695040888963407u;
        for (uint64_t bits = random >> 28; bits > 0; bits >>= 4) {
            const char *token = tokens[bits & 15];
            memcpy(text + len, token, strlen(token) + 1);
            len += strlen(token);
        }
        check_opinions(text, len);
        good += ref_valid(text, len);
    }
    CHECK(good > 20);
}

/* `depth` arrays and objects in turn around one number. */
static struct buf nested(unsigned depth)
{
    struct buf b = BUF_INIT;
    for (unsigned i = 0; i < depth; i++)
        buf_puts(&b, i % 2 == 0 ? "[" : "{\"k\": ");
    buf_puts(&b, "1");
    for (unsigned i = depth; i > 0; i--)
        buf_puts(&b, i % 2 == 1 ? "]" : "}");
    return b;
}

TEST(depth_is_counted_and_limited)
{
    static const unsigned limits[] = {1, 2, 63, 64, 65, 127, 128, 129, 500, JSON_DEPTH_MAX};
    for (size_t i = 0; i < COUNT(limits); i++) {
        struct json_raw raw;
        struct buf fits = nested(limits[i]);
        struct buf deeper = nested(limits[i] + 1);
        CHECK(json_valid(buf_span(&fits), limits[i], &raw));
        CHECK_EQ(raw.depth, limits[i]);
        CHECK(!json_valid(buf_span(&deeper), limits[i], NULL));
        size_t take_at;
        size_t walk_at;
        CHECK_EQ(take_text(buf_span(&deeper), limits[i], &take_at), ERR_TOO_DEEP);
        if (limits[i] <= 500) { /* the test's own walk recurses */
            CHECK_EQ(walk_text(buf_span(&deeper), limits[i], &walk_at), ERR_TOO_DEEP);
            CHECK_EQ(take_at, walk_at);
        }
        buf_deinit(&fits);
        buf_deinit(&deeper);
    }
    CHECK(!json_valid(SPAN_LIT("[]"), 0, NULL));
    CHECK(json_valid(SPAN_LIT("1"), 0, NULL));
}

TEST(depth_max_has_a_ceiling)
{
    struct buf deeper = nested(JSON_DEPTH_MAX + 1);
    CHECK(!json_valid(buf_span(&deeper), UINT32_MAX, NULL));
    buf_deinit(&deeper);
}

TEST(depth_counts_the_deepest_branch_of_a_value)
{
    struct json_raw raw;
    CHECK(json_valid(SPAN_LIT("[[],[[]],[],{\"a\":[[1]]},[]]"), DEPTH, &raw));
    CHECK_EQ(raw.depth, 4);
    CHECK_EQ(raw.type, JSON_ARRAY);
    CHECK(json_valid(SPAN_LIT("\"[[[\""), DEPTH, &raw));
    CHECK_EQ(raw.depth, 0);
    CHECK_EQ(raw.type, JSON_STRING);
}

/* Goal: the containers entered and those inside a taken value share one limit. */
TEST(depth_adds_up_around_a_taken_value)
{
    struct json_reader r;
    struct json_raw raw;
    bool more;
    json_reader_init(&r, SPAN_LIT("[[[[]]]]"), 4);
    CHECK_EQ(json_enter_array(&r), ERR_OK);
    CHECK_EQ(json_next_element(&r, &more), ERR_OK);
    CHECK_EQ(json_take(&r, &raw), ERR_OK);
    CHECK_EQ(raw.depth, 3);
    json_reader_init(&r, SPAN_LIT("[[[[]]]]"), 3);
    CHECK_EQ(json_enter_array(&r), ERR_OK);
    CHECK_EQ(json_next_element(&r, &more), ERR_OK);
    CHECK_EQ(json_take(&r, &raw), ERR_TOO_DEEP);
    CHECK_EQ(r.at, 3);
}

static bool lone(const char *text)
{
    struct json_raw raw;
    CHECK(json_valid(span_str(text), DEPTH, &raw));
    return raw.lone_surrogate;
}

TEST(unpaired_surrogates_are_told_from_pairs)
{
    CHECK(!lone("\"\\ud83d\\ude00\""));
    CHECK(!lone("\"\\uD83D\\uDE00\\udbff\\udfff\\ud800\\udc00\""));
    CHECK(!lone("\"\\ud7ff\\ue000\""));
    CHECK(!lone("\"\\\\ud800\""));
    CHECK(lone("\"\\ud800\""));
    CHECK(lone("\"\\udc00\""));
    CHECK(lone("\"\\udfff\\udbff\""));
    CHECK(lone("\"\\ud83d \\ude00\""));
    CHECK(lone("\"\\ud83d\\ud83d\\ude00\""));
    CHECK(lone("\"\\ud83d\\ude00\\ude00\""));
    CHECK(lone("\"\\ud83d\\n\""));
    CHECK(lone("\"\\ud83dxude00\""));
    CHECK(lone("{\"a\":[1,{\"\\ud800\":1}]}"));
    CHECK(lone("[\"ok\",\"\\ud800\",\"ok\"]"));
}

TEST(a_document_is_read_member_by_member)
{
    struct json_reader r;
    struct json_raw raw;
    struct json_raw key;
    enum json_type type;
    bool more;
    json_reader_init(&r, SPAN_LIT(" { \"items\" : [ 1 , {\"x\":[]} ] , \"\\ud800\":\"v\" } "),
                     DEPTH);
    CHECK_EQ(json_peek(&r, &type), ERR_OK);
    CHECK_EQ(type, JSON_OBJECT);
    CHECK_EQ(json_enter_object(&r), ERR_OK);
    CHECK_EQ(json_next_key(&r, &key, &more), ERR_OK);
    CHECK(more);
    CHECK_TEXT(key.text, "\"items\"");
    CHECK_EQ(key.type, JSON_STRING);
    CHECK(!key.lone_surrogate);
    CHECK_EQ(json_enter_array(&r), ERR_OK);
    CHECK_EQ(r.depth, 2);
    CHECK_EQ(json_next_element(&r, &more), ERR_OK);
    CHECK(more);
    CHECK_EQ(json_take(&r, &raw), ERR_OK);
    CHECK_EQ(raw.type, JSON_NUMBER);
    CHECK_TEXT(raw.text, "1");
    CHECK_EQ(json_next_element(&r, &more), ERR_OK);
    CHECK(more);
    CHECK_EQ(json_take(&r, &raw), ERR_OK);
    CHECK_TEXT(raw.text, "{\"x\":[]}");
    CHECK_EQ(json_next_element(&r, &more), ERR_OK);
    CHECK(!more);
    CHECK_EQ(r.depth, 1);
    CHECK_EQ(json_next_key(&r, &key, &more), ERR_OK);
    CHECK(more);
    CHECK(key.lone_surrogate);
    CHECK_EQ(json_take(&r, &raw), ERR_OK);
    CHECK_TEXT(raw.text, "\"v\"");
    CHECK_EQ(json_next_key(&r, &key, &more), ERR_OK);
    CHECK(!more);
    CHECK_EQ(json_end(&r), ERR_OK);
    CHECK_EQ(r.depth, 0);
}

TEST(the_first_error_stays)
{
    struct json_reader r;
    struct json_raw raw = {.depth = 99};
    enum json_type type = JSON_OBJECT;
    bool more = true;
    json_reader_init(&r, SPAN_LIT("  [1,x]"), DEPTH);
    CHECK_EQ(json_take(&r, &raw), ERR_INVALID);
    CHECK_EQ(r.at, 5);
    assert_string_equal(r.why, "expected a value");
    CHECK_EQ(json_take(&r, &raw), ERR_INVALID);
    CHECK_EQ(json_peek(&r, &type), ERR_INVALID);
    CHECK_EQ(json_enter_array(&r), ERR_INVALID);
    CHECK_EQ(json_enter_object(&r), ERR_INVALID);
    CHECK_EQ(json_next_element(&r, &more), ERR_INVALID);
    CHECK_EQ(json_next_key(&r, &raw, &more), ERR_INVALID);
    CHECK_EQ(json_end(&r), ERR_INVALID);
    CHECK_EQ(r.at, 5);
    CHECK_EQ(raw.depth, 99);
    CHECK_EQ(type, JSON_OBJECT);
    CHECK(more);
}

static void check_why(const char *text, size_t at, const char *why)
{
    struct json_reader r;
    struct json_raw raw;
    json_reader_init(&r, span_str(text), 2);
    if (json_take(&r, &raw) == ERR_OK)
        CHECK(json_end(&r) != ERR_OK);
    assert_string_equal(r.why, why);
    CHECK_EQ(r.at, at);
}

TEST(errors_say_what_and_where)
{
    check_why("", 0, "the text ends too early");
    check_why("[1", 2, "the text ends too early");
    check_why("\xef\xbb\xbf[]", 0, "byte order mark");
    check_why("[1 2]", 3, "expected ',' or ']'");
    check_why("{\"a\":1 2}", 7, "expected ',' or '}'");
    check_why("{\"a\" 1}", 5, "expected ':'");
    check_why("{1:1}", 1, "expected a key");
    check_why("[1] 2", 4, "expected the end of the text");
    check_why("[-x]", 2, "expected a digit");
    check_why("\"\\x\"", 2, "unknown escape");
    check_why("\"\\u00x0\"", 5, "expected a hex digit");
    check_why("\"a\xff\"", 2, "invalid UTF-8");
    check_why("\"a\n\"", 2, "control character in a string");
    check_why("[[[]]]", 2, "nested too deep");
}

TEST(entering_something_else_is_refused)
{
    struct json_reader r;
    json_reader_init(&r, SPAN_LIT("[1]"), DEPTH);
    CHECK_EQ(json_enter_object(&r), ERR_INVALID);
    assert_string_equal(r.why, "expected an object");
    json_reader_init(&r, SPAN_LIT("{}"), DEPTH);
    CHECK_EQ(json_enter_array(&r), ERR_INVALID);
    assert_string_equal(r.why, "expected an array");
    json_reader_init(&r, SPAN_LIT("null"), DEPTH);
    CHECK_EQ(json_enter_array(&r), ERR_INVALID);
}

static void check_decode(const char *raw, struct span want)
{
    struct buf b = BUF_INIT;
    buf_puts(&b, "<");
    CHECK(json_valid(span_str(raw), DEPTH, NULL));
    CHECK_EQ(json_string_decode(span_str(raw), &b), ERR_OK);
    CHECK_SPAN(span_sub(buf_span(&b), 1, b.len), want);
    CHECK(json_string_is(span_str(raw), want));
    CHECK(!json_string_is(span_str(raw), SPAN_LIT("something else")));
    if (want.len > 0)
        CHECK(!json_string_is(span_str(raw), span_sub(want, 0, want.len - 1)));
    buf_deinit(&b);
}

TEST(strings_decode)
{
    check_decode("\"\"", SPAN_LIT(""));
    check_decode("\"plain\"", SPAN_LIT("plain"));
    check_decode("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", SPAN_LIT("\"\\/\b\f\n\r\t"));
    check_decode("\"a\\u0041\\u00e8\\u20AC\\uD83D\\ude00z\"",
                 SPAN_LIT("aA\xc3\xa8\xe2\x82\xac\xf0\x9f\x98\x80z"));
    check_decode("\"\\u0000\"", SPAN_LIT("\0"));
    check_decode("\"\xc3\xa8\\\\\"", SPAN_LIT("\xc3\xa8\\"));
    check_decode("\"\\udbff\\udfff\"", SPAN_LIT("\xf4\x8f\xbf\xbf"));
}

TEST(a_lone_surrogate_has_no_utf8_form)
{
    struct buf b = BUF_INIT;
    buf_puts(&b, "kept");
    CHECK_EQ(json_string_decode(SPAN_LIT("\"abc\\ud800def\""), &b), ERR_INVALID);
    CHECK_TEXT(buf_span(&b), "kept");
    CHECK(!json_string_is(SPAN_LIT("\"abc\\ud800\""), SPAN_LIT("abc\xed\xa0\x80")));
    buf_deinit(&b);
}

TEST(integers)
{
    int64_t i = 0;
    uint64_t u = 0;
    CHECK(json_int64(SPAN_LIT("-9223372036854775808"), &i));
    CHECK_EQ(i, INT64_MIN);
    CHECK(json_int64(SPAN_LIT("9223372036854775807"), &i));
    CHECK_EQ(i, INT64_MAX);
    CHECK(json_int64(SPAN_LIT("-0"), &i));
    CHECK_EQ(i, 0);
    CHECK(json_int64(SPAN_LIT("-42"), &i));
    CHECK_EQ(i, -42);
    CHECK(json_uint64(SPAN_LIT("18446744073709551615"), &u));
    CHECK_EQ(u, UINT64_MAX);
    static const char *const bad[] = {"1.0", "1e2", "\"1\"", "", "-", "null", "--1", "- 1"};
    for (size_t k = 0; k < COUNT(bad); k++) {
        i = 99;
        u = 99;
        CHECK(!json_int64(span_str(bad[k]), &i));
        CHECK(!json_uint64(span_str(bad[k]), &u));
        CHECK_EQ(i, 99);
        CHECK_EQ(u, 99);
    }
    CHECK(!json_int64(SPAN_LIT("9223372036854775808"), &i));
    CHECK(!json_int64(SPAN_LIT("-9223372036854775809"), &i));
    CHECK(!json_int64(SPAN_LIT("18446744073709551616"), &i));
    CHECK(!json_uint64(SPAN_LIT("18446744073709551616"), &u));
    CHECK(!json_uint64(SPAN_LIT("-1"), &u));
}

TEST_MAIN()
