"""The lake is exact: many queues, partitions, odd names and hostile payloads, pushed while the sink runs.

The judge is oracle.py, which knows the bucket and the ledger only.
"""

import hashlib
import json

import oracle
import traffic
from harness import Skip, cases, mark, wait_until
from traffic import Batches, Ledger

ON_EVERY_STORE = True
QUEUES = ["orders", "ünï cødé/1", 'p:2 100% "q" 🐝']
PARTITIONS = 450  # of each queue
RECORDS = 27000


def settings(env, **more):
    return {
        **env.lake("*"),
        "QUEEN_S3_SAFE_GUARD_MS": 200,
        "QUEEN_RAFT_SEGMENT_BYTES": 4194304,
        "QUEEN_S3_CHECKPOINT_EVERY": 2,
        **more,
    }


def partitions_of(queue):
    names = [
        f"{name}{n}" if n else name
        for n in range(1 + PARTITIONS // len(traffic.ODD_NAMES))
        for name in traffic.ODD_NAMES
    ]
    return names[:PARTITIONS]


def make_batches(env, records=RECORDS):
    """Pushes of 1 to 500 records; every partition is written, the first pass in one push each 50."""
    batches = Batches(env.random, QUEUES, partitions_of, largest=500)
    made = [
        [batches.item(queue, name) for name in names[n : n + 50]]
        for queue in QUEUES
        for names in [partitions_of(queue)]
        for n in range(0, PARTITIONS, 50)
    ]
    count = sum(map(len, made))
    for n, payload in enumerate([traffic.LONG_STRING, "[" + ",".join(["1.0"] * 200000) + "]"] + traffic.HOSTILE):
        made.append([batches.item(queue, payload=payload) for queue in QUEUES])
        count += len(QUEUES)
    while count < records:
        batch = batches.next()[: records - count]
        count += len(batch)
        made.append(batch)
    env.random.shuffle(made)
    return made


def judge(env, ledger, **rules):
    judged = oracle.judge(env.bucket, ledger.save(), temporary=False, exact_frames=True, **rules)
    print(judged.summary())
    return judged


@mark(timeout=170)
@cases(("zstd", "hour"), ("gzip", "day"), ("none", "none"))
def test_27000_records_over_1350_partitions_are_in_the_lake_once_and_byte_by_byte(env, case):
    compression, align = case
    broker = env.broker(settings(env, QUEEN_S3_COMPRESSION=compression, QUEEN_S3_ALIGN=align)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = make_batches(env)
    for queue in QUEUES:
        broker.call("POST", "/api/v1/configure", {"queue": queue})
    wait_until(lambda: all((broker.sink_queue(q) or {}).get("ownedHere") for q in QUEUES), what="the sink to run them")
    traffic.push_all(broker, ledger, batches, threads=6, pause=0.02)
    assert ledger.count() == RECORDS
    traffic.wait_complete(broker, QUEUES, timeout=90)
    traffic.check_read_back(broker, ledger)
    before = traffic.files(env)
    assert broker.sigterm() == 0
    judged = judge(env, ledger, compression=compression, align=align, one_life=True)
    assert len(judged.records) == RECORDS
    assert len({(r.queue, r.partition) for r in judged.records}) == 3 * PARTITIONS
    assert all(traffic.files(env)[key] == value for key, value in before.items()), "an object changed"
    assert sum("/checkpoint/" in key for key in env.objects()) > 0


@mark(timeout=120)
def test_latest_begins_when_the_queue_is_found_and_misses_nothing_from_there(env):
    """Records from before the sink's first start are not in the lake; every later one is, over a restart too."""
    broker = env.broker().start()
    early, late = Ledger(env.dir / "early"), Ledger(env.dir / "late")
    batches = Batches(env.random, QUEUES[:2], partitions_of)
    traffic.push_all(broker, early, [batches.next() for _ in range(40)])
    assert broker.sigterm() == 0
    broker.start(**settings(env, QUEEN_S3_START="latest", QUEEN_S3_ALIGN="day"))
    for queue in QUEUES[:2]:
        broker.wait_log(f"queue restored queue=.*{queue[-2:]}")
    traffic.push_all(broker, late, [batches.next() for _ in range(40)])
    assert broker.kill() < 0  # a window may be open
    broker.start()
    traffic.push_all(broker, late, [batches.next() for _ in range(40)])
    traffic.wait_complete(broker, QUEUES[:2])
    assert broker.sigterm() == 0
    early.rows = [{**row, "optional": True} for row in early.rows]
    late.rows += early.rows
    judged = judge(env, late, start="latest", align="day")
    ids = {row["transactionId"] for row in early.rows}
    assert not [r for r in judged.records if r.transaction_id in ids], "records from before the start"


@mark(timeout=120)
def test_latest_finds_a_queue_that_comes_later(env):
    """A queue that does not exist yet begins at the moment it is first found: what came before may be missing, what
    comes after must be there."""
    broker = env.broker(settings(env, QUEEN_S3_START="latest", QUEEN_S3_QUEUES="orders, later")).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["later"], ["a", "b"])
    traffic.push_all(broker, ledger, [batches.next() for _ in range(5)], flags={"optional": True})
    broker.wait_log("queue restored queue=later", timeout=20)
    traffic.push_all(broker, ledger, [batches.next() for _ in range(20)])
    traffic.wait_complete(broker, ["later"])
    wait_until(lambda: broker.sink_queue("orders")["state"] == "missing", 20, what="the other queue is still missing")
    assert broker.sigterm() == 0
    judged = judge(env, ledger, start="latest")
    assert len(judged.records) >= ledger.count() - sum(row.get("optional", False) for row in ledger.rows)


@mark(timeout=100)
def test_a_size_close_and_the_memory_budget_keep_the_lake_exact(env):
    """Windows of 1 MiB in pushes of 300 KB, and a budget of 1 MiB over three queues: many windows, none wrong."""
    broker = env.broker(
        settings(env, QUEEN_S3_TARGET_MB=1, QUEEN_S3_MEMORY_MB=1, QUEEN_S3_MAX_WINDOW_MS=8000, QUEEN_S3_ALIGN="none")
    ).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, QUEUES, ["a", "b", "c"], hostile=False)
    pushes = [
        [
            batches.item(payload=json.dumps({"n": n, "text": "".join(env.random.choices("abcdef", k=100000))}))
            for _ in range(3)
        ]
        for n in range(60)
    ]
    traffic.push_all(broker, ledger, pushes)
    traffic.wait_complete(broker, QUEUES, timeout=60)
    assert broker.sigterm() == 0
    judged = judge(env, ledger, align="none")
    windows = [w for queue in QUEUES for w in judged.windows[queue]]
    assert len(windows) >= 9, "8 s windows would be one or two each"
    for window in windows:
        weight = sum(
            64 + len(r.transaction_id) + len(r.partition.encode()) + len(r.payload.encode()) for r in window.records
        )
        assert weight < 1048576 + 400000, f"window {window.k} of {window.queue} weighs {weight}"


@mark(timeout=60)
def test_names_of_queues_that_need_escapes_and_shortening(env):
    """One record in each of many oddly named queues; names over 249 encoded bytes are shortened in keys."""
    queues = sorted(
        {name for name in traffic.ODD_NAMES if name} | {"q" * 249, "q" * 250, "ö" * 41, "ö" * 42, "🐝" * 60, "/" * 100}
    )
    broker = env.broker(settings(env)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, queues, ["p", "ü", "🐝", "..", "%2F"])
    traffic.push_all(broker, ledger, [[batches.item(queue, "p"), batches.item(queue)] for queue in queues])
    traffic.wait_complete(broker, queues)
    rows = traffic.kv_rows(broker)
    assert broker.sigterm() == 0
    judged = judge(env, ledger)
    assert set(judged.windows) == set(queues)
    assert sum(key.endswith(":committed") for key in rows) == len(queues)


@mark(timeout=60, store="s3")
def test_a_store_that_is_no_folder_takes_segments_of_up_to_1024_bytes(env):
    """By the broker's own default. The mirror of the bucket is a folder, so this one is read without it."""
    if env.store_name in ("seaweedfs", "versitygw"):
        raise Skip("it keeps its keys as folders, whose names are at most 255 bytes")
    queues = ["q" * 250, "ü" * 100, "ü" * 200]
    broker = env.broker(settings(env, QUEEN_S3_KEY_SEGMENT_MAX=None)).start()
    for queue in queues:
        traffic.push_one(broker, queue, "p", payload={"of": queue[0]})
    for queue in queues:
        traffic.wait_committed(broker, queue)
    for queue in queues:
        key = oracle.manifest_key("queen", queue, 1, oracle.TENANT, 1024)
        manifest = json.loads(env.object_bytes(key))
        assert manifest["queue"] == queue and len(manifest["objects"]) == 1, manifest
        data = manifest["objects"][0]
        assert hashlib.sha256(env.object_bytes(data["key"])).hexdigest() == data["sha256"]
        assert json.loads(env.object_text(data["key"]))["payload"] == {"of": queue[0]}
        if len(oracle.percent_encode(queue)) < 800:
            assert oracle.percent_encode(queue) in key and "~" not in key, "a name that fits was shortened"
    assert broker.sigterm() == 0


@mark(timeout=60)
def test_a_changed_compression_holds_from_the_next_window_on(env):
    broker = env.broker(settings(env, QUEEN_S3_CHECKPOINT_EVERY=100)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a", "b"])
    for compression in ("zstd", "gzip", "none", "zstd"):
        if broker.running:
            assert broker.sigterm() == 0
        broker.start(QUEEN_S3_COMPRESSION=compression)
        traffic.push_all(broker, ledger, [batches.next() for _ in range(10)])
        traffic.wait_complete(broker, ["orders"])
    assert broker.sigterm() == 0
    judged = judge(env, ledger)
    seen = [w.manifest["compression"] for w in judged.windows["orders"]]
    assert list(dict.fromkeys(seen)) == ["zstd", "gzip", "none"] and seen[-1] == "zstd", seen


@mark(timeout=60)
def test_quoting_can_be_switched_off(env):
    broker = env.broker(settings(env, QUEEN_S3_JSONL_QUOTE_UNREADABLE="false", QUEEN_MAX_JSON_DEPTH=2000)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a"])
    payloads = traffic.HOSTILE + ["[" * 501 + "]" * 501, "[" * 2000 + "]" * 2000]
    traffic.push_all(broker, ledger, [[batches.item(payload=p)] for p in payloads])
    traffic.wait_complete(broker, ["orders"])
    assert broker.sigterm() == 0
    judge(env, ledger, raw=True)


@mark(timeout=60)
def test_what_is_quoted_is_counted(env):
    broker = env.broker(settings(env, QUEEN_MAX_JSON_DEPTH=2000)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a"])
    payloads = traffic.HOSTILE + ["[" * 501 + "]" * 501, "[" * 2000 + "]" * 2000]
    traffic.push_all(broker, ledger, [[batches.item(payload=p)] for p in payloads])
    traffic.wait_complete(broker, ["orders"])
    quoted = sum(oracle.is_quoted(p) for p in payloads)
    assert quoted >= 6 and broker.metrics()['queen_s3_records_quoted_total{queue="orders"}'] == quoted
    assert broker.sigterm() == 0
    judge(env, ledger)
