"""Resources (spec/broker-api.md 11): what there is, in lists and figures. Nobody consumes yet: all of it is pending."""

import re
import shutil
import threading
import urllib.parse

from harness import cases, mark, wait_until
from traffic import push_one

US = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
MS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
QUEUES = "/api/v1/resources/queues"
NOTHING = {"avg": None, "median": None, "min": None, "max": None}
RUN, RECORD = 64, 24  # bytes before a run's body and before a record's texts (src/store/qlog_format.h)


def counts(total, **more):
    return {"total": total, "pending": total, "processing": 0, "completed": 0, "deadLetter": 0, **more}


def push(broker, queue, partition, *payloads):
    items = [{"queue": queue, "partition": partition, "transactionId": f"{partition}-{n}-{p}", "payload": p}
             for n, p in enumerate(payloads)]
    return broker.push(items)


def run_bytes(partition, *payloads):
    """What one push of these to a partition takes in the queue's log."""
    ids = [f"{partition}-{n}-{p}" for n, p in enumerate(payloads)]
    return RUN + len(partition) + sum(RECORD + len(i) + len(str(p)) for i, p in zip(ids, payloads))


def listed(broker, query=""):
    return broker.call("GET", QUEUES + query)


def test_the_list_of_queues(env):
    broker = env.broker().start()
    assert listed(broker) == {"queues": [], "kvRows": 0, "kvBytes": 0, "timerRows": 0, "timerBytes": 0}
    made = broker.call("POST", "/api/v1/configure", {"queue": "empty", "namespace": "n", "task": "t"})
    push(broker, "billing.eu", "p", 1, 22)
    push(broker, "billing.eu", "q", 333)
    push(broker, "billing.eu", "p", 1)  # a duplicate
    answer = listed(broker)
    newest, oldest = answer["queues"]
    for row in (newest, oldest):
        assert US.fullmatch(row.pop("createdAt")), row
    assert oldest == {
        "id": made["queueId"], "name": "empty", "queue": "empty", "namespace": "n", "task": "t",
        "storage": "segments", "partitions": 0, "segments": {"segments": 0, "messages": 0}, "messages": counts(0),
        "retainedBytes": 0, "options": made["options"],
    }, oldest
    options = broker.call("POST", "/api/v1/configure", {"queue": "billing.eu"})
    assert newest == {
        "id": options["queueId"], "name": "billing.eu", "queue": "billing.eu", "namespace": "billing", "task": "eu",
        "storage": "segments", "partitions": 2, "segments": {"segments": 1, "messages": 3}, "messages": counts(3),
        "retainedBytes": run_bytes("p", 1, 22) + run_bytes("q", 333), "options": options["options"],
    }, newest
    lanes = listed(broker, "?stats=lanes")
    assert lanes["stats"] == "lanes" and [sorted(row) for row in lanes["queues"]] == [
        ["createdAt", "id", "name", "partitions", "queue"]
    ] * 2, lanes
    assert listed(broker, "?stats=all&what=%zz&=&&") == listed(broker), "unknown values and parameters are ignored"
    rows = [{"op": "put", "ns": ns, "key": "k", "value": "v", "forever": True} for ns in ("a", "b")]
    broker.kv(*rows)
    assert listed(broker)["kvRows"] == 2 and listed(broker)["kvBytes"] > 4
    broker.kv({"op": "delete", "ns": "a", "key": "k"}, {"op": "delete", "ns": "b", "key": "k"})
    assert listed(broker)["kvRows"] == listed(broker)["kvBytes"] == 0
    assert listed(broker, "?stats=x&stats=l%61nes") == lanes, "decoded; the last of equal names counts"


@cases("kill", "sigterm")
def test_the_figures_are_the_same_after_a_restart(env, case):
    broker = env.broker(QUEEN_RAFT_SEGMENT_BYTES=65536, QUEEN_RAFT_DURABLE_EVERY_MS=100).start()
    for n in range(30):
        broker.push([{"queue": "q", "partition": f"p{n % 7}", "payload": "x" * 10000, "transactionId": str(n % 14)},
                     {"queue": "r", "partition": "p", "payload": n}])
    queue = {row["name"]: row for row in listed(broker)["queues"]}["q"]
    assert queue["messages"]["total"] == 14 and queue["segments"]["segments"] > 1, queue
    before = [listed(broker)] + [broker.call("GET", f"{QUEUES}/{q}") for q in "qr"]
    assert (broker.kill() if case == "kill" else broker.sigterm()) == (-9 if case == "kill" else 0)
    broker.start()
    after = [listed(broker)] + [broker.call("GET", f"{QUEUES}/{q}") for q in "qr"]
    assert before == after, (before, after)


def test_one_queue_in_detail(env):
    broker = env.broker().start()
    first = push(broker, "a.b", "z", 1, 22)
    push(broker, "a.b", "a", 333)
    push(broker, "a.b", "z", 1, 22, 4444)
    row = next(row for row in listed(broker)["queues"] if row["name"] == "a.b")
    detail = broker.call("GET", f"{QUEUES}/a.b")
    partitions = detail.pop("partitions")
    assert detail == {
        **{k: row[k] for k in ("id", "name", "namespace", "task", "createdAt", "options", "segments", "retainedBytes")},
        "totals": counts(4, failed=None),
    }, detail
    assert [p["name"] for p in partitions] == ["a", "z"]
    changed = broker.call("POST", "/api/v1/partitions/changed", {"entries": [{"queue": "a.b"}]})["entries"][0]
    seen = {p["name"]: p for p in changed["partitions"]}
    stamps = {p: [r["ts"] for r in broker.fetch("a.b", p)["records"]] for p in "az"}
    sizes = {"a": run_bytes("a", 333), "z": run_bytes("z", 1, 22) + RUN + 1 + RECORD + len("z-2-4444") + 4}
    for p in partitions:
        name, n = p["name"], len(stamps[p["name"]])
        assert p == {
            "id": seen[name]["id"], "name": name, "createdAt": p["createdAt"], "messages": counts(n, failed=None),
            "stats": counts(n, failed=None), "cursor": {"totalConsumed": 0, "batchesConsumed": 0},
            "lastActivity": seen[name]["lastWriteAt"], "oldestMessage": stamps[name][0],
            "newestMessage": stamps[name][-1], "retainedBytes": sizes[name],
        }, p
        assert US.fullmatch(p["createdAt"])
    assert sum(sizes.values()) == detail["retainedBytes"]
    assert broker.call("GET", f"{QUEUES}/a.b/sizes") == {"queue": "a.b", "partitions": sizes}
    depth = broker.call("GET", f"{QUEUES}/a.b/depth")
    lanes = [{"partition": p, "pending": n, "processing": 0, "ready": n} for p, n in (("a", 1), ("z", 3))]
    assert depth == {
        "queue": "a.b", "group": None, "pending": 4, "processing": 0, "ready": 4, "partitionsPending": 2,
        "partitionsReady": 2, "conflation": False, "effectivePending": 4, "effectiveReady": 4, "partitions": lanes,
    }, depth
    assert broker.call("GET", f"{QUEUES}/a.b/depth?group=work+%2B") == {**depth, "group": "work +"}
    assert first[0]["offset"] == 0
    for path in ("nope", "nope/depth", "nope/sizes", "%FF", "x" * 5000, "a.b/", "a.b/what"):
        answer = broker.request("GET", f"{QUEUES}/{path}")
        assert (answer.status, answer.json) == (404, {"error": "Queue not found"}), (path, answer)


def test_names_in_paths(env):
    """Split on '/' first, each part decoded once; a name is all that is left, unless a known sub-route ends it."""
    broker = env.broker().start()
    names = ["a b/c d", "a/b c", "depth", "x/depth", "x/depth/sizes", "x", "%41", "a+b", "ünï 🐝", "..", "q?&#="]
    names += ["a//b", "/"]
    for name in names:
        push(broker, name, "p", name)
    for name in names:
        raw = urllib.parse.quote(name, safe="/" if not name.endswith(("/depth", "/sizes", "/")) else "")
        for path in {raw, urllib.parse.quote(name, safe="")}:
            assert broker.call("GET", f"{QUEUES}/{path}")["name"] == name, path
            assert list(broker.call("GET", f"{QUEUES}/{path}/sizes")["partitions"]) == ["p"]
            assert broker.call("GET", f"{QUEUES}/{path}/depth")["queue"] == name
    assert broker.call("GET", f"{QUEUES}/x/depth")["queue"] == "x"
    assert broker.call("GET", f"{QUEUES}/x/depth/sizes")["queue"] == "x/depth"
    assert broker.request("GET", f"{QUEUES}/%4").status == 404, "an invalid escape is kept literally"
    for name in names:
        path = urllib.parse.quote(name, safe="/")
        assert broker.call("DELETE", f"{QUEUES}/{path}") == {"deleted": True, "existed": True, "queue": name}
    assert listed(broker)["queues"] == []


def test_partitions_of_all_queues(env):
    broker = env.broker().start()
    for queue, n in (("old", 3), ("new", 5)):
        for m in range(n):
            push(broker, queue, f"p{m}", *range(m + 1))
    path = "/api/v1/resources/partitions"
    answer = broker.call("GET", path)
    assert (answer["walked"], answer["truncated"], len(answer["partitions"])) == (8, False, 8)
    ids = {p["id"] for p in broker.call("GET", f"{QUEUES}/new")["partitions"]}
    for n, row in enumerate(answer["partitions"][:5]):
        assert row.pop("id") in ids
        assert row == {"queue": "new", "partition": f"p{n}", "pending": n + 1, "processing": 0, "lagSeconds": None}
    for query, walked, truncated in (
        ("?limit=6", 6, True), ("?limit=8", 8, False), ("?queue=old", 3, False), ("?queue=old&limit=2", 2, True),
        ("?queue=nope", 0, False), ("?queue=", 8, False), ("?limit=0", 1, True), ("?limit=-5", 1, True),
        ("?limit=99999", 8, False), ("?limit=5&limit=3", 3, True),
    ):
        answer = broker.call("GET", path + query)
        got = (answer["walked"], answer["truncated"], len(answer["partitions"]))
        assert got == (walked, truncated, walked), (query, got)


def test_the_overview_and_the_labels(env):
    broker = env.broker().start()
    empty = broker.call("GET", "/api/v1/resources/overview")
    assert MS.fullmatch(empty.pop("timestamp")), empty
    assert empty == {
        "queues": 0, "partitions": 0, "namespaces": 0, "tasks": 0, "messages": counts(0, failed=0),
        "lag": {"time": NOTHING, "offset": NOTHING}, "statsAge": 0,
    }, empty
    for queue, n in (("billing.eu", 2), ("billing.us", 1), ("orders", 3), ("ship.eu", 1)):
        push(broker, queue, "p", *range(n))
        push(broker, queue, "q", 1)
    broker.call("POST", "/api/v1/configure", {"queue": "bare"})
    overview = broker.call("GET", "/api/v1/resources/overview")
    assert [overview[k] for k in ("queues", "partitions", "namespaces", "tasks")] == [5, 8, 3, 2], overview
    assert overview["messages"] == counts(11, failed=0)
    assert broker.call("GET", "/api/v1/resources/namespaces") == {
        "namespaces": [
            {"namespace": name, "queues": q, "partitions": 2 * q, "messages": {"total": n, "pending": n}}
            for name, q, n in (("billing", 2, 5), ("orders", 1, 4), ("ship", 1, 2))
        ]
    }
    assert broker.call("GET", "/api/v1/resources/tasks") == {
        "tasks": [
            {"task": name, "queues": q, "partitions": 2 * q, "messages": {"total": n, "pending": n}}
            for name, q, n in (("eu", 2, 5), ("us", 1, 2))
        ]
    }
    broker.call("POST", "/api/v1/configure", {"queue": "orders", "options": {"namespace": ""}})
    assert broker.call("GET", "/api/v1/resources/overview")["namespaces"] == 2
    assert broker.call("POST", "/api/v1/stats/refresh") == {"success": True, "refreshed": False, "engine": "raft"}


@mark(timeout=120)
def test_a_queue_of_very_many_partitions_is_cut_and_counted_whole(env):
    broker = env.broker().start()
    n, step = 12000, 3000
    for at in range(0, n, step):
        broker.push([{"queue": "q", "partition": f"p{m:05}", "payload": m} for m in range(at + step - 1, at - 1, -1)])
    detail = broker.call("GET", f"{QUEUES}/q")
    names = [p["name"] for p in detail["partitions"]]
    assert detail["partitionsTruncated"] is True and len(names) == 10000 and names == sorted(names)
    assert detail["totals"]["total"] == detail["segments"]["messages"] == n
    sizes = broker.call("GET", f"{QUEUES}/q/sizes")
    assert sizes["partitionsTruncated"] is True and list(sizes["partitions"]) == names
    depth = broker.call("GET", f"{QUEUES}/q/depth")
    assert (depth["pending"], depth["partitionsReady"], depth["partitionsTruncated"]) == (n, n, True)
    assert [p["partition"] for p in depth["partitions"]] == names
    assert listed(broker)["queues"][0]["partitions"] == n


@mark(timeout=120)
def test_lists_while_queues_come_and_go(env):
    """Every answer is whole: each queue at most once, each row with its figures, whatever is deleted meanwhile."""
    broker = env.broker().start()
    for n in range(600):
        push(broker, f"q{n}", "p", n)
    stop, errors, deletions = threading.Event(), [], []

    def churn(n):
        try:
            with broker.session() as call:
                while not stop.is_set():
                    deletions.append(n)
                    assert call("DELETE", f"{QUEUES}/q{n}").status == 200
                    item = {"queue": f"q{n}", "partition": "p", "payload": 1}
                    assert call("POST", "/api/v1/push", {"items": [item]}).status == 201
                    n = (n + 7) % 600
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=churn, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    try:
        for _ in range(20):
            before = len(deletions)
            rows = listed(broker)["queues"]
            missing = 600 - len(rows)  # what was being made again then, and what was deleted meanwhile
            assert len({row["name"] for row in rows}) == len(rows)
            assert 0 <= missing <= 3 + len(deletions) - before, missing
            assert all(row["messages"]["total"] == 1 and row["retainedBytes"] > 0 for row in rows)
            detail = broker.request("GET", f"{QUEUES}/q3")
            assert detail.status == 404 or len(detail.json["partitions"]) == 1, detail
            before = len(deletions)
            missing = 600 - broker.call("GET", "/api/v1/resources/overview")["queues"]
            assert 0 <= missing <= 3 + len(deletions) - before, missing
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not errors, errors


# --- deletion ---


def log_files(broker):
    root = broker.dir / "data" / "qlog"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_the_files_of_a_deleted_queue_go(env):
    broker = env.broker(QUEEN_RAFT_SEGMENT_BYTES=65536, QUEEN_RAFT_DURABLE_EVERY_MS=100).start()
    push_one(broker, "stays")
    kept = log_files(broker)
    for _ in range(10):
        push_one(broker, "goes", payload="x" * 20000)
    before = broker.call("GET", f"{QUEUES}/goes")
    assert len(log_files(broker)) - len(kept) == before["segments"]["segments"] > 2
    assert broker.call("DELETE", f"{QUEUES}/goes")["deleted"] is True
    wait_until(lambda: log_files(broker) == kept, what="the files are gone")
    wait_until(lambda: len(list((broker.dir / "data" / "qlog").iterdir())) == 1, what="the folder goes too")
    assert push_one(broker, "goes")["offset"] == 0
    after = broker.call("GET", f"{QUEUES}/goes")
    assert after["id"] != before["id"] and after["partitions"][0]["id"] != before["partitions"][0]["id"]
    assert after["totals"]["total"] == 1 and after["segments"] == {"segments": 1, "messages": 1}


@cases("at once", "after a checkpoint")
def test_a_deletion_and_a_kill(env, case):
    """The files may go before or after the crash; the queue is gone, its successor is there, nothing is left over."""
    broker = env.broker(QUEEN_RAFT_SEGMENT_BYTES=65536, QUEEN_RAFT_DURABLE_EVERY_MS=100).start()
    push_one(broker, "stays")
    kept = log_files(broker)
    ids = set()
    for n in range(4):
        for _ in range(6):
            push_one(broker, "q", payload="x" * 20000, transactionId=None)
        ids.add(broker.call("GET", f"{QUEUES}/q")["partitions"][0]["id"])
        if case == "after a checkpoint":
            held = len(log_files(broker))
            assert broker.call("DELETE", f"{QUEUES}/q")["deleted"] is True
            wait_until(lambda: len(log_files(broker)) < held or log_files(broker) == kept, what="the files are gone")
        else:
            assert broker.call("DELETE", f"{QUEUES}/q")["deleted"] is True
        if n % 2:
            assert push_one(broker, "q", payload="new")["offset"] == 0
        broker.kill()
        broker.start()
        if n % 2:
            detail = broker.call("GET", f"{QUEUES}/q")
            assert detail["totals"]["total"] == 1 and detail["partitions"][0]["id"] not in ids
            assert [r["payload"] for r in broker.fetch("q", "p")["records"]] == ["new"]
            assert broker.call("DELETE", f"{QUEUES}/q")["deleted"] is True
        assert broker.request("GET", f"{QUEUES}/q").status == 404
        wait_until(lambda: log_files(broker) == kept, what="nothing is left over")
    assert len(ids) == 4


@mark(timeout=90, store="file")
def test_a_window_that_is_being_written_keeps_the_files_of_a_deleted_queue(env):
    """The bucket refuses: the intent is there, the window is not. The queue is deleted; its files stay, over a kill -9
    too, until the bucket takes the window. The successor begins at once."""
    broker = env.broker(env.lake("orders"), QUEEN_RAFT_DURABLE_EVERY_MS=100).start()
    push_one(broker, "orders", payload="first", transactionId="a")
    broker.wait_log(r"window committed queue=orders")
    root = env.bucket
    blocked = root.with_name(root.name + ".away")
    root.rename(blocked)  # a missing bucket
    root.write_text("in its place")
    push_one(broker, "orders", payload="second", transactionId="b")
    intent = {"op": "get", "ns": "queen-s3", "key": "s3:default:orders:intent"}
    wait_until(lambda: broker.kv(intent)[0].get("value", {}).get("k", 0) == 2, what="the intent of the second window")
    files = log_files(broker)
    assert len(files) == 1
    assert broker.call("DELETE", f"{QUEUES}/orders")["deleted"] is True
    push_one(broker, "orders", payload="new", transactionId="a")
    assert broker.fetch("orders", "p")["highWatermark"] == 1
    broker.kill()
    broker.start()
    assert broker.fetch("orders", "p")["highWatermark"] == 1
    assert set(files) < set(log_files(broker)), "the pin keeps the file"
    root.unlink()
    shutil.move(blocked, root)
    wait_until(lambda: b"second" in b"".join(env.object_text(k) for k in env.objects() if ".jsonl" in k), 60,
               what="the window of the deleted queue")
    wait_until(lambda: not set(files) & set(log_files(broker)), 30, what="the file goes when its window is committed")
    assert [r["payload"] for r in broker.fetch("orders", "p")["records"]] == ["new"]
