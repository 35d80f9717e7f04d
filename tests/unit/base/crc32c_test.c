#include "base/crc32c.h"

#include "lib/test.h"

/* RFC 3720 appendix B.4. */
TEST(the_rfc_examples)
{
    uint8_t bytes[32] = {0};
    CHECK_EQ(crc32c(0, bytes, 32), 0x8A9136AA);
    memset(bytes, 0xFF, sizeof(bytes));
    CHECK_EQ(crc32c(0, bytes, 32), 0x62A8AB43);
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    CHECK_EQ(crc32c(0, bytes, 32), 0x46DD794E);
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (uint8_t)(31 - i);
    CHECK_EQ(crc32c(0, bytes, 32), 0x113FDB5C);
    CHECK_EQ(crc32c(0, "123456789", 9), 0xE3069283);
    CHECK_EQ(crc32c_portable(0, "123456789", 9), 0xE3069283);
    CHECK_EQ(crc32c(0, "", 0), 0);
    CHECK_EQ(crc32c(0, NULL, 0), 0);
}

/* Goal: the instruction and the tables agree, at every length, alignment and cut. */
TEST(both_forms_agree_and_pieces_add_up)
{
    uint8_t bytes[96];
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 31 + 7);
    for (size_t from = 0; from < 9; from++) {
        for (size_t len = 0; len <= 80; len++) {
            uint32_t whole = crc32c(0, bytes + from, len);
            CHECK_EQ(whole, crc32c_portable(0, bytes + from, len));
            size_t cut = len / 3;
            uint32_t piece = crc32c(0, bytes + from, cut);
            CHECK_EQ(whole, crc32c(piece, bytes + from + cut, len - cut));
            CHECK_EQ(whole, crc32c_portable(piece, bytes + from + cut, len - cut));
        }
    }
}

TEST_MAIN()
