/* The push command: encoding, and applying it (spec/broker-api.md 2, decisions.md 1, 18, 23).
 *
 * One push is one command with one stamp, its `now`, for all its records over all its partitions.
 * What becomes of each item is decided at apply; the queue-log runs it produces are handed out as
 * effects, which the caller (node) carries out before the entry counts as applied. Pure: no clock,
 * no I/O. */
#ifndef BROKER_PUSH_H
#define BROKER_PUSH_H

#include "store/command.h"
#include "store/qlog.h"
#include "store/state.h"

#define PUSH_TRANSACTION_ID_MAX 65535u

struct push_item {
    struct span queue, partition;
    struct span transaction_id; /* ignored when minted: the message id's text is used */
    bool minted;
    struct uuid message_id;
    struct span payload;
};

/* Appends the body of a COMMAND_PUSH. Items keep their order; consecutive items of one queue and
 * partition share its name. */
void push_encode(struct buf *out, const struct tenant_id *tenant, const struct push_item *items,
                 size_t n);

enum push_status { PUSH_QUEUED, PUSH_DUPLICATE, PUSH_ERROR };

struct push_item_result {
    uint64_t offset;
    struct uuid message_id;
    uint8_t status;
};

struct push_result {
    struct push_item_result *items; /* owned, in request order */
    size_t n;
};

void push_result_deinit(struct push_result *r);

/* Runs to append, in order. Everything borrows from the command body and from `arena` buffers in
 * here. */
struct push_effects {
    struct push_effect {
        struct queue *queue;
        struct qlog_run run;
    } * runs;
    size_t n, cap;
    struct push_scratch *scratch; /* internal: records, minted texts, grouping; reused */
};

void push_effects_reset(struct push_effects *e);
void push_effects_deinit(struct push_effects *e);

/* Applies the body. result NULL on replay. Creates queues and partitions, assigns offsets, writes
 * dedup rows, moves last_write_at, next_offset, max_stamp. log_length is the caller's (after the
 * appends). ERR_CORRUPT when the body does not decode: the node stops. */
ERR_CHECK enum err push_apply(struct state *s, struct apply_context *at, struct span body,
                              struct push_effects *effects, struct push_result *result,
                              struct error *error);

#endif
