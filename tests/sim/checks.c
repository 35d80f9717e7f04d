/* The named stories: which there are, and the world that each is played in. docs/testing.md has the
 * usual figures. */
#include "sim/clock_checks.h"
#include "sim/story.h"

static const struct check_list *const lists[] = {&placement_checks, &outage_checks, &lake_checks,
                                                 &disk_checks};

#define LISTS (sizeof(lists) / sizeof(lists[0]))

static size_t ours(void) /* the others are the clock's */
{
    size_t n = 0;
    for (size_t i = 0; i < LISTS; i++)
        n += lists[i]->n;
    return n;
}

static const struct check *find(size_t check)
{
    for (size_t i = 0; i < LISTS; i++) {
        if (check < lists[i]->n)
            return &lists[i]->checks[check];
        check -= lists[i]->n;
    }
    return NULL;
}

size_t check_count(void)
{
    return ours() + clock_check_count();
}

const char *check_name(size_t check)
{
    const struct check *c = find(check);
    return c != NULL ? c->name : clock_check_name(check - ours());
}

enum check_kind check_kind(size_t check)
{
    const struct check *c = find(check);
    return c != NULL ? c->kind : CHECK_CLOCK;
}

void check_run(size_t check, const struct world_options *options, struct world_result *out)
{
    const struct check *c = find(check);
    if (c == NULL) {
        clock_check_run(check - ours(), options, out);
        return;
    }
    struct world w;
    struct world_options ours = *options;
    ours.instances = WORLD_INSTANCES_MAX;
    ours.queues = WORLD_QUEUES_MAX;
    world_init(&w, &ours, out);
    w.calm = w.one_by_one = w.store.prompt = true;
    w.setup = (struct sink_setup){.ttl_ms = TTL_MS,
                                  .window_ms = 2000,
                                  .guard_ms = 100,
                                  .checkpoint_every = 4,
                                  .compression = "zstd",
                                  .align = "hour",
                                  .http = true};
    int64_t start = w.clock.mono;
    struct story s = {.w = &w,
                      .a = &w.instances[0],
                      .b = &w.instances[1],
                      .c = &w.instances[2],
                      .push_at_us = start + US_PER_SEC,
                      .push_most = 4,
                      .free_most = WORLD_QUEUES_MAX};
    c->run(&s);
    if (out->ok && c->kind == CHECK_PLACEMENT)
        story_end(&s);
    out->virtual_us = w.clock.mono - start;
    world_drop(&w);
    world_deinit(&w);
}
