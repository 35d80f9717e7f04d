"""What operators see: /health, /status with its s3 block, the metrics, the log lines, and no secret anywhere.

spec/sink-status-metrics.md, spec/sink.md 20, spec/broker-api.md 6.
"""

import json
import re
import time

import oracle
import traffic
from harness import cases, mark, wait_until
from s3_faults import Status
from scripted import Scripted
from traffic import Batches, Item, Ledger

ON_EVERY_STORE = True
TENANT = "00000000-0000-0000-0000-000000000001"
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")

S3_FIELDS = {"mode", "phase", "pins", "threads", "controlPlane", "sinks"}
UNIT_FIELDS = {"tenant", "source", "cluster", "phase", "error", "restarts", "lastExit", "uptimeMs", "backoffMs"}
SINK_FIELDS = {
    "ok",
    "sink",
    "instance",
    "version",
    "running",
    "format",
    "compression",
    "layout",
    "align",
    "bucket",
    "health",
    "placement",
    "memory",
    "queues",
}
BUCKET_FIELDS = {"reachable", "error", "checkedAt", "name", "endpoint", "region", "prefix"}
QUEUE_FIELDS = {
    "name",
    "ownedHere",
    "heldBy",
    "state",
    "k",
    "tEnd",
    "completeThrough",
    "safeTime",
    "lagSeconds",
    "redo",
    "bufferedBytes",
    "partitions",
    "windowsCommitted",
    "records",
    "bytes",
    "recordsLost",
    "lastError",
}
FAMILIES = [
    ("queen_s3_lag_seconds", "gauge"),
    ("queen_s3_safe_lag_seconds", "gauge"),
    ("queen_s3_windows_committed_total", "counter"),
    ("queen_s3_records_written_total", "counter"),
    ("queen_s3_bytes_written_total", "counter"),
    ("queen_s3_records_lost_total", "counter"),
    ("queen_s3_window_records", "histogram"),
    ("queen_s3_window_bytes", "histogram"),
    ("queen_s3_buffer_bytes", "gauge"),
    ("queen_s3_fetch_calls_total", "counter"),
    ("queen_s3_discovery_partitions", "gauge"),
    ("queen_s3_s3_requests_total", "counter"),
    ("queen_s3_commit_precondition_lost_total", "counter"),
    ("queen_s3_checkpoint_age_windows", "gauge"),
    ("queen_s3_queues_given_back_total", "counter"),
    ("queen_s3_records_quoted_total", "counter"),
]
RECORD_BUCKETS = ["1", "10", "100", "1000", "10000", "100000", "1000000", "10000000", "+Inf"]
BYTE_BUCKETS = [
    "1048576",
    "4194304",
    "16777216",
    "67108864",
    "134217728",
    "268435456",
    "536870912",
    "1073741824",
    "+Inf",
]


def settings(env, **more):
    return {
        **env.lake("orders, missing-one"),
        "QUEEN_S3_MAX_WINDOW_MS": 500,
        "QUEEN_S3_SAFE_GUARD_MS": 100,
        "QUEEN_S3_CHECKPOINT_EVERY": 1,
        **more,
    }


def ship(env, broker, ledger=None, windows=1):
    """Pushes and waits for each window; the ledger."""
    ledger = ledger or Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a", "b", "c"])
    batches.made = 1000 * len(ledger.rows)
    for _ in range(windows):
        traffic.push_all(broker, ledger, [batches.next(20)])
        traffic.wait_complete(broker, ["orders"])
    wait_until(lambda: state(broker) == "filling", 20, what="the checkpoint is written too")
    return ledger


def state(broker):
    return (broker.sink_queue("orders") or {}).get("state")


def unsorted_objects(text):
    """Paths of objects whose keys are not in alphabetical order."""
    wrong = []

    def pairs(items):
        keys = [key for key, _ in items]
        if keys != sorted(keys):
            wrong.append(keys)
        return dict(items)

    json.loads(text, object_pairs_hook=pairs)
    return wrong


def test_status_and_health_without_a_sink(env):
    broker = env.broker().start()
    assert broker.request("GET", "/status").body == b'{"status":"ok","engine":"segments-rust"}'
    health = broker.health()
    assert health.status == 200 and health.headers["content-type"].startswith("application/json")
    body = health.json
    assert (body["status"], body["engine"], body["version"]) == ("healthy", "raft", "0.1.0")
    raft = body["raft"]
    assert (raft["role"], raft["leader"], raft["lag"], raft["storageReady"]) == ("leader", True, 0, True)
    assert {"term", "applied", "commit", "clusterVersion", "kinds"} <= set(raft) and raft["apply"] == {
        "failure": None,
        "skipped": [],
    }
    before = raft["applied"]
    broker.push([{"queue": "q", "partition": "p", "payload": 1}])
    assert broker.health().json["raft"]["applied"] > before
    term = raft["term"]
    broker.kill()
    broker.start()
    assert broker.health().json["raft"]["term"] > term, "the term rises at every start"
    metrics = broker.call("GET", "/metrics")
    assert metrics["engine"] == "raft" and metrics["requests"]["total"] >= 1 and metrics["memory"]["rss"] > 1000000
    assert not [name for name in broker.metrics() if name.startswith("queen_s3_")]


@mark(timeout=60)
def test_the_s3_block_has_every_field(env):
    broker = env.broker(settings(env)).start()
    ledger = ship(env, broker, windows=2)
    wait_until(lambda: broker.sink_queue("missing-one")["state"] == "missing", 20)
    text = broker.request("GET", "/status").body.decode()
    assert not unsorted_objects(text), unsorted_objects(text)
    status = json.loads(text)
    assert list(status) == ["engine", "s3", "status"]
    s3 = status["s3"]
    assert S3_FIELDS <= set(s3), S3_FIELDS - set(s3)
    assert (s3["mode"], s3["phase"], s3["controlPlane"]) == ("in-process", "running", {"error": None}) and 1 <= s3[
        "threads"
    ] <= 64
    assert len(s3["sinks"]) == 1
    sink = s3["sinks"][0]
    assert UNIT_FIELDS | SINK_FIELDS <= set(sink), (UNIT_FIELDS | SINK_FIELDS) - set(sink)
    assert {name: sink[name] for name in UNIT_FIELDS - {"uptimeMs"}} == {
        "tenant": TENANT,
        "source": "env",
        "cluster": None,
        "phase": "running",
        "error": None,
        "restarts": 0,
        "lastExit": None,
        "backoffMs": 0,
    }
    assert sink["uptimeMs"] > 0
    assert (sink["ok"], sink["sink"], sink["version"], sink["running"]) == (True, "default", "2.0.0", True)
    assert (sink["format"], sink["compression"], sink["layout"], sink["align"]) == ("jsonl", "zstd", "merged", "hour")
    assert sink["instance"].startswith("node-1@"), sink["instance"]
    bucket = sink["bucket"]
    assert (
        set(bucket) == BUCKET_FIELDS and ISO.fullmatch(bucket["checkedAt"]) and bucket["checkedAt"].endswith("000Z")
    ), bucket
    assert {k: v for k, v in bucket.items() if k != "checkedAt"} == {
        "reachable": True,
        "error": None,
        "name": env.store.name,
        "endpoint": env.store.endpoint,
        "region": env.store.region,
        "prefix": "queen",
    }
    assert sink["health"] == {"ok": True, "queues": 1}, sink["health"]
    assert sink["placement"] == {"givingBack": None, "held": 1, "nodes": 1, "queues": 2, "share": 2}, sink["placement"]
    assert set(sink["memory"]) == {"bufferedBytes", "limitBytes"} and sink["memory"]["limitBytes"] == 512 * 1048576
    assert [q["name"] for q in sink["queues"]] == ["missing-one", "orders"], "sorted by name"
    missing, orders = sink["queues"]
    assert QUEUE_FIELDS <= set(missing) and QUEUE_FIELDS <= set(orders), QUEUE_FIELDS - set(orders)
    assert (missing["state"], missing["ownedHere"], missing["k"], missing["tEnd"], missing["lagSeconds"]) == (
        "missing",
        False,
        0,
        None,
        None,
    )
    manifests = sorted(key for key in env.objects() if "/windows/" in key)
    documents = [json.loads(env.object_bytes(key)) for key in manifests]
    assert (orders["state"], orders["ownedHere"], orders["heldBy"], orders["redo"]) == (
        "filling",
        True,
        None,
        False,
    ), orders
    assert (orders["k"], orders["windowsCommitted"], orders["recordsLost"]) == (len(documents), len(documents), 0)
    assert orders["records"] == sum(d["records"] for d in documents) == ledger.count()
    assert orders["bytes"] == sum(d["bytes"] for d in documents)
    assert oracle.from_iso(orders["tEnd"]) == documents[-1]["tEnd"]
    assert (
        ISO.fullmatch(orders["completeThrough"])
        and ISO.fullmatch(orders["safeTime"])
        and orders["completeThrough"] <= orders["safeTime"]
    )
    lag = (oracle.from_iso(orders["safeTime"]) - oracle.from_iso(orders["completeThrough"])) / 1e6
    assert abs(orders["lagSeconds"] - lag) < 1e-9 and isinstance(orders["lagSeconds"], float)
    assert orders["partitions"] == len({row["partition"] for row in ledger.rows}) and orders["bufferedBytes"] == 0


@mark(timeout=60)
def test_the_block_while_a_window_fills(env):
    broker = env.broker(settings(env, QUEEN_S3_MAX_WINDOW_MS=60000, QUEEN_S3_SAFE_GUARD_MS=0)).start()
    broker.push(traffic.body_of([Item("orders", "p", "first", "1")]))
    traffic.wait_committed(broker, "orders")
    items = [Item("orders", "pärt", f"t{n}", '"' + "x" * 1000 + '"') for n in range(10)]
    broker.push(traffic.body_of(items))
    broker.push(traffic.body_of([Item("other", "p", "t", "1")]))  # the clock moves on: guard 0 needs something above
    weight = sum(64 + len(i.transaction_id) + len(i.partition.encode()) + len(i.payload) for i in items)
    row = wait_until(lambda: (r := broker.sink_queue("orders"))["bufferedBytes"] and r, 10, what="it buffers")
    assert row["bufferedBytes"] == weight, (row, weight)
    assert row["state"] == "filling" and broker.sink()["memory"]["bufferedBytes"] == weight
    assert broker.metrics()["queen_s3_buffer_bytes"] == weight
    assert (
        row["completeThrough"] <= broker.fetch("orders", "pärt")["records"][0]["ts"]
    ), "it does not claim what it holds"


@mark(timeout=60)
def test_metrics_families_in_order_and_exact(env):
    broker = env.broker(settings(env, QUEEN_S3_QUEUES='orders,mis"sing\\one', QUEEN_S3_COMPRESSION="gzip")).start()
    ship(env, broker, windows=3)
    answer = broker.request("GET", "/metrics/prometheus")
    assert answer.headers["content-type"].startswith("text/plain") and "version=0.0.4" in answer.headers["content-type"]
    lines = answer.body.decode().splitlines()
    types = [line.split()[2:4] for line in lines if line.startswith("# TYPE ")]
    helps = [line.split()[2] for line in lines if line.startswith("# HELP ")]
    assert helps == [name for name, _ in types] and len(set(helps)) == len(helps), "HELP and TYPE once per family"
    assert [tuple(t) for t in types if t[0].startswith("queen_s3_")] == FAMILIES, types
    assert {"queen_uptime_seconds", "queen_process_resident_memory_bytes", "queen_raft_storage_full"} <= set(helps)
    family = None
    for line in lines:  # every sample stands under its family
        if line.startswith("# TYPE "):
            family = line.split()[2]
        elif not line.startswith("#"):
            assert re.match(rf"{family}(_bucket|_sum|_count)?[{{ ]", line), (family, line)
            assert re.fullmatch(
                r"[a-z0-9_]+(\{([a-zA-Z_]+=\"([^\"\\\n]|\\.)*\",?)*\})? (-?\d+(\.\d+)?(e[+-]?\d+)?|\+Inf)", line
            ), line
    m = broker.metrics()
    row = broker.sink_queue("orders")
    assert m['queen_s3_windows_committed_total{queue="orders"}'] == row["windowsCommitted"] >= 3
    assert m['queen_s3_records_written_total{queue="orders"}'] == row["records"]
    assert m['queen_s3_bytes_written_total{queue="orders",format="jsonl"}'] == row["bytes"]
    assert m['queen_s3_records_lost_total{queue="orders"}'] == 0
    assert m['queen_s3_fetch_calls_total{queue="orders",result="ok"}'] > 0
    assert m['queen_s3_discovery_partitions{queue="orders"}'] == row["partitions"]
    assert m['queen_s3_checkpoint_age_windows{queue="orders"}'] == 0, "a checkpoint with every window"
    assert m["queen_s3_commit_precondition_lost_total"] == 0 and m["queen_s3_queues_given_back_total"] == 0
    assert 0 <= m['queen_s3_lag_seconds{queue="orders"}'] < 30 and m["queen_s3_safe_lag_seconds"] >= 0
    puts = sum("/w-" in key or "/windows/" in key or "/checkpoint/" in key for key in env.objects())
    probe = "404" if env.store.is_s3 else "200"  # there is no object of the prefix's name
    assert m['queen_s3_s3_requests_total{op="put",code="200"}'] == puts
    assert m[f'queen_s3_s3_requests_total{{op="head",code="{probe}"}}'] == 1
    for name, bounds, total in (("records", RECORD_BUCKETS, row["records"]), ("bytes", BYTE_BUCKETS, row["bytes"])):
        buckets = [line for line in lines if line.startswith(f"queen_s3_window_{name}_bucket")]
        assert [re.search('le="([^"]+)"', line)[1] for line in buckets] == bounds, buckets
        values = [float(line.rsplit(" ", 1)[1]) for line in buckets]
        assert values == sorted(values) and values[-1] == m[f"queen_s3_window_{name}_count"] == row["windowsCommitted"]
        assert m[f"queen_s3_window_{name}_sum"] == total
    assert not any(
        "missing" in name for name in m if name.startswith(("queen_s3_lag", "queen_s3_checkpoint"))
    ), "gauges of owned queues only"


@mark(timeout=60)
def test_families_are_there_before_the_first_sample(env):
    broker = env.broker(settings(env))
    env.store.down()
    broker.start()
    lines = broker.request("GET", "/metrics/prometheus").body.decode().splitlines()
    types = [tuple(line.split()[2:4]) for line in lines if line.startswith("# TYPE queen_s3_")]
    assert types == FAMILIES, types


START_FIELDS = (
    "tenant sink instance queues partitions s3 bucket prefix region addressing sse format compression layout align target_mb max_window_ms start "
    "checkpoint_every memory_mb fetch_concurrency discovery_interval_ms safe_guard_ms lease_ttl_ms multipart_threshold_mb crash_at"
).split()


@mark(timeout=90)
def test_log_lines_and_the_order_of_their_fields(env):
    broker = env.broker(
        settings(env, QUEEN_S3_LEASE_TTL_MS=1000, QUEEN_S3_LISTEN="0.0.0.0:1", QUEEN_S3_LOG_FORMAT="json")
    ).start()
    start = broker.find_log("INFO queen-s3: queen-s3 2.0.0 ")
    assert len(start) == 1
    assert [name for name in start[0].fields if name in START_FIELDS] == START_FIELDS, list(start[0].fields)
    assert (start[0].fields["partitions"], start[0].fields["region"], start[0].fields["addressing"]) == (
        "discovery",
        env.store.region or "-",
        env.store.addressing,
    )
    assert start[0].fields["queues"] == "orders,missing-one" and start[0].fields["crash_at"] == "never"
    ignored = broker.find_log("WARN .*QUEEN_S3_LISTEN")
    assert len(ignored) == 1 and "QUEEN_S3_LOG_FORMAT" in ignored[0].text
    ledger = ship(env, broker)
    line = broker.find_log("INFO queen-s3: window committed ")[0]
    assert line.message == "window committed"
    assert list(line.fields) == ["queue", "k", "records", "bytes", "t_end", "lag_seconds", "lost"], line
    document = json.loads(env.object_bytes(oracle.manifest_key("queen", "orders", 1)))
    assert (line.fields["queue"], line.fields["k"], line.fields["lost"]) == ("orders", "1", "0")
    assert (int(line.fields["records"]), int(line.fields["bytes"])) == (document["records"], document["bytes"])
    assert oracle.from_iso(line.fields["t_end"]) == document["tEnd"] and float(line.fields["lag_seconds"]) >= 0
    line = broker.find_log("INFO queen-s3: queue restored ")[-1]
    assert list(line.fields) == ["queue", "committed_k", "redo", "checkpoint_k", "positions"], line
    assert broker.find_log("INFO queen-s3: .*owns the queue")
    missed = time.monotonic()
    broker.wait_log("queen-s3: queue missing.* queue=missing-one")

    # Someone else takes the lease: the queue is fenced here, and comes back when that lease has run out.
    lease = {"instance": "node-9@elsewhere", "incarnation": "0123456789abcdef", "sinceMs": 1}
    broker.kv({"op": "put", "ns": "queen-s3", "key": "s3:default:orders:lease", "value": lease, "ttlSeconds": 2})
    lost = broker.wait_log("ERROR queen-s3: lease lost: another instance owns this queue ")
    assert list(lost.fields) == ["queue", "error"] and '" ' not in lost.text.split("error=")[1][:1], lost
    fenced = broker.wait_log("WARN queen-s3: queue fenced ")
    assert list(fenced.fields) == ["queue", "why"] and re.search(r'why="', fenced.text), fenced
    row = wait_until(lambda: (r := broker.sink_queue("orders"))["state"] in ("held", "fenced") and r, 10)
    assert row["ownedHere"] is False
    wait_until(lambda: state(broker) == "filling", 20, what="it is taken back")
    ship(env, broker, ledger)
    time.sleep(max(0, missed + 5.5 - time.monotonic()))
    assert len(broker.find_log("queen-s3: queue missing.* queue=missing-one")) == 1, "once, not every five seconds"
    assert len(broker.find_log("queen-s3: .*owns the queue queue=missing-one")) == 1
    assert broker.sigterm() == 0
    order = [
        (l.level, l.message)
        for l in broker.find_log(
            " queen-s3: (stopping: no new reads|(shutting down.*|queue drained) queue=orders|sink stopped)"
        )
    ]
    assert order == [
        ("INFO", "stopping: no new reads"),
        ("INFO", "shutting down: stopping the reads"),
        ("INFO", "queue drained"),
        ("INFO", "sink stopped"),
    ], order
    assert all(
        re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z (ERROR|WARN|INFO) [a-z0-9-]+: ", line) for line in broker.log()
    ), "a line of another shape"
    oracle.judge(env.bucket, ledger.save(), temporary=False)


@mark(timeout=60)
def test_odd_names_stay_on_their_line(env):
    name = 'a "b" \\ c\nd'
    broker = env.broker({**settings(env), "QUEEN_S3_QUEUES": "*"}).start()
    broker.push(traffic.body_of([Item(name, "p", "t", "1")]))
    line = broker.wait_log("INFO queen-s3: window committed ", timeout=20)
    assert line.fields["queue"] == name and 'queue="a \\"b\\" \\\\ c\\nd' in line.text, line.text
    assert line.fields["k"] == "1"
    answer = broker.request("GET", "/metrics/prometheus").body.decode()
    assert 'queen_s3_windows_committed_total{queue="a \\"b\\" \\\\ c\\nd"} 1' in answer


@mark(timeout=60)
def test_a_lease_taken_over_makes_no_second_writer(env):
    """The row is overwritten again and again under traffic: the queue is fenced each time, and the lake stays exact."""
    broker = env.broker(
        settings(env, QUEEN_S3_LEASE_TTL_MS=1000, QUEEN_S3_MAX_WINDOW_MS=100, QUEEN_S3_SAFE_GUARD_MS=0)
    ).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a", "b", "c"])
    pusher = traffic.Pusher(broker, ledger, batches.next, "pusher", pause=0.01)
    pusher.start()
    for n in range(4):
        wait_until(lambda: state(broker) in ("filling", "intent", "upload", "commit"), 20, what="it runs the queue")
        time.sleep(env.random.random() / 2)
        lease = {"instance": f"node-{n + 2}@elsewhere", "incarnation": f"{n:016x}", "sinceMs": 1}
        broker.kv({"op": "put", "ns": "queen-s3", "key": "s3:default:orders:lease", "value": lease, "ttlSeconds": 1})
        broker.wait_log("WARN queen-s3: queue fenced ", count=n + 1)
    pusher.stop()
    pusher.finish()
    traffic.wait_complete(broker, ["orders"], timeout=30)
    assert broker.metrics()["queen_s3_commit_precondition_lost_total"] >= 0
    assert broker.sigterm() == 0
    oracle.judge(env.bucket, ledger.save(), temporary=False)


def everything_said(env, broker):
    """Whatever got out of the broker and its subcommands, as {where: text}."""
    paths = ("/status", "/health", "/metrics", "/metrics/prometheus")
    said = {path: broker.request("GET", path).body.decode() for path in paths}
    rows = broker.kv({"op": "getPrefix", "ns": "queen-s3", "prefix": "s3:"})
    said["kv"] = json.dumps(rows)
    said["cmdline"] = open(f"/proc/{broker.pid}/cmdline", "rb").read().decode()
    given = {k: str(v) for k, v in broker.settings.items() if v is not None}
    for more in ({}, {"QUEEN_S3_MAX_WINDOW_MS": "50"}, {"QUEEN_LOG_JSON": "true"}, {"QUEEN_RAFT_TOKEN": "a-Hidden-t0ken"}):
        said[f"check-config {more}"] = "".join(map(str, env.run("check-config", **{**given, **more})))
    assert broker.sigterm() == 0
    said["log"] = "\n".join(broker.log(all_starts=True))
    said["stderr"] = broker.stderr_path.read_text()
    for folder in (broker.dir / "data", env.bucket):
        said |= {str(path): path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()}
    return said


@mark(timeout=60)
@cases("text", "json")
def test_secrets_are_nowhere(env, form):
    given = {"QUEEN_S3_SECRET_KEY": "S3cr3t-Key-9f8e7d", "QUEEN_S3_ACCESS_KEY": "AKIA-access-55", **settings(env)}
    secrets = (given["QUEEN_S3_SECRET_KEY"], given["QUEEN_S3_ACCESS_KEY"], "a-Hidden-t0ken")
    broker = env.broker(given, RUST_LOG="trace", QUEEN_LOG_JSON=str(form == "json")).start(wait=False)
    broker.wait_log("listening", timeout=60)
    ship(env, broker)
    for where, text in everything_said(env, broker).items():
        assert not [secret for secret in secrets if secret in text], (where, text[:2000])


@mark(timeout=60)
def test_a_store_that_repeats_the_keys_is_not_repeated(env):
    """As in the document of a SignatureDoesNotMatch, and worse."""
    with Scripted(env, ["orders"]) as s:
        given = s.broker.settings
        secrets = (given["QUEEN_S3_SECRET_KEY"], given["QUEEN_S3_ACCESS_KEY"])
        told = f"key {secrets[1]} with {secrets[0]} signed AWS4{secrets[0]}; Credential={secrets[1]}/20260101"
        fault = s.server.fault(Status(403, "SignatureDoesNotMatch", message=told), op="put", times=None)
        s.start(RUST_LOG="trace")
        s.push()
        s.wait_error("orders", "SignatureDoesNotMatch.*key \\*\\*\\* with")
        shown = s.broker.request("GET", "/status").body.decode() + "\n".join(s.broker.log())
        assert not [secret for secret in secrets if secret in shown], shown[-3000:]
        fault.clear()
        s.broker.kill()
        assert not [secret for secret in secrets if secret in "\n".join(s.broker.log())]


@mark(timeout=60)
def test_the_sinks_health_turns_red_and_green_and_the_brokers_does_not(env):
    """Three windows of 100 ms are below the least limit of 30 s, so the verdict stays green while the bucket is away for
    seconds, but `ok` follows the bucket."""
    broker = env.broker(settings(env, QUEEN_S3_MAX_WINDOW_MS=100, QUEEN_S3_CHECKPOINT_EVERY=100)).start()
    ledger = ship(env, broker)
    env.store.down("cut")
    broker.push(traffic.body_of([Item("orders", "z", "late", "1")]))
    ledger.acknowledged(
        [Item("orders", "z", "late", "1")],
        [
            {
                "index": 0,
                "status": "duplicate",
                "transaction_id": "late",
                "queueName": "orders",
                "offset": 0,
                "message_id": "",
            }
        ],
        "late",
    )
    report = wait_until(
        lambda: (r := broker.sink())["bucket"]["reachable"] is False and r, 20, what="noticed at the first attempt"
    )
    assert report["ok"] is False and report["health"]["ok"] is True, report
    assert broker.health().json["status"] == "healthy"
    row = wait_until(
        lambda: (r := broker.sink_queue("orders"))["lastError"] and r, 20, what="the window's own upload fails"
    )
    assert row["lastError"]["message"].startswith("put ") and ISO.fullmatch(row["lastError"]["at"]), row
    env.store.up()
    wait_until(lambda: broker.sink()["ok"], 30, what="green again")
    traffic.wait_complete(broker, ["orders"], timeout=30)
    assert broker.sink_queue("orders")["lastError"] is not None, "kept until a newer one replaces it"
    assert broker.sigterm() == 0
    oracle.judge(env.bucket, ledger.save(), temporary=False)
