/* Fuzz target of the checkpoint reader: as a compressed object, and as the text inside one.
 *
 * Checked on any bytes: nothing crashes; what was refused left the output alone; what was accepted
 * is written again as a checkpoint with the same rows. */
#include "fuzz/fuzz.h"

#include "sink/lake.h"

#define UNTOUCHED 77

static bool has_row(const struct lake_checkpoint *c, const struct lake_checkpoint_row *row)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct lake_checkpoint_row *r = &c->rows[i];
        if (span_eq(r->partition, row->partition) && r->next_offset == row->next_offset &&
            r->has_id == row->has_id &&
            (!r->has_id || memcmp(&r->id, &row->id, sizeof(r->id)) == 0))
            return true;
    }
    return false;
}

static void check(struct span bytes)
{
    struct lake_checkpoint c = {.k = UNTOUCHED};
    if (lake_checkpoint_parse(bytes, &c) != ERR_OK) {
        ASSERT(c.k == UNTOUCHED && c.rows == NULL && c.text.ptr == NULL);
        return;
    }
    struct buf out = BUF_INIT;
    struct lake_checkpoint again;
    lake_checkpoint_put(&out, c.k, c.t_end, c.rows, c.n);
    ASSERT(lake_checkpoint_parse(buf_span(&out), &again) == ERR_OK);
    ASSERT(again.k == c.k && again.t_end == c.t_end && again.n == c.n);
    for (size_t i = 0; i < c.n && i < 100; i++)
        ASSERT(has_row(&again, &c.rows[i]));
    for (size_t i = 1; i < again.n; i++)
        ASSERT(span_cmp(again.rows[i - 1].partition, again.rows[i].partition) <= 0);
    lake_checkpoint_deinit(&c);
    lake_checkpoint_deinit(&again);
    buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(span_make(data, size));
    struct buf framed = BUF_INIT;
    struct lake_compressor *z = lake_compressor_new(SINK_ZSTD);
    lake_compressor_write(z, span_make(data, size), &framed);
    lake_compressor_end(z, &framed);
    lake_compressor_free(z);
    check(buf_span(&framed));
    buf_deinit(&framed);
    return 0;
}
