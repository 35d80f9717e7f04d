/* What an S3 server answered, and what that means (objects.md 10 Integrity and Retries,
 * decisions.md 15). Everything here comes from the network and is bounded. Pure. */
#ifndef S3_S3_ANSWER_H
#define S3_S3_ANSWER_H

#include "s3/s3_request.h"

#define S3_ANSWER_KEPT (64u << 10) /* bytes of a body that is no object and no list */
#define S3_ANSWER_LIST_MAX                                                                         \
    (16u << 20)                   /* 1000 keys of 1,024 bytes, escaped sixfold, with company       \
                                   */
#define S3_ANSWER_VALUE_MAX 2048u /* ETag, UploadId */
#define S3_ANSWER_TEXT_CHARS 200u /* of the body in `status <code>: ..` */

struct s3_answer {
    unsigned code;  /* of the last status line; 0 = none yet */
    bool head_done; /* the head of a final (not 1xx) answer is complete */
    bool kms;       /* encrypted with KMS: the ETag is no MD5 */
    int64_t retry_after_us;
    struct buf etag;              /* without quotes */
    char region[BUCKET_CLUE_MAX]; /* x-amz-bucket-region */
    int64_t server_us;            /* Date; 0 = none */
    bool to_https;                /* Location is an https:// place */
    struct buf body;
};

void s3_answer_reset(struct s3_answer *a);
void s3_answer_deinit(struct s3_answer *a);
/* One line of the head, with or without its CRLF. A status line starts over; an empty line ends. */
void s3_answer_header(struct s3_answer *a, struct span line);
/* A whole answer as it came from a socket; false when its head is not complete. The body is what
 * there is, undecoded. */
bool s3_answer_parse_raw(struct s3_answer *a, struct span bytes);

/* Keys of a LIST page that begin with the prefix and are behind start_after, sorted, no twins. */
struct s3_list {
    struct buf out;
    struct span *keys; /* pointing into out; mem_free() */
    size_t n_keys;
    bool truncated;
};
/* False: the body is no whole list. The output is untouched then. */
bool s3_list_parse(struct span body, struct span prefix, struct span start_after,
                   struct s3_list *out);
void s3_list_deinit(struct s3_list *l);

struct s3_expect {
    enum s3_call call;
    bool body_sent;             /* the whole request body went out */
    struct span md5_hex;        /* PUT; empty: not compared */
    unsigned parts;             /* COMPLETE */
    struct span prefix, after;  /* LIST */
    const struct span *secrets; /* kept out of texts */
    size_t n_secrets;
};

struct s3_verdict {
    enum bucket_outcome outcome; /* never BUCKET_CANCELLED */
    bool upload_gone;            /* NoSuchUpload: RETRIABLE, but only with a new upload */
    struct buf value;            /* CREATE: the UploadId; PART: the ETag */
    struct s3_list list;         /* LIST */
    struct bucket_clue clue;     /* when it failed */
    char error[ERROR_TEXT_MAX];  /* empty for OK and ABSENT */
};

/* Judges a complete answer; *v is reset first. */
void s3_answer_judge(const struct s3_answer *a, const struct s3_expect *e, struct s3_verdict *v);
void s3_verdict_reset(struct s3_verdict *v);
void s3_verdict_deinit(struct s3_verdict *v);

/* What a failure's head and body tell of its cause. Names that hold anything but what bucket_clue
 * allows, or a secret, are left out. */
void s3_clue_read(const struct s3_answer *a, const struct s3_expect *e, struct bucket_clue *out);
void s3_clue_copy(char out[BUCKET_CLUE_MAX], struct span name, const struct span *secrets,
                  size_t n_secrets);
/* Mon, 30 Nov 2026 18:02:50 GMT (RFC 9110 5.6.7, the form in use) in microseconds; 0: it is none. */
int64_t s3_date_parse(struct span text);

/* Writes `prefix` and text for people: secrets become ***, control bytes blanks, invalid UTF-8
 * U+FFFD; of the text at most S3_ANSWER_TEXT_CHARS characters. */
void s3_answer_text(char out[ERROR_TEXT_MAX], const char *prefix, struct span text,
                    const struct span *secrets, size_t n_secrets);

#endif
