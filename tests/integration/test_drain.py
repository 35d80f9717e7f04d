"""Stopping in order, and the latency of a quiet broker.

Must hold at every SIGTERM: exit 0 within the grace and a second, leases and the presence row given back, nothing
lost: what was too young for the drain ships after the restart.
"""

import json
import signal
import subprocess
import threading
import time

import oracle
import traffic
from harness import cases, mark, wait_until
from traffic import Batches, Item, Ledger, Pusher

ON_EVERY_STORE = True
GRACE_MS = 4000
OFF = {"QUEEN_S3_EMBEDDED": "false"}
ON = {"QUEEN_S3_EMBEDDED": "true"}


def settings(env, **more):
    return {
        **env.lake("orders"),
        "QUEEN_S3_MAX_WINDOW_MS": 1000,
        "QUEEN_S3_SAFE_GUARD_MS": 200,
        "QUEEN_S3_LEASE_TTL_MS": 30000,
        "QUEEN_S3_SHUTDOWN_GRACE_MS": GRACE_MS,
        **more,
    }


def stop(broker, at_most=None):
    """SIGTERM; exit 0 in time. Seconds it took."""
    at_most = at_most or GRACE_MS / 1000 + 1
    began = time.monotonic()
    assert broker.sigterm(timeout=at_most + 30) == 0
    took = time.monotonic() - began
    assert took <= at_most, f"{took:.2f} s, over {at_most}"
    return took


def check_released(broker):
    """No lease and no presence row: looked at by a process without a sink. It stays up."""
    broker.start(**OFF)
    rows = traffic.kv_rows(broker)
    left = [key for key in rows if key.endswith(":lease") or key.startswith("s3:default:node=")]
    assert not left, left
    return rows


def finish(env, broker, ledger, queues=("orders",), **rules):
    """Starts with the sink again, waits for everything, stops, judges."""
    if broker.running:
        assert broker.sigterm() == 0
    broker.start(**ON)
    traffic.wait_complete(broker, queues)
    stop(broker)
    return oracle.judge(env.bucket, ledger.save(), temporary=False, **rules)


def buffered(broker, queue="orders"):
    """Weight of the window being filled. The sink scans up to safeTime minus the guard: a write moves the clock on."""
    traffic.nudge(broker)
    return broker.sink_queue(queue)["bufferedBytes"]


def big(batches, size, count):
    """Items of `size` bytes that do not compress well."""
    return [
        batches.item(payload=json.dumps("".join(batches.random.choices("0123456789abcdef", k=size))))
        for _ in range(count)
    ]


@mark(timeout=60)
def test_sigterm_while_idle(env):
    broker = env.broker(settings(env)).start()
    broker.wait_log("INFO queen-s3: queue missing|missing", timeout=20)
    assert stop(broker) < 2.5
    order = [line.message for line in broker.find_log("queen-s3: (stopping|sink stopped)|shutdown: ")]
    assert "stopping: no new reads" in order and order.index("stopping: no new reads") < order.index(
        "sink stopped"
    ), order
    check_released(broker)


@mark(timeout=60)
def test_sigterm_while_filling_leaves_a_small_window_in_the_log(env):
    """Under 1 MiB and under ten seconds old: not worth a window; it ships after the restart."""
    broker = env.broker(settings(env, QUEEN_S3_MAX_WINDOW_MS=60000)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a", "b"])
    traffic.push_all(broker, ledger, [batches.next(5)])
    traffic.wait_committed(broker, "orders")  # the first one closes at once, under earliest
    traffic.push_all(broker, ledger, [batches.next(20) for _ in range(5)])
    wait_until(lambda: buffered(broker) > 0, 10, what="the window fills")
    count = traffic.lake_counts(env)["orders"]
    assert stop(broker) < 2.5
    line = broker.find_log("INFO queen-s3: shutting down: stopping the reads ")
    assert len(line) == 1 and list(line[0].fields) == ["queue", "buffered", "aged", "closing", "state"], line
    assert line[0].fields["closing"] == "false" and line[0].fields["state"] == "filling", line
    assert len(broker.find_log("INFO queen-s3: queue drained queue=orders$")) == 1
    assert len(broker.find_log("INFO queen-s3: sink stopped$")) == 1
    assert not broker.find_log("inside its grace window")
    assert traffic.lake_counts(env)["orders"] == count, "it closed a window that was not worth it"
    rows = check_released(broker)
    assert rows["s3:default:orders:committed"]["k"] == count[0]
    broker.settings["QUEEN_S3_MAX_WINDOW_MS"] = 500
    finish(env, broker, ledger)


@mark(timeout=60)
def test_sigterm_while_filling_ships_a_window_of_a_mebibyte(env):
    broker = env.broker(settings(env, QUEEN_S3_MAX_WINDOW_MS=60000, QUEEN_S3_SAFE_GUARD_MS=100)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a", "b"], hostile=False)
    traffic.push_all(broker, ledger, [batches.next(5)])
    traffic.wait_committed(broker, "orders")
    traffic.push_all(broker, ledger, [big(batches, 100000, 5) for _ in range(4)])
    wait_until(lambda: buffered(broker) >= 2000000, 10, what="2 MB are buffered")
    stop(broker)
    line = broker.find_log("shutting down: stopping the reads ")[0]
    assert line.fields["closing"] == "true", line
    windows, records = traffic.lake_counts(env)["orders"]
    assert windows == 2 and records >= 20, (windows, records)
    check_released(broker)
    finish(env, broker, ledger)


@mark(timeout=60)
def test_sigterm_finishes_the_window_that_is_in_its_commit(env):
    """A large window: the signal comes while its status says intent, upload or commit."""
    broker = env.broker(settings(env, QUEEN_S3_MAX_WINDOW_MS=3000, QUEEN_S3_SHUTDOWN_GRACE_MS=20000)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], [f"p{n}" for n in range(50)], hostile=False)
    traffic.push_all(broker, ledger, [batches.next(1)])
    traffic.wait_committed(broker, "orders")
    traffic.push_all(broker, ledger, [big(batches, 100000, 20) for _ in range(15)])
    seen = wait_until(
        lambda: (s := broker.sink_queue("orders")["state"]) in ("intent", "upload", "commit") and s,
        20,
        every=0.002,
        what="the window closes",
    )
    stop(broker, at_most=21)
    print("signal while", seen)
    rows = check_released(broker)
    windows, _ = traffic.lake_counts(env)["orders"]
    assert windows >= 2 and rows["s3:default:orders:committed"]["k"] == windows, "it was finished"
    finish(env, broker, ledger)


@mark(timeout=120)
def test_sigterm_at_random_moments_under_traffic(env):
    """Twelve lives under traffic: each ends with code 0 in time and gives its rows back."""
    queues = ["orders", "ünï cødé/1", "third"]
    broker = env.broker(settings(env, QUEEN_S3_QUEUES="*", QUEEN_S3_MAX_WINDOW_MS=200, QUEEN_S3_SAFE_GUARD_MS=50))
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, queues, [f"p{n}" for n in range(10)])
    broker.start()
    pushers = [Pusher(broker, ledger, batches.next, f"pusher{n}", pause=0.01) for n in range(4)]
    for p in pushers:
        p.start()
    for n in range(12):
        time.sleep(env.random.choice([0.05, 0.2, 0.5, 0.9]))
        stop(broker)
        assert broker.log()[-1].endswith("shutdown: done"), broker.log()[-1]
        if n % 3 == 0:
            check_released(broker)
            stop(broker)
        broker.start(**ON)
    traffic.finish_all(pushers)
    traffic.check_read_back(broker, ledger)
    traffic.check_duplicates(broker, ledger)
    finish(env, broker, ledger, queues, exact_frames=True)


def wait_put_failed(broker):
    """Waits for the first failed attempt of the window's upload."""

    def failed():
        row = broker.sink_queue("orders")
        return row["state"] == "upload" and (row["lastError"] or {"message": ""})["message"].startswith("put ")

    wait_until(failed, 20, what="the upload fails")


@mark(timeout=90)
@cases("refused", "cut")
def test_sigterm_while_the_bucket_refuses_cuts_the_drain_at_its_grace(env, case):
    broker = env.broker(settings(env)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a", "b"])
    traffic.push_all(broker, ledger, [batches.next(20)])
    traffic.wait_complete(broker, ["orders"])
    env.store.down(case)
    traffic.push_all(broker, ledger, [batches.next(20)])
    wait_put_failed(broker)
    report = broker.sink()
    assert report["bucket"]["reachable"] is False and report["bucket"]["error"] and report["ok"] is False, report
    assert report["queues"][0]["lastError"]["message"].startswith("put queen/"), report["queues"][0]
    assert broker.health().status == 200, "/health does not look at the sink"
    took = stop(broker)
    assert took > GRACE_MS / 1000 * 0.5, "it did not use its grace"
    assert len(broker.find_log("WARN queen-s3: the sink did not stop inside its grace window")) == 1
    rows = check_released(broker)
    assert rows["s3:default:orders:intent"]["k"] == rows["s3:default:orders:committed"]["k"] + 1, rows
    env.store.up()
    finish(env, broker, ledger)


@mark(timeout=90)
def test_a_bucket_that_comes_back_gets_what_it_missed(env):
    """No restart: the retries of the step go on until it works."""
    broker = env.broker(settings(env)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a", "b"])
    traffic.push_all(broker, ledger, [batches.next(20)])
    traffic.wait_complete(broker, ["orders"])
    env.store.down()
    traffic.push_all(broker, ledger, [batches.next(20)])
    wait_until(lambda: broker.sink()["bucket"]["reachable"] is False, 20, what="it is noticed")
    env.store.up()
    traffic.push_all(broker, ledger, [batches.next(20)])
    traffic.wait_complete(broker, ["orders"])
    assert broker.sink()["bucket"]["reachable"] is True and broker.sink()["ok"] is True
    assert any(k.startswith("queen_s3_s3_requests_total{") and 'code="0"' in k for k in broker.metrics())
    stop(broker)
    oracle.judge(env.bucket, ledger.save(), temporary=False)


@mark(timeout=60)
def test_sigterm_before_the_bucket_ever_answered(env):
    """The bucket is away at boot: pushes work, the sink waits, and the end is in time."""
    broker = env.broker(settings(env))
    env.store.down()
    broker.start()
    ledger = Ledger(env.dir / "ledger")
    traffic.push_all(broker, ledger, [Batches(env.random, ["orders"], ["a"]).next(20)])
    report = wait_until(lambda: (r := broker.sink())["bucket"]["reachable"] is False and r, 20, what="the probe fails")
    assert report["queues"] == [] and report["bucket"]["error"] and report["ok"] is False, report
    broker.wait_log("ERROR queen-s3: ", timeout=60)
    stop(broker)
    assert check_released(broker) == {}
    assert broker.sigterm() == 0
    env.store.up()
    finish(env, broker, ledger)


@mark(timeout=90, store="file")
def test_a_full_bucket_folder_holds_the_window_back_and_room_lets_it_go(env):
    with traffic.small_filesystem(env.dir / "s3", "1m"):
        broker = env.broker(settings(env, QUEEN_S3_COMPRESSION="none")).start()
        ledger = Ledger(env.dir / "ledger")
        batches = Batches(env.random, ["orders"], ["a", "b"], hostile=False)
        traffic.push_all(broker, ledger, [batches.next(20)])
        traffic.wait_complete(broker, ["orders"])
        traffic.push_all(broker, ledger, [big(batches, 100000, 20)])
        wait_put_failed(broker)
        pins = broker.status()["s3"]["pins"]  # what the open window keeps
        assert [(p["key"], p["queue"], p["queueDeleted"]) for p in pins] == [
            ("s3:default:orders:intent", "orders", False)
        ]
        assert pins[0]["tStart"] < pins[0]["tEnd"]
        took = stop(broker)
        assert took > GRACE_MS / 1000 * 0.5
        check_released(broker)
        assert broker.sigterm() == 0
        before = traffic.files(env)
        subprocess.run(["mount", "-o", "remount,size=64m", env.dir / "s3"], check=True)
        finish(env, broker, ledger)
        after = traffic.files(env)
        assert all(after[key] == value for key, value in before.items())
        assert broker.process.returncode == 0


@mark(timeout=60)
def test_sigint_and_a_second_signal(env):
    broker = env.broker(settings(env, QUEEN_S3_MAX_WINDOW_MS=60000)).start()
    broker.push(traffic.body_of([Item("orders", "a", "t", "1")]))
    traffic.wait_committed(broker, "orders")
    broker.signal(signal.SIGINT)
    time.sleep(0.02)
    if broker.running:
        broker.signal(signal.SIGTERM)
    assert broker.wait(10) == 0
    check_released(broker)


@mark(timeout=60)
def test_requests_in_flight_are_answered_when_it_stops(env):
    """Pushes that were sent before the signal get an answer: 201, or 503 and then they may be repeated. None is cut."""
    broker = env.broker(settings(env)).start()
    results, gate = [], threading.Event()

    def work(n):
        with broker.session() as call:
            call("GET", "/health")
            gate.wait()
            for m in range(50):
                try:
                    answer = call("POST", "/api/v1/push", traffic.body_of([Item("orders", "a", f"{n}-{m}", "1")]))
                except OSError as error:
                    results.append((n, m, type(error).__name__))
                    return
                except Exception as error:  # a connection closed between two requests
                    results.append((n, m, type(error).__name__))
                    return
                results.append((n, m, answer.status))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    gate.set()
    time.sleep(0.05)
    stop(broker)
    for t in threads:
        t.join(20)
    statuses = {r[2] for r in results}
    assert statuses <= {
        201,
        503,
        "RemoteDisconnected",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "BrokenPipeError",
    }, statuses
    broker.start()
    accepted = {f"{n}-{m}" for n, m, status in results if status == 201}
    found = {r["transactionId"] for r in broker.fetch("orders", "a")["records"]}
    assert accepted and accepted <= found, accepted - found


# --- decisions.md 12: a quiet broker ---


def seconds_to_the_bucket(env, broker, records_before, push):
    began = time.monotonic()
    push()
    wait_until(
        lambda: traffic.lake_counts(env).get("orders", (0, 0))[1] > records_before,
        40,
        every=0.02,
        what="the push ships",
    )
    return time.monotonic() - began


@mark(timeout=90)
@cases((2000, 5000), (1000, 200), (500, 0))
def test_a_lone_push_to_an_idle_broker_is_in_the_bucket_within_window_guard_and_3_s(env, case):
    """Nothing else happens on the broker but the sink's own lease refreshes, which come every ten seconds."""
    window, guard = case
    limit = (window + guard) / 1000 + 3
    broker = env.broker(
        settings(
            env,
            QUEEN_S3_MAX_WINDOW_MS=window,
            QUEEN_S3_SAFE_GUARD_MS=guard,
            QUEEN_S3_DISCOVERY_INTERVAL_MS=2000,
            QUEEN_S3_START="latest",
        )
    ).start()
    broker.call("POST", "/api/v1/configure", {"queue": "orders"})
    broker.wait_log("queue restored queue=orders", timeout=20)
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], ["a"])
    took = []
    for n in range(2):
        time.sleep(1.7 * n)
        took.append(seconds_to_the_bucket(env, broker, n, lambda: traffic.push_all(broker, ledger, [batches.next(1)])))
    print(took)
    assert max(took) <= limit, f"{took}, over {limit}"
    assert took[1] >= guard / 1000, "it closed before the guard"
    stop(broker)
    oracle.judge(env.bucket, ledger.save(), temporary=False, start="latest")


@mark(timeout=60)
def test_a_sink_that_holds_nothing_asks_for_no_clock_entries(env):
    broker = env.broker(settings(env, QUEEN_S3_LEASE_TTL_MS=60000, QUEEN_S3_SAFE_GUARD_MS=1000)).start()
    ledger = Ledger(env.dir / "ledger")
    traffic.push_all(broker, ledger, [Batches(env.random, ["orders"], ["a"]).next(5)])
    traffic.wait_committed(broker, "orders")
    time.sleep(1.5)
    before = broker.health().json["raft"]["applied"]
    time.sleep(4)
    assert broker.health().json["raft"]["applied"] - before <= 2, "the log of an idle broker grows"
    stop(broker)
