/* The course of an upload in parts, and the waits between attempts. */
#include "s3/multipart.h"

#include "lib/test.h"
#include "s3/attempts.h"

static void good(struct s3_verdict *v, const char *value)
{
    s3_verdict_reset(v);
    buf_puts(&v->value, value);
}

static enum s3_call after(struct multipart *m, enum s3_call done, struct s3_verdict *v)
{
    enum s3_call call = S3_HEAD;
    CHECK_EQ(multipart_step(m, done, v, &call), MULTIPART_CALL);
    return call;
}

TEST(parts_cover_the_object)
{
    static const struct {
        uint64_t size;
        unsigned parts;
        uint64_t last;
    } cases[] = {{1, 1, 1}, {9, 1, 9}, {10, 1, 10}, {11, 2, 1}, {30, 3, 10}, {39, 4, 9}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct multipart m;
        struct s3_verdict v = {.outcome = BUCKET_OK};
        enum s3_call call;
        uint64_t covered = 0;
        multipart_init(&m, cases[i].size, 10);
        CHECK_EQ(m.parts, cases[i].parts);
        good(&v, "id");
        for (call = after(&m, S3_MULTIPART_CREATE, &v); call == S3_MULTIPART_PART;
             call = after(&m, S3_MULTIPART_PART, &v)) {
            CHECK_EQ(multipart_part_from(&m), covered);
            covered += multipart_part_size(&m);
            good(&v, "e");
        }
        CHECK_EQ(call, S3_MULTIPART_COMPLETE);
        CHECK_EQ(covered, cases[i].size);
        CHECK_EQ(multipart_part_size(&m), cases[i].last);
        CHECK_EQ(multipart_step(&m, call, &v, &call), MULTIPART_END);
        multipart_deinit(&m);
        s3_verdict_deinit(&v);
    }
}

TEST(only_an_open_upload_is_aborted)
{
    struct multipart m;
    struct s3_verdict v = {.outcome = BUCKET_TERMINAL};
    enum s3_call call;
    multipart_init(&m, 30, 10);
    CHECK_EQ(multipart_step(&m, S3_MULTIPART_CREATE, &v, &call), MULTIPART_END);
    good(&v, "id");
    CHECK_EQ(after(&m, S3_MULTIPART_CREATE, &v), S3_MULTIPART_PART);
    s3_verdict_reset(&v);
    v.outcome = BUCKET_RETRIABLE;
    CHECK_EQ(after(&m, S3_MULTIPART_PART, &v), S3_MULTIPART_ABORT);
    CHECK_TEXT(buf_span(&m.upload_id), "id");
    CHECK_EQ(multipart_step(&m, S3_MULTIPART_ABORT, &v, &call), MULTIPART_END);
    multipart_deinit(&m);
    s3_verdict_deinit(&v);
}

TEST(a_new_upload_knows_nothing_of_the_old_one)
{
    struct multipart m;
    struct s3_verdict v = {.outcome = BUCKET_OK};
    struct buf b = BUF_INIT;
    enum s3_call call;
    multipart_init(&m, 20, 10);
    good(&v, "old");
    (void)after(&m, S3_MULTIPART_CREATE, &v);
    good(&v, "e-old");
    (void)after(&m, S3_MULTIPART_PART, &v);
    s3_verdict_reset(&v);
    v.outcome = BUCKET_RETRIABLE;
    v.upload_gone = true;
    CHECK_EQ(multipart_step(&m, S3_MULTIPART_PART, &v, &call), MULTIPART_RESTART);
    CHECK_EQ(m.upload_id.len, 0);
    good(&v, "new");
    (void)after(&m, S3_MULTIPART_CREATE, &v);
    good(&v, "e");
    (void)after(&m, S3_MULTIPART_PART, &v);
    CHECK_EQ(after(&m, S3_MULTIPART_PART, &v), S3_MULTIPART_COMPLETE);
    multipart_put_completion(&m, &b);
    CHECK(memmem(b.ptr, b.len, "old", 3) == NULL);
    CHECK_TEXT(buf_span(&m.upload_id), "new");
    buf_deinit(&b);
    multipart_deinit(&m);
    s3_verdict_deinit(&v);
}

/* ---- Waits ---- */

struct fixed {
    struct entropy entropy;
    uint64_t value;
};

static void fill_with(struct entropy *e, void *out, size_t len)
{
    CHECK_EQ(len, sizeof(uint64_t));
    memcpy(out, &((struct fixed *)e)->value, len);
}

TEST(waits_have_full_jitter)
{
    struct fixed least = {{fill_with}, 0};
    for (unsigned made = 1; made <= 80; made++) {
        int64_t step = made < 7 ? INT64_C(1000000) << (made - 1) : ATTEMPTS_STEP_MAX_US;
        struct fixed most = {{fill_with}, (uint64_t)(step - step / 10)};
        CHECK_EQ(attempts_wait_us(&least.entropy, ATTEMPTS_STEP_US, made, -1), step / 10);
        CHECK_EQ(attempts_wait_us(&most.entropy, ATTEMPTS_STEP_US, made, -1), step);
    }
    CHECK_EQ(attempts_wait_us(&least.entropy, ATTEMPTS_STEP_US, 1, 7000000), 7000000);
    CHECK_EQ(attempts_wait_us(&least.entropy, ATTEMPTS_STEP_US, 1, 1), 100000);
    CHECK_EQ(attempts_wait_us(&least.entropy, ATTEMPTS_STEP_US, 1, 900000000), 60000000);
}

TEST(waits_end_when_they_are_due)
{
    struct wait w[3];
    struct wait *list = NULL;
    int64_t nearest;
    for (int i = 0; i < 3; i++)
        wait_add(&list, &w[i], 10 * (i + 1));
    CHECK(wait_take_due(&list, 9, false, &nearest) == NULL);
    CHECK_EQ(nearest, 10);
    CHECK(wait_take_due(&list, 20, false, &nearest) != NULL);
    CHECK_EQ(nearest, 30);
    CHECK(list == &w[2] && w[2].next == NULL);
    CHECK(wait_take_due(&list, 0, true, &nearest) == &w[2]);
    CHECK(list == NULL);
    CHECK_EQ(nearest, INT64_MAX);
}

TEST_MAIN()
