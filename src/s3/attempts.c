/* Waits between attempts; the rules are in attempts.h. */
#include "s3/attempts.h"

int64_t attempts_wait_us(struct entropy *entropy, int64_t step_us, unsigned made,
                         int64_t retry_after_us)
{
    int64_t step = step_us;
    for (unsigned i = 1; i < made && step < ATTEMPTS_STEP_MAX_US; i++)
        step *= 2;
    if (step > ATTEMPTS_STEP_MAX_US)
        step = ATTEMPTS_STEP_MAX_US;
    int64_t least = step / 10;
    int64_t wait = least + (int64_t)(entropy_u64(entropy) % (uint64_t)(step - least + 1));
    if (wait < retry_after_us)
        wait = retry_after_us;
    return wait < ATTEMPTS_WAIT_MAX_US ? wait : ATTEMPTS_WAIT_MAX_US;
}

void attempts_begin(struct bucket_request *r)
{
    r->outcome = BUCKET_RETRIABLE;
    r->code = 0;
    r->retry_after_us = -1;
    r->error[0] = '\0';
    r->clue = (struct bucket_clue){.silence = BUCKET_ANSWERED};
    r->n_keys = 0;
    r->truncated = false;
    r->attempt_label = bucket_op_label(r->op);
}

void wait_add(struct wait **list, struct wait *w, int64_t due_us)
{
    w->due_us = due_us;
    w->next = *list;
    *list = w;
}

struct wait *wait_take_due(struct wait **list, int64_t now_us, bool all, int64_t *nearest_out)
{
    struct wait *due = NULL;
    struct wait **link = list;
    *nearest_out = INT64_MAX;
    while (*link != NULL) {
        struct wait *w = *link;
        if (all || w->due_us <= now_us) {
            *link = w->next;
            w->next = due;
            due = w;
            continue;
        }
        if (w->due_us < *nearest_out)
            *nearest_out = w->due_us;
        link = &w->next;
    }
    return due;
}
