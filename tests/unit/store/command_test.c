/* Framing of entries and commands. */
#include "store/command.h"

#include "lib/test.h"

static void make_entry(struct buf *out)
{
    entry_header_put(out, 2, 1000);
    command_header_put(out, COMMAND_KV, 3);
    buf_puts(out, "abc");
    command_header_put(out, COMMAND_PUSH, 0);
}

TEST(an_entry_reads_back)
{
    struct buf entry = BUF_INIT;
    struct entry_reader r;
    enum command_type type;
    struct span body;
    make_entry(&entry);
    CHECK_EQ(entry_reader_init(&r, buf_span(&entry)), ERR_OK);
    CHECK_EQ(r.count, 2);
    CHECK_EQ(r.clock, 1000);
    CHECK_EQ(entry_next(&r, &type, &body), ERR_OK);
    CHECK_EQ(type, COMMAND_KV);
    CHECK_TEXT(body, "abc");
    CHECK_EQ(entry_next(&r, &type, &body), ERR_OK);
    CHECK_EQ(type, COMMAND_PUSH);
    CHECK_EQ(body.len, 0);
    CHECK_EQ(entry_next(&r, &type, &body), ERR_NOT_FOUND);
    buf_deinit(&entry);
}

static enum err read_all(struct span payload)
{
    struct entry_reader r;
    enum command_type type;
    struct span body;
    TRY(entry_reader_init(&r, payload));
    for (;;) {
        enum err err = entry_next(&r, &type, &body);
        if (err != ERR_OK)
            return err == ERR_NOT_FOUND ? ERR_OK : err;
    }
}

TEST(a_clock_entry_has_no_commands)
{
    struct buf entry = BUF_INIT;
    entry_header_put(&entry, 0, 1);
    CHECK_EQ(read_all(buf_span(&entry)), ERR_OK);
    buf_putc(&entry, 0);
    CHECK_EQ(read_all(buf_span(&entry)), ERR_CORRUPT);
    buf_deinit(&entry);
}

TEST(every_truncation_is_refused)
{
    struct buf entry = BUF_INIT;
    make_entry(&entry);
    for (size_t len = 0; len < entry.len; len++)
        CHECK_EQ(read_all(span_make(entry.ptr, len)), ERR_CORRUPT);
    buf_deinit(&entry);
}

/* Method: every byte of the framing set to values it must not have. */
TEST(fields_out_of_range_are_refused)
{
    static const struct {
        size_t at;
        uint8_t value;
    } damage[] = {{0, 2},     {1, 1},  {2, 1},  {3, 1},  {4, 1},  {4, 3},  {7, 0xFF},
                  {15, 0x80}, {16, 0}, {16, 9}, {17, 1}, {19, 1}, {20, 4}, {23, 0xFF}};
    for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
        struct buf entry = BUF_INIT;
        make_entry(&entry);
        entry.ptr[damage[i].at] = damage[i].value;
        CHECK_EQ(read_all(buf_span(&entry)), ERR_CORRUPT);
        buf_deinit(&entry);
    }
}

TEST_MAIN()
