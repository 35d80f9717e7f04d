"""GET /status field by field: names, order, types and what may be null, in every state that can be brought about.

spec/sink-status-metrics.md 1. The states that last only while the broker's own log answers (`intent`, `commit`,
`claiming`), that need a second node (`released`) or a mistake in the program (`crashed`) are held to the same rules
whenever a look meets them.
"""

import contextlib
import json
import re
import time

import traffic
from harness import mark, wait_until
from s3_faults import Hang, Status
from scripted import Scripted, data_of, lists

TENANT = "00000000-0000-0000-0000-000000000001"
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
STATES = "claiming held restoring filling intent upload commit drained fenced failed missing crashed released".split()

# --- the rules ---


def is_count(v):
    return type(v) is int and v >= 0


def is_text(v):
    return type(v) is str and v != ""


def is_bool(v):
    return type(v) is bool


def is_time(v):
    return type(v) is str and ISO.fullmatch(v) is not None


def or_null(rule):
    return lambda v: v is None or rule(v)


def is_one_of(*values):
    return lambda v: any(v is value or v == value and type(v) is type(value) for value in values)


def has(in_order=True, **rules):
    """An object with exactly these fields, in alphabetical order unless told otherwise."""

    def rule(v):
        assert isinstance(v, dict) and sorted(v) == sorted(rules), (list(v), sorted(rules))
        assert list(v) == sorted(v) or not in_order, list(v)
        wrong = {name: v[name] for name in rules if not rules[name](v[name])}
        assert not wrong, f"{wrong} of {v}"
        return True

    return rule


def each(rule):
    return lambda v: isinstance(v, list) and all(rule(item) for item in v)


QUEUE = has(
    name=is_text,
    ownedHere=is_bool,
    heldBy=or_null(is_text),
    state=is_one_of(*STATES),
    k=is_count,
    tEnd=or_null(is_time),
    completeThrough=or_null(is_time),
    safeTime=or_null(is_time),
    lagSeconds=or_null(lambda v: type(v) is float and v >= 0),
    redo=is_bool,
    bufferedBytes=is_count,
    partitions=is_count,
    windowsCommitted=is_count,
    records=is_count,
    bytes=is_count,
    recordsLost=is_count,
    lastError=or_null(has(at=is_time, message=is_text)),
)
BUCKET = has(
    reachable=or_null(is_bool),
    error=or_null(is_text),
    checkedAt=or_null(is_time),
    name=is_text,
    endpoint=is_text,
    region=or_null(is_text),
    prefix=is_text,
)


def is_health(v):
    if v["ok"]:
        return has(ok=is_one_of(True), queues=is_count)(v)
    return has(ok=is_one_of(False), queue=is_text, staleMs=is_count, limitMs=is_count)(v)


SINK = has(
    tenant=is_one_of(TENANT),
    source=is_one_of("env"),
    cluster=is_one_of(None),
    phase=is_one_of("starting", "running", "backoff", "stopped", "error"),
    error=is_one_of(None),
    restarts=is_count,
    lastExit=is_one_of(None),
    uptimeMs=is_count,
    backoffMs=is_count,
    ok=is_bool,
    sink=is_text,
    instance=is_text,
    version=is_one_of("2.0.0"),
    running=is_bool,
    format=is_one_of("jsonl"),
    compression=is_one_of("zstd", "gzip", "none"),
    layout=is_one_of("merged"),
    align=is_one_of("hour", "day", "none"),
    bucket=BUCKET,
    health=is_health,
    placement=has(givingBack=or_null(is_text), held=is_count, nodes=is_count, queues=is_count, share=is_count),
    memory=has(bufferedBytes=is_count, limitBytes=is_count),
    queues=each(QUEUE),
)
PIN = has(key=is_text, queue=lambda v: type(v) is str, queueDeleted=is_bool, tEnd=is_time, tStart=is_time)
STATUS = has(
    engine=is_one_of("segments-rust"),
    status=is_one_of("ok"),
    s3=has(
        mode=is_one_of("in-process"),
        phase=is_one_of("starting", "running", "stopped"),
        threads=lambda v: is_count(v) and 1 <= v <= 64,
        controlPlane=has(error=is_one_of(None)),
        pins=each(PIN),
        sinks=each(SINK),
    ),
)


def check_row(q):
    """What the fields of one queue say of each other."""
    assert (q["heldBy"] is not None) == (q["state"] == "held"), q
    assert (q["tEnd"] is None) == (q["k"] == 0), q
    assert (q["lagSeconds"] is None) == (q["completeThrough"] is None or q["safeTime"] is None), q
    assert not (q["ownedHere"] and q["state"] in ("held", "missing", "fenced", "failed", "drained", "released")), q
    if q["state"] == "held":
        assert q["completeThrough"] is q["safeTime"] is q["lagSeconds"] is None and not q["redo"], q
        assert q["bufferedBytes"] == q["partitions"] == 0, q
    if q["state"] == "failed":
        assert q["lastError"] is not None, q
    if q["lastError"] is not None:
        assert q["lastError"]["at"].endswith("000Z"), "wall clock, in milliseconds"


def look(call):
    """GET /status, checked whole; {queue: row}, and the sink's report."""
    answer = call("GET", "/status")
    assert answer.status == 200 and answer.headers["content-type"].startswith("application/json"), answer
    status = json.loads(answer.body)
    assert STATUS(status)
    sink = status["s3"]["sinks"][0]
    assert sink["ok"] == (sink["health"]["ok"] and sink["bucket"]["reachable"] is not False), sink
    assert (sink["uptimeMs"] > 0) <= (sink["phase"] == "running") and sink["backoffMs"] == sink["restarts"] == 0, sink
    assert (sink["bucket"]["checkedAt"] is None) <= (sink["bucket"]["reachable"] is None), sink["bucket"]
    names = [q["name"] for q in sink["queues"]]
    assert names == sorted(names, key=str.encode), names
    for q in sink["queues"]:
        check_row(q)
    assert sink["placement"]["held"] == sum(q["ownedHere"] for q in sink["queues"]), sink
    return {q["name"]: q for q in sink["queues"]}, sink


def wait_state(call, queue, state, timeout=30):
    """Looks on and on, and checks each time, until the queue is in that state; its row."""

    def seen():
        row = look(call)[0].get(queue)
        return row is not None and row["state"] == state and row

    return wait_until(seen, timeout, what=f"{queue} is {state}")


# --- the states ---


def foreign_lease(broker, queue, seconds):
    lease = {"instance": "node-9@elsewhere", "incarnation": "0123456789abcdef", "sinceMs": 1}
    key = f"s3:default:{queue}:lease"
    broker.kv({"op": "put", "ns": "queen-s3", "key": key, "value": lease, "ttlSeconds": seconds})


def check_unprobed(call):
    rows, sink = look(call)
    assert rows == {} and sink["ok"] is sink["running"] is True and sink["phase"] == "running", sink
    assert sink["bucket"]["reachable"] is sink["bucket"]["error"] is sink["bucket"]["checkedAt"] is None
    assert sink["health"] == {"ok": True, "queues": 0}
    assert sink["placement"] == {"givingBack": None, "held": 0, "nodes": 1, "queues": 0, "share": 0}, sink["placement"]


@mark(timeout=120)
def test_every_field_in_every_state(env):
    queues = ["bad", "gone", "held", "idle", "orders", "slow"]
    with Scripted(env, ["orders"], QUEEN_S3_QUEUES=",".join(queues), QUEEN_S3_LEASE_TTL_MS=3000) as s:
        probe = s.server.fault(Hang(), op="head")
        s.server.fault(Status(400, "InvalidArgument"), op="put", key=data_of("bad"), times=None)
        upload = s.server.fault(Hang(), op="put", key=data_of("orders"))
        s.start()
        call = s.broker.request
        check_unprobed(call)
        s.broker.push([{"queue": q, "partition": "p", "payload": q} for q in ("bad", "held", "idle", "slow")])
        foreign_lease(s.broker, "held", 60)
        probe.release()

        missing = wait_state(call, "gone", "missing")
        assert missing["k"] == 0 and missing["safeTime"] is missing["completeThrough"] is None, missing
        held = wait_state(call, "held", "held")
        assert held["heldBy"] == "node-9@elsewhere" and held["windowsCommitted"] == 0, held
        failed = wait_state(call, "bad", "failed")
        assert "InvalidArgument" in failed["lastError"]["message"] and failed["windowsCommitted"] == 0, failed

        s.push("orders", size=5)
        uploading = wait_state(call, "orders", "upload")
        assert uploading["ownedHere"] and not uploading["redo"] and uploading["k"] == 0, uploading
        assert uploading["bufferedBytes"] > 0 and uploading["partitions"] > 0 and uploading["safeTime"], uploading
        assert uploading["completeThrough"] is uploading["tEnd"] is None, "nothing is known to be in the bucket"
        assert look(call)[1]["memory"]["bufferedBytes"] == uploading["bufferedBytes"]
        upload.release()
        traffic.wait_complete(s.broker, ["orders"])
        filling = wait_state(call, "orders", "filling")
        assert filling["k"] == filling["windowsCommitted"] == 1 and filling["records"] == 5 and filling["bytes"] > 0, filling
        assert filling["tEnd"] <= filling["completeThrough"] <= filling["safeTime"] and filling["bufferedBytes"] == 0
        slow = wait_until(lambda: (r := look(call)[0]["slow"])["k"] == 1 and r["state"] == "filling" and r, 30)
        assert slow["ownedHere"] and slow["lastError"] is None, slow

        foreign_lease(s.broker, "slow", 5)
        fenced = wait_state(call, "slow", "fenced")
        assert fenced["lastError"] is not None and not fenced["ownedHere"], fenced

        drained_and_redone(s, call)


@contextlib.contextmanager
def connected(broker, count):
    """Calls on connections that are made now, one each."""
    with contextlib.ExitStack() as stack:
        calls = [stack.enter_context(broker.session()) for _ in range(count)]
        for call in calls:
            call.args[0].connect()
        left = iter(calls)
        yield lambda method, path: next(left)(method, path)


def drained_and_redone(s, call):
    """A drain that one upload holds up, and the life after it."""
    totals = look(call)[0]["orders"]
    upload = s.server.fault(Hang(), op="put", key=data_of("orders"))
    s.push("orders", size=3)
    row = wait_state(call, "orders", "upload")
    assert row["completeThrough"] >= totals["tEnd"] and row["lagSeconds"] > 0, (row, totals)
    wait_until(lambda: look(call)[0]["idle"]["state"] == "filling", 20)
    with connected(s.broker, 100) as early:  # the listener closes first
        s.broker.signal(15)
        drained = wait_state(early, "idle", "drained")
        assert not drained["ownedHere"] and drained["k"] == 1 and drained["lastError"] is None, drained
        rows, sink = look(early)
        assert rows["orders"]["state"] == "upload" and sink["running"] and sink["phase"] == "running", sink
    s.broker.kill()
    upload.clear()
    again = s.server.fault(Hang(), op="put", key=data_of("orders"))
    listing = s.server.fault(Hang(), op="list", when=lists("slow"))
    s.start()
    restoring = wait_state(call, "slow", "restoring", timeout=60)
    assert restoring["ownedHere"] and restoring["lastError"] is None, restoring
    assert restoring["k"] == 1 and restoring["completeThrough"] == restoring["tEnd"], restoring
    assert restoring["partitions"] == restoring["windowsCommitted"] == 0, restoring
    listing.release()
    redo = wait_state(call, "orders", "upload", timeout=60)
    assert redo["redo"] is True and redo["k"] == totals["k"] and redo["tEnd"] == totals["tEnd"], redo
    assert redo["windowsCommitted"] == redo["records"] == redo["bytes"] == 0, "of this life"
    again.release()
    row = wait_until(lambda: (r := look(call)[0]["orders"])["k"] == totals["k"] + 1 and r, 30, what="it is committed")
    assert row["redo"] is False and row["windowsCommitted"] == 1 and row["records"] == 3, row
    assert s.broker.sigterm() == 0


@mark(timeout=60)
def test_an_unreachable_bucket_and_one_that_is_back(env):
    with Scripted(env, ["orders"]) as s:
        down = s.server.fault(Status(403, "AccessDenied"), op="head", times=None)
        s.start()
        call = s.broker.request
        sink = wait_until(lambda: (v := look(call)[1])["bucket"]["reachable"] is False and v, 20)
        assert sink["ok"] is False and sink["health"]["ok"] is True and sink["bucket"]["error"], sink
        assert sink["queues"] == [] and sink["bucket"]["checkedAt"].endswith("000Z"), sink
        down.clear()
        s.push()
        wait_until(lambda: (b := look(call)[1]["bucket"])["reachable"] is True and b["error"] is None, 30)
        s.finish()


RAFT = {
    "role": is_one_of("leader"),
    "leader": is_one_of(True),
    "term": is_count,
    "applied": is_count,
    "commit": is_count,
    "lag": is_one_of(0),
    "storageReady": is_one_of(True),
}
NOT_RENDERED = {name: is_one_of(0) for name in ("heapTotal", "heapUsed", "external", "arrayBuffers")}
TOTAL = has(False, total=is_count, rate=is_one_of(0))
SECONDS = lambda v: type(v) in (int, float) and v >= 0
HEALTH = has(
    False,
    status=is_one_of("healthy"),
    engine=is_one_of("raft"),
    version=is_text,
    raft=has(
        False,
        **RAFT,
        clusterVersion=is_count,
        kinds=is_count,
        apply=has(False, failure=is_one_of(None), skipped=is_one_of([])),
    ),
)
METRICS = has(
    False,
    uptime=SECONDS,
    requests=TOTAL,
    messages=TOTAL,
    memory=has(False, rss=lambda v: is_count(v) and v > 0, **NOT_RENDERED),
    cpu=has(False, user=SECONDS, system=SECONDS),
    engine=is_one_of("raft"),
    raft=has(False, **RAFT, quorumAckMs=is_count),
)


def test_health_and_metrics_field_by_field(env):
    """The sink's trouble is none of theirs (a file stands where its folder should be)."""
    (env.dir / "file").write_text("")
    lake = env.lake("orders", QUEEN_S3_ENDPOINT=f"file://{env.dir}/file")
    broker = env.broker(lake).start()
    wait_until(lambda: look(broker.request)[1]["bucket"]["reachable"] is False, 20, what="the lake is out of reach")
    for n in range(3):
        broker.push([{"queue": "q", "partition": "p", "transactionId": f"t{m}", "payload": 1} for m in range(n + 1)])
        health, metrics = broker.health(), broker.call("GET", "/metrics")
        assert health.status == 200 and HEALTH(health.json) and METRICS(metrics), (health, metrics)
        assert health.json["raft"]["applied"] == health.json["raft"]["commit"] > n
    assert metrics["messages"]["total"] == 6, "duplicates are answered too"
    assert broker.sigterm() == 0


def test_a_node_without_a_sink_of_its_own(env):
    broker = env.broker(QUEEN_S3_EMBEDDED="true").start()
    status = broker.status()
    assert STATUS(status) and status["s3"]["sinks"] == [] and status["s3"]["phase"] == "running", status
    begun = time.monotonic()
    assert broker.sigterm() == 0 and time.monotonic() - begun < 20
