/* A workload for queue logs and what must come back: shared by the tests of store/qlog*.c. */
#ifndef TESTS_UNIT_STORE_QLOG_MODEL_H
#define TESTS_UNIT_STORE_QLOG_MODEL_H

#include "store/qlog.h"
#include "lib/prng.h"

#define MODEL_PARTITIONS_MAX 64u

/* A run that was appended; its records are made again from the seed. */
struct model_run {
    uint64_t position, next;
    uint64_t partition_id;
    uint64_t first_offset;
    int64_t stamp;
    uint64_t seed;
    uint32_t count;
    uint64_t weight;
};

/* What one queue's log holds. Partition ids are 10, 20, 30, ...: the ones between do not exist. */
struct model {
    struct model_run *runs;
    size_t n, cap;
    struct prng rng;
    unsigned partitions; /* 1..MODEL_PARTITIONS_MAX */
    uint32_t payload_max;
    uint64_t next_offset[MODEL_PARTITIONS_MAX];
    int64_t stamp; /* of the last run */
};

void model_init(struct model *m, uint64_t seed, unsigned partitions, uint32_t payload_max);
void model_deinit(struct model *m);
/* Appends a run to the log; when that succeeds, to the model. A failed run comes again, the same,
 * with the next call. */
enum err model_append(struct model *m, struct qlog *q, struct error *error);
/* The same with a payload of that many bytes in its first record. */
enum err model_append_large(struct model *m, struct qlog *q, uint32_t payload, struct error *error);
/* Forgets runs: only the first n are left. */
void model_cut(struct model *m, size_t n);
uint64_t model_end(const struct model *m);

/* What the log shows from run `first` on, compared with the model by scan, read, find and seek:
 * ERR_OK when all of it is equal; a mismatch ends the test; an error of the log is returned.
 * Looks for every offset of every partition and for every stamp when `thorough`, else for some. */
enum err model_check(const struct model *m, struct qlog *q, size_t first, bool thorough,
                     struct error *error);
/* A single run, by qlog_read. */
enum err model_check_run(const struct model *m, struct qlog *q, size_t i,
                         struct qlog_run_data *data, struct error *error);

#endif
