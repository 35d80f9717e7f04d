/* Functions nobody may use here: each has a safer one in base or in libc. Included by the build
 * before every file of ours. */
#ifndef BASE_BANNED_H
#define BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat sprintf vsprintf strtok atoi atol atoll gmtime localtime srand

/* Not poisoned: headers of libcrypto have parameters of that name. */
int rand(void) __attribute__((deprecated("random bytes come from the entropy source")));

#endif
