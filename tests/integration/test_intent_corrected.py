"""The way out that docs/operations.md gives for a window that cannot be finished as it was begun: its key is refused for
ever, or its store has moved. Its intent names both, and it is the intent that has to be corrected.
"""

from harness import cases, mark, wait_until
from s3_faults import Status
from scripted import Scripted

LONG = "q" * 252  # its segment of a key has 258 bytes
SINK = "queen-s3"


def is_long(record):
    return any(len(part.encode()) > 255 for part in record.key.split("/"))


def intent_of(s, queue):
    return s.broker.kv({"op": "get", "ns": SINK, "key": f"s3:default:{queue}:intent"})[0]


def correct_intent(s, queue, **right):
    """As the documentation says."""
    row = intent_of(s, queue)
    put = {"op": "put", "ns": SINK, "key": row["key"], "expect": row["version"], "forever": True,
           "value": {**row["value"], **right}}
    assert s.broker.kv(put)[0]["applied"] is True


@mark(timeout=120)
@cases("earliest", "latest")
def test_a_window_whose_key_is_refused_goes_up_with_a_corrected_intent(env, start):
    """The store takes reads of any key. With `latest` and no window yet, the intent is also what says where the lake
    begins."""
    with Scripted(env, [LONG, "short"], judged={"segment_max": 255, "start": start}, QUEEN_S3_START=start) as s:
        refused = s.server.fault(Status(400, "InvalidArgument"), op="put", when=is_long, times=None)
        s.start()
        if start == "latest":  # a queue that is there before its first record
            for queue in s.queues:
                s.broker.call("POST", "/api/v1/configure", {"queue": queue})
            wait_until(lambda: all((q := s.broker.sink_queue(n)) and q["state"] == "filling" for n in s.queues))
        s.push()
        s.wait_error(LONG, "status 400: .*InvalidArgument.*QUEEN_S3_KEY_SEGMENT_MAX=255")
        assert s.broker.sigterm() == 0
        s.start(QUEEN_S3_KEY_SEGMENT_MAX=255)
        s.push()
        s.wait_error(LONG, "status 400: .*correct segmentMax in its intent")  # the open window asks for its long key all the same
        assert intent_of(s, LONG)["value"]["segmentMax"] == 1024
        correct_intent(s, LONG, segmentMax=255)
        hits = refused.hits
        assert s.broker.sigterm() == 0
        s.start()
        s.push()
        s.complete(30)
        assert refused.hits == hits and s.broker.status()["s3"]["pins"] == []
        s.finish()


@mark(timeout=60)
def test_a_window_whose_store_has_moved_goes_up_with_a_corrected_intent(env):
    with Scripted(env, ["orders"], QUEEN_S3_SHUTDOWN_GRACE_MS=1000) as s:
        refused = s.server.fault(Status(503), op="put", times=None)
        s.start()
        s.push()
        s.wait_error("orders", "status 503: ")
        assert s.broker.sigterm() == 0
        moved = s.server.endpoint.replace("127.0.0.1", "localhost")  # the same store under another name
        s.start(QUEEN_S3_ENDPOINT=moved)
        s.wait_error("orders", "window 1 is open for bucket lake at http://127.*which cannot be reached with today")
        refused.clear()
        correct_intent(s, "orders", endpoint=moved)
        assert s.broker.sigterm() == 0
        s.start()
        s.push()
        s.finish()
