"""Crashes: at each point of the commit sequence, and kill -9 at random moments under traffic.

QUEEN_KILLS=200 makes the campaign of kills a long one.
"""

import json
import os
import signal
import threading
import time

import oracle
import traffic
from harness import cases, mark, wait_until
from traffic import Batches, Ledger, Pusher

ON_EVERY_STORE = True
POINTS = ["after_intent", "mid_upload", "after_upload", "before_commit", "after_commit"]
REBUILT = ("after_intent", "mid_upload")  # what the restart builds again; behind that it only commits
KILLS = int(os.environ.get("QUEEN_KILLS", "20"))
OFF = {"QUEEN_S3_EMBEDDED": "false", "QUEEN_S3_CRASH_AT": None}
ON = {"QUEEN_S3_EMBEDDED": "true", "QUEEN_S3_CRASH_AT": None}


def settings(env, **more):
    return {
        **env.lake("orders"),
        "QUEEN_S3_MAX_WINDOW_MS": 600,
        "QUEEN_S3_SAFE_GUARD_MS": 100,
        "QUEEN_S3_CHECKPOINT_EVERY": 1,
        **more,
    }


def wait_crash(broker, point):
    """Waits for the death by SIGABRT, which one line announces."""
    assert broker.wait(30) == -signal.SIGABRT, broker.process.returncode
    lines = broker.find_log("ERROR queen-s3: QUEEN_S3_CRASH_AT fired: aborting")
    assert len(lines) == 1 and lines[0].fields == {"point": point}, lines
    assert broker.log()[-1] == lines[0].text, "the crash lost a line, or wrote one more"


def check_left_behind(env, broker, point, k, before):
    """The bucket and the documents are what settings.md 5 says of this point. The sink is off."""
    data, manifest = (sum(f"{part}{k:010d}" in key for key in env.objects()) for part in ("/w-", "/windows/"))
    assert data == (point != "after_intent"), (point, env.objects())
    assert manifest == (point not in REBUILT), (point, env.objects())
    assert not [key for key in env.objects() if f"/checkpoint/{k:010d}" in key], "the checkpoint comes after the point"
    assert all(traffic.files(env)[key] == value for key, value in before.items()), "an object of earlier changed"
    rows = traffic.kv_rows(broker)
    intent = rows["s3:default:orders:intent"]
    assert intent["k"] == k, intent
    expected = {
        "k",
        "tStart",
        "tEnd",
        "format",
        "compression",
        "layout",
        "writer",
        "queueId",
        "endpoint",
        "bucket",
        "prefix",
        "align",
        "segmentMax",
    }
    assert set(intent) == expected, intent
    assert (intent["format"], intent["layout"], intent["bucket"], intent["prefix"]) == (
        "jsonl",
        "merged",
        env.store.name,
        "queen",
    )
    committed = rows.get("s3:default:orders:committed")
    if point == "after_commit":
        assert committed["k"] == k and oracle.from_iso(committed["tEnd"]) == intent["tEnd"], (committed, intent)
        assert set(committed) == {"k", "tEnd", "manifest", "records", "bytes", "committedAtMs"}, committed
        assert committed["manifest"] == oracle.manifest_key("queen", "orders", k), committed
        document = json.loads(env.object_bytes(committed["manifest"]))
        assert (committed["records"], committed["bytes"]) == (document["records"], document["bytes"])
    else:
        assert (committed or {"k": 0})["k"] == k - 1, committed
    return intent


@mark(timeout=90)
@cases(*((point, k) for point in POINTS for k in (1, 3)))
def test_a_crash_point_leaves_what_it_says_and_the_restart_makes_the_lake_exact(env, case):
    point, k = case
    broker = env.broker(settings(env)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], traffic.ODD_NAMES)
    for n in range(1, k):
        traffic.push_all(broker, ledger, [batches.next(30)])
        traffic.wait_complete(broker, ["orders"])
    if k > 1:
        assert traffic.lake_counts(env)["orders"][0] == k - 1
    assert broker.sigterm() == 0
    before = traffic.files(env)

    broker.start(QUEEN_S3_CRASH_AT=point.upper())
    assert broker.find_log("WARN .*QUEEN_S3_CRASH_AT"), "armed without a warning"
    pusher = Pusher(broker, ledger, batches.next, "during", pause=0.02)
    pusher.start()
    wait_crash(broker, point)

    broker.start(**OFF)
    pusher.stop()
    pusher.finish()
    intent = check_left_behind(env, broker, point, k, before)
    traffic.check_read_back(broker, ledger)
    assert broker.sigterm() == 0
    left = traffic.files(env)

    broker.start(**ON)
    restored = broker.wait_log("INFO queen-s3: queue restored queue=orders")
    redo = point != "after_commit"
    assert restored.fields["redo"] == str(redo).lower(), restored
    assert restored.fields["committed_k"] == str(k - 1 if redo else k), restored
    traffic.wait_complete(broker, ["orders"])
    from_manifest = broker.find_log("INFO queen-s3: .*committing it from its manifest.* queue=orders")
    assert len(from_manifest) == (point in ("after_upload", "before_commit")), from_manifest
    traffic.check_duplicates(broker, ledger)
    assert broker.sigterm() == 0
    after = traffic.files(env)
    assert all(after[key][0] == value[0] for key, value in left.items()), "an object that existed changed"
    if point not in REBUILT:
        assert all(after[key][1] == value[1] for key, value in left.items()), "a finished upload was written again"
    judged = oracle.judge(env.bucket, ledger.save(), temporary=False, exact_frames=True)
    window = judged.windows["orders"][k - 1].manifest
    assert (window["tStart"], window["tEnd"]) == (intent["tStart"], intent["tEnd"]), "the redo chose other bounds"


@mark(timeout=90)
@cases("zstd", "gzip", "none")
def test_a_redo_takes_the_intents_compression_and_writes_no_second_intent(env, case):
    """The point after_intent again, with another compression: the redo of window 1 passes it by, window 2 does not."""
    other = {"zstd": "gzip", "gzip": "none", "none": "zstd"}[case]
    broker = env.broker(settings(env, QUEEN_S3_COMPRESSION=case))
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a", "b", "ü"])
    broker.start(QUEEN_S3_CRASH_AT="after_intent")
    pusher = Pusher(broker, ledger, batches.next, "pusher", pause=0.02)
    pusher.start()
    wait_crash(broker, "after_intent")
    broker.start(wait=False, QUEEN_S3_COMPRESSION=other)
    wait_crash(broker, "after_intent")
    assert traffic.lake_counts(env)["orders"][0] == 1
    broker.start(QUEEN_S3_CRASH_AT=None)
    pusher.stop()
    pusher.finish()
    traffic.wait_complete(broker, ["orders"])
    assert broker.sigterm() == 0
    judged = oracle.judge(env.bucket, ledger.save(), temporary=False, exact_frames=True)
    seen = [w.manifest["compression"] for w in judged.windows["orders"]]
    assert seen == [case] + [other] * (len(seen) - 1), seen


@mark(timeout=90)
def test_a_redo_keeps_the_intents_settings_over_a_chain_of_crashes(env):
    """mid_upload, mid_upload, after_upload, before_commit, after_commit on one window, each with other settings."""
    broker = env.broker(settings(env, QUEEN_S3_COMPRESSION="gzip"))
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a", "b", "ü"])
    seen = {}
    chain = ["mid_upload", "mid_upload", "after_upload", "before_commit", "after_commit"]
    for n, point in enumerate(chain):
        more = {"QUEEN_S3_COMPRESSION": ["gzip", "none", "zstd"][n % 3], "QUEEN_S3_MAX_WINDOW_MS": 500 + n}
        broker.start(wait=n == 0, QUEEN_S3_CRASH_AT=point, **more)
        if n == 0:
            pusher = Pusher(broker, ledger, batches.next, "first")
            pusher.start()
        wait_crash(broker, point)
        pusher.stop()
        now = {key: value[0] for key, value in traffic.files(env).items()}
        assert all(now[key] == data for key, data in seen.items()), (point, "bytes changed")
        seen = now
    assert len(seen) == 2, sorted(seen)
    broker.start(QUEEN_S3_CRASH_AT=None)
    pusher.finish()
    traffic.wait_complete(broker, ["orders"])
    assert broker.sigterm() == 0
    assert all(env.object_bytes(key) == data for key, data in seen.items())
    judged = oracle.judge(env.bucket, ledger.save(), temporary=False, exact_frames=True)
    assert judged.windows["orders"][0].manifest["compression"] == "gzip"


@mark(timeout=90)
@cases("after_intent", "after_upload")
def test_a_redo_of_a_window_closed_by_its_size_leaves_the_next_record_out(env, case):
    """Such a window ends at the stamp of a record, which is the first of the next one."""
    sizes = {"QUEEN_S3_TARGET_MB": 1, "QUEEN_S3_SAFE_GUARD_MS": 500, "QUEEN_S3_MAX_WINDOW_MS": 5000}
    broker = env.broker(settings(env, QUEEN_S3_QUEUES="*", **sizes)).start(**OFF)
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a", "b"], hostile=False)
    payload = '"' + "z" * 100000 + '"'
    traffic.push_all(broker, ledger, [[batches.item(payload=payload)] for _ in range(40)], threads=2)
    time.sleep(1)
    assert broker.sigterm() == 0
    broker.start(wait=False, **{**ON, "QUEEN_S3_CRASH_AT": case})  # sees all of them at once, none is too young
    wait_crash(broker, case)
    broker.start(**OFF)
    intent = traffic.kv_rows(broker)["s3:default:orders:intent"]
    traffic.check_read_back(broker, ledger)
    stamps = [row["ts"] for row in ledger.acknowledged_rows]
    assert intent["tEnd"] in stamps, "it was not closed by its size: this test shows nothing"
    assert broker.sigterm() == 0
    broker.start(**ON)
    traffic.wait_complete(broker, ["orders"])
    assert broker.sigterm() == 0
    judged = oracle.judge(env.bucket, ledger.save(), temporary=False, exact_frames=True)
    first = judged.windows["orders"][0]
    assert len(first.records) == sum(ts < intent["tEnd"] for ts in stamps)


def random_settings(env):
    """What changes from life to life; small files and frequent checkpoints, so that kills meet each of their steps."""
    r = env.random
    return {
        "QUEEN_RAFT_DURABLE_EVERY_MS": r.choice([30, 100, 300, 2000]),
        "QUEEN_RAFT_SEGMENT_BYTES": r.choice([65536, 262144, 4194304]),
        "QUEEN_S3_COMPRESSION": r.choice(["zstd", "gzip", "none"]),
        "QUEEN_S3_MAX_WINDOW_MS": r.choice([100, 200, 500]),
    }


def kill_again_and_again(env, kills):
    """So many times: start, traffic of six pushers, kill -9 after 0 to 1.2 s. Some pushers repeat a push until it is
    acknowledged, some leave its outcome unknown."""
    queues = ["orders", "ünï cødé/1"]
    broker = env.broker(
        settings(
            env, QUEEN_S3_QUEUES="*", QUEEN_S3_LEASE_TTL_MS=1000, QUEEN_S3_CHECKPOINT_EVERY=2, **random_settings(env)
        )
    )
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, queues, [f"p{n}" for n in range(20)] + traffic.ODD_NAMES)
    broker.start()
    coin = env.random
    pushers = [
        Pusher(
            broker,
            ledger,
            batches.next,
            f"pusher{n}",
            pause=0.02,
            gives_up=(lambda: coin.random() < 0.5) if n % 2 else None,
        )
        for n in range(6)
    ]
    for p in pushers:
        p.start()
    for n in range(kills):
        # Most lives are long enough for windows; some end at once, a few while they still recover.
        wait = n % 5 != 4
        if wait:
            broker.wait_listening()
        time.sleep(env.random.choice([0.0, 0.05, 0.3, 0.6, 1.2]))
        assert broker.running, f"ended by itself: {broker.process.returncode}"
        broker.kill()
        broker.start(wait=False, **random_settings(env))
    broker.wait_listening()
    traffic.finish_all(pushers)
    traffic.wait_complete(broker, queues, timeout=60)
    traffic.check_read_back(broker, ledger)
    traffic.check_duplicates(broker, ledger)
    assert broker.sigterm() == 0
    judged = oracle.judge(env.bucket, ledger.save(), temporary=False, exact_frames=True)
    print(judged.summary(), "repeated:", sum(p.repeated for p in pushers))
    assert len(judged.records) > 50 * kills and sum(p.repeated for p in pushers) > kills / 2


@mark(timeout=60 + 12 * KILLS)
def test_kill_9_at_random_moments_loses_nothing(env):
    kill_again_and_again(env, KILLS)


@mark(timeout=60 + 12 * 200, slow=True)
def test_kill_9_two_hundred_times_loses_nothing(env):
    kill_again_and_again(env, 200)


@mark(timeout=90)
def test_a_process_that_stood_still_past_its_lease_goes_on_exactly_once(env):
    """SIGSTOP for longer than the TTL, several times under traffic: its own row is dead when it comes back."""
    broker = env.broker(
        settings(env, QUEEN_S3_LEASE_TTL_MS=1000, QUEEN_S3_MAX_WINDOW_MS=100, QUEEN_S3_SAFE_GUARD_MS=0)
    ).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a", "b", "c"])
    pushers = [Pusher(broker, ledger, batches.next, f"pusher{n}", pause=0.005) for n in range(3)]
    for p in pushers:
        p.start()
    for _ in range(4):
        time.sleep(env.random.choice([0.1, 0.3, 0.6]))
        broker.freeze()
        time.sleep(env.random.choice([0.3, 1.5, 2.5]))
        broker.thaw()
    time.sleep(0.5)
    traffic.finish_all(pushers)
    traffic.wait_complete(broker, ["orders"], timeout=40)
    traffic.check_read_back(broker, ledger)
    assert broker.sigterm() == 0
    oracle.judge(env.bucket, ledger.save(), temporary=False, exact_frames=True)


class Churner(threading.Thread):
    """Pushes to one queue, and deletes it now and then between two pushes; knows every record's incarnation."""

    def __init__(self, broker, ledger, random, queue, deletes):
        super().__init__(daemon=True)
        self.broker, self.ledger, self.random, self.queue, self.deletes = broker, ledger, random, queue, deletes
        self.rows = []
        self.error = None

    def run(self):
        try:
            with self.broker.session() as call:
                for incarnation in range(self.deletes + 1):
                    self.live(call, incarnation, last=incarnation == self.deletes)
        except BaseException as error:
            self.error = error

    def live(self, call, incarnation, last):
        batches = Batches(self.random, [self.queue], ["a", "b", "c"], hostile=False)
        end = time.monotonic() + self.random.choice([0.05, 0.3, 0.7, 1.5])
        number = 0
        while number == 0 or time.monotonic() < end:
            items = [i._replace(transaction_id=f"{incarnation}.{i.transaction_id}") for i in batches.next()]
            answer = call("POST", "/api/v1/push", traffic.body_of(items))
            assert answer.status == 201, answer
            assert {a["status"] for a in answer.json} == {"queued"}, answer
            self.ledger.acknowledged(
                items, answer.json, f"{self.queue}.{incarnation}.{number}", incarnation=incarnation, optional=not last
            )
            number += 1
            time.sleep(self.random.choice([0, 0.01, 0.05]))
        if not last:
            answer = call("DELETE", "/api/v1/resources/queues/" + self.queue)
            assert answer.json["deleted"] is True, answer
            time.sleep(self.random.choice([0, 0, 0.02, 0.5]))


@mark(timeout=150)
def test_queues_deleted_and_created_again_while_their_windows_are_cut(env):
    """Ten queues, each deleted several times at random moments of filling, intent, upload and commit. What was not in
    an intent yet goes with its queue; what is in the lake is there once and as it was; the last incarnation is whole.
    """
    queues = [f"churn-{n}" for n in range(10)]
    broker = env.broker(
        settings(
            env,
            QUEEN_S3_QUEUES="*",
            QUEEN_S3_MAX_WINDOW_MS=100,
            QUEEN_S3_SAFE_GUARD_MS=0,
            QUEEN_RAFT_DURABLE_EVERY_MS=50,
            QUEEN_RAFT_SEGMENT_BYTES=65536,
        )
    ).start()
    ledger = Ledger(env.dir / "ledger")
    churners = [Churner(broker, ledger, env.random, queue, deletes=8) for queue in queues]
    for c in churners:
        c.start()
    for c in churners:
        c.join(100)
        if c.error:
            raise c.error
        assert not c.is_alive()
    traffic.wait_complete(broker, queues, timeout=40)
    assert broker.sigterm() == 0
    judged = oracle.judge(env.bucket, ledger.save(), temporary=False, exact_frames=True)
    older = [r for r in judged.records if not r.transaction_id.startswith("8.")]
    print(judged.summary(), len(older), "of deleted queues")
    assert len(older) > 50, "too few windows met a deletion to say anything"
    # and the folders of the dead queues' logs are gone
    left = [p.name for p in (broker.dir / "data" / "qlog").iterdir()]
    assert len(left) <= len(queues), left


@mark(timeout=90)
@cases("after_intent", "mid_upload", "after_upload")
def test_a_queue_deleted_behind_an_intent_still_gets_its_window(env, case):
    """The intent pins the records: the queue is deleted while the broker is down for the sink, created again, and the
    redo finishes the old window before anything of the new queue."""
    broker = env.broker(settings(env, QUEEN_S3_CRASH_AT=case)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a", "b"])
    pusher = Pusher(broker, ledger, batches.next, "old")
    pusher.start()
    wait_crash(broker, case)
    broker.start(**OFF)
    pusher.stop()
    pusher.finish()
    intent = traffic.kv_rows(broker)["s3:default:orders:intent"]
    traffic.check_read_back(broker, ledger)  # takes the stamps
    for row in ledger.rows:
        row["optional"] = not row.get("unknown") and row["ts"] >= intent["tEnd"]
    inside = sum(row["ts"] < intent["tEnd"] for row in ledger.acknowledged_rows)
    assert inside > 0
    assert broker.call("DELETE", "/api/v1/resources/queues/orders")["deleted"] is True
    fresh = [i._replace(transaction_id="new." + i.transaction_id) for i in batches.next(40)]
    answer = broker.push(traffic.body_of(fresh))
    assert {a["status"] for a in answer} == {"queued"}
    ledger.acknowledged(fresh, answer, "new", incarnation=1)
    time.sleep(0.5)  # a checkpoint, which lets go of what nothing pins
    broker.kill()
    broker.start(**ON)
    traffic.wait_complete(broker, ["orders"], timeout=40)
    assert broker.sigterm() == 0
    judged = oracle.judge(env.bucket, ledger.save(), temporary=False, exact_frames=True)
    first = judged.windows["orders"][0]
    assert len(first.records) == inside and (first.manifest["tEnd"] == intent["tEnd"])


@mark(timeout=60)
def test_a_lake_of_another_broker_is_not_overwritten(env):
    """The data folder was wiped, the bucket was not: the queue fails, and nothing is written."""
    broker = env.broker(settings(env)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a"])
    traffic.push_all(broker, ledger, [batches.next(20)])
    traffic.wait_complete(broker, ["orders"])
    assert broker.sigterm() == 0
    before = traffic.files(env)
    other = env.broker(settings(env)).start()
    other.push(traffic.body_of(batches.next(10)))
    wait_until(lambda: (other.sink_queue("orders") or {}).get("state") == "failed", 20, what="the queue fails")
    error = other.sink_queue("orders")["lastError"]["message"]
    assert "prefix" in error.lower() and other.find_log("ERROR queen-s3: .*orders"), error
    assert other.sigterm() == 0
    assert traffic.files(env) == before
    rows = []
    other.start(**OFF)
    rows = traffic.kv_rows(other)
    assert "s3:default:orders:committed" not in rows, rows
    assert other.sigterm() == 0
    oracle.judge(env.bucket, ledger.save())


@mark(timeout=60, store="file")
def test_unfinished_uploads_of_our_own_are_cleaned_and_others_left(env):
    broker = env.broker(settings(env)).start()
    assert broker.sigterm() == 0
    tmp = env.bucket / ".queen-tmp"
    tmp.mkdir(exist_ok=True)
    instance = broker.find_log("queen-s3: queen-s3 2.0.0 ")[0].fields["instance"].split("(")[0].strip()
    own = oracle.percent_encode(instance)
    mine, foreign = (
        tmp / f"{own}-0123456789abcdef-0123456789abcdef",
        tmp / "node-9%40elsewhere-0123456789abcdef-0123456789abcdef",
    )
    mine.write_text("x")
    foreign.write_text("y")
    broker.start()
    wait_until(lambda: not mine.exists(), 10, what="our own leftover is removed")
    assert foreign.read_text() == "y"
    assert broker.sigterm() == 0
