/* Threads, the pool, timed waits, clocks and random bytes. */
#include "io/pool.h"

#include "io/clock.h"
#include "lib/test.h"

#include <signal.h>
#include <stdatomic.h>

static void note_name_and_signals(void *ctx)
{
    char *name = (char *)ctx;
    (void)pthread_getname_np(pthread_self(), name, 16);
    sigset_t set;
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &set), 0);
    CHECK(sigismember(&set, SIGTERM) && sigismember(&set, SIGINT) && sigismember(&set, SIGHUP));
    CHECK(!sigismember(&set, SIGSEGV));
}

TEST(thread_has_its_name_and_no_signals)
{
    char name[16] = "";
    sigset_t before, after;
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    thread_join(thread_start("a-name-that-is-cut", note_name_and_signals, name));
    CHECK(strcmp(name, "a-name-that-is-") == 0);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    CHECK_EQ(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
    thread_join(NULL);
}

static atomic_uint jobs_done;

static void count_job(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&jobs_done, 1);
}

static void submit_more(void *ctx)
{
    for (unsigned i = 0; i < 10; i++)
        pool_submit((struct pool *)ctx, count_job, NULL);
}

TEST(pool_does_every_job_before_it_ends)
{
    atomic_store(&jobs_done, 0);
    struct pool *p = pool_new("worker", 4);
    for (unsigned i = 0; i < 1000; i++)
        pool_submit(p, count_job, NULL);
    for (unsigned i = 0; i < 100; i++)
        pool_submit(p, submit_more, p);
    pool_free(p);
    CHECK_EQ(atomic_load(&jobs_done), 2000);
    pool_free(NULL);
    pool_free(pool_new("idle", 1));
}

struct sequence {
    unsigned next;
    bool in_order;
};

struct numbered {
    struct sequence *sequence;
    unsigned number;
};

static void check_order(void *ctx)
{
    const struct numbered *job = (const struct numbered *)ctx;
    if (job->sequence->next != job->number)
        job->sequence->in_order = false;
    job->sequence->next++;
}

TEST(one_worker_keeps_the_order)
{
    struct sequence sequence = {.in_order = true};
    struct numbered jobs[100];
    struct pool *p = pool_new("worker", 1);
    for (unsigned i = 0; i < 100; i++) {
        jobs[i] = (struct numbered){&sequence, i};
        pool_submit(p, check_order, &jobs[i]);
    }
    pool_free(p);
    CHECK(sequence.in_order);
    CHECK_EQ(sequence.next, 100);
}

struct signal_later {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool ready;
};

static void make_ready(void *ctx)
{
    struct signal_later *s = (struct signal_later *)ctx;
    pthread_mutex_lock(&s->mutex);
    s->ready = true;
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->mutex);
}

TEST(timed_wait_ends_by_time_or_signal)
{
    struct signal_later s = {.ready = false};
    pthread_mutex_init(&s.mutex, NULL);
    cond_init_mono(&s.cond);
    pthread_mutex_lock(&s.mutex);
    int64_t start = clock_mono_us(clock_real());
    while (cond_wait_us(&s.cond, &s.mutex, 20000)) /* may wake for no reason */
        continue;
    int64_t took = clock_mono_us(clock_real()) - start;
    CHECK(took >= 20000);
    CHECK(!cond_wait_us(&s.cond, &s.mutex, 0));

    struct thread *t = thread_start("signal", make_ready, &s);
    while (!s.ready)
        (void)(cond_wait_us(&s.cond, &s.mutex, -1));
    s.ready = false;
    pthread_mutex_unlock(&s.mutex);
    thread_join(t);

    t = thread_start("signal", make_ready, &s);
    pthread_mutex_lock(&s.mutex);
    while (!s.ready)
        CHECK(cond_wait_us(&s.cond, &s.mutex, 10000000));
    pthread_mutex_unlock(&s.mutex);
    thread_join(t);
    pthread_cond_destroy(&s.cond);
    pthread_mutex_destroy(&s.mutex);
}

TEST(clocks_move)
{
    struct clock *c = clock_real();
    int64_t wall = clock_wall_us(c), mono = clock_mono_us(c);
    CHECK(mono > 0);
    CHECK(wall > INT64_C(1700000000000000)); /* 2023, in microseconds */
    CHECK(clock_mono_us(c) >= mono);
}

TEST(random_bytes_differ)
{
    struct entropy *e = entropy_real();
    uint8_t a[1000] = {0}, b[1000] = {0};
    entropy_fill(e, a, sizeof(a));
    entropy_fill(e, b, sizeof(b));
    CHECK(memcmp(a, b, sizeof(a)) != 0);
    CHECK(memcmp(a + 980, b + 980, 20) != 0);
    CHECK(entropy_u64(e) != entropy_u64(e));
    entropy_fill(e, a, 0);
}

TEST_MAIN()
