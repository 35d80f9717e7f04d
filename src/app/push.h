/* `queen push`: JSON lines into a queue, over the API of a running broker. */
#ifndef APP_PUSH_H
#define APP_PUSH_H

/* arguments: what follows "push". default_port: of http://127.0.0.1. Returns the exit code. */
int push_command(int n, char **arguments, const char *default_port);

#endif
