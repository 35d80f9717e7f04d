/* The log writer: requests become entries, entries become one durable write (group commit).
 *
 * While a write is on its way to the disk new requests queue up; the next write takes them all. The
 * clock of an entry is given here, when it is proposed (docs/architecture.md, Clock): max(wall
 * clock, previous clock + max(1, previous entry's command count), previous clock + half the
 * monotonic time since). A write that fails for want of space fails its requests only, and those
 * that do not grow storage are tried again in the room of the ballast; any other failure stops the
 * node, since nobody knows whether its entries will be there after a restart. */
#include "node/internal.h"

#include "base/mem.h"

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t node_clock_now_locked(struct node *n)
{
    int64_t step = n->shared.last_count > 1 ? n->shared.last_count : 1;
    int64_t elapsed = clock_mono_us(n->options.clock) - n->shared.last_mono;
    int64_t clock = max_i64(clock_wall_us(n->options.clock), n->shared.last_clock + step);
    return max_i64(clock, n->shared.last_clock + elapsed / 2);
}

int64_t node_clock_estimate(struct node *n)
{
    pthread_mutex_lock(&n->mutex);
    int64_t clock = node_clock_now_locked(n);
    pthread_mutex_unlock(&n->mutex);
    return clock;
}

int64_t node_clock_wait_us(struct node *n, int64_t us)
{
    pthread_mutex_lock(&n->mutex);
    int64_t wait = 0;
    if (node_clock_now_locked(n) < us) {
        int64_t by_wall = us - clock_wall_us(n->options.clock);
        int64_t elapsed = clock_mono_us(n->options.clock) - n->shared.last_mono;
        int64_t by_mono = 2 * (us - n->shared.last_clock) - elapsed;
        wait = by_wall < by_mono ? by_wall : by_mono;
        wait = max_i64(wait, 1);
    }
    pthread_mutex_unlock(&n->mutex);
    return wait;
}

void node_request_clock_entry(struct node *n)
{
    pthread_mutex_lock(&n->mutex);
    n->shared.clock_wanted = true;
    pthread_cond_signal(&n->log_wake);
    pthread_mutex_unlock(&n->mutex);
}

static uint64_t entry_cost(const struct node_request *r)
{
    return r->body.len + COMMAND_HEADER_SIZE;
}

void node_submit(struct node *n, struct node_request *r)
{
    enum err refusal = ERR_OK;
    r->next = NULL;
    r->err = ERR_OK;
    if (r->body.len + ENTRY_HEADER_SIZE + COMMAND_HEADER_SIZE > n->options.entry_max_bytes)
        refusal = ERR_TOO_LARGE;
    else if (r->grows_storage && node_space_refuses(n, entry_cost(r)))
        refusal = ERR_STORAGE_FULL;

    atomic_fetch_add(&n->inflight, 1);
    atomic_fetch_add(&n->queued_bytes, entry_cost(r));
    pthread_mutex_lock(&n->mutex);
    if (refusal == ERR_OK && (n->shared.closing || atomic_load(&n->stopped)))
        refusal = ERR_STOPPED;
    if (refusal == ERR_OK) {
        *n->shared.pending_last = r;
        n->shared.pending_last = &r->next;
        pthread_cond_signal(&n->log_wake);
    }
    pthread_mutex_unlock(&n->mutex);
    if (refusal != ERR_OK)
        node_complete(n, r, refusal);
    else
        atomic_fetch_add(&n->proposals, 1);
}

/* Takes requests from *list for one entry: as many as the batch limits allow, at least one. */
static struct node_entry *entry_take(struct node *n, struct node_request **list)
{
    struct node_entry *entry = mem_new(sizeof(*entry));
    struct node_request **end = &entry->first;
    while (*list != NULL && entry->count < n->options.batch_max_commands) {
        struct node_request *r = *list;
        if (entry->count > 0 && entry->bytes + entry_cost(r) > n->options.batch_max_bytes)
            break;
        entry->bytes += entry_cost(r);
        entry->log_bytes += r->type == COMMAND_PUSH ? r->body.len : 0;
        *list = r->next;
        r->next = NULL;
        *end = r;
        end = &r->next;
        entry->count++;
    }
    return entry;
}

/* One write being put together. */
struct log_write {
    struct node_entry *first, **last;
    struct wal_append appends[NODE_ENTRIES_PER_WRITE_MAX];
    size_t n;
    size_t n_parts;
    uint64_t bytes;
};

static void entry_stamp(struct node *n, struct node_entry *entry)
{
    pthread_mutex_lock(&n->mutex);
    entry->clock = node_clock_now_locked(n);
    n->shared.last_clock = entry->clock;
    n->shared.last_count = entry->count;
    n->shared.last_mono = clock_mono_us(n->options.clock);
    pthread_mutex_unlock(&n->mutex);
}

static void write_begin(struct node *n, struct log_write *w)
{
    *w = (struct log_write){.last = NULL};
    w->last = &w->first;
    buf_reset(&n->log.headers);
}

static void write_add(struct node *n, struct log_write *w, struct node_entry *entry)
{
    entry->index = n->log.next_index + w->n;
    entry->term = n->replicator->ops->term(n->replicator);
    entry_stamp(n, entry);
    *w->last = entry;
    w->last = &entry->next;
    w->n++;
    w->bytes += entry->bytes;
    w->n_parts += 1 + 2 * (size_t)entry->count;
}

/* Headers first (their buffer may move while it grows), then the parts that point into it. */
static void write_gather(struct node *n, struct log_write *w)
{
    for (struct node_entry *e = w->first; e != NULL; e = e->next) {
        entry_header_put(&n->log.headers, e->count, e->clock);
        for (struct node_request *r = e->first; r != NULL; r = r->next)
            command_header_put(&n->log.headers, r->type, (uint32_t)r->body.len);
    }
    if (w->n_parts > n->log.parts_cap) {
        n->log.parts = mem_grow(n->log.parts, w->n_parts * sizeof(*n->log.parts));
        n->log.parts_cap = w->n_parts;
    }
    const uint8_t *header = n->log.headers.ptr;
    struct span *part = n->log.parts;
    size_t i = 0;
    for (struct node_entry *e = w->first; e != NULL; e = e->next, i++) {
        struct span *first = part;
        *part++ = span_make(header, ENTRY_HEADER_SIZE);
        header += ENTRY_HEADER_SIZE;
        for (struct node_request *r = e->first; r != NULL; r = r->next) {
            *part++ = span_make(header, COMMAND_HEADER_SIZE);
            header += COMMAND_HEADER_SIZE;
            *part++ = buf_span(&r->body);
        }
        w->appends[i] = (struct wal_append){e->index, first, (size_t)(part - first)};
    }
}

/* Takes the write apart again. Requests that grow storage, or all when `retry` is NULL, are failed;
 * the others come to *retry. */
static void write_fail(struct node *n, struct log_write *w, enum err err,
                       struct node_request **retry)
{
    struct node_entry *entry = w->first;
    while (entry != NULL) {
        struct node_entry *next = entry->next;
        struct node_request *r = entry->first;
        while (r != NULL) {
            struct node_request *next_request = r->next;
            if (retry == NULL || r->grows_storage) {
                node_complete(n, r, err);
            } else {
                r->next = NULL;
                *retry = r;
                retry = &r->next;
            }
            r = next_request;
        }
        mem_free(entry);
        entry = next;
    }
}

static void write_commit(struct node *n, struct log_write *w)
{
    n->log.next_index += w->n;
    atomic_fetch_add(&n->entries, w->n);
    pthread_mutex_lock(&n->mutex);
    *n->shared.apply_last = w->first;
    n->shared.apply_last = w->last;
    pthread_cond_signal(&n->apply_wake);
    pthread_mutex_unlock(&n->mutex);
}

/* A disk that is full costs the ballast; *retry are those that may go into its room. */
static void write_run(struct node *n, struct log_write *w, struct node_request **retry)
{
    struct error error = {0};
    *retry = NULL;
    write_gather(n, w);
    enum err err = n->replicator->ops->propose(n->replicator, w->appends, w->n, &error);
    if (err == ERR_OK) {
        write_commit(n, w);
        return;
    }
    if (err == ERR_NO_SPACE) {
        write_fail(n, w, ERR_STORAGE_FULL, node_make_room(n) ? retry : NULL);
        return;
    }
    node_fail(n, "log write", &error);
    write_fail(n, w, ERR_STOPPED, NULL);
}

/* Is an empty clock entry due now? *wait_out: how long until it may be, when one is wanted. Mutex
 * held. */
static bool clock_entry_due(struct node *n, int64_t *wait_out)
{
    *wait_out = -1;
    if (!n->shared.clock_wanted || atomic_load(&n->emergency))
        return false;
    int64_t since = clock_mono_us(n->options.clock) - n->shared.last_clock_entry_mono;
    if (since >= NODE_CLOCK_ENTRY_EVERY_US)
        return true;
    *wait_out = NODE_CLOCK_ENTRY_EVERY_US - since;
    return false;
}

/* Takes what is queued. False when there is nothing to do. Mutex held. */
static bool take_work(struct node *n, struct node_request **requests_out, bool *clock_out,
                      int64_t *wait_out)
{
    bool clock = clock_entry_due(n, wait_out);
    if (n->shared.pending_first == NULL && !clock)
        return false;
    *requests_out = n->shared.pending_first;
    n->shared.pending_first = NULL;
    n->shared.pending_last = &n->shared.pending_first;
    *clock_out = *requests_out == NULL; /* any entry moves the clock */
    n->shared.clock_wanted = false;
    if (*clock_out)
        n->shared.last_clock_entry_mono = clock_mono_us(n->options.clock);
    return true;
}

static void write_requests(struct node *n, struct node_request *requests, bool clock)
{
    struct log_write w;
    do {
        if (atomic_load(&n->stopped)) {
            node_complete_all(n, requests, ERR_STOPPED);
            return;
        }
        write_begin(n, &w);
        while (w.n < NODE_ENTRIES_PER_WRITE_MAX && w.bytes < NODE_WRITE_BYTES_MAX &&
               (requests != NULL || (clock && w.n == 0)))
            write_add(n, &w, entry_take(n, &requests));
        struct node_request *retry;
        write_run(n, &w, &retry);
        if (retry != NULL)
            write_requests(n, retry, false); /* no more often than there is something to give up */
    } while (requests != NULL);
}

bool node_clock_paused(const struct node *n)
{
    return atomic_load(&n->emergency);
}

bool node_pump_log(struct node *n)
{
    struct node_request *requests = NULL;
    bool clock = false;
    int64_t wait;
    pthread_mutex_lock(&n->mutex);
    bool work = take_work(n, &requests, &clock, &wait);
    pthread_mutex_unlock(&n->mutex);
    if (work)
        write_requests(n, requests, clock);
    return work;
}

void node_log_thread(void *ctx)
{
    struct node *n = ctx;
    pthread_mutex_lock(&n->mutex);
    for (;;) {
        struct node_request *requests = NULL;
        bool clock = false;
        int64_t wait;
        if (take_work(n, &requests, &clock, &wait)) {
            pthread_mutex_unlock(&n->mutex);
            write_requests(n, requests, clock);
            pthread_mutex_lock(&n->mutex);
        } else if (n->shared.closing) {
            break;
        } else {
            (void)cond_wait_us(&n->log_wake, &n->mutex, wait); /* why it woke is looked at above */
        }
    }
    n->shared.log_done = true;
    pthread_cond_broadcast(&n->apply_wake);
    pthread_mutex_unlock(&n->mutex);
}
