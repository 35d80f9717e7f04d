#include "sim/ledger.h"

#include "base/mem.h"

#include <stdio.h>

void ledger_init(struct ledger *l)
{
    *l = (struct ledger){.by_transaction = MAP_INIT};
}

void ledger_deinit(struct ledger *l)
{
    for (size_t i = 0; i < l->n; i++) {
        mem_free((void *)(uintptr_t)l->records[i]->payload.ptr);
        mem_free(l->records[i]);
    }
    mem_free(l->records);
    mem_free(l->deletions);
    map_deinit(&l->by_transaction);
}

struct ledger_record *ledger_add(struct ledger *l, unsigned queue, unsigned partition,
                                 struct span payload)
{
    struct ledger_record *r = mem_new(sizeof(*r));
    r->seq = ++l->seq;
    r->queue = queue;
    r->partition = partition;
    snprintf(r->transaction_id, sizeof(r->transaction_id), "tx-%llu", (unsigned long long)r->seq);
    r->payload = span_make(mem_copy(payload.ptr, payload.len), payload.len);
    if (l->n == l->cap) {
        l->cap = l->cap == 0 ? 256 : 2 * l->cap;
        l->records = mem_grow(l->records, l->cap * sizeof(*l->records));
    }
    l->records[l->n++] = r;
    map_put(&l->by_transaction, span_str(r->transaction_id), r);
    return r;
}

size_t ledger_delete(struct ledger *l, unsigned queue)
{
    if (l->n_deletions == l->deletions_cap) {
        l->deletions_cap = l->deletions_cap == 0 ? 16 : 2 * l->deletions_cap;
        l->deletions = mem_grow(l->deletions, l->deletions_cap * sizeof(*l->deletions));
    }
    l->deletions[l->n_deletions] = (struct ledger_deletion){++l->seq, queue, false};
    return l->n_deletions++;
}

struct ledger_record *ledger_find(struct ledger *l, struct span transaction_id)
{
    return map_get(&l->by_transaction, transaction_id);
}

bool ledger_optional(const struct ledger *l, const struct ledger_record *r)
{
    for (size_t i = 0; i < l->n_deletions; i++) {
        const struct ledger_deletion *d = &l->deletions[i];
        if (d->queue == r->queue && d->seq > r->seq && !d->refused)
            return true;
    }
    return r->told != TOLD_QUEUED;
}
