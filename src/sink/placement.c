/* Fair share and hand-offs; the rules are those of spec/sink.md 6. */
#include "sink/placement.h"

int64_t placement_claim_at(const struct placement_view *v, int64_t found_us, int64_t jitter_us,
                           int64_t ttl_us, int64_t cooldown_until_us, int64_t now_us)
{
    int64_t load = (int64_t)v->load * PLACEMENT_LOAD_US;
    int64_t at = found_us + jitter_us + (load < ttl_us / 2 ? load : ttl_us / 2);

    if (cooldown_until_us > now_us)
        return at > cooldown_until_us ? at : cooldown_until_us;
    if (v->share > 0 && v->held >= v->share)
        at += ttl_us;
    return at;
}

int64_t placement_relook_us(const struct placement_view *v, int64_t ttl_us, int64_t jitter_us)
{
    return (v->held < v->share ? ttl_us / 3 : ttl_us) + jitter_us;
}

void placement_init(struct placement *p, int64_t ttl_us)
{
    *p = (struct placement){.ttl_us = ttl_us, .nodes = 1};
}

void placement_deinit(struct placement *p)
{
    buf_deinit(&p->giving_back);
}

static int least_buffered(const struct placement_queue *queues, size_t n)
{
    int best = -1;

    for (size_t i = 0; i < n; i++) {
        if (!queues[i].running)
            continue;
        if (best < 0 || queues[i].buffered < queues[best].buffered ||
            (queues[i].buffered == queues[best].buffered &&
             span_cmp(queues[i].name, queues[best].name) < 0))
            best = (int)i;
    }
    return best;
}

uint32_t placement_share(const struct placement *p, size_t queues)
{
    return p->share == 0 ? 0 : ((uint32_t)queues + p->nodes - 1) / p->nodes;
}

int placement_beat(struct placement *p, uint32_t nodes, const struct placement_queue *queues,
                   size_t n, int64_t now_us)
{
    uint32_t held = 0;

    for (size_t i = 0; i < n; i++)
        held += queues[i].running;
    p->nodes = nodes == 0 ? 1 : nodes;
    p->queues = (uint32_t)n;
    p->share = (p->queues + p->nodes - 1) / p->nodes;
    p->held = held;
    if (held <= p->share) {
        p->over_since_us = 0;
        return -1;
    }
    if (p->over_since_us == 0)
        p->over_since_us = now_us;
    if (p->handoff != HANDOFF_NONE || now_us - p->over_since_us < p->ttl_us)
        return -1;
    int chosen = least_buffered(queues, n);
    if (chosen < 0)
        return -1;
    p->handoff = HANDOFF_DRAINING;
    buf_reset(&p->giving_back);
    buf_put_span(&p->giving_back, queues[chosen].name);
    return chosen;
}

static bool is_handoff(const struct placement *p, struct span name)
{
    return p->handoff != HANDOFF_NONE && span_eq(buf_span(&p->giving_back), name);
}

static void end_handoff(struct placement *p)
{
    p->handoff = HANDOFF_NONE;
    buf_reset(&p->giving_back);
}

void placement_released(struct placement *p, struct span name, int64_t now_us)
{
    if (!is_handoff(p, name))
        return;
    p->handoff = HANDOFF_RELEASED;
    p->released_at_us = now_us;
}

void placement_abandoned(struct placement *p, struct span name)
{
    if (is_handoff(p, name))
        end_handoff(p);
}

bool placement_seen_held(struct placement *p, struct span name)
{
    if (!is_handoff(p, name) || p->handoff != HANDOFF_RELEASED)
        return false;
    end_handoff(p);
    return true;
}

bool placement_expired(struct placement *p, int64_t now_us)
{
    if (p->handoff != HANDOFF_RELEASED || now_us - p->released_at_us < p->ttl_us)
        return false;
    end_handoff(p);
    return true;
}
