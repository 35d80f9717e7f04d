/* Blocking jobs of queue tasks, on the executor: scanning a queue's log, building an object,
 * building a checkpoint, reading one. A job only reads; its answer goes back as its op. */
#include "sink/sink_internal.h"

#include "base/mem.h"

static struct qlog *take_log(struct op *op, uint64_t queue_id)
{
    struct qlog *log = node_log_ref(op->sink->options.node, queue_id);

    if (log == NULL)
        op->err = error_set(&op->error, ERR_NOT_FOUND, "queue %llu has no log here",
                            (unsigned long long)queue_id);
    return log;
}

void sink_job_submit(struct op *op, void (*job)(void *ctx))
{
    struct sink *s = op->sink;

    pthread_mutex_lock(&s->lock);
    s->jobs++;
    pthread_mutex_unlock(&s->lock);
    executor_submit(s->options.executor, job, op);
}

static void job_done(struct op *op)
{
    struct sink *s = op->sink;

    if (op->err == ERR_CORRUPT || op->err == ERR_IO) /* of a queue log: nothing else gives these */
        node_damaged(s->options.node, &op->error);
    pthread_mutex_lock(&s->lock);
    s->jobs--;
    pthread_mutex_unlock(&s->lock);
    sink_op_done(op); /* wakes whoever waits for the last job */
}

static const struct qlog_near *near_or_null(const struct qlog_near *near)
{
    return near->partition_id != 0 ? near : NULL;
}

/* --- scan --- */

struct scan {
    struct op *op;
    struct qlog *log;
    struct qlog_run_head *heads;
    struct sink_scanned out;
    int64_t last_stamp;
    uint64_t runs;
};

/* False: the scan stops at this run, which is not counted. Records of one stamp are never split. */
static bool take_run(struct scan *scan, const struct qlog_run_head *head)
{
    const struct sink_action *a = &scan->op->action;
    struct sink_scanned *out = &scan->out;
    bool new_push = scan->runs == 0 || head->stamp != scan->last_stamp;

    if (head->stamp >= a->scan.limit)
        out->at_limit = true;
    else if (new_push && out->weight >= a->scan.weight_max)
        out->size_reached = true;
    else if (!new_push || scan->runs < SINK_RUNS_PER_JOB) {
        if (out->records == 0)
            out->first_stamp = head->stamp;
        out->records += head->count;
        out->weight += head->weight;
        out->position = head->next_position;
        scan->last_stamp = head->stamp;
        scan->runs++;
        return true;
    }
    out->next_known = true;
    out->next_stamp = head->stamp;
    return false;
}

static enum err scan_log(struct scan *scan, struct error *error)
{
    const struct sink_action *a = &scan->op->action;
    struct sink_scanned *out = &scan->out;
    uint64_t end = qlog_end(scan->log);

    out->from = a->scan.position;
    if (a->scan.seek)
        TRY(qlog_seek_stamp_near(scan->log, a->scan.seek_stamp, near_or_null(&a->scan.near),
                                 &out->from, error));
    out->position = out->from;
    while (out->position < end) {
        size_t n;
        uint64_t next;
        TRY(qlog_scan(scan->log, out->position, end, scan->heads, SINK_HEADS_PER_SCAN, &n, &next,
                      error));
        if (n == 0)
            break;
        for (size_t i = 0; i < n; i++) {
            if (!take_run(scan, &scan->heads[i]))
                return ERR_OK;
        }
    }
    out->at_limit =
        true; /* the end was read after safeTime: nothing below the limit is behind it */
    out->size_reached = out->weight >= a->scan.weight_max;
    return ERR_OK;
}

void sink_job_scan(void *ctx)
{
    struct op *op = ctx;
    struct scan scan = {.op = op, .log = take_log(op, op->action.scan.queue_id)};

    if (scan.log != NULL) {
        scan.heads = MEM_ARRAY(struct qlog_run_head, SINK_HEADS_PER_SCAN);
        op->err = scan_log(&scan, &op->error);
        op->scanned = scan.out;
        mem_free(scan.heads);
        node_log_unref(op->sink->options.node, scan.log);
    }
    job_done(op);
}

/* --- build --- */

static void summarise(struct op *op)
{
    const struct lake_object *o = &op->built->object;

    op->summary = (struct sink_built){
        .size = o->size,
        .records = o->records,
        .partitions = o->partitions,
        .quoted = o->quoted,
        .min_ts = o->min_ts,
        .max_ts = o->max_ts,
    };
    memcpy(op->summary.sha256, o->sha256, sizeof(o->sha256));
}

/* How much of its object a build may hold in memory: counted until the object is known. */
static uint64_t hold(struct sink *s)
{
    uint64_t most = s->node->multipart_threshold_mb << 20, limit = s->node->memory_mb << 20;

    if (most > SINK_HELD_BYTES)
        most = SINK_HELD_BYTES;
    pthread_mutex_lock(&s->lock);
    uint64_t room = s->held_bytes < limit ? limit - s->held_bytes : 0;
    if (most > room)
        most = room > SINK_HELD_MIN ? room : SINK_HELD_MIN;
    s->held_bytes += most;
    pthread_mutex_unlock(&s->lock);
    return most;
}

static void build(struct op *op, struct qlog *log)
{
    struct sink *s = op->sink;
    struct built *built = mem_new(sizeof(*built));
    uint64_t held = hold(s);
    struct lake_build_options options = {
        .window = &op->action.build.window,
        .log = log,
        .from = op->action.build.from,
        .to = op->action.build.to,
        .near = near_or_null(&op->action.build.near),
        .index_bytes_max = SINK_BUILD_INDEX,
        .memory_max = held,
        .spool_dir = s->options.spool_dir,
        .cancel = &s->cancel,
    };

    op->err = lake_build(&options, &built->object, &op->error);
    built->sink = s;
    built->refs = 1;
    built->held = op->err == ERR_OK ? built->object.bytes.len : 0;
    pthread_mutex_lock(&s->lock);
    s->held_bytes += built->held - held;
    pthread_mutex_unlock(&s->lock);
    if (op->err == ERR_OK) {
        op->built = built;
        summarise(op);
    } else {
        mem_free(built);
    }
}

void sink_job_build(void *ctx)
{
    struct op *op = ctx;
    struct qlog *log = take_log(op, op->action.build.queue_id);

    if (log != NULL) {
        build(op, log);
        node_log_unref(op->sink->options.node, log);
    }
    job_done(op);
}

/* --- checkpoint --- */

#define NAMES_PER_LOCK 4096u /* rows named under one hold of the state's lock */

struct position {
    uint64_t partition_id, next_offset;
};

struct checkpoint {
    struct position *positions; /* in the order they were met */
    size_t n, cap;
    struct map64 at; /* partition id -> index + 1 */
    struct lake_checkpoint_row *rows;
    size_t *name_at; /* offsets of the rows' names */
    size_t n_rows;
    struct buf names;
};

static void meet(struct checkpoint *c, const struct qlog_run_head *head)
{
    uintptr_t index = (uintptr_t)map64_get(&c->at, head->partition_id);

    if (index == 0) {
        if (c->n == c->cap) {
            c->cap = c->cap == 0 ? 256 : 2 * c->cap;
            c->positions = mem_grow(c->positions, c->cap * sizeof(*c->positions));
        }
        c->positions[c->n++] = (struct position){.partition_id = head->partition_id};
        index = c->n;
        map64_put(&c->at, head->partition_id, (void *)index);
    }
    c->positions[index - 1].next_offset = head->first_offset + head->count;
}

static enum err meet_all(struct checkpoint *c, struct op *op, struct qlog *log,
                         struct qlog_run_head *heads)
{
    uint64_t position = 0, end = qlog_end(log);

    TRY(qlog_seek_stamp(log, op->action.checkpoint.since, &position, &op->error));
    while (position < end) {
        size_t n;
        if (atomic_load(&op->sink->cancel))
            return error_set(&op->error, ERR_STOPPED, "the sink stops");
        TRY(qlog_scan(log, position, end, heads, SINK_HEADS_PER_SCAN, &n, &position, &op->error));
        for (size_t i = 0; i < n; i++) {
            if (heads[i].stamp >= op->action.checkpoint.t_end)
                return ERR_OK;
            meet(c, &heads[i]);
        }
        if (n == 0)
            break;
    }
    return ERR_OK;
}

/* partitions of a queue are kept by ascending id. */
static const struct partition *find_partition(const struct queue *q, uint64_t id)
{
    size_t low = 0, high = q->partition_count;

    while (low < high) {
        size_t mid = (low + high) / 2;
        if (q->partitions[mid]->id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low < q->partition_count && q->partitions[low]->id == id ? q->partitions[low] : NULL;
}

static bool name_some(struct checkpoint *c, struct op *op, size_t from)
{
    struct node *node = op->sink->options.node;
    struct state *state = node_read_begin(node);
    const struct queue *q = state_queue_by_id(state, op->action.checkpoint.queue_id);

    for (size_t i = from; q != NULL && i < c->n && i < from + NAMES_PER_LOCK; i++) {
        const struct partition *p = find_partition(q, c->positions[i].partition_id);
        if (p == NULL)
            continue;
        c->name_at[c->n_rows] = c->names.len;
        buf_put_span(&c->names, p->name);
        c->rows[c->n_rows++] =
            (struct lake_checkpoint_row){.partition = {.len = p->name.len},
                                         .next_offset = c->positions[i].next_offset,
                                         .id = p->uuid,
                                         .has_id = true};
    }
    node_read_end(node);
    return q != NULL;
}

static enum err name_all(struct checkpoint *c, struct op *op)
{
    c->rows = MEM_ARRAY(struct lake_checkpoint_row, c->n + 1);
    c->name_at = MEM_ARRAY(size_t, c->n + 1);
    for (size_t i = 0; i < c->n; i += NAMES_PER_LOCK) {
        if (!name_some(c, op, i))
            return error_set(&op->error, ERR_NOT_FOUND, "the queue was deleted");
    }
    for (size_t i = 0; i < c->n_rows; i++)
        c->rows[i].partition.ptr = c->names.ptr + c->name_at[i];
    return ERR_OK;
}

void sink_job_checkpoint(void *ctx)
{
    struct op *op = ctx;
    struct checkpoint c = {.at = MAP64_INIT};
    struct qlog *log = take_log(op, op->action.checkpoint.queue_id);

    if (log != NULL) {
        struct qlog_run_head *heads = MEM_ARRAY(struct qlog_run_head, SINK_HEADS_PER_SCAN);
        op->err = meet_all(&c, op, log, heads);
        mem_free(heads);
        node_log_unref(op->sink->options.node, log);
        if (op->err == ERR_OK)
            op->err = name_all(&c, op);
    }
    if (op->err == ERR_OK) {
        op->rows = c.n_rows;
        lake_checkpoint_put(&op->bytes, op->action.checkpoint.k, op->action.checkpoint.t_end,
                            c.rows, c.n_rows);
    }
    mem_free(c.positions);
    mem_free(c.rows);
    mem_free(c.name_at);
    map64_deinit(&c.at);
    buf_deinit(&c.names);
    job_done(op);
}

/* --- reading a checkpoint --- */

#define NEAR_TRIES 8u

/* The rows with the highest offsets, highest first; of equal ones the later. */
static size_t busiest(const struct lake_checkpoint *c, const struct lake_checkpoint_row *out[])
{
    size_t n = 0;

    for (size_t i = 0; i < c->n; i++) {
        const struct lake_checkpoint_row *row = &c->rows[i];
        size_t at = n < NEAR_TRIES ? n++ : NEAR_TRIES;
        for (; at > 0 && row->next_offset >= out[at - 1]->next_offset; at--) {
            if (at < NEAR_TRIES)
                out[at] = out[at - 1];
        }
        if (at < NEAR_TRIES)
            out[at] = row;
    }
    return n;
}

/* The last record that the checkpoint knows of a partition that is still there. The busiest one was
 * written last, as a rule: a single look into an index then finds where reading goes on, whatever
 * the number of rows. */
static void choose_near(struct op *op, const struct lake_checkpoint *c)
{
    struct node *node = op->sink->options.node;
    const struct lake_checkpoint_row *rows[NEAR_TRIES];
    size_t n = busiest(c, rows);
    struct state *state = node_read_begin(node);
    struct queue *q = state_queue_find(state, &op->sink->tenant, buf_span(&op->slot->name));

    for (size_t i = 0; q != NULL && i < n && op->near.partition_id == 0; i++) {
        const struct partition *p = state_partition_find(state, q, rows[i]->partition);
        bool same =
            p != NULL && (!rows[i]->has_id || memcmp(&p->uuid, &rows[i]->id, sizeof(p->uuid)) == 0);
        if (same && rows[i]->next_offset > 0)
            op->near = (struct qlog_near){p->id, rows[i]->next_offset - 1, c->t_end};
    }
    node_read_end(node);
}

void sink_job_load_checkpoint(void *ctx)
{
    struct op *op = ctx;
    struct lake_checkpoint c;

    op->err = lake_checkpoint_parse(buf_span(&op->bucket.out), &c);
    if (op->err == ERR_OK) {
        op->rows = c.n;
        op->k = c.k;
        op->t_end = c.t_end;
        choose_near(op, &c);
        lake_checkpoint_deinit(&c);
    }
    job_done(op);
}
