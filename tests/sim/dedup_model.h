/* What the simulated clients know of repeats: one queue, of another tenant than all the others, whose
 * deduplication window is raised, lowered, switched off and on again, and whose few transaction ids
 * are pushed again and again, also twice in one push.
 *
 * Each answer is foretold at the clock of its command: a repeat is one while its first push is
 * within the window and the window has covered it ever since. An id whose push had no answer is not
 * used again; the others are known over restarts. */
#ifndef TESTS_SIM_DEDUP_MODEL_H
#define TESTS_SIM_DEDUP_MODEL_H

struct world;
struct dedup_model;

struct dedup_model *dedup_model_new(struct world *w);
void dedup_model_free(struct dedup_model *m); /* nothing of it is with the node */
/* Pushes, configures or deletes. */
void dedup_model_act(struct dedup_model *m);
/* After a boot: what is counted there is what was told. */
void dedup_model_check(struct dedup_model *m);

#endif
