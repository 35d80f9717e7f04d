"""What S3 stores do differently, and what goes wrong at them, as scripts: a broker, its traffic, and the scripted
server of tests/lib. Whatever happens, the lake is exact in the end, without help, with equal bytes on every rewrite, and each
attempt is counted as the server saw it: Scripted.finish() looks at all of that.

Many queues share a broker, one for each script, so that the waits between attempts run at the same time.
"""

import contextlib
import dataclasses
import re
import time

import traffic
from harness import cases, mark, wait_until
from s3_faults import (CHUNK_END, CONTINUE, SECOND_400, CloseAfter, CutAnswer, CutRequest, Etag, ForgetUpload, Garbage,
                       HalfClose, LostAnswer, OkWithError, RefuseEarly, Slow, Spaces, Status, Stray)
from scripted import MIB, Scripted, checkpoints_of, data_of, lists, make_certificate, manifests_of

NO_ANSWER = "transport: "
OTHER_ETAG = '"0123456789abcdef0123456789abcdef"'
DATE = {"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}


@dataclasses.dataclass
class Passing:
    """Something that a store does now and then, on any request. error: of lastError; None: it is no failure."""

    name: str
    fault: object
    error: str | None = NO_ANSWER


PASSING = [
    Passing("status-500", Status(500), "status 500: .*InternalError"),
    Passing("status-502", Status(502, body=b"<html>no gateway</html>"), "status 502: <html>no gateway"),
    Passing("status-503", Status(503), "status 503: .*SlowDown"),
    Passing("status-408", Status(408), "status 408: "),
    Passing("status-429", Status(429, headers=DATE), "status 429: "),
    Passing("request-timeout", Status(400, "RequestTimeout"), "status 400: .*RequestTimeout"),
    Passing("done-500", Status(500, done=True), "status 500: "),
    Passing("cut-head", CutRequest(where="head")),
    Passing("cut-body", CutRequest(at_byte=10, how="fin")),
    Passing("lost", LostAnswer()),
    Passing("lost-rst", LostAnswer(how="rst")),
    Passing("cut-1", CutAnswer(1)),
    Passing("cut-12", CutAnswer(12)),
    Passing("cut-20", CutAnswer(20, how="rst")),
    Passing("cut-60", CutAnswer(60)),
    Passing("cut-last", CutAnswer(1 << 20)),
    Passing("garbage", Garbage()),
    Passing("garbage-done", Garbage(done=True)),
    Passing("half-close", HalfClose()),
    Passing("early-503", RefuseEarly(503), "status 503: "),
    Passing("stray-behind", Stray(SECOND_400), None),
    Passing("stray-chunk", Stray(CHUNK_END), None),
    Passing("stray-before", Stray(before=CONTINUE * 2), None),
    Passing("close-after", CloseAfter(), None),
    Passing("close-rst", CloseAfter(how="rst"), None),
    Passing("close-later", CloseAfter(after_ms=50), None),
]


def fault_queues(s, rows, make):
    """The faults of each row on its queue; make(row) gives keyword lists of server.fault()."""
    return {row.name: [s.server.fault(row.fault, **options) for options in make(row)] for row in rows}


def check_rows(s, rows, handles, fresh):
    """On a fresh connection every attempt without an answer is a failure of the store; on a used one it may be taken
    for a connection that was closed between two requests."""
    for row in rows:
        assert all(h.hits == h.times for h in handles[row.name]), (row.name, [h.hits for h in handles[row.name]])
        if row.error is None:
            assert s.last_error(row.name) is None, (row.name, s.last_error(row.name))
        elif fresh or row.error != NO_ANSWER:
            s.wait_error(row.name, row.error)


def puts_with(env, connections):
    """The first two attempts of a data object, the first of a manifest and of a checkpoint; connections used for one
    request, and for many."""

    def places(row):
        q = row.name
        return [{"op": "put", "key": data_of(q), "times": 2}, {"op": "put", "key": manifests_of(q)},
                {"op": "put", "key": checkpoints_of(q)}]

    server = {"close_each": "announced"} if connections == "fresh" else {}
    with Scripted(env, [row.name for row in PASSING], server=server) as s:
        handles = fault_queues(s, PASSING, places)
        s.start()
        s.push_until(*(h for row in handles.values() for h in row))
        check_rows(s, PASSING, handles, connections == "fresh")
        s.finish()


@mark(timeout=120)
def test_whatever_passes_on_a_put_passes(env):
    puts_with(env, "kept")


@mark(timeout=120, slow=True)
def test_whatever_passes_on_a_put_passes_with_connections_used_once(env):
    puts_with(env, "fresh")


BIG = {"QUEEN_S3_COMPRESSION": "none", "QUEEN_S3_MULTIPART_THRESHOLD_MB": 5}
DONE_UNTOLD = ("done-500", "lost", "lost-rst", "cut-1", "cut-12", "cut-20", "cut-60", "cut-last", "garbage-done")
OF_UPLOADS = [row for row in PASSING if not row.name.startswith(("status", "close-later"))] + [
    Passing("ok-internal", OkWithError("InternalError"), "status 200: .*InternalError"),
    Passing("ok-slow-down", OkWithError("SlowDown", spaces=3, seconds=0.3), "status 200: .*SlowDown"),
    Passing("ok-unavailable", OkWithError("ServiceUnavailable"), "status 200: .*ServiceUnavailable"),
    Passing("ok-timeout", OkWithError("RequestTimeout"), "status 200: .*RequestTimeout"),
    Passing("ok-done", OkWithError("InternalError", done=True), "status 200: .*InternalError"),
]


def uploads_with(env, connections):
    """The first creation, the first part, the first completion."""

    def places(row):
        return [{"op": f"multipart_{op}", "key": data_of(row.name)} for op in ("create", "part", "complete")]

    server = {"close_each": "announced"} if connections == "fresh" else {}
    with Scripted(env, [row.name for row in OF_UPLOADS], server=server, **BIG) as s:
        handles = fault_queues(s, OF_UPLOADS, places)
        s.start()
        for row in OF_UPLOADS:
            s.push_big(row.name, 5.5 * MIB)
        s.uploads_left = len([row for row in OF_UPLOADS if row.name in (*DONE_UNTOLD, "ok-done")])
        s.complete()
        check_rows(s, OF_UPLOADS, handles, connections == "fresh")
        s.finish()


@mark(timeout=150)
def test_whatever_passes_on_an_upload_in_parts_passes(env):
    uploads_with(env, "fresh")


@mark(timeout=150, slow=True)
def test_whatever_passes_on_an_upload_in_parts_passes_with_connections_kept(env):
    uploads_with(env, "kept")


# The head of a 404 says enough.
OF_READS = [dataclasses.replace(row, error=None) if row.name == "cut-last" else row for row in PASSING] + [
    Passing("html", Status(200, body=b"<html>welcome</html>"), None),
    Passing("empty", Status(200, body=b""), None),
]
NO_MANIFESTS = ("html", "empty")  # what they answer is a manifest of somebody else, or none


def reads_with(env, connections):
    """The list of checkpoints, the checkpoint, the manifest of an open window, the probe; after a kill -9 that left a
    window of every queue open."""
    queues = [row.name for row in OF_READS]
    server = {"close_each": "announced"} if connections == "fresh" else {}
    with Scripted(env, queues, server=server, QUEEN_S3_CHECKPOINT_EVERY=1, QUEEN_S3_LEASE_TTL_MS=3000) as s:
        s.start()
        s.push()
        s.complete()
        held = s.server.fault(Status(503), op="put", key="^(?!.*/_queen/)", times=None)
        s.push()
        wait_until(lambda: all(s.last_error(q) for q in queues), 20, what="every queue has a window open")
        s.broker.kill()
        held.clear()
        probe = s.server.fault(s.env.random.choice(PASSING).fault, op="head")
        handles = {
            row.name: [
                s.server.fault(row.fault, op="list", when=lists(row.name)),
                s.server.fault(row.fault, op="get", key=checkpoints_of(row.name)),
                s.server.fault(row.fault, op="get", key=manifests_of(row.name), times=row.name not in NO_MANIFESTS),
            ]
            for row in OF_READS
        }
        s.start()
        restored = s.broker.wait_log("queue restored", count=len(queues), timeout=60)
        assert restored.fields["redo"] == "true", restored
        s.complete()
        lines = s.broker.find_log("queue restored")
        assert all(line.fields["checkpoint_k"] != "0" or line.fields["queue"] in NO_MANIFESTS for line in lines)
        assert probe.hits == 1
        check_rows(s, OF_READS, handles, connections == "fresh")
        s.finish()


@mark(timeout=120)
def test_whatever_passes_on_a_read_passes(env):
    reads_with(env, "kept")


@mark(timeout=120, slow=True)
def test_whatever_passes_on_a_read_passes_with_connections_used_once(env):
    reads_with(env, "fresh")


# --- what stays away for a minute ---

TERMINAL = [
    Passing("denied", Status(403), "put .*status 403: .*AccessDenied"),
    Passing("no-bucket", Status(404, "NoSuchBucket"), "status 404: .*NoSuchBucket"),
    Passing("moved", Status(301, "PermanentRedirect"), "status 301: .*PermanentRedirect"),
    Passing("invalid", Status(400, "InvalidRequest"), "status 400: .*InvalidRequest"),
    Passing("region", Status(400, "AuthorizationHeaderMalformed"), "status 400: .*AuthorizationHeaderMalformed"),
    Passing("clock", Status(403, "RequestTimeTooSkewed"), "status 403: .*RequestTimeTooSkewed"),
    Passing("segment", Status(400, "InvalidArgument", message="A segment is too long"), "status 400: .*segment"),
    Passing("early-403", RefuseEarly(403), "status 403: "),
    Passing("ok-denied", OkWithError("AccessDenied"), "status 200: .*AccessDenied"),
]
TERMINAL_UPLOADS = [
    ("create", Passing("create", Status(403), "status 403: ")),
    ("part", Passing("part", Status(400, "InvalidPart"), "status 400: .*InvalidPart")),
    ("complete", Passing("complete", Status(400, "InvalidPart"), "status 400: .*InvalidPart")),
    ("complete", Passing("complete-ok", OkWithError("AccessDenied"), "status 200: .*AccessDenied")),
]


@mark(timeout=240)
def test_whatever_does_not_pass_by_itself_stops_the_queue_and_is_tried_again_after_a_minute(env):
    """Statuses that no attempt changes; among them a store that answers 500 to completing an upload that is done, which
    takes the six attempts and then a new upload."""
    queues = [row.name for row in TERMINAL] + [row.name for _, row in TERMINAL_UPLOADS] + ["unknown-500"]
    with Scripted(env, queues, **BIG) as s:
        faults = [s.server.fault(row.fault, op="put", key=data_of(row.name)) for row in TERMINAL]
        faults += [s.server.fault(row.fault, op=f"multipart_{op}", key=data_of(row.name))
                   for op, row in TERMINAL_UPLOADS]
        faults.append(s.server.fault(LostAnswer(), op="multipart_complete", key=data_of("unknown-500")))
        first = {}

        def same_upload(record):
            return first.setdefault("upload", record.upload) == record.upload

        again = s.server.fault(Status(500, "InternalError"), op="multipart_complete", key=data_of("unknown-500"),
                               times=None, when=same_upload)
        faults[-1].when = same_upload
        s.start()
        s.push(*(row.name for row in TERMINAL))
        for _, row in TERMINAL_UPLOADS:
            s.push_big(row.name, 5.5 * MIB)
        s.push_big("unknown-500", 5.5 * MIB)
        for row in TERMINAL + [row for _, row in TERMINAL_UPLOADS]:
            s.wait_error(row.name, row.error)
            wait_until(lambda: s.broker.sink_queue(row.name)["state"] == "failed", 5, what=f"{row.name} stops")
        assert len(s.broker.find_log("ERROR queen-s3: queue stopped")) == len(queues) - 1
        assert s.broker.health().status == 200
        s.complete(timeout=150)
        assert all(f.hits == 1 for f in faults) and again.hits >= 5, (faults, again.hits)
        s.finish()


# --- what /status says while it lasts ---


@mark(timeout=90)
def test_trouble_shows_at_once_and_until_the_next_success(env):
    """decisions.md 14, on one queue: with each fault for ever, until it is seen."""
    rows = [
        (Status(503), "put bucket lake at http://127.0.0.1:.*: status 503: .*SlowDown", True),
        (Status(500), "status 500: ", True),
        (Status(429), "status 429: ", True),
        (CutRequest(at_byte=5), "transport: ", False),
        (LostAnswer(), "transport: ", False),
        (Garbage(), "transport: ", False),
        (Etag(OTHER_ETAG), "integrity: .*0123456789abcdef", True),
    ]
    with Scripted(env, ["orders"], server={"close_each": "announced"}) as s:
        s.start()
        s.push()
        s.complete()
        for fault, pattern, reachable in rows:
            handle = s.server.fault(fault, op="put", key=data_of("orders"), times=None)
            s.push()
            s.wait_bucket(pattern, reachable)
            s.wait_error("orders", pattern.replace("put bucket lake at http://127.0.0.1:.*:", "put queen/.*:"))
            assert s.broker.sink()["ok"] is reachable
            handle.clear()
            s.wait_well()
            s.complete()
        s.finish()


@mark(timeout=60)
def test_a_key_that_is_refused_for_ever_holds_up_no_other_queue_and_is_named(env):
    """As a store answers 503 for a key that it cannot hold."""
    others = ["a", "b"]
    with Scripted(env, ["stuck", *others]) as s:
        fault = s.server.fault(Status(503), op="put", key=data_of("stuck"), times=None)
        s.start()
        s.push("stuck")
        wait_until(lambda: fault.hits, 20)
        key = s.server.wait_requests(op="put", key="queue=stuck")[0].key
        for _ in range(4):
            s.push(*others)
            traffic.wait_complete(s.broker, others)
        assert s.last_error("stuck").startswith(f"put {key}: status 503: "), s.last_error("stuck")
        assert s.broker.sink_queue("stuck")["state"] == "upload" and s.broker.sink()["bucket"]["reachable"] is True
        assert not any(s.last_error(q) for q in others)
        fault.clear()
        s.finish()


@mark(timeout=60)
def test_retry_after_is_waited_for(env):
    """In seconds; a date is not understood and changes nothing."""
    with Scripted(env, ["a", "b", "c", "date"]) as s:
        for queue, code, value in [("a", 503, "3"), ("b", 429, "2"), ("c", 500, "4")]:
            s.server.fault(Status(code, headers={"Retry-After": value}), op="put", key=data_of(queue))
        s.server.fault(Status(503, headers=DATE), op="put", key=data_of("date"))
        s.start()
        s.push()
        s.complete()
        for queue, least, most in [("a", 3, 12), ("b", 2, 11), ("c", 4, 13), ("date", 0.1, 10)]:
            first, second = [r.time for r in s.server.find(op="put") if re.search(data_of(queue), r.key)][:2]
            assert least <= second - first + 0.01 <= most, (queue, second - first)
        s.finish()


# --- connections ---


@mark(timeout=60)
def test_connections_that_the_store_closes_are_no_failures(env):
    """After each answer, announced or not, after three requests, after an idle moment, right when the next request
    comes, with bytes left behind that do not belong there. No attempt of any of it fails."""
    queues = ["a", "b", "c", "d"]
    with Scripted(env, queues, QUEEN_S3_MAX_WINDOW_MS=100) as s:
        s.start()
        s.push_on(pushers=2, pause=0.05)
        options = s.server.options
        for name, value in [("close_each", "announced"), ("close_each", "silent"), ("keep_alive_requests", 3),
                            ("idle_close_s", 0.05)]:
            before = getattr(options, name)
            setattr(options, name, value)
            seen = len(s.server.find())
            wait_until(lambda: len(s.server.find()) >= seen + 40, 20, what="40 requests")
            setattr(options, name, before)
        for fault in (CloseAfter(), CloseAfter(how="rst"), CloseAfter(after_ms=20), CloseAfter(after_ms=20, how="rst"),
                      Stray(CHUNK_END), Stray(SECOND_400), Stray(before=CONTINUE * 2), Spaces()):
            handle = s.server.fault(fault, op="put", times=20)
            wait_until(lambda: handle.hits == 20, 20, what="20 requests")
        s.stop_pushing()
        s.complete()
        assert {code for _, code in s.counted()} <= {200, 404}, s.counted()
        assert not any(s.last_error(q) for q in queues)
        s.finish()


@mark(timeout=60)
def test_an_idle_connection_is_replaced_without_a_word(env):
    """The store closes what was idle for half a second; earlier, later and just then a push comes. Over TLS too."""
    with Scripted(env, ["orders"], server={"idle_close_s": 0.5}, certificate=make_certificate(env.dir)) as s:
        s.start()
        for pause in (0.3, 0.7, 0.48, 0.5, 0.52, 1):
            s.push()
            s.complete()
            time.sleep(pause)
        s.push()
        s.complete()
        assert {code for _, code in s.counted()} <= {200, 404}, s.counted()
        s.finish()


@mark(timeout=90)
@cases("http", "https")
def test_a_refusal_before_the_body_is_read_and_not_a_broken_pipe(env, case):
    """8 MiB bodies, answered before or within the body; then the store closes, resets, or goes on reading. (Over TLS
    what was sent before a reset may be lost with it.)"""
    rows = {f"{then}-{at}": (RefuseEarly(503, at_byte=at, then=then, rate=rate), then)
            for then, rate in [("close", None), ("rst", None), ("read", 20 << 20), ("hold", None)]
            for at in (0, 1 << 20)}
    certificate = make_certificate(env.dir) if case == "https" else None
    options = {"server": {"receive_buffer": 65536}, "certificate": certificate}
    with Scripted(env, rows, **options, QUEEN_S3_COMPRESSION="none") as s:
        for queue, (fault, _) in rows.items():
            s.server.fault(fault, op="put", key=data_of(queue))
        s.start()
        for queue in rows:
            s.push_big(queue, 8 * MIB)
        s.complete()
        errors = {queue: s.last_error(queue) for queue in rows}
        print(*(f"{queue}: {error[:250]}" for queue, error in errors.items()), sep="\n")
        assert all("status 503: " in error for error in errors.values())
        s.finish()


@mark(timeout=60)
def test_a_body_that_stood_still_because_of_us_is_sent_again(env):
    """The broker is stopped in the middle of a body until the store has lost its patience and answers 400."""
    server = {"receive_buffer": 65536, "stall_s": 1}
    with Scripted(env, ["orders"], server=server, QUEEN_S3_COMPRESSION="none", QUEEN_S3_LEASE_TTL_MS=20000) as s:
        s.server.fault(Slow(receive=2 << 20), op="put", key=data_of("orders"))
        s.start()
        s.push_big("orders", 12 * MIB)
        first = s.server.wait_requests(op="put")[0]
        s.server.wait_for(lambda: first.size > MIB, what="a part of the body came")
        s.broker.freeze()
        s.server.wait_for(lambda: first.ended, what="the store gives up")
        assert first.status == 400 and 0 < first.size < 12 * MIB, first
        s.broker.thaw()
        s.wait_error("orders", "status 400: .*RequestTimeout")
        s.finish()


@mark(timeout=60)
def test_a_400_to_a_body_that_was_read_in_half_is_retried(env):
    queues = ["close", "rst"]
    with Scripted(env, queues, server={"receive_buffer": 65536}, QUEEN_S3_COMPRESSION="none") as s:
        faults = [s.server.fault(RefuseEarly(400, "InvalidRequest", at_byte=2 << 20, then=queue), op="put",
                                 key=data_of(queue), times=2) for queue in queues]
        s.start()
        for queue in queues:
            s.push_big(queue, 12 * MIB)
        s.complete(timeout=40)
        assert all(fault.hits == 2 for fault in faults)
        s.finish()


# --- completions ---


@mark(timeout=90)
def test_whatever_a_completion_answers_as_etag(env):
    """Of radosgw, AWS, and those whose ETag is the MD5 of the bytes; in the document and in a repeat."""
    with Scripted(env, ["orders"], **BIG) as s:
        s.start()
        for etag in ("empty", "plain", "unquoted", "standard"):
            s.server.options.multipart_etag = etag
            repeat = s.server.fault(LostAnswer(), op="multipart_complete", when=lambda r: r.nth == 0)
            s.push_big("orders", 5.5 * MIB)
            s.complete()
            s.push_big("orders", 5.5 * MIB)
            s.complete()
            repeat.clear()
        for value in (OTHER_ETAG, None, "no-etag", '&#34;0123456789abcdef0123456789abcdef-1&quot;'):
            fault = s.server.fault(Etag(value), op="multipart_complete")
            s.push_big("orders", 5.5 * MIB)
            s.complete()
            assert fault.hits == 1
        assert {code for op, code in s.counted() if op != "multipart_complete"} <= {200, 404}, s.counted()
        wrong = s.server.fault(Etag(lambda etag: etag.replace("-1", "-7")), op="multipart_complete")
        s.push_big("orders", 5.5 * MIB)
        s.wait_error("orders", "integrity: the ETag names 7 parts, 1 were sent")
        assert wrong.hits == 1
        s.finish()


@mark(timeout=90)
def test_an_upload_that_the_store_forgot_is_begun_anew(env):
    """Before a part, after a failed part, before the completion, and when the completion was done but not told."""
    queues = ["part", "failed-part", "complete", "untold"]
    with Scripted(env, queues, server={"complete_again": False, "close_each": "announced"}, **BIG) as s:
        for queue, op, faults in [("part", "part", [ForgetUpload()]), ("complete", "complete", [ForgetUpload()]),
                                  ("failed-part", "part", [Status(500), ForgetUpload()]),
                                  ("untold", "complete", [LostAnswer()])]:
            for fault in faults:
                s.server.fault(fault, op=f"multipart_{op}", key=data_of(queue))
        s.start()
        for queue in queues:
            s.push_big(queue, 5.5 * MIB)
        s.complete()
        for queue in queues:
            s.wait_error(queue, "status 404: .*NoSuchUpload")
            assert len(s.server.find(op="multipart_create", key=f"/queue={queue}/")) == 2
        assert not s.server.find(op="multipart_abort"), "there is nothing to abort"
        assert [len(v) for k, v in s.server.writes.items() if "queue=untold/dt" in k] == [2]
        s.finish()


# --- what is sent ---


@mark(timeout=60)
@cases("AES256", "aws:kms")
def test_encryption_is_asked_for_with_objects_and_uploads_and_not_with_parts(env, case):
    """And a store that refuses it is waited for. With KMS no ETag is an MD5."""
    header = "x-amz-server-side-encryption"
    key_id = {"QUEEN_S3_SSE_KMS_KEY_ID": "key/of-mine"} if case == "aws:kms" else {}
    expected = {header: case, **({header + "-aws-kms-key-id": "key/of-mine"} if key_id else {})}
    with Scripted(env, ["orders"], QUEEN_S3_SSE=case, **key_id, **BIG) as s:
        if key_id:
            s.server.fault(Etag(OTHER_ETAG), op="put", times=None)
        s.start()
        s.push()
        s.complete()
        s.push_big("orders", 5.5 * MIB)
        s.complete()
        for op, sent in [("put", expected), ("multipart_create", expected), ("multipart_part", {}),
                         ("multipart_complete", {}), ("get", {}), ("list", {}), ("head", {})]:
            found = s.server.find(op=op)
            assert found or op == "get", op
            for record in found:
                assert {n: v for n, v in record.headers.items() if header in n} == sent, record
        s.server.options.sse = "refuse_501"
        s.push()
        s.wait_bucket("status 501: .*NotImplemented", True)
        s.server.options.sse = "ignore"
        s.finish()


PLACES = {
    "path": ("lake.of+mine ~", "path"),
    "virtual": ("dt=%2F/ünï@cødé", "virtual"),
}
ODD_QUEUES = ["a+b", "c d", "e%2Ff", "~", "ünï cødé/1", "a=b", "..", "?&#", "日本語", "'()*!", "CamelCase", "1:2;3"]


@mark(timeout=90)
@cases("path", "virtual")
def test_odd_names_are_signed_as_they_travel(env, case):
    """The server takes the request line as it came. Uploads in parts and lists too; a restart finds it all again."""
    prefix, addressing = PLACES[case]
    with Scripted(env, ODD_QUEUES, addressing=addressing, server={"addressing": addressing}, judged={"prefix": prefix},
                  QUEEN_S3_PREFIX=prefix, QUEEN_S3_CHECKPOINT_EVERY=1, **BIG) as s:
        s.start()
        s.push()
        s.push_big("ünï cødé/1", 5.5 * MIB)
        s.complete()
        s.check_counts()
        assert s.broker.sigterm() == 0
        s.start()
        s.push()
        s.complete()
        assert {code for _, code in s.counted()} <= {200, 404}, s.counted()
        restored = s.broker.find_log("queue restored")
        assert len(restored) == len(ODD_QUEUES) and all(line.fields["checkpoint_k"] != "0" for line in restored)
        s.finish()


@mark(timeout=60)
def test_names_that_are_too_long_for_a_folder_fit_with_the_setting(env):
    """A store that keeps keys as folders refuses a segment of more than 255 bytes: the error names the setting, and
    with it everything goes up under keys that fit."""
    queues = ["q" * 255, "ü" * 100, "short"]
    with Scripted(env, queues, server={"segment_max": 255}, judged={"segment_max": 255}) as s:
        s.start()
        s.push(*queues[:2])
        for queue in queues[:2]:
            s.wait_error(queue, "status 400: .*InvalidArgument")
        s.wait_bucket("QUEEN_S3_KEY_SEGMENT_MAX=255", True)
        assert s.broker.sigterm() == 0
        s.start(QUEEN_S3_KEY_SEGMENT_MAX=255)
        s.push()
        s.finish(timeout=30)


@mark(timeout=60)
def test_a_wrong_etag_and_a_body_that_came_damaged_are_sent_again(env):
    rows = [Passing("etag", Etag(OTHER_ETAG), "integrity: the ETag is 0123456789abcdef.*the MD5 of what was sent "),
            Passing("md5", Status(400, "BadDigest"), "status 400: .*BadDigest"),
            Passing("sha256", Status(400, "XAmzContentSHA256Mismatch"), "status 400: .*XAmzContentSHA256Mismatch"),
            Passing("no-etag", Etag(None), None), Passing("short-etag", Etag('"abc"'), None),
            Passing("bare-etag", Etag(lambda etag: etag.strip('"')), None),
            Passing("upper-etag", Etag(lambda etag: etag.upper()), None),
            Passing("ok-error", OkWithError("InternalError"), "status 200: .*InternalError")]
    with Scripted(env, [row.name for row in rows]) as s:
        handles = fault_queues(s, rows, lambda row: [{"op": "put", "key": data_of(row.name)},
                                                     {"op": "put", "key": manifests_of(row.name)}])
        s.start()
        s.push()
        s.complete(timeout=30)
        check_rows(s, rows, handles, fresh=True)
        s.finish()


# --- lists ---


@mark(timeout=90)
@cases("bytes", "folders")
def test_the_newest_usable_checkpoint_is_found_among_thousands(env, case):
    """Those of windows that are not committed are passed over, and what is no checkpoint; three pages and more."""
    with Scripted(env, ["orders"], server={"list_order": case}, QUEEN_S3_CHECKPOINT_EVERY=1) as s:
        s.start()
        for _ in range(3):
            s.push()
            s.complete()
        committed = s.broker.sink_queue("orders")["k"]
        assert committed >= 2 and s.broker.sigterm() == 0
        newest = f"{committed:010d}.json.zst"
        folder = next(k for k in s.server.objects() if k.endswith("/checkpoint/" + newest)).removesuffix(newest)
        names = [f"{n:010d}.json.zst" for n in range(committed + 1, committed + 2400)]
        names += [f"{n:010d}/x" for n in range(300)] + [f"{n:010d}-x.json.zst" for n in range(300)]
        names += ["0", "~", "0000000001.json.zst.bak", "zzz.json.zst", "99999999999999999999999.json.zst"]
        for name in names:
            s.server.bucket.put(folder + name, [b"junk"], "", '"etag"', "application/zstd")
        s.start()
        restored = s.broker.wait_log("queue restored")
        assert restored.fields["checkpoint_k"] == str(committed), restored
        pages = [r for r in s.server.find(op="list") if "start-after" in r.query]
        assert len(pages) >= 3, pages
        for name in names:
            s.server.bucket.delete(folder + name)
            s.server.writes.pop(folder + name)
        s.push()
        s.finish()


# --- settings that are wrong, until somebody sets the store right ---

WRONG = [
    ({"region": "eu-west-1"}, {"region": "us-east-1"}, "AuthorizationHeaderMalformed|eu-west-1|status 400"),
    ({"redirect_region": "eu-west-1"}, {"redirect_region": ""}, "status 301"),
    ({"clock_offset_s": 1200}, {"clock_offset_s": 0}, "RequestTimeTooSkewed|clock|status 403"),
    ({"access_key": "another"}, {"access_key": "test-key"}, "status 403"),
    ({"secret_key": "another"}, {"secret_key": "the right one"}, "status 403"),
    ({"bucket": "another"}, {"bucket": "lake"}, "status 404|NoSuchBucket"),
]


@mark(timeout=90)
def test_what_is_refused_at_boot_shows_and_is_taken_up_when_it_is_right(env):
    """Region, redirection, clock, key id, secret, bucket: six brokers, pushes to each meanwhile."""
    with contextlib.ExitStack() as stack:
        every = []
        for wrong, right, pattern in WRONG:
            s = stack.enter_context(Scripted(env, ["orders"]))
            s.broker.settings["QUEEN_S3_REGION"] = "us-east-1"
            if "bucket" in wrong:
                del s.server.buckets["lake"]
            else:
                for name, value in wrong.items():
                    setattr(s.server.options, name, value)
            if "secret_key" in right:
                right = {"secret_key": s.broker.settings["QUEEN_S3_SECRET_KEY"]}
            s.start()
            s.push()
            every.append((s, right, pattern))
        for s, right, pattern in every:
            s.wait_bucket(pattern, False)
            report = s.broker.sink()
            assert report["queues"] == [], report
            assert s.broker.find_log("ERROR queen-s3: ") or report["bucket"]["reachable"] is not False, s.broker.log()
            assert s.broker.settings["QUEEN_S3_SECRET_KEY"] not in "".join(s.broker.log())
        for s, right, _ in every:
            if "bucket" in right:
                s.server.add_bucket("lake")
            else:
                for name, value in right.items():
                    setattr(s.server.options, name, value)
        for s, _, _ in every:
            s.finish()
