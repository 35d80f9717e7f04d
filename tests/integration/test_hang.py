"""Stopping while the store stands still, and stores that are slow: a drain ends in its grace whatever hangs; uploads
are aborted, leases and the presence row given back, and the next life does the same again. What hangs without a drain is
ended by the client's own limits.
"""

from datetime import datetime

import traffic
from harness import cases, mark, wait_until
from s3_faults import CutRequest, Hang, Slow, Spaces, Status
from scripted import MIB, Scripted, checkpoints_of, data_of, lists, manifests_of

IN_PARTS = {"QUEEN_S3_COMPRESSION": "none", "QUEEN_S3_MULTIPART_THRESHOLD_MB": 5}
GRACE = "QUEEN_S3_SHUTDOWN_GRACE_MS"
TTL = {"QUEEN_S3_LEASE_TTL_MS": 8000}  # a row that is left is still there when it is looked for
AWAY = {"QUEEN_S3_EMBEDDED": "false"}
BACK = {"QUEEN_S3_EMBEDDED": "true"}

# (request, size of the object, where it hangs)
HANGS = {
    "put-before-body": ("put", 1, Hang("before_body")),
    "put-in-body": ("put", 4 * MIB, Hang("in_body", at_byte=MIB)),
    "put-answer": ("put", 1, Hang("before_answer")),
    "put-in-answer": ("put", 1, Hang("in_answer", at_byte=30)),
    "put-late": ("put", 4 * MIB, Hang("in_body", at_byte=MIB, late=True)),
    "create": ("multipart_create", 6 * MIB, Hang("before_body")),
    "part-in-body": ("multipart_part", 6 * MIB, Hang("in_body", at_byte=MIB)),
    "part-answer": ("multipart_part", 6 * MIB, Hang("before_answer")),
    "complete": ("multipart_complete", 6 * MIB, Hang("before_body")),
    "complete-answer": ("multipart_complete", 6 * MIB, Hang("before_answer")),
    "manifest": ("manifest", 1, Hang("before_answer")),
}


def stop(broker, grace):
    """SIGTERM; done within the grace and a second by its own log (a sanitizer looks around after that). Seconds it
    took."""
    assert broker.sigterm(timeout=grace + 30) == 0
    first, last = (broker.find_log(f"INFO shutdown: {text}")[0].time for text in ("SIGTERM", "done"))
    took = (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    assert took <= grace + 1, f"{took:.2f} s with a grace of {grace} s"
    return took


def check_rows_given_back(s):
    """No lease and no presence row; looked at by a life without a sink."""
    s.broker.start(**AWAY)
    left = [key for key in traffic.kv_rows(s.broker) if key.endswith(":lease") or key.startswith("s3:default:node=")]
    assert not left, left
    assert s.broker.sigterm() == 0


def stop_while_it_hangs(env, cases):
    """Each case on a queue of its own."""
    with Scripted(env, cases, **TTL, **IN_PARTS, **{GRACE: 2000}) as s:
        s.start()
        s.push()
        s.complete()
        faults = []
        for case in cases:
            op, size, hang = HANGS[case]
            is_manifest = op == "manifest"
            key = manifests_of(case) if is_manifest else data_of(case)
            faults.append(s.server.fault(hang, op="put" if is_manifest else op, key=key))
            s.push_big(case, size) if size > 1 else s.push(case)
        s.server.wait_for(lambda: all(fault.hits for fault in faults), 40, "all hang")
        s.server.fault(Status(503), op="put", times=None)  # nothing gets through beside it
        assert stop(s.broker, 2) >= 1
        assert len(s.broker.find_log("WARN queen-s3: the sink did not stop inside its grace window")) == 1
        wait_until(lambda: not s.server.uploads(), 5, what=f"uploads are aborted: {s.server.uploads()}")
        s.server.clear_faults()  # what hung late goes on now
        check_rows_given_back(s)
        s.start(**BACK)
        restored = [s.broker.wait_log(f"queue restored queue={case} ", timeout=40) for case in cases]
        assert {line.fields["redo"] for line in restored} == {"true"}, restored
        s.finish()


@mark(timeout=120)
def test_a_drain_while_the_store_hangs_everywhere_ends_in_its_grace(env):
    stop_while_it_hangs(env, list(HANGS))


@mark(timeout=60, slow=True)
@cases(*HANGS)
def test_a_drain_while_the_store_hangs_ends_in_its_grace(env, case):
    stop_while_it_hangs(env, [case])


@mark(timeout=60)
def test_a_drain_that_is_shorter_than_a_put_gives_the_rows_back_all_the_same(env):
    """A PUT of five seconds, a grace of one; the next life writes the same bytes."""
    with Scripted(env, ["orders"], server={"receive_buffer": 65536}, **TTL, **{GRACE: 1000},
                  QUEEN_S3_COMPRESSION="none") as s:
        slow = s.server.fault(Slow(receive=2 * MIB), op="put", key=data_of("orders"))
        s.start()
        s.push_big("orders", 12 * MIB)
        s.server.wait_for(lambda: slow.hits and s.server.find(op="put")[0].size > MIB, 30, "the body comes")
        stop(s.broker, 1)
        check_rows_given_back(s)
        s.start(**BACK)
        s.finish()


@mark(timeout=60)
def test_a_drain_with_time_enough_finishes_a_slow_put_and_commits(env):
    """A PUT of three seconds and a grace of thirty."""
    with Scripted(env, ["orders"], server={"receive_buffer": 65536}, **TTL, **{GRACE: 30000},
                  QUEEN_S3_COMPRESSION="none") as s:
        slow = s.server.fault(Slow(receive=4 * MIB), op="put", key=data_of("orders"))
        s.start()
        s.push_big("orders", 12 * MIB)
        s.server.wait_for(lambda: slow.hits and s.server.find(op="put")[0].size > MIB, 30, "the body comes")
        assert stop(s.broker, 30) < 15
        assert s.broker.find_log("INFO queen-s3: window committed queue=orders k=1 ")
        assert len(s.broker.find_log("INFO queen-s3: queue drained queue=orders$")) == 1
        s.judge()
        check_rows_given_back(s)


@mark(timeout=90)
@cases("list", "checkpoint", "manifest", "head")
def test_a_drain_while_a_read_hangs_ends_in_its_grace(env, case):
    """At the restore after a kill -9 that left a window open, and at the probe."""
    with Scripted(env, ["orders"], QUEEN_S3_CHECKPOINT_EVERY=1, **{GRACE: 2000}) as s:
        s.start()
        s.push()
        s.complete()
        wait_until(lambda: any("/checkpoint/" in key for key in s.server.objects()), 10)
        open_window = s.server.fault(CutRequest(), op="put", key=data_of("orders"), times=None)
        s.push()
        s.server.wait_for(lambda: open_window.hits, 20)
        s.broker.kill()
        open_window.clear()
        which = {"list": {"op": "list", "when": lists("orders")},
                 "checkpoint": {"op": "get", "key": checkpoints_of("orders")},
                 "manifest": {"op": "get", "key": manifests_of("orders")}, "head": {"op": "head"}}[case]
        fault = s.server.fault(Hang("before_answer"), **which)
        s.start()
        s.server.wait_for(lambda: fault.hits, 30, "it hangs")
        stop(s.broker, 2)
        fault.clear()
        if case != "head":  # then the rows are those of the life that was killed
            check_rows_given_back(s)
        s.start(**BACK)
        s.finish()


@mark(timeout=400, slow=True)
def test_what_hangs_for_two_minutes_is_ended_and_done_again(env):
    """Sixty seconds without a byte, two minutes in all; every place at once, on queues of their own."""
    wheres = {"before-body": Hang("before_body"), "in-body": Hang("in_body", at_byte=MIB),
              "before-answer": Hang("before_answer"), "in-answer": Hang("in_answer", at_byte=25)}
    rows = {f"put-{name}": ("put", 4 * MIB, hang) for name, hang in wheres.items()}
    rows |= {f"part-{name}": ("multipart_part", 6 * MIB, hang) for name, hang in wheres.items()}
    rows |= {f"complete-{name}": ("multipart_complete", 6 * MIB, hang)
             for name, hang in wheres.items() if name != "in-body"}
    rows["complete-blanks"] = ("multipart_complete", 6 * MIB, Spaces(spaces=150, seconds=150))
    with Scripted(env, rows, server={"receive_buffer": 65536, "close_each": "announced"}, **IN_PARTS) as s:
        faults = [s.server.fault(hang, op=op, key=data_of(queue)) for queue, (op, _, hang) in rows.items()]
        s.start()
        for queue, (_, size, _) in rows.items():
            s.push_big(queue, size)
        s.complete(timeout=300)
        for fault in faults:
            assert fault.hits == 1, fault.fault.name
            fault.clear()
        for queue, (op, _, _) in rows.items():
            first, again = (r.time for r in s.server.find(op=op, key=f"/queue={queue}/dt"))
            least, most = (115, 140) if op == "multipart_complete" else (55, 80)
            assert least < again - first < most, (queue, again - first)
        s.finish()
