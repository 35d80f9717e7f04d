/* Fuzz target of the manifest reader: it takes bytes from a bucket that others may write to.
 *
 * Checked on any bytes: nothing crashes; what was refused left the output alone; what was accepted
 * is written again as a manifest that reads as the same one, and writing that changes nothing. */
#include "fuzz/fuzz.h"

#include "json/json.h"
#include "sink/lake.h"

#define UNTOUCHED 77

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lake_manifest m = {.k = UNTOUCHED};
    if (lake_manifest_parse(span_make(data, size), &m) != ERR_OK) {
        ASSERT(m.k == UNTOUCHED && m.objects == NULL && m.text.ptr == NULL);
        return 0;
    }
    struct buf once = BUF_INIT;
    struct buf twice = BUF_INIT;
    struct lake_manifest again;
    lake_manifest_put(&once, &m);
    ASSERT(json_valid(buf_span(&once), 10, NULL));
    ASSERT(lake_manifest_parse(buf_span(&once), &again) == ERR_OK);
    ASSERT(again.k == m.k && again.t_start == m.t_start && again.t_end == m.t_end);
    ASSERT(again.n_objects == m.n_objects && again.n_lost == m.n_lost);
    ASSERT(again.has_ts == m.has_ts);
    ASSERT(span_eq(again.queue, m.queue));
    for (size_t i = 0; i < m.n_objects; i++) {
        ASSERT(span_eq(again.objects[i].key, m.objects[i].key));
        ASSERT(memcmp(again.objects[i].sha256, m.objects[i].sha256, 65) == 0);
    }
    lake_manifest_put(&twice, &again);
    ASSERT(span_eq(buf_span(&once), buf_span(&twice)));
    lake_manifest_deinit(&m);
    lake_manifest_deinit(&again);
    buf_deinit(&once);
    buf_deinit(&twice);
    return 0;
}
