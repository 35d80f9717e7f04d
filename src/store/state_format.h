/* Rows of the state database, format version 3. Integers in keys are big-endian, so that they sort;
 * in values little-endian. The first byte of a key is its kind.
 *
 * M  meta: one row, key "M"
 *   offset size field
 *      0     1  version, 3
 *      1    16  cluster id
 *     17     8  applied: index of the last applied entry
 *     25     8  its term
 *     33     8  its clock
 *     41     4  its number of commands
 *     45     8  greatest record stamp
 *     53     8  next queue id
 *     61     8  next partition id
 *     69     8  last KV version
 *
 * Q  queue: key 'Q' | queue id be64
 *      0     1  flags: 1 dead, 2 deadLetterQueue, 4 dlqAfterMaxRetries, 8 retentionEnabled,
 *               16 encryptionEnabled
 *      1    16  uuid
 *     17    16  tenant
 *     33     8  created at
 *     41     8  last write at
 *     49     8  dedup floor
 *     57     8  queue log length
 *     65     8  queue log start
 *     73    56  leaseTime, retryLimit, delayedProcessing, windowBuffer, dedupWindowSeconds,
 *               retentionSeconds, completedRetentionSeconds, maxWaitTimeSeconds,
 *               retentionSinkHoldMaxSeconds, priority, retryDelay, ttl, maxSize, minPopWaitTime:
 * le32 129     4  dedup classes, one bit each 133   8*n  per set bit, ascending: stamp of the
 * class's last possible row, 0 = current .  1+..  retentionSinkHold: length u8, bytes .  4+.. name:
 * length le32, bytes; then namespace and task alike
 *
 * P  partition: key 'P' | queue id be64 | partition id be64
 *      0    16  uuid
 *     16     8  next offset
 *     24     8  log start
 *     32     8  last write at
 *     40     8  created at
 *     48     8  bytes of its runs in the queue's log
 *     56   ...  name
 *
 * N  pin: key 'N' | tenant 16 | KV key of the intent
 *      0     8  queue id
 *      8     8  tStart
 *     16     8  tEnd
 *
 * K  KV row: key 'K' | tenant 16 | namespace | 0 | key        (written by kv)
 *      0     8  version
 *      8     8  expires at, 0 = never
 *     16     8  updated at
 *     24   ...  value, normalised JSON
 *
 * E  expiry of a KV row that has one: key 'E' | expires at be64 | the row's key without its kind
 *      0     4  what the row adds to the bytes of kind S
 *
 * S  size of the KV store: key 'S' | tenant 16 | namespace; without one: of all of the tenant's
 *      0     8  rows, expired ones that are still there included
 *      8     8  bytes of their keys and values
 *
 * D  dedup row: key 'D' | class u8 | bucket be32 | partition id be64 | first 16 bytes of
 *               SHA-256(transactionId)                        (written by broker)
 *      0     8  offset
 *      8    16  message id
 *     24     8  stamp */
#ifndef STORE_STATE_FORMAT_H
#define STORE_STATE_FORMAT_H

#define STATE_FORMAT_VERSION 3u

#define STATE_KIND_META 'M'
#define STATE_KIND_QUEUE 'Q'
#define STATE_KIND_PARTITION 'P'
#define STATE_KIND_PIN 'N'
#define STATE_KIND_KV 'K'
#define STATE_KIND_KV_EXPIRY 'E'
#define STATE_KIND_KV_SIZE 'S'
#define STATE_KIND_DEDUP 'D'

enum { META_SIZE = 77 };
enum { QUEUE_KEY_SIZE = 9, PARTITION_KEY_SIZE = 17 };
enum { PARTITION_NAME_AT = 56 };
enum { PIN_KEY_AT = 17, PIN_SIZE = 24 };
enum { KV_VERSION_AT = 0, KV_EXPIRES_AT = 8, KV_UPDATED_AT = 16, KV_VALUE_AT = 24 };
enum { KV_NAMESPACE_AT = 17, KV_EXPIRY_KEY_AT = 9, KV_EXPIRY_SIZE = 4, KV_SIZE_SIZE = 16 };
enum { DEDUP_CLASS_AT = 1, DEDUP_BUCKET_AT = 2, DEDUP_PARTITION_AT = 6, DEDUP_HASH_AT = 14 };
enum { DEDUP_HASH_SIZE = 16, DEDUP_KEY_SIZE = 30 };
enum { DEDUP_OFFSET_AT = 0, DEDUP_ID_AT = 8, DEDUP_STAMP_AT = 24, DEDUP_SIZE = 32 };

#endif
