"""Uploads in parts, as a process dies in the middle of them, and as they fail: what is stranded equals what is done
again, and what was given up is aborted. Parts have 16 MiB; the server in tests/lib keeps what came.
"""

import json
import os
import signal

import oracle
import traffic
from harness import mark, wait_until
from s3_faults import CutRequest, Hang, LostAnswer, Status
from scripted import MIB, Scripted

PART = 16 * MIB
IN_PARTS = {"QUEEN_S3_COMPRESSION": "none", "QUEEN_S3_MULTIPART_THRESHOLD_MB": 5}


def parts_by_upload(server):
    """{upload id: {number: sha256}} of the parts that came whole."""
    found = {}
    for record in server.find(op="multipart_part"):
        if record.sha256 is not None:
            found.setdefault(record.upload, {})[record.part] = record.sha256
    return found


def check_equal_parts(server):
    """Whatever was sent as part n of the one object, in whichever upload, was the same."""
    uploads = parts_by_upload(server)
    by_number = {}
    for parts in uploads.values():
        for number, sha256 in parts.items():
            by_number.setdefault(number, set()).add(sha256)
    assert all(len(versions) == 1 for versions in by_number.values()), uploads
    return uploads


def abort_stranded(s, expected):
    """As an operator or a lifecycle rule of the bucket does."""
    uploads = s.server.uploads()
    assert len(uploads) in expected, uploads
    with_client = s.server.client()
    for upload in uploads:
        with_client.abort_upload(upload.key, upload.id)


@mark(timeout=120)
def test_a_crash_between_two_parts_leaves_parts_that_the_redo_repeats(env):
    with Scripted(env, ["orders"], **IN_PARTS) as s:
        s.start(QUEEN_S3_CRASH_AT="mid_upload")
        s.push_big("orders", 40 * MIB)
        assert s.broker.wait(60) == -signal.SIGABRT
        last = s.broker.log()[-1]
        assert last.endswith("ERROR queen-s3: QUEEN_S3_CRASH_AT fired: aborting between multipart parts"), last
        (stranded,) = s.server.uploads()
        assert list(stranded.parts) == [1] and stranded.parts[1].size == PART, stranded
        assert s.server.objects() == []
        s.start(QUEEN_S3_CRASH_AT=None)
        assert s.broker.wait_log("queue restored").fields["redo"] == "true"
        s.complete()
        uploads = check_equal_parts(s.server)
        assert len(uploads) == 2 and uploads[stranded.id] == {1: stranded.parts[1].sha256}, uploads
        assert sorted(next(p for u, p in uploads.items() if u != stranded.id)) == [1, 2, 3]
        assert len([key for key in s.server.objects() if "/_queen/" not in key]) == 1
        abort_stranded(s, [1])
        judged = s.finish()
        assert [len(v) for k, v in s.server.writes.items() if "/_queen/" not in k] == [1]
        assert len(judged.windows["orders"]) == 1


@mark(timeout=150)
def test_kill_9_at_every_step_of_an_upload_changes_no_byte(env):
    """At the creation, in the first and the last part, at the completion before and after it was done: one window,
    six lives."""
    steps = [
        ("multipart_create", None, Hang("before_body")),
        ("multipart_part", 1, Hang("in_body", at_byte=MIB)),
        ("multipart_part", 3, Hang("before_answer")),
        ("multipart_complete", None, Hang("before_body")),
        ("multipart_complete", None, Hang("before_answer")),
    ]
    with Scripted(env, ["orders"], **IN_PARTS) as s:
        s.start()
        for n, (op, part, hang) in enumerate(steps):
            fault = s.server.fault(hang, op=op, part=part)
            if n == 0:
                s.push_big("orders", 34 * MIB)
            s.server.wait_for(lambda: fault.hits, 60, f"{op} {part} is reached")
            if n == len(steps) - 1:
                s.server.wait_for(s.server.objects, what="the completion is done, and not told")
            s.broker.kill()
            fault.clear()  # what stands in the socket whole may be done late
            s.start()
        s.complete()
        uploads = check_equal_parts(s.server)
        assert len(uploads) >= 4, uploads
        (key,) = [key for key in s.server.objects() if "/_queen/" not in key]
        assert len(s.server.writes[key]) >= 2 and len(set(s.server.writes[key])) == 1, s.server.writes[key]
        abort_stranded(s, range(2, 6))
        assert len(s.finish().windows["orders"]) == 1


@mark(timeout=120)
def test_an_upload_that_failed_is_aborted_once(env):
    """A part, a completion are refused: one abort, and nothing is left, unless that fails too. A restart redoes all."""
    aborts = {"taken": None, "refused": Status(403), "lost": CutRequest(where="head")}
    queues = [f"{op}-{name}" for op in ("part", "complete") for name in aborts]
    with Scripted(env, queues, server={"close_each": "announced"}, **IN_PARTS) as s:
        s.server.fault(Status(403), op="multipart_part", key="/queue=part-.*/dt", part=2, times=3)
        s.server.fault(Status(400, "InvalidPart"), op="multipart_complete", key="/queue=complete-.*/dt", times=3)
        for name, fault in aborts.items():
            if fault is not None:
                s.server.fault(fault, op="multipart_abort", key=f"/queue=.*-{name}/dt", times=None)
        s.start()
        for queue in queues:
            s.push_big(queue, 17 * MIB)
        wait_until(lambda: all((s.broker.sink_queue(q) or {}).get("state") == "failed" for q in queues), 60)
        for queue in queues:
            assert ("status 403: " if "part" in queue else "InvalidPart") in s.last_error(queue), s.last_error(queue)
            assert len(s.server.find(op="multipart_abort", key=f"/queue={queue}/")) == 1, queue
        s.check_counts()
        assert len(s.server.uploads()) == 4 and s.server.objects() == []
        assert s.broker.sigterm() == 0
        s.server.clear_faults()
        s.start()
        s.complete()
        for queue in queues:
            sizes = {(r.part, r.size, r.sha256) for r in s.server.find(op="multipart_part", key=f"/queue={queue}/")}
            assert len(sizes) == 2, sizes
        abort_stranded(s, [4])
        s.finish()


def exact(queue, size):
    """A record whose object, uncompressed, has that many bytes."""
    item = traffic.Item(queue, "p", "t", "")
    room = size - len(oracle.lake_line("p", 0, "t", 0, '""').encode()) - 1
    return item._replace(payload=json.dumps("x" * room))


@mark(timeout=120)
def test_the_threshold_and_the_edges_of_parts(env):
    """Only what is larger than the threshold goes up in parts; a part is full or the last one."""
    sizes = {
        "below": (5 * MIB - 1, None), "at": (5 * MIB, None), "above": (5 * MIB + 1, [5 * MIB + 1]),
        "part": (PART, [PART]), "part-and-1": (PART + 1, [PART, 1]), "two": (2 * PART, [PART, PART]),
    }
    with Scripted(env, sizes, **IN_PARTS) as s:
        s.start()
        for queue, (size, _) in sizes.items():
            traffic.push_all(s.broker, s.ledger, [[exact(queue, size)]], threads=1)
        s.complete()
        for queue, (size, parts) in sizes.items():
            (key,) = [k for k in s.server.objects() if f"/queue={queue}/dt" in k]
            assert len(s.server.get(key)) == size, (queue, len(s.server.get(key)))
            sent = [r.size for r in sorted(s.server.find(op="multipart_part", key=key), key=lambda r: r.part)]
            assert (sent or None) == parts, (queue, sent)
        s.finish()


def spool_files(pid):
    """Sizes of the deleted files that the process holds open."""
    sizes = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{fd}").endswith("(deleted)"):
                sizes.append(os.stat(f"/proc/{pid}/fd/{fd}").st_size)
        except FileNotFoundError:
            pass
    return sizes


@mark(timeout=120)
def test_a_large_object_is_sent_from_its_file_part_by_part(env):
    """With little memory for it the object waits in a file; each part of it fails once."""
    with Scripted(env, ["orders"], QUEEN_S3_MEMORY_MB=8, **IN_PARTS) as s:
        for part, fault in [(1, CutRequest(at_byte=5 * MIB)), (2, Status(500)), (3, LostAnswer(how="rst"))]:
            s.server.fault(fault, op="multipart_part", part=part)
        hang = s.server.fault(Hang("before_answer"), op="multipart_complete")
        s.start()
        s.push_big("orders", 40 * MIB)
        s.server.wait_for(lambda: hang.hits, 60, "all parts are there")
        assert any(size > 40 * MIB for size in spool_files(s.broker.pid)), spool_files(s.broker.pid)
        hang.release()
        check_equal_parts(s.server)
        s.finish()
        assert len(s.server.find(op="multipart_create")) == 1
