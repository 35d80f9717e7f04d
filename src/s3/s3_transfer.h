/* One attempt of one request over libcurl: its handle, its callbacks, and what came of it. The
 * client's thread only. */
#ifndef S3_S3_TRANSFER_H
#define S3_S3_TRANSFER_H

#include "s3/s3_answer.h"

#include <curl/curl.h>

/* A request body: bytes, or size bytes of a file from `from`. */
struct s3_body {
    struct span bytes;
    int fd; /* >= 0: instead of bytes */
    uint64_t from, size;
};

/* Reads up to len bytes of the body at `at` (< size). 0 or a negative errno: the file does not give
 * them. */
long s3_body_read(const struct s3_body *body, uint64_t at, void *out, size_t len);

/* The open sockets of all transfers: libcurl does not tell which one a request goes over. */
struct s3_sockets {
    int *fds; /* mem_free() */
    size_t n, cap;
};

void s3_sockets_remove(struct s3_sockets *s, int fd);

struct s3_transfer_setup {
    bool https;
    const char *ca_file, *ca_dir; /* NULL: the system's */
    unsigned connect_timeout_ms, timeout_ms, stall_s;
    size_t keep_max;            /* GET, LIST: the largest body */
    struct s3_sockets *sockets; /* outlives the connections */
    curl_closesocket_callback close_socket;
    void *close_ctx;
};

struct s3_transfer {
    CURL *easy; /* NULL: none on its way */
    struct curl_slist *headers;
    struct s3_wire wire;
    struct s3_answer answer;
    enum s3_call call;
    const struct s3_body *body;
    struct s3_sockets *sockets;
    uint64_t at; /* of the body: what libcurl has taken */
    size_t keep_max, dropped, head_bytes;
    int fd;          /* the connection's socket; -1 before there is one */
    bool reused;     /* the connection served another request before */
    bool stale;      /* and was found closed or with bytes left over, before anything was sent */
    bool fresh;      /* set by the caller: take a new connection */
    bool too_large;  /* body above keep_max */
    int body_errno;  /* the file of the body failed */
    struct buf late; /* what stood unread in the socket when it was closed */
    char text[CURL_ERROR_SIZE];
    enum bucket_silence silence; /* with text */
};

enum s3_ending {
    S3_ENDED_ANSWERED, /* transfer.answer is to be judged */
    S3_ENDED_STALE,    /* the server had closed the connection before: take a fresh one */
    S3_ENDED_FAILED,   /* no answer: transfer.text says why */
};

/* wire is built. The caller adds t->easy to its multi handle. */
void s3_transfer_begin(struct s3_transfer *t, enum s3_call call, const struct s3_body *body,
                       const struct s3_transfer_setup *setup);
/* The handle is done, and was taken off the multi handle; it is freed here. *body_sent_out: the
 * whole body went out. */
enum s3_ending s3_transfer_end(struct s3_transfer *t, CURLcode result, bool *body_sent_out);
void s3_transfer_drop(struct s3_transfer *t); /* off the multi handle: frees the handle */
/* Reads what stands unread in the socket that is about to be closed. */
void s3_transfer_drain(struct s3_transfer *t);
void s3_transfer_deinit(struct s3_transfer *t);

#endif
