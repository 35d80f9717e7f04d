/* Uuids of queues and partitions: every node computes the same ones. */
#ifndef BROKER_MINT_H
#define BROKER_MINT_H

#include "store/command.h"
#include "store/state.h"

/* Derived from (cluster, index of the entry, position of the command in it, count within the
 * command). */
struct uuid mint_uuid(struct state *s, struct apply_context *at);

#endif
