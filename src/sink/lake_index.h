/* Which runs of a window to write next, in bounded memory.
 *
 * Records are written in the order of partition names, but the log is in the order of stamps. A
 * pass over the window's run heads collects the positions of the runs whose partition name lies
 * above `lower` (all names up to it are written) and below `upper`, which falls whenever the
 * memory is used up: the largest name collected is dropped, with everything of it. What is left at
 * the end of the pass is complete, is written, and `lower` moves to its last name. A name that
 * alone is too large keeps no positions: it is marked `streamed` and written by one more scan.
 *
 * Every pass finishes at least one name, so any bound works; a small one costs passes. A run takes
 * 12 bytes. Heads carry the partition's id only, so its name is asked for when an id is new. */
#ifndef SINK_LAKE_INDEX_H
#define SINK_LAKE_INDEX_H

#include "base/buf.h"
#include "base/map.h"

#define LAKE_INDEX_NONE UINT32_MAX /* end of a chain */

/* The runs of one partition id. */
struct lake_part {
    char *name; /* owned, name_len bytes */
    size_t name_len;
    uint64_t id;
    uint32_t first, last; /* chain of entries, positions rising */
    uint32_t at;          /* for who walks the chain; starts at first */
    uint32_t entries;     /* in the chain */
    bool streamed;        /* too large: no entries */
};

struct lake_index {
    uint64_t bytes_max;
    uint64_t bytes, bytes_peak;
    struct lake_part **parts; /* a heap, the largest name first; sorted after lake_index_sort() */
    size_t count, cap;
    struct buf upper; /* names from it on wait for a later pass, if has_upper */
    bool has_upper;
    /* private: */
    struct buf lower;
    bool has_lower;
    struct map64 by_id; /* to a part, or to a mark for ids that are not wanted in this pass */
    size_t unwanted;
    struct entry_chunk **chunks;
    size_t n_chunks;
    uint32_t entries, free;
};

void lake_index_init(struct lake_index *ix, uint64_t bytes_max);
void lake_index_deinit(struct lake_index *ix);
void lake_index_begin(struct lake_index *ix); /* a new pass */

enum lake_index_answer { LAKE_INDEX_TAKEN, LAKE_INDEX_NOT_WANTED, LAKE_INDEX_NEW_ID };
/* A run of the window, in the order of the log. NEW_ID: call lake_index_add_named() with its name.
 */
enum lake_index_answer lake_index_add(struct lake_index *ix, uint64_t id, uint64_t position);
void lake_index_add_named(struct lake_index *ix, uint64_t id, struct span name, uint64_t position);

/* Ends the pass: parts[0..count) in the order of their names, then ids. Their names count as
 * written from the next pass on. */
void lake_index_sort(struct lake_index *ix);
struct span lake_part_name(const struct lake_part *p);
/* The part of an id in this pass, or NULL. */
const struct lake_part *lake_index_part(const struct lake_index *ix, uint64_t id);
uint64_t lake_index_position(const struct lake_index *ix, uint32_t entry);
uint32_t lake_index_next(const struct lake_index *ix, uint32_t entry);

#endif
