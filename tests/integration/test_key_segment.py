"""The way out that docs/operations.md gives for a window whose key a store refuses for ever: its intent names the keys,
and it is the intent that has to be corrected.
"""

from harness import cases, mark, wait_until
from s3_faults import Status
from scripted import Scripted

LONG = "q" * 252  # its segment of a key has 258 bytes
SINK = "queen-s3"
INTENT = f"s3:default:{LONG}:intent"


def is_long(record):
    return any(len(part.encode()) > 255 for part in record.key.split("/"))


def the_intent(s):
    return s.broker.kv({"op": "get", "ns": SINK, "key": INTENT})[0]


def correct_the_intent(s):
    """As the documentation says."""
    row = the_intent(s)
    put = {"op": "put", "ns": SINK, "key": INTENT, "expect": row["version"], "forever": True,
           "value": {**row["value"], "segmentMax": 255}}
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
        assert the_intent(s)["value"]["segmentMax"] == 1024
        correct_the_intent(s)
        hits = refused.hits
        assert s.broker.sigterm() == 0
        s.start()
        s.push()
        s.complete(30)
        assert refused.hits == hits and s.broker.status()["s3"]["pins"] == []
        s.finish()
