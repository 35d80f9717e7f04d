/* Damage, and boots that must refuse it. */
#ifndef TESTS_SIM_REFUSALS_H
#define TESTS_SIM_REFUSALS_H

struct world;

/* Flips a bit where the text stands in one of a folder's segments, in the cache and on the disk.
 * Returns its path, to be freed. */
char *refusal_damage(struct world *w, const char *folder, const char *text);
/* The boot must refuse, name the place and change nothing below the folder. */
void refusal_expect(struct world *w, const char *folder, const char *names);

#endif
