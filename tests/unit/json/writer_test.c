#include "json/json.h"

#include "lib/test.h"

#include <math.h>

TEST(commas_and_colons_come_by_themselves)
{
    struct buf b = BUF_INIT;
    struct json_writer w;
    json_writer_init(&w, &b);
    json_begin_object(&w);
    json_key(&w, "a\"b");
    json_i64(&w, INT64_MIN);
    json_key(&w, "list");
    json_begin_array(&w);
    json_u64(&w, UINT64_MAX);
    json_str(&w, SPAN_LIT("x\ny"));
    json_begin_object(&w);
    json_end_object(&w);
    json_begin_array(&w);
    json_end_array(&w);
    json_null(&w);
    json_bool(&w, true);
    json_bool(&w, false);
    json_end_array(&w);
    json_key(&w, "raw");
    json_splice(&w, SPAN_LIT("{\"kept\" : 1.0}"));
    json_key(&w, "f");
    json_f64(&w, 1);
    json_key(&w, "text");
    json_cstr(&w, "t");
    json_key(&w, "none");
    json_cstr(&w, NULL);
    json_end_object(&w);
    CHECK_TEXT(buf_span(&b), "{\"a\\\"b\":-9223372036854775808,\"list\":[18446744073709551615,"
                             "\"x\\ny\",{},[],null,true,false],\"raw\":{\"kept\" : 1.0},\"f\":1.0,"
                             "\"text\":\"t\",\"none\":null}");
    CHECK_EQ(w.depth, 0);
    CHECK(json_valid(buf_span(&b), 10, NULL));
    buf_deinit(&b);
}

TEST(containers_after_containers)
{
    struct buf b = BUF_INIT;
    struct json_writer w;
    json_writer_init(&w, &b);
    json_begin_array(&w);
    for (unsigned i = 0; i < 2; i++) {
        json_begin_object(&w);
        for (unsigned k = 0; k < 2; k++) {
            json_key(&w, k == 0 ? "a" : "b");
            json_begin_array(&w);
            json_u64(&w, k);
            json_u64(&w, i);
            json_end_array(&w);
        }
        json_end_object(&w);
    }
    json_end_array(&w);
    CHECK_TEXT(buf_span(&b), "[{\"a\":[0,0],\"b\":[1,0]},{\"a\":[0,1],\"b\":[1,1]}]");
    buf_deinit(&b);
}

TEST(the_deepest_nesting)
{
    struct buf b = BUF_INIT;
    struct json_writer w;
    json_writer_init(&w, &b);
    for (unsigned i = 0; i < 31; i++) {
        json_begin_array(&w);
        json_null(&w);
    }
    for (unsigned i = 0; i < 31; i++)
        json_end_array(&w);
    struct json_raw raw;
    CHECK(json_valid(buf_span(&b), 31, &raw));
    CHECK_EQ(raw.depth, 31);
    buf_deinit(&b);
}

TEST(a_top_level_value_needs_no_comma)
{
    struct buf b = BUF_INIT;
    struct json_writer w;
    json_writer_init(&w, &b);
    json_u64(&w, 1);
    buf_putc(&b, '\n');
    json_u64(&w, 2);
    CHECK_TEXT(buf_span(&b), "1\n2");
    buf_deinit(&b);
}

TEST(doubles_without_a_json_form_are_null)
{
    struct buf b = BUF_INIT;
    json_put_double(&b, (double)INFINITY);
    json_put_double(&b, (double)NAN);
    json_put_double(&b, 0);
    CHECK_TEXT(buf_span(&b), "nullnull0.0");
    buf_deinit(&b);
}

/* Goal: any text survives being written and read. Method: every byte below 0x80, and some beyond.
 */
TEST(strings_round_trip)
{
    struct buf text = BUF_INIT;
    struct buf raw = BUF_INIT;
    struct buf back = BUF_INIT;
    for (unsigned c = 0; c < 0x80; c++)
        buf_putc(&text, (uint8_t)c);
    buf_puts(&text, "\xc3\xa8\xe2\x80\xa8\xf0\x9f\x98\x80");
    json_put_string(&raw, buf_span(&text));
    CHECK(json_valid(buf_span(&raw), 1, NULL));
    CHECK_EQ(json_string_decode(buf_span(&raw), &back), ERR_OK);
    CHECK_SPAN(buf_span(&back), buf_span(&text));
    CHECK(json_string_is(buf_span(&raw), buf_span(&text)));
    buf_deinit(&text);
    buf_deinit(&raw);
    buf_deinit(&back);
}

TEST_MAIN()
