/* A state database in memory: struct db for tests and the simulator.
 *
 * What a batch wrote is durable when it returns, as the real one syncs it; it lives in a struct
 * sim_db_state, which survives a simulated reboot: close the db (or leave it), then make a new one
 * over the state, which so falls back to the last batch that was durable. Iterators see the rows of the moment they were made. Any thread. */
#ifndef TESTS_SIM_DB_H
#define TESTS_SIM_DB_H

#include "lib/prng.h"
#include "store/db.h"

struct sim_db_state; /* the durable rows */

struct sim_db_state *sim_db_state_new(void);
void sim_db_state_free(struct sim_db_state *s); /* no db over it is open; NULL is allowed */
/* The same rows once more. */
struct sim_db_state *sim_db_state_copy(struct sim_db_state *s);
uint64_t sim_db_state_rows(struct sim_db_state *s);
uint64_t sim_db_state_writes(struct sim_db_state *s); /* batches applied since it was made */

/* A database over `durable` (borrowed, outlives it). Closed with its ops->close. */
struct db *sim_db_new(struct sim_db_state *durable);

/* The next batch_write fails with ERR_IO, with or without its batch applied, and so do all later
 * ones of this db, none of them applied: a crash in the middle. */
void sim_db_crash_next_write(struct db *db, bool applied);
/* The next batch_write fails with err and changes nothing; the one behind it works again. */
void sim_db_fail_next_write(struct db *db, enum err err);
/* As that; but the batch reached the database's log, so that a crash before the next one that works
 * may bring it back. */
void sim_db_fail_next_write_late(struct db *db, enum err err);
/* After `skip` more rows read (by get or an iterator) the next one fails with ERR_IO. */
void sim_db_fail_next_read(struct db *db, uint64_t skip);
/* Called before each write, which other threads do something during. NULL: none. */
void sim_db_set_meanwhile(struct db *db, void (*meanwhile)(void *ctx), void *ctx);
/* Reads meanwhile neither fail nor count: the test's own. */
void sim_db_spare_reads(struct db *db, bool spare);
/* A write or read has failed since the last reboot. */
bool sim_db_state_failed(struct sim_db_state *s);
/* Reboot: what is durable stays, what a failed write left behind may come back. */
void sim_db_state_crash(struct sim_db_state *s, struct prng *prng);

#endif
