/* Named stories of the clock, played with the others of checks.c. */
#ifndef TESTS_SIM_CLOCK_CHECKS_H
#define TESTS_SIM_CLOCK_CHECKS_H

#include "sim/world.h"

size_t clock_check_count(void);
const char *clock_check_name(size_t check);
void clock_check_run(size_t check, const struct world_options *options, struct world_result *out);

#endif
