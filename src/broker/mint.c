/* Derived ids. uuid_derive() takes one ordinal; a command needs two (its position in the entry and
 * a count of its own), so it is applied twice: the first id stands for the command and takes the
 * cluster's place in the second. */
#include "broker/mint.h"

struct uuid mint_uuid(struct state *s, struct apply_context *at)
{
    struct uuid command = uuid_derive(&state_meta(s)->cluster, at->index, at->ordinal, at->now);
    return uuid_derive(&command, at->index, at->minted++, at->now);
}
