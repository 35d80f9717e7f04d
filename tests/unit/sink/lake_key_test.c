#include "sink/lake.h"

#include "unit/sink/lake_fixture.h"

#include "base/mem.h"
#include "base/pct.h"

static struct buf object_key(const struct lake_window *w)
{
    struct buf b = BUF_INIT;
    lake_key_object(&b, w);
    return b;
}

static void check_object(const struct lake_window *w, const char *want)
{
    struct buf b = object_key(w);
    CHECK_TEXT(buf_span(&b), want);
    buf_deinit(&b);
}

/* A name of n times the same byte; mem_free(). */
static char *repeated(char c, size_t n)
{
    char *s = mem_new(n + 1);
    memset(s, c, n);
    return s;
}

static size_t longest_segment(struct span key)
{
    size_t longest = 0;
    for (size_t i = 0, start = 0; i <= key.len; i++) {
        if (i < key.len && key.ptr[i] != '/')
            continue;
        if (i - start > longest)
            longest = i - start;
        start = i + 1;
    }
    return longest;
}

TEST(the_guides_key_comes_out)
{
    struct lake_window w = guide_window();
    check_object(&w, GUIDE_KEY);
}

TEST(format_and_compression_choose_the_extension)
{
    struct lake_window w = guide_window();
    w.spec.prefix = SPAN_LIT("p");
    w.spec.tenant = SPAN_LIT("t");
    w.spec.queue = SPAN_LIT("q");
    w.t_start = w.t_end = 0;
    const char *base = "p/tenant=t/queue=q/dt=1970-01-01/hour=00/"
                       "w-0000000001-0000000000000000-0000000000000000";
    static const char *const extensions[] = {".jsonl.zst", ".jsonl.gz", ".jsonl"};
    for (int c = SINK_ZSTD; c <= SINK_NONE; c++) {
        char want[256];
        (void)snprintf(want, sizeof(want), "%s%s", base, extensions[c]);
        w.spec.compression = (enum sink_compression)c;
        check_object(&w, want);
    }
}

TEST(the_alignment_decides_about_the_hour_level)
{
    struct lake_window w = guide_window();
    w.spec.align = SINK_ALIGN_DAY;
    check_object(&w, "queen/tenant=" GUIDE_TENANT "/queue=orders/dt=2026-10-03/"
                     "w-0000000001-1791007200000000-1791009458377855.jsonl.zst");
    w.spec.align = SINK_ALIGN_NONE;
    check_object(&w, GUIDE_KEY);
}

/* Goal: names cannot leave their segment, and differ whenever the names do. */
TEST(names_are_percent_encoded)
{
    struct lake_window w = guide_window();
    w.spec.prefix = SPAN_LIT("lake/queen");
    w.spec.queue = SPAN_LIT("a/b c=%:~\xC3\xA8..");
    w.spec.tenant = SPAN_LIT("..");
    check_object(&w,
                 "lake/queen/tenant=../queue=a%2Fb%20c%3D%25%3A%7E%C3%A8../dt=2026-10-03/hour=06/"
                 "w-0000000001-1791007200000000-1791009458377855.jsonl.zst");
}

TEST(negative_times_are_clamped_in_the_name_only)
{
    struct lake_window w = guide_window();
    w.t_start = -1;
    w.t_end = 7;
    w.k = UINT64_C(12345678901);
    check_object(&w, "queen/tenant=" GUIDE_TENANT "/queue=orders/dt=1969-12-31/hour=23/"
                     "w-12345678901-0000000000000000-0000000000000007.jsonl.zst");
}

TEST(sidecars_have_their_own_root)
{
    struct lake_spec s = guide_spec();
    struct buf b = BUF_INIT;
    lake_key_manifest(&b, &s, 1);
    CHECK_TEXT(buf_span(&b),
               "queen/_queen/tenant=" GUIDE_TENANT "/queue=orders/windows/0000000001.json");
    buf_reset(&b);
    lake_key_checkpoint(&b, &s, 20);
    CHECK_TEXT(buf_span(&b),
               "queen/_queen/tenant=" GUIDE_TENANT "/queue=orders/checkpoint/0000000020.json.zst");
    buf_reset(&b);
    lake_key_checkpoint_prefix(&b, &s);
    CHECK_TEXT(buf_span(&b), "queen/_queen/tenant=" GUIDE_TENANT "/queue=orders/checkpoint/");
    buf_deinit(&b);
}

TEST(checkpoint_keys_are_read_back)
{
    static const struct {
        const char *key;
        bool ok;
        uint64_t k;
    } cases[] = {
        {"q/_queen/tenant=t/queue=q/checkpoint/0000000020.json.zst", true, 20},
        {"/checkpoint/7.json.zst", true, 7},
        {"/checkpoint/12345678901.json.zst", true, UINT64_C(12345678901)},
        {"a/checkpoint/1.json.zst/checkpoint/2.json.zst", true, 2},
        {"checkpoint/1.json.zst", false, 0},
        {"a/checkpoint/.json.zst", false, 0},
        {"a/checkpoint/1.json", false, 0},
        {"a/checkpoint/1.json.zst.tmp", false, 0},
        {"a/checkpoint/-1.json.zst", false, 0},
        {"a/checkpoint/+1.json.zst", false, 0},
        {"a/checkpoint/x1.json.zst", false, 0},
        {"a/checkpoint/18446744073709551616.json.zst", false, 0},
        {"a/checkpoint/b/1.json.zst", false, 0},
        {"", false, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t k = 0;
        CHECK(lake_key_checkpoint_parse(span_str(cases[i].key), &k) == cases[i].ok);
        CHECK_EQ(k, cases[i].k);
    }
}

/* Goal: no segment passes the limit, whole names below it are never touched, long names that differ
 * give different keys. Method: names of every length around the limit of a folder-like store. */
TEST(a_segment_of_255_bytes_holds)
{
    struct lake_window w = guide_window();
    w.spec.segment_max = 255;
    size_t room = 255 - strlen("queue=");
    for (size_t n = room - 2; n <= room + 60; n++) {
        char *name = repeated('n', n);
        w.spec.queue = span_str(name);
        struct buf key = object_key(&w);
        CHECK(longest_segment(buf_span(&key)) <= 255);
        bool whole = memmem(key.ptr, key.len, name, n) != NULL;
        CHECK(whole == (n <= room));
        CHECK((memchr(key.ptr, '~', key.len) != NULL) == (n > room));
        name[n - 1] = 'm'; /* differs at its end only */
        struct buf other = object_key(&w);
        CHECK(!span_eq(buf_span(&key), buf_span(&other)));
        buf_deinit(&key);
        buf_deinit(&other);
        mem_free(name);
    }
}

TEST(a_name_is_cut_on_a_whole_escape)
{
    struct lake_window w = guide_window();
    w.spec.segment_max = 255;
    for (size_t plain = 0; plain < 3; plain++) {
        char *name = repeated('/', 200);
        memset(name, 'a', plain);
        w.spec.queue = span_str(name);
        struct buf key = object_key(&w);
        const uint8_t *tilde = memchr(key.ptr, '~', key.len);
        CHECK(tilde != NULL && memcmp(tilde - 3, "%2F", 3) == 0);
        for (size_t i = 1; i <= 16; i++)
            CHECK((tilde[i] >= '0' && tilde[i] <= '9') || (tilde[i] >= 'a' && tilde[i] <= 'f'));
        CHECK_EQ(tilde[17], '/');
        buf_deinit(&key);
        mem_free(name);
    }
}

/* Goal: a key never passes 1,024 bytes, and is left whole up to there. */
TEST(a_whole_key_of_1024_bytes_holds)
{
    struct lake_window w = guide_window();
    w.spec.queue = SPAN_LIT("");
    struct buf key = object_key(&w);
    size_t room = 1024 - key.len;
    buf_deinit(&key);
    for (size_t n = room - 3; n <= room + 40; n++) {
        char *name = repeated('n', n);
        w.spec.queue = span_str(name);
        key = object_key(&w);
        CHECK(key.len <= 1024);
        CHECK((memchr(key.ptr, '~', key.len) != NULL) == (n > room));
        CHECK_EQ(key.len, n > room ? 1024 : 1024 - room + n);
        buf_deinit(&key);
        mem_free(name);
    }
}

/* Goal: the folder of checkpoints is found by listing, whatever the name's length. */
TEST(checkpoints_lie_below_their_prefix)
{
    static const size_t lengths[] = {1, 249, 250, 700, 880, 900, 930, 1000, 1018, 1019, 4000};
    static const uint32_t segments[] = {255, 1024};
    struct lake_spec s = guide_spec();
    for (size_t i = 0; i < 2 * sizeof(lengths) / sizeof(lengths[0]); i++) {
        char *name = repeated('n', lengths[i / 2]);
        struct buf key = BUF_INIT;
        struct buf prefix = BUF_INIT;
        s.queue = span_str(name);
        s.segment_max = segments[i % 2];
        for (uint64_t k = 1; k <= UINT64_C(9999999999); k = 10 * k + 9) {
            uint64_t got = 0;
            buf_reset(&key);
            buf_reset(&prefix);
            lake_key_checkpoint(&key, &s, k);
            lake_key_checkpoint_prefix(&prefix, &s);
            CHECK(span_starts_with(buf_span(&key), buf_span(&prefix)));
            CHECK(lake_key_checkpoint_parse(buf_span(&key), &got));
            CHECK_EQ(got, k);
            CHECK(key.len <= 1024);
            CHECK(longest_segment(buf_span(&key)) <= s.segment_max);
        }
        buf_deinit(&key);
        buf_deinit(&prefix);
        mem_free(name);
    }
}

/* A prefix so long that little is left: names stop at 32 bytes, nothing fails. */
TEST(a_long_prefix_leaves_a_short_name)
{
    struct lake_window w = guide_window();
    char *prefix = repeated('p', 768);
    char *name = repeated('n', 5000);
    w.spec.prefix = span_str(prefix);
    w.spec.queue = span_str(name);
    struct buf key = object_key(&w);
    CHECK_EQ(key.len, 1024);
    buf_deinit(&key);
    mem_free(prefix);
    mem_free(name);
}

TEST(names_in_kv_keys_have_300_bytes)
{
    struct buf b = BUF_INIT;
    lake_kv_name(&b, SPAN_LIT("orders/eu"));
    CHECK_TEXT(buf_span(&b), "orders%2Feu");
    char *name = repeated('n', 300);
    buf_reset(&b);
    lake_kv_name(&b, span_str(name));
    CHECK_TEXT(buf_span(&b), name);
    mem_free(name);
    name = repeated('n', 301);
    buf_reset(&b);
    lake_kv_name(&b, span_str(name));
    CHECK_EQ(b.len, 300);
    CHECK_EQ(b.ptr[283], '~');
    mem_free(name);
    buf_deinit(&b);
}

TEST_MAIN()
