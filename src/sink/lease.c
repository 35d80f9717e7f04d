/* Lease rows; lease.h says how they are used. */
#include "sink/lease.h"

void lease_init(struct lease *l, struct span instance, uint64_t random, int64_t wall_us)
{
    static const char digits[] = "0123456789abcdef";

    *l = (struct lease){.instance = instance, .since_ms = wall_us / 1000};
    for (unsigned i = 0; i < LEASE_INCARNATION_LEN; i++)
        l->incarnation[i] = digits[random >> (4 * i) & 15];
}

enum lease_holder lease_look(const struct lease *l, const struct kv_row *row,
                             struct buf *holder_out)
{
    struct sink_lease doc;

    if (row == NULL)
        return LEASE_FREE;
    buf_reset(holder_out);
    if (sink_lease_parse(row->value, &doc) != ERR_OK) {
        buf_puts(holder_out, "unknown");
        return LEASE_OTHER;
    }
    bool mine = span_eq(doc.instance, l->instance);
    if (!mine)
        buf_put_span(holder_out, doc.instance);
    sink_lease_deinit(&doc);
    return mine ? LEASE_MINE : LEASE_OTHER;
}

bool lease_is_own(const struct lease *l, struct span value)
{
    struct sink_lease doc;

    if (sink_lease_parse(value, &doc) != ERR_OK)
        return false;
    bool own =
        span_eq(doc.instance, l->instance) && span_eq(doc.incarnation, span_str(l->incarnation));
    sink_lease_deinit(&doc);
    return own;
}

void lease_put(struct buf *out, const struct lease *l)
{
    sink_lease_put(out, &(struct sink_lease){.instance = l->instance,
                                             .incarnation = span_str(l->incarnation),
                                             .since_ms = l->since_ms});
}

uint64_t lease_ttl_seconds(uint64_t ttl_ms)
{
    return ttl_ms < 1000 ? 1 : ttl_ms / 1000;
}
