/* What the simulated clients know of the options of a few queues, which nobody pushes to and which
 * are of another tenant than all the others: configure commands merge what they give into what is
 * there, deletions forget it, and every answer and every boot must show the sum of them. */
#ifndef TESTS_SIM_OPTIONS_MODEL_H
#define TESTS_SIM_OPTIONS_MODEL_H

struct world;
struct options_model;

struct options_model *options_model_new(struct world *w);
void options_model_free(struct options_model *m); /* nothing of it is with the node */
/* Configures or deletes a queue. */
void options_model_act(struct options_model *m);
/* After a boot: an unanswered command was applied or not, and all else is as it was told. */
void options_model_check(struct options_model *m);

#endif
