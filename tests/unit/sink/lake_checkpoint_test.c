#include "sink/lake.h"

#include "unit/sink/lake_fixture.h"

#include "base/mem.h"

#include <zstd.h>

static struct uuid id_of(uint8_t last)
{
    struct uuid id = {{0x01, 0xA1}};
    id.bytes[15] = last;
    return id;
}

static struct buf inflated(struct span bytes)
{
    struct buf out = BUF_INIT;
    size_t cap = 1 << 20;
    size_t n = ZSTD_decompress(buf_extend(&out, cap), cap, bytes.ptr, bytes.len);
    CHECK(!ZSTD_isError(n));
    out.len = n;
    return out;
}

/* Goal: the text of objects.md 9, rows sorted whatever their order was. */
TEST(rows_are_written_in_order)
{
    struct lake_checkpoint_row rows[] = {
        {SPAN_LIT("b"), 7, id_of(2), true},
        {SPAN_LIT("a\"z"), 0, {{0}}, false},
        {SPAN_LIT("a"), UINT64_MAX, id_of(255), true},
    };
    struct buf out = BUF_INIT;
    lake_checkpoint_put(&out, 20, -5, rows, 3);
    struct buf text = inflated(buf_span(&out));
    CHECK_TEXT(buf_span(&text),
               "{\"k\":20,\"tEnd\":-5,\"positions\":["
               "[\"a\",18446744073709551615,\"01a10000-0000-0000-0000-0000000000ff\"],"
               "[\"a\\\"z\",0],[\"b\",7,\"01a10000-0000-0000-0000-000000000002\"]]}");
    struct buf again = compressed(SINK_ZSTD, buf_span(&text), 1000);
    CHECK_SPAN(buf_span(&out), buf_span(&again));
    buf_deinit(&again);
    buf_deinit(&text);
    buf_deinit(&out);
}

TEST(a_checkpoint_reads_back)
{
    enum { N = 20000 }; /* more text than one piece of the writer */
    struct lake_checkpoint_row *rows = MEM_ARRAY(struct lake_checkpoint_row, N);
    char(*names)[16] = mem_new(N * sizeof(*names));
    for (size_t i = 0; i < N; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "cust-%05zu\n", i);
        rows[i] = (struct lake_checkpoint_row){span_str(names[i]), 3 * i, id_of((uint8_t)i), i % 2};
    }
    struct buf out = BUF_INIT;
    lake_checkpoint_put(&out, 40, GUIDE_T_END, rows, N);
    struct lake_checkpoint c = {0};
    CHECK_EQ(lake_checkpoint_parse(buf_span(&out), &c), ERR_OK);
    CHECK_EQ(c.k, 40);
    CHECK_EQ(c.t_end, GUIDE_T_END);
    CHECK_EQ(c.n, N);
    for (size_t i = 0; i < N; i++) {
        CHECK_SPAN(c.rows[i].partition, rows[i].partition);
        CHECK_EQ(c.rows[i].next_offset, rows[i].next_offset);
        CHECK(c.rows[i].has_id == rows[i].has_id);
        if (c.rows[i].has_id)
            CHECK(memcmp(&c.rows[i].id, &rows[i].id, sizeof(struct uuid)) == 0);
    }
    lake_checkpoint_deinit(&c);
    buf_deinit(&out);
    mem_free(rows);
    mem_free(names);
}

TEST(no_rows)
{
    struct buf out = BUF_INIT;
    struct lake_checkpoint c = {0};
    lake_checkpoint_put(&out, 1, 2, NULL, 0);
    CHECK_EQ(lake_checkpoint_parse(buf_span(&out), &c), ERR_OK);
    CHECK_EQ(c.n, 0);
    lake_checkpoint_deinit(&c);
    buf_deinit(&out);
}

static void check_text(const char *text, enum err want, size_t want_rows)
{
    struct buf bytes = compressed(SINK_ZSTD, span_str(text), 1000);
    struct lake_checkpoint c = {.k = 77};
    enum err err = lake_checkpoint_parse(buf_span(&bytes), &c);
    if (err != want)
        print_error("%s\n", text);
    CHECK_EQ(err, want);
    if (err == ERR_OK) {
        CHECK_EQ(c.n, want_rows);
        lake_checkpoint_deinit(&c);
    } else {
        CHECK_EQ(c.k, 77);
    }
    buf_deinit(&bytes);
}

#define AROUND(rows) "{\"k\":20,\"tEnd\":5,\"positions\":" rows "}"

TEST(what_readers_accept)
{
    check_text(AROUND("[[\"a\",1]]"), ERR_OK, 1);
    check_text(AROUND("[[\"a\",1,null]]"), ERR_OK, 1);
    check_text(AROUND("[[\"a\",1,null,{\"x\":[]},7]]"), ERR_OK, 1);
    check_text(AROUND("[[\"a\",1,\"01A10000-0000-0000-0000-000000000002\"]]"), ERR_OK, 1);
    check_text(" { \"positions\" : [ ] , \"new\" : { } , \"tEnd\" : -1 , \"k\" : 1 } ", ERR_OK, 0);
    check_text(AROUND("[]"), ERR_OK, 0);
}

TEST(what_readers_refuse)
{
    check_text("", ERR_INVALID, 0);
    check_text("[]", ERR_INVALID, 0);
    check_text("{\"k\":20,\"tEnd\":5}", ERR_INVALID, 0);
    check_text("{\"k\":20,\"positions\":[]}", ERR_INVALID, 0);
    check_text("{\"k\":20,\"k\":20,\"tEnd\":5,\"positions\":[]}", ERR_INVALID, 0);
    check_text("{\"k\":\"20\",\"tEnd\":5,\"positions\":[]}", ERR_INVALID, 0);
    check_text(AROUND("{}"), ERR_INVALID, 0);
    check_text(AROUND("[[\"a\"]]"), ERR_INVALID, 0);
    check_text(AROUND("[[\"a\",-1]]"), ERR_INVALID, 0);
    check_text(AROUND("[[\"a\",1.5]]"), ERR_INVALID, 0);
    check_text(AROUND("[[\"a\",\"1\"]]"), ERR_INVALID, 0);
    check_text(AROUND("[[7,1]]"), ERR_INVALID, 0);
    check_text(AROUND("[[\"a\",1,\"nonsense\"]]"), ERR_INVALID, 0);
    check_text(AROUND("[[\"a\",1,7]]"), ERR_INVALID, 0);
    check_text(AROUND("[[\"\\ud800\",1]]"), ERR_INVALID, 0);
    check_text(AROUND("[[\"a\",1]"), ERR_INVALID, 0);
    check_text(AROUND("[[\"a\",1]]") "x", ERR_INVALID, 0);
}

TEST(damaged_frames_are_refused)
{
    struct lake_checkpoint_row row = {SPAN_LIT("cust-1"), 7, id_of(2), true};
    struct buf out = BUF_INIT;
    struct lake_checkpoint c;
    lake_checkpoint_put(&out, 20, 5, &row, 1);
    for (size_t n = 0; n < out.len; n++)
        CHECK_EQ(lake_checkpoint_parse(span_sub(buf_span(&out), 0, n), &c), ERR_INVALID);
    buf_putc(&out, 0);
    CHECK_EQ(lake_checkpoint_parse(buf_span(&out), &c), ERR_INVALID);
    CHECK_EQ(lake_checkpoint_parse(SPAN_LIT("{\"k\":1}"), &c), ERR_INVALID);
    buf_deinit(&out);
}

/* Goal: a small object that inflates beyond 512 MiB is dropped, not held. */
TEST(a_bomb_is_refused)
{
    struct buf blanks = BUF_INIT;
    struct buf bomb = BUF_INIT;
    struct lake_compressor *z = lake_compressor_new(SINK_ZSTD);
    memset(buf_extend(&blanks, 16u << 20), ' ', 16u << 20);
    for (unsigned i = 0; i < 33; i++)
        lake_compressor_write(z, buf_span(&blanks), &bomb);
    lake_compressor_write(z, SPAN_LIT(AROUND("[]")), &bomb);
    lake_compressor_end(z, &bomb);
    lake_compressor_free(z);
    CHECK(bomb.len < 1u << 20);
    struct lake_checkpoint c;
    CHECK_EQ(lake_checkpoint_parse(buf_span(&bomb), &c), ERR_INVALID);
    buf_deinit(&blanks);
    buf_deinit(&bomb);
}

TEST_MAIN()
