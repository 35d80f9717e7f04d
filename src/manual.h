/* What the program prints of itself, each on standard output; returns the exit code. */
#ifndef MANUAL_H
#define MANUAL_H

int manual_help(void);
int manual_version(void);
int manual_settings(void); /* docs/settings.md */
int manual_metrics(void);  /* docs/metrics.md */
int manual_api(void);      /* the generated parts of docs/api.md */

#endif
