/* What push.c and push_body.c share: the decoded body, grouped. */
#ifndef BROKER_PUSH_INTERNAL_H
#define BROKER_PUSH_INTERNAL_H

#include "broker/push.h"

/* Eight bytes an item: a push may hold millions. */
struct push_wire_item {
    uint32_t group;
    uint32_t at; /* of its message id in the body; top bit: minted */
};

struct push_group {
    struct span queue, partition; /* borrow from the body */
    uint64_t hash;
    uint32_t count;
    uint32_t first; /* its items are order[first .. first + count) */
};

struct push_groups {
    struct span body;
    struct push_wire_item *items; /* in request order */
    size_t item_count, item_cap;
    size_t explicit_count; /* items with an id of their own */
    uint32_t *order;       /* item numbers by group, in request order within each */
    size_t order_cap;
    struct push_group *groups; /* in order of first appearance */
    size_t group_count, group_cap;
    uint32_t *slots; /* hash table: group number + 1 */
    size_t slot_cap; /* power of two */
};

struct push_parts {
    bool minted;
    struct uuid message_id;
    struct span transaction_id; /* empty when minted */
    struct span payload;
};

struct push_scratch {
    struct push_block *blocks; /* records and minted texts: what effects point to */
    struct push_groups groups;
};

/* Replaces what was in g. ERR_CORRUPT; g then holds nothing of use. */
ERR_CHECK enum err push_groups_decode(struct push_groups *g, struct span body,
                                      struct tenant_id *tenant_out);
struct push_parts push_item_parts(const struct push_groups *g, uint32_t item);
void push_groups_reset(struct push_groups *g); /* gives back what is large */
void push_groups_deinit(struct push_groups *g);

#endif
