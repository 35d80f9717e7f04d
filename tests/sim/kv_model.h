/* What the simulated clients of the KV store know: a sequential model of a few rows, in a namespace
 * of their own.
 *
 * Clients send random batches; in manual mode they are applied in the order of their submission, so
 * every answer is foretold by the model at the clock of its entry: results, reasons, values, that a
 * required operation that loses undoes its whole batch, that versions rise whatever happened in
 * between, that rows end by the log's clock. Each batch also writes a marker row, so that after a
 * crash it can be told which of those without an answer were applied, and when; these must be the
 * first ones. What is read back then must be the model's rows, to the version and the expiry. */
#ifndef TESTS_SIM_KV_MODEL_H
#define TESTS_SIM_KV_MODEL_H

struct world;
struct kv_model;

struct kv_model *kv_model_new(struct world *w);
void kv_model_free(struct kv_model *m); /* nothing of its calls is with the node */
/* When the next row ends behind this moment; INT64_MAX: none does. */
int64_t kv_model_next_end(const struct kv_model *m, int64_t after);
/* Sends a batch, or reads and compares, as the generator says. */
void kv_model_act(struct kv_model *m);
/* After a boot: settles what had no answer and compares every row. */
void kv_model_check(struct kv_model *m);

#endif
