/* What the simulated clients know: every push they sent, what they were told, and every deletion.
 * The judge compares it with the broker's log after each restart and with the lake at the end.
 *
 * In manual mode the log's order is the order of submission, so a sequence number tells which
 * deletion came after which record, even when the answer was never heard. */
#ifndef TESTS_SIM_LEDGER_H
#define TESTS_SIM_LEDGER_H

#include "base/buf.h"
#include "base/map.h"
#include "base/uuid.h"

enum told { TOLD_NOTHING, TOLD_QUEUED, TOLD_DUPLICATE, TOLD_REFUSED };

struct ledger_record {
    uint64_t seq;
    unsigned queue, partition;
    char transaction_id[40];
    struct span payload; /* owned */
    enum told told;
    uint64_t offset;
    struct uuid message_id;
    int64_t stamp;
    unsigned seen; /* in the lake */
};

struct ledger_deletion {
    uint64_t seq;
    unsigned queue;
    bool refused;
};

struct ledger {
    uint64_t seq;
    struct ledger_record **records;
    size_t n, cap;
    struct map by_transaction; /* "<queue>/<transaction id>/<seq>" is not needed: ids are unique */
    struct ledger_deletion *deletions;
    size_t n_deletions, deletions_cap;
};

void ledger_init(struct ledger *l);
void ledger_deinit(struct ledger *l);
/* A new record with a fresh transaction id. */
struct ledger_record *ledger_add(struct ledger *l, unsigned queue, unsigned partition,
                                 struct span payload);
size_t ledger_delete(struct ledger *l, unsigned queue); /* its index */
struct ledger_record *ledger_find(struct ledger *l, struct span transaction_id);
/* May the record be missing, because its queue was deleted after it (or perhaps was)? */
bool ledger_optional(const struct ledger *l, const struct ledger_record *r);

#endif
