/* Closing rules of a window; window.h says what is known of it. spec/sink.md 12 is followed rule by
 * rule: size, aligned, aged, forced; skipping of empty aligned intervals; start=earliest. */
#include "sink/window.h"

#include "base/err.h"
#include "base/timefmt.h"

void window_init(struct window *w, int64_t t_prev)
{
    *w = (struct window){.t_prev = t_prev, .frontier = t_prev};
}

void window_next(struct window *w, int64_t t_end)
{
    w->t_prev = t_end;
    w->frontier = t_end;
    w->from = w->position;
    w->records = w->weight = 0;
    w->first_stamp = 0;
    w->size_reached = false;
    w->forced = false;
}

int64_t window_unit(enum sink_align align)
{
    switch (align) {
    case SINK_ALIGN_HOUR:
        return US_PER_HOUR;
    case SINK_ALIGN_DAY:
        return US_PER_DAY;
    case SINK_ALIGN_NONE:
        return 0;
    }
    return 0;
}

/* The next alignment boundary above where the window starts. */
static int64_t boundary(const struct window *w, const struct window_rules *rules)
{
    int64_t unit = window_unit(rules->align);
    int64_t start = w->t_prev;

    if (unit == 0)
        return WINDOW_NEVER;
    if (start == WINDOW_NO_START) {
        if (w->records > 0)
            start = w->first_stamp;
        else if (w->next_known)
            start = w->next_stamp;
        else
            return WINDOW_NEVER;
    }
    return time_floor(start, unit) + unit;
}

int64_t window_cap(const struct window *w, const struct window_rules *rules, int64_t safe_time)
{
    int64_t clock = safe_time - rules->guard_us;
    int64_t aligned = boundary(w, rules);

    return clock < aligned ? clock : aligned;
}

bool window_scan_due(struct window *w, int64_t cap, uint64_t log_end)
{
    if (w->size_reached || cap <= w->frontier)
        return false;
    if (w->positioned) {
        bool nothing = w->next_known ? w->next_stamp >= cap : w->position >= log_end;
        if (nothing) {
            w->frontier = cap;
            return false;
        }
    }
    return true;
}

void window_note_unread(struct window *w, int64_t safe_time, uint64_t log_end)
{
    uint64_t seen = w->positioned ? w->position : 0;
    bool unread = w->records == 0 && !w->next_known && seen < log_end;

    if (unread && !w->unread) /* later looks see it too, at a clock that has moved on */
        w->unread_stamp = safe_time;
    w->unread = unread;
}

int64_t window_scan_limit(const struct window *w, int64_t cap)
{
    bool first_unknown = w->t_prev == WINDOW_NO_START && w->records == 0 && !w->next_known;

    return first_unknown ? WINDOW_NO_START : cap;
}

/* Moves t_prev over intervals known to be empty, in one step: to the last boundary at or below both
 * the clock and the next record. */
static void skip(struct window *w, const struct window_rules *rules, int64_t clock)
{
    int64_t reach = w->next_known && w->next_stamp < clock ? w->next_stamp : clock;

    w->t_prev = time_floor(reach, window_unit(rules->align));
    if (w->frontier < w->t_prev)
        w->frontier = w->t_prev;
}

enum window_verdict window_judge(struct window *w, const struct window_rules *rules,
                                 int64_t safe_time, int64_t *t_start_out, int64_t *t_end_out)
{
    int64_t clock = safe_time - rules->guard_us;
    int64_t aligned = boundary(w, rules);
    int64_t cap = clock < aligned ? clock : aligned;

    if (w->frontier < cap)
        cap = w->frontier; /* a scan that a drain ended early */
    if (cap <= w->t_prev)
        return WINDOW_WAIT;
    if (w->records == 0) {
        /* Under `earliest` an interval before the first record is never a window: nothing to skip
         * from. */
        if (cap != aligned || w->t_prev == WINDOW_NO_START)
            return WINDOW_WAIT;
        skip(w, rules, clock);
        return WINDOW_SKIP;
    }

    bool aged = w->t_prev == WINDOW_NO_START || safe_time - w->t_prev >= rules->window_us;
    if (!w->size_reached && cap != aligned && !aged && !w->forced)
        return WINDOW_WAIT;
    if (w->t_prev != WINDOW_NO_START)
        *t_start_out = w->t_prev;
    else if (rules->align == SINK_ALIGN_NONE)
        *t_start_out = w->first_stamp;
    else
        *t_start_out = time_floor(w->first_stamp, window_unit(rules->align));
    *t_end_out = cap;
    return WINDOW_CLOSE;
}

int64_t window_due(const struct window *w, const struct window_rules *rules)
{
    int64_t unit = window_unit(rules->align);
    int64_t start = w->t_prev;
    int64_t first;

    if (w->records > 0)
        first = w->first_stamp;
    else if (w->next_known)
        first = w->next_stamp;
    else if (w->unread)
        first = w->unread_stamp;
    else
        return WINDOW_NEVER;
    if (unit != 0 && (start == WINDOW_NO_START || time_floor(first, unit) > start))
        start = time_floor(first, unit); /* the intervals before it are skipped by then */

    int64_t due = first + 1 + rules->guard_us + rules->gather_us;
    if (w->t_prev != WINDOW_NO_START && start + rules->window_us > due)
        due = start + rules->window_us;
    if (unit != 0) {
        int64_t aligned = time_floor(start, unit) + unit + rules->guard_us;
        if (aligned < due)
            due = aligned;
    }
    return due;
}
