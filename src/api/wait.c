/* Reads that wait: long polls of fetch, and KV reads that need a clock entry.
 *
 * A waiter is run on a reader thread, and either answers or parks. One word says where it stands:
 *   RUNNING  a run is queued or under way that has not been disturbed
 *   WOKEN    disturbed while running: parking runs it again at once
 *   PARKED   nobody holds it; who turns this into WOKEN submits the next run
 * So a wake between reading and parking is never lost, no two runs overlap, and a run that parked
 * does not touch the waiter again. The lists below only say whom an entry wakes; a waiter leaves
 * them before it is freed. */
#include "api/internal.h"

#include "base/mem.h"

enum stand { RUNNING, WOKEN, PARKED };

static void run_job(void *ctx)
{
    struct waiter *w = ctx;
    (void)timers_disarm(w->api->timers, &w->timer); /* fired or not: this is its run */
    atomic_store(&w->stand, RUNNING);
    w->run(w);
}

static void wake(struct waiter *w)
{
    if (atomic_exchange(&w->stand, WOKEN) == PARKED)
        pool_submit(w->api->readers, run_job, w);
}

static void timer_fired(struct timer *t)
{
    wake((struct waiter *)(void *)((char *)t - offsetof(struct waiter, timer)));
}

void waiter_init(struct waiter *w, struct api *a, void (*run)(struct waiter *w))
{
    w->api = a;
    w->run = run;
    w->timer.fire = timer_fired;
    atomic_store(&w->stand, RUNNING);
}

void waiter_submit(struct waiter *w)
{
    pool_submit(w->api->readers, run_job, w);
}

void waiter_park(struct waiter *w, int64_t due_us)
{
    struct api *a = w->api;
    int running = RUNNING;
    timers_arm(a->timers, &w->timer, due_us);
    if (atomic_load(&a->draining) || !atomic_compare_exchange_strong(&w->stand, &running, PARKED))
        pool_submit(a->readers, run_job, w);
}

/* --- lists, under the lock ----------------------------------------------------------------------
 */

static void link_in(struct api *a, struct wait_link *link)
{
    struct wait_link *head = map64_get(&a->waits.lists, link->id);
    link->prev = NULL;
    link->next = head;
    if (head != NULL)
        head->prev = link;
    (void)map64_put(&a->waits.lists, link->id, link); /* the old head is linked behind it */
}

static void link_out(struct api *a, struct wait_link *link)
{
    if (link->next != NULL)
        link->next->prev = link->prev;
    if (link->prev != NULL)
        link->prev->next = link->next;
    else if (link->next != NULL)
        (void)map64_put(&a->waits.lists, link->id, link->next);
    else
        (void)map64_remove(&a->waits.lists, link->id);
}

static void unwatch(struct waiter *w)
{
    struct api *a = w->api;
    if (w->links == NULL)
        return;
    pthread_mutex_lock(&a->waits.lock);
    for (size_t i = 0; i < w->n_links; i++)
        link_out(a, &w->links[i]);
    atomic_fetch_sub(&a->waits.count, 1);
    pthread_mutex_unlock(&a->waits.lock);
    mem_free(w->links);
    w->links = NULL;
    w->n_links = 0;
}

static bool same_ids(const struct waiter *w, const uint64_t *ids, size_t n)
{
    if (w->links == NULL || w->n_links != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (w->links[i].id != ids[i])
            return false;
    }
    return true;
}

bool waiter_watch(struct waiter *w, const uint64_t *ids, size_t n)
{
    struct api *a = w->api;
    if (same_ids(w, ids, n))
        return false;
    unwatch(w);
    w->links = MEM_ARRAY(struct wait_link, n == 0 ? 1 : n);
    w->n_links = n;
    pthread_mutex_lock(&a->waits.lock);
    for (size_t i = 0; i < n; i++) {
        w->links[i] = (struct wait_link){.waiter = w, .id = ids[i]};
        link_in(a, &w->links[i]);
    }
    atomic_fetch_add(&a->waits.count, 1);
    pthread_mutex_unlock(&a->waits.lock);
    return true;
}

void waiter_deinit(struct waiter *w)
{
    (void)timers_disarm(w->api->timers,
                        &w->timer); /* armed when the last run parked and was woken */
    unwatch(w);
}

void waits_hook(void *api, uint64_t queue_id)
{
    struct api *a = api;
    if (atomic_load(&a->waits.count) == 0)
        return;
    pthread_mutex_lock(&a->waits.lock);
    struct wait_link *link = map64_get(&a->waits.lists, queue_id);
    for (; link != NULL; link = link->next)
        wake(link->waiter);
    pthread_mutex_unlock(&a->waits.lock);
}

void waits_wake_all(struct api *a)
{
    size_t at = 0;
    uint64_t id;
    void *head;
    pthread_mutex_lock(&a->waits.lock);
    while (map64_next(&a->waits.lists, &at, &id, &head)) {
        for (struct wait_link *link = head; link != NULL; link = link->next)
            wake(link->waiter);
    }
    pthread_mutex_unlock(&a->waits.lock);
}
