#include "base/omap.h"

#include "base/buf.h"
#include "lib/test.h"

static void check_row(const struct omap_row *row, const char *key, const char *value, bool deleted)
{
    CHECK_TEXT(row->key, key);
    CHECK_TEXT(row->value, value);
    CHECK_EQ(row->deleted, deleted);
}

TEST(an_empty_map_answers)
{
    struct omap *m = omap_new();
    struct omap_row row;
    CHECK_EQ(omap_count(m), 0);
    CHECK(!omap_get(m, SPAN_LIT("a"), &row));
    CHECK(!omap_seek(m, SPAN_LIT(""), false, &row));
    omap_erase(m, SPAN_LIT("a"));
    omap_free(m);
    omap_free(NULL);
}

TEST(rows_and_tombstones_replace_each_other)
{
    struct omap *m = omap_new();
    struct omap_row row;
    size_t empty = omap_bytes(m);
    omap_put(m, SPAN_LIT("k"), SPAN_LIT("one"));
    omap_put(m, SPAN_LIT("k"), SPAN_LIT("two, longer"));
    CHECK(omap_get(m, SPAN_LIT("k"), &row));
    check_row(&row, "k", "two, longer", false);
    omap_put_tombstone(m, SPAN_LIT("k"));
    CHECK(omap_get(m, SPAN_LIT("k"), &row));
    check_row(&row, "k", "", true);
    CHECK(omap_seek(m, SPAN_LIT("k"), false, &row));
    check_row(&row, "k", "", true);
    omap_put(m, SPAN_LIT("k"), SPAN_LIT(""));
    CHECK(omap_get(m, SPAN_LIT("k"), &row));
    check_row(&row, "k", "", false);
    CHECK_EQ(omap_count(m), 1);
    omap_erase(m, SPAN_LIT("k"));
    CHECK(!omap_get(m, SPAN_LIT("k"), &row));
    CHECK_EQ(omap_count(m), 0);
    CHECK_EQ(omap_bytes(m), empty);
    omap_free(m);
}

/* Goal: order is that of the bytes where the first eight or sixteen of the keys are equal, or
 * shorter. */
TEST(order_is_bytewise)
{
    static const struct span keys[] = {
        {(const uint8_t *)"", 0},
        {(const uint8_t *)"\0", 1},
        {(const uint8_t *)"\0\0\0\0\0\0\0\0\0", 9},
        {(const uint8_t *)"a", 1},
        {(const uint8_t *)"a\0", 2},
        {(const uint8_t *)"aaaaaaaa", 8},
        {(const uint8_t *)"aaaaaaaa\0", 9},
        {(const uint8_t *)"aaaaaaaab", 9},
        {(const uint8_t *)"aaaaaaaabbbbbbbb", 16},
        {(const uint8_t *)"aaaaaaaabbbbbbbb\0", 17},
        {(const uint8_t *)"aaaaaaaabbbbbbbbc", 17},
        {(const uint8_t *)"b", 1},
        {(const uint8_t *)"\x7f", 1},
        {(const uint8_t *)"\x80", 1},
        {(const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff", 8},
        {(const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff\xff", 9},
    };
    enum { COUNT = sizeof(keys) / sizeof(keys[0]) };
    struct omap *m = omap_new();
    struct omap_row row;
    for (size_t i = 0; i < COUNT; i++)
        omap_put(m, keys[(i * 5) % COUNT], SPAN_LIT("v"));
    CHECK_EQ(omap_count(m), COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(omap_seek(m, keys[i], false, &row));
        CHECK_SPAN(row.key, keys[i]);
        CHECK_EQ(omap_seek(m, keys[i], true, &row), i + 1 < COUNT);
        if (i + 1 < COUNT)
            CHECK_SPAN(row.key, keys[i + 1]);
    }
    omap_free(m);
}

TEST(arguments_may_be_borrowed_from_the_map)
{
    struct omap *m = omap_new();
    struct omap_row row;
    omap_put(m, SPAN_LIT("k"), SPAN_LIT("value"));
    CHECK(omap_get(m, SPAN_LIT("k"), &row));
    omap_put(m, row.key, row.value);
    CHECK(omap_get(m, SPAN_LIT("k"), &row));
    check_row(&row, "k", "value", false);
    omap_erase(m, row.key);
    CHECK_EQ(omap_count(m), 0);
    omap_free(m);
}

enum { SLOTS = 20000 };

struct model {
    struct omap *map;
    uint32_t version[SLOTS]; /* 0: absent */
    bool deleted[SLOTS];
    size_t count;
    struct buf key, value;
};

static struct span model_key(struct model *model, unsigned i)
{
    buf_reset(&model->key);
    /* Few distinct first bytes, so that both kinds of comparison happen. */
    buf_printf(&model->key, "queue%02u/", i % 7);
    buf_put_be32(&model->key, i);
    return buf_span(&model->key);
}

static struct span model_value(struct model *model, unsigned i)
{
    buf_reset(&model->value);
    if (!model->deleted[i])
        buf_printf(&model->value, "%u.%u%*s", i, model->version[i], (int)(i % 30), "");
    return buf_span(&model->value);
}

static void model_check_row(struct model *model, unsigned i)
{
    struct omap_row row;
    CHECK_EQ(omap_get(model->map, model_key(model, i), &row), model->version[i] != 0);
    if (model->version[i] == 0)
        return;
    CHECK_SPAN(row.key, model_key(model, i));
    CHECK_SPAN(row.value, model_value(model, i));
    CHECK_EQ(row.deleted, model->deleted[i]);
}

static void model_change(struct model *model, unsigned i, unsigned kind)
{
    bool was = model->version[i] != 0;
    if (kind == 0) {
        model->version[i] = 0;
        omap_erase(model->map, model_key(model, i));
        model->count -= was ? 1 : 0;
        return;
    }
    model->version[i]++;
    model->deleted[i] = kind == 1;
    if (kind == 1)
        omap_put_tombstone(model->map, model_key(model, i));
    else
        omap_put(model->map, model_key(model, i), model_value(model, i));
    model->count += was ? 0 : 1;
}

struct walk {
    struct omap *map;
    size_t count;
    struct buf at;
};

/* The next row of the whole walk is the one that a seek behind the last one finds. */
static void check_visit(void *ctx, const struct omap_row *row)
{
    struct walk *w = ctx;
    struct omap_row want;
    CHECK(omap_seek(w->map, buf_span(&w->at), w->count > 0, &want));
    CHECK_SPAN(row->key, want.key);
    CHECK_SPAN(row->value, want.value);
    CHECK_EQ(row->deleted, want.deleted);
    buf_reset(&w->at);
    buf_put_span(&w->at, row->key);
    w->count++;
}

/* Goal: the map walks exactly the model's rows, in order. The order of keys is queue, then number.
 */
static void model_check_walk(struct model *model)
{
    struct omap_row row;
    struct buf at = BUF_INIT;
    size_t count = 0;
    bool strict = false;
    for (unsigned queue = 0; queue < 7; queue++) {
        for (unsigned i = queue; i < SLOTS; i += 7) {
            if (model->version[i] == 0)
                continue;
            CHECK(omap_seek(model->map, buf_span(&at), strict, &row));
            CHECK_SPAN(row.key, model_key(model, i));
            buf_reset(&at);
            buf_put_span(&at, row.key);
            strict = true;
            count++;
        }
    }
    CHECK(!omap_seek(model->map, buf_span(&at), strict, &row));
    CHECK_EQ(count, model->count);
    CHECK_EQ(omap_count(model->map), count);
    struct walk walk = {.map = model->map, .at = BUF_INIT};
    omap_each(model->map, check_visit, &walk);
    CHECK_EQ(walk.count, count);
    buf_deinit(&walk.at);
    buf_deinit(&at);
}

/* Method: a random walk in phases that fill, churn and drain, against plain arrays. */
TEST(random_changes_match_a_model)
{
    static struct model model;
    model.map = omap_new();
    size_t empty = omap_bytes(model.map);
    uint64_t random = 7;
    for (unsigned phase = 0; phase < 6; phase++) {
        for (unsigned step = 0; step < 40000; step++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            unsigned i = (unsigned)(random >> 33) % SLOTS;
            unsigned die = (unsigned)(random >> 56) % 10;
            unsigned erase_below = phase % 2 == 0 ? 2 : 9; /* odd phases drain */
            model_change(&model, i, die < erase_below ? 0 : die == 9 ? 1 : 2);
            if (step % 16 == 0)
                model_check_row(&model, (unsigned)(random >> 20) % SLOTS);
        }
        model_check_walk(&model);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        model_change(&model, i, 0);
    model_check_walk(&model);
    CHECK_EQ(omap_bytes(model.map), empty);
    omap_free(model.map);
    buf_deinit(&model.key);
    buf_deinit(&model.value);
}

/* Goal: whole ranges may go, in either direction, and the rest is still found and in order. */
TEST(draining_from_either_end)
{
    for (unsigned down = 0; down < 2; down++) {
        struct omap *m = omap_new();
        size_t empty = omap_bytes(m);
        struct omap_row row;
        uint8_t key[4];
        for (uint32_t i = 0; i < 30000; i++) {
            for (unsigned k = 0; k < 4; k++)
                key[k] = (uint8_t)(i >> (24 - 8 * k));
            omap_put(m, span_make(key, 4), SPAN_LIT("v"));
        }
        for (uint32_t i = 0; i < 30000; i++) {
            uint32_t gone = down ? 29999 - i : i;
            for (unsigned k = 0; k < 4; k++)
                key[k] = (uint8_t)(gone >> (24 - 8 * k));
            omap_erase(m, span_make(key, 4));
            CHECK_EQ(omap_count(m), 29999 - i);
            if (i == 29999)
                break;
            CHECK(omap_seek(m, SPAN_LIT(""), false, &row));
            CHECK_EQ(row.key.ptr[3], (uint8_t)(down ? 0 : gone + 1));
            CHECK_EQ(omap_seek(m, span_make(key, 4), true, &row), !down);
        }
        CHECK_EQ(omap_bytes(m), empty);
        omap_free(m);
    }
}

TEST_MAIN()
