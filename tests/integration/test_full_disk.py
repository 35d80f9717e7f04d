"""Full disks, for real (decisions.md 20): a tmpfs and an ext4 on a loop device that another process fills and frees."""

import contextlib
import json
import os
import pathlib
import threading
import time

import oracle
import traffic
from faults import Calls, power_disk, rule
from harness import cases, mark, wait_until
from traffic import Batches, Item, Ledger

SIZE = 256  # MiB
KINDS = ("tmpfs", "ext4")


@contextlib.contextmanager
def filesystem(env, kind):
    if kind == "tmpfs":
        with traffic.small_filesystem(env.dir / "disk", f"{SIZE}m") as path:
            yield path
    else:
        with power_disk(env.dir, size=SIZE << 20) as disk:
            yield disk.path


class Filler:
    """Another process's file on the same disk."""

    def __init__(self, disk):
        self.path = pathlib.Path(disk) / "filler"

    def free(self):
        usage = os.statvfs(self.path.parent)
        return usage.f_bavail * usage.f_frsize

    def fill(self, leave=0):
        """Takes what is free but `leave` bytes."""
        with open(self.path, "ab", buffering=0) as file:
            with contextlib.suppress(OSError):
                while self.free() > leave:
                    file.write(bytes(min(1 << 20, max(4096, self.free() - leave))))

    def remove(self):
        self.path.unlink(missing_ok=True)


def give_up(disk, *patterns):
    """Files of a stopped broker that are there to be given up; all of them when none are named."""
    for pattern in patterns or ("ballast", "reserve", "wal/spare-*"):
        for path in (disk / "data").glob(pattern):
            path.unlink()


def settings(env, disk, **more):
    return {
        **env.lake("orders"),
        "QUEEN_RAFT_DIR": disk / "data",
        "QUEEN_S3_MAX_WINDOW_MS": 500,
        "QUEEN_S3_SAFE_GUARD_MS": 100,
        "QUEEN_RAFT_SEGMENT_BYTES": 4194304,
        "QUEEN_RAFT_DURABLE_EVERY_MS": 200,
        **more,
    }


def push(broker, ledger, items, name):
    """The status; what was acknowledged is in the ledger."""
    answer = broker.request("POST", "/api/v1/push", traffic.body_of(items))
    assert answer.status in (201, 507), answer
    if answer.status == 201:
        ledger.acknowledged(items, answer.json, name)
    return answer.status


def wait_taken(broker, ledger, items, name):
    wait_until(lambda: push(broker, ledger, items, name) == 201, 30, every=0.1, what="pushes are taken again")


def wait_refused(broker, ledger, batches, tag):
    for n in range(3000):
        items = [batches.item(payload=json.dumps("x" * 20000))]
        if push(broker, ledger, items, f"{tag}-{n}") == 507:
            return
    raise AssertionError("nothing was refused")


def check_up(broker):
    """It has not stopped; right behind a boot it may still be settling."""
    health = broker.health()
    assert broker.running and health.json["raft"]["role"] == "leader", health
    assert broker.call("GET", "/status")


def no_abort(broker):
    assert not broker.find_log(r" node: stopped", all_starts=True)


@mark(timeout=240)
@cases(*KINDS)
def test_cycles_of_full_and_free_under_traffic_lose_nothing(env, kind):
    with filesystem(env, kind) as disk:
        filler = Filler(disk)
        broker = env.broker(settings(env, disk)).start()
        ledger = Ledger(env.dir / "ledger")
        ended = threading.Event()
        counts = {201: 0, 507: 0}

        def traffic_of(number):
            batches = Batches(env.random, ["orders"], [f"p{number}"], hostile=False)
            while not ended.is_set():
                with batches.lock:
                    batches.made += 1
                    items = [Item("orders", f"p{number}", f"{number}-{batches.made}", json.dumps("y" * 3000))]
                counts[push(broker, ledger, items, items[0].transaction_id)] += 1

        threads = [threading.Thread(target=traffic_of, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            filler.fill()
            time.sleep(env.random.uniform(0.1, 0.6))
            filler.fill()  # the ballast's room too
            time.sleep(env.random.uniform(0.1, 0.6))
            check_up(broker)
            filler.remove()
            before = counts[201]
            wait_until(lambda: counts[201] > before, 30, what="pushes are taken again")
        ended.set()
        for thread in threads:
            thread.join()
        assert counts[507] > 0, counts
        no_abort(broker)
        traffic.wait_complete(broker, ["orders"])
        traffic.check_read_back(broker, ledger)
        assert broker.sigterm() == 0
        oracle.judge(env.bucket, ledger.save(), temporary=False)


@mark(timeout=240)
@cases(*KINDS)
def test_kills_and_boots_in_the_full_state_lose_nothing(env, kind):
    with filesystem(env, kind) as disk:
        filler = Filler(disk)
        broker = env.broker(settings(env, disk)).start()
        ledger = Ledger(env.dir / "ledger")
        batches = Batches(env.random, ["orders"], ["a", "b"], hostile=False)
        for n in range(4):
            for i in range(30):
                push(broker, ledger, [batches.item(payload=json.dumps("z" * 20000))], f"{n}-{i}")
            filler.fill()
            wait_refused(broker, ledger, batches, f"full-{n}")
            check_up(broker)
            broker.kill()
            if n % 2:
                give_up(disk, "ballast", "wal/spare-*")
            filler.fill()  # what these and the kill gave back; the reserve is left
            broker.start()
            check_up(broker)
            assert push(broker, ledger, [batches.item()], f"boot-{n}") == 507
            broker.kill()
            broker.start()
            filler.remove()
            wait_taken(broker, ledger, [batches.item()], f"free-{n}")
            traffic.check_read_back(broker, ledger)
        assert broker.find_log("the reserve is given up", all_starts=True)
        no_abort(broker)
        traffic.check_duplicates(broker, ledger)
        traffic.wait_complete(broker, ["orders"])
        assert broker.sigterm() == 0
        oracle.judge(env.bucket, ledger.save(), temporary=False)


@mark(timeout=120)
@cases(*KINDS)
def test_a_boot_without_a_byte_waits_for_room(env, kind):
    with filesystem(env, kind) as disk:
        filler = Filler(disk)
        broker = env.broker(settings(env, disk)).start()
        ledger = Ledger(env.dir / "ledger")
        traffic.push_all(broker, ledger, [[Item("orders", "a", f"o-{n}", "1")] for n in range(20)])
        broker.kill()
        give_up(disk)
        filler.fill()
        broker.start(wait=False)
        broker.wait_log("boot: the disk is full, waiting for room")
        filler.remove()
        broker.wait_listening()
        wait_taken(broker, ledger, [Item("orders", "a", "room", "1")], "room")
        traffic.check_read_back(broker, ledger)
        no_abort(broker)
        broker.kill()
        filler.fill()
        give_up(disk)
        filler.fill()
        broker.start(wait=False)
        broker.wait_log("boot: the disk is full, waiting for room")
        assert broker.sigterm() == 0  # a signal ends it


@mark(timeout=120)
@cases(*KINDS)
def test_a_boot_behind_its_log_answers_no_read_without_it(env, kind):
    """What the log holds does not fit any more: a read would miss what was acknowledged, so it is refused."""
    with filesystem(env, kind) as disk:
        filler = Filler(disk)
        broker = env.broker(settings(env, disk, QUEEN_RAFT_DURABLE_EVERY_MS=86400000)).start()
        ledger = Ledger(env.dir / "ledger")
        large = [Item("orders", "a", f"o-{n}", json.dumps("x" * 100000)) for n in range(200)]
        wait_taken(broker, ledger, large, "large")  # one entry
        broker.kv({"op": "put", "ns": "n", "key": "k", "value": 1, "forever": True})
        get = [{"op": "get", "ns": "n", "key": "k"}]
        fetch = {"entries": [{"queue": "orders", "partition": "a", "offset": 199, "maxBytes": 1 << 20}]}
        changed = {"entries": [{"queue": "orders"}]}
        reads = [("/api/v1/kv", get), ("/api/v1/fetch", fetch), ("/api/v1/partitions/changed", changed)]
        broker.kill()
        filler.fill()  # a power cut would take what no checkpoint had, and others its place
        give_up(disk)
        for path in disk.glob("data/qlog/*/*"):
            path.unlink()
        filler.fill(leave=4 << 20)  # and two segments of the log go: together less than the entry
        broker.start()
        check_up(broker)
        assert broker.find_log("entries more are applied when there is room")
        for path, body in reads:
            answer = broker.request("POST", path, body)
            assert answer.status == 503, (path, answer)
        health = broker.health()
        assert health.status == 503 and health.json["status"] == "settling", health
        assert push(broker, ledger, [Item("orders", "a", "refused", "1")], "refused") == 507
        filler.remove()
        wait_taken(broker, ledger, [Item("orders", "a", "room", "1")], "room")
        for path, body in reads:
            assert broker.request("POST", path, body).status == 200, path
        assert broker.health().status == 200
        assert broker.kv({"op": "get", "ns": "n", "key": "k"})[0]["value"] == 1
        traffic.check_read_back(broker, ledger)
        no_abort(broker)
        assert broker.sigterm() == 0


@mark(timeout=180)
@cases(*KINDS)
def test_a_deletion_frees_a_disk_that_others_filled(env, kind):
    with filesystem(env, kind) as disk:
        filler = Filler(disk)
        broker = env.broker(settings(env, disk)).start()
        ledger, bulk = Ledger(env.dir / "ledger"), Ledger(env.dir / "bulk")
        traffic.push_all(broker, ledger, [[Item("orders", "a", f"o-{n}", "1")] for n in range(20)])
        for n in range(550):
            items = [Item("bulk", "a", f"b-{n}", json.dumps("x" * 200000))]
            wait_taken(broker, bulk, items, f"bulk-{n}")  # 507 for a moment while a checkpoint is behind
        filler.fill()
        wait_refused(broker, ledger, Batches(env.random, ["orders"], ["a"], hostile=False), "probe")
        filler.fill()
        assert broker.fetch("orders", "a")["highWatermark"] >= 20
        assert broker.call("DELETE", "/api/v1/resources/queues/bulk")["deleted"] is True
        wait_until(lambda: filler.free() > 95 << 20, 10, what="the deleted queue's files are gone")
        wait_taken(broker, ledger, [Item("orders", "a", "room", json.dumps("y" * 100000))], "room")
        no_abort(broker)
        traffic.wait_complete(broker, ["orders"])
        assert broker.sigterm() == 0
        oracle.judge(env.bucket, ledger.save(), temporary=False)


@mark(timeout=120)
def test_reads_go_on_while_an_entry_does_not_fit(env):
    """Every write to a queue log fails for want of space: the entry is left half-way, and nothing hangs."""
    calls = Calls(env)
    broker = env.broker(env.lake("orders"), QUEEN_RAFT_DIR=env.dir / "data", **calls.settings).start()
    ledger = Ledger(env.dir / "ledger")
    traffic.push_all(broker, ledger, [[Item("orders", "a", f"o-{n}", "1")] for n in range(20)])
    broker.kv({"op": "put", "ns": "n", "key": "k", "value": 1, "ttlSeconds": 2})
    calls.set(rule("write", "*/qlog/*", "ENOSPC", times=0))
    stuck = [Item("orders", "a", f"stuck-{n}", json.dumps("w" * 1000)) for n in range(10)]
    answers = []
    thread = threading.Thread(target=lambda: answers.append(push(broker, ledger, stuck, "stuck")))
    thread.start()
    broker.wait_log("the disk is full")
    for _ in range(30):
        began = time.monotonic()
        check_up(broker)
        assert len(broker.fetch("orders", "a")["records"]) == 20
        broker.kv({"op": "get", "ns": "n", "key": "k"})  # due by now, and no clock entry comes
        assert push(broker, ledger, [Item("orders", "b", "refused", "1")], "refused") == 507
        assert time.monotonic() - began < 3
        time.sleep(0.1)
    assert not answers
    calls.set()
    thread.join()
    assert answers == [201]
    wait_taken(broker, ledger, [Item("orders", "a", "room", "1")], "room")
    no_abort(broker)
    traffic.check_read_back(broker, ledger)
    traffic.wait_complete(broker, ["orders"])
    assert broker.sigterm() == 0
    oracle.judge(env.bucket, ledger.save(), temporary=False)


@mark(timeout=120)
def test_a_database_without_room_is_said_once_and_waited_for(env):
    """The filesystem has room all the while: the ballast must not be made and given up in turns."""
    calls = Calls(env)
    more = {"QUEEN_RAFT_DIR": env.dir / "data", "QUEEN_RAFT_DURABLE_EVERY_MS": 100, **calls.settings}
    broker = env.broker(env.lake("orders"), **more).start()
    ledger = Ledger(env.dir / "ledger")
    traffic.push_all(broker, ledger, [[Item("orders", "a", f"o-{n}", "1")] for n in range(20)])
    calls.set(rule("write", "*/state/*", "ENOSPC", times=0))
    push(broker, ledger, [Item("orders", "a", "more", "1")], "more")
    broker.wait_log("checkpoint: state database")
    for _ in range(40):
        check_up(broker)
        assert push(broker, ledger, [Item("orders", "a", "refused", "1")], "refused") == 507
        time.sleep(0.1)
    for text in ("the ballast is given up", "checkpoint: state database"):
        assert len(broker.find_log(text)) == 1, broker.find_log(text)
    assert len(broker.fetch("orders", "a")["records"]) == 21
    calls.set()
    wait_taken(broker, ledger, [Item("orders", "a", "room", "1")], "room")
    no_abort(broker)
    traffic.check_read_back(broker, ledger)
    traffic.wait_complete(broker, ["orders"])
    assert broker.sigterm() == 0
    oracle.judge(env.bucket, ledger.save(), temporary=False)
