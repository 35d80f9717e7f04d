"""Positional reads: POST /api/v1/fetch and /api/v1/partitions/changed, spec/broker-api.md 4, 5 and 17."""

import re
import threading
import time
import uuid

import traffic
from harness import mark
from traffic import push_one

TS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


# --- fetch ---


def test_fetch_answers_each_case_of_the_table(env):
    broker = env.broker().start()
    broker.push([{"queue": "q", "partition": "p", "payload": n} for n in range(5)])
    entries = [
        {"queue": "nope", "partition": "p", "offset": 0},
        {"queue": "q", "partition": "nope", "offset": 0},
        {"queue": "q", "partition": "nope", "offset": 3},
        {"queue": "q", "partition": "p", "offset": 6},
        {"queue": "q", "partition": "p", "offset": 5},
        {"queue": "q", "partition": "p", "offset": 2},
        {"queue": "q", "partition": "p", "offset": 0, "maxBytes": 0},
    ]
    answer = broker.call("POST", "/api/v1/fetch", {"entries": entries})["entries"]
    assert [(e["queue"], e["partition"]) for e in answer] == [(e["queue"], e["partition"]) for e in entries]
    shape = [(e.get("error"), len(e["records"]), e["highWatermark"], e["logStartOffset"]) for e in answer]
    unknown, beyond = "UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_OUT_OF_RANGE"
    assert shape[0] == (unknown, 0, 0, 0) and shape[1] == (None, 0, 0, 0), shape
    assert shape[3:] == [(beyond, 0, 5, 0), (None, 0, 5, 0), (None, 3, 5, 0), (None, 1, 5, 0)], shape
    record = answer[5]["records"][0]
    assert (
        set(record) == {"offset", "transactionId", "payload", "ts"}
        and record["offset"] == 2
        and TS.fullmatch(record["ts"])
    )
    assert broker.call("POST", "/api/v1/fetch", {"entries": []}) == {"entries": []}
    push_one(broker, "q", "7", "seven")
    number = broker.call("POST", "/api/v1/fetch", {"entries": [{"queue": "q", "partition": 7, "offset": 0}]})[
        "entries"
    ][0]
    assert [r["payload"] for r in number["records"]] == ["seven"], "a partition may be a number"
    push_one(broker, "q", "Default", "d")
    default = broker.call("POST", "/api/v1/fetch", {"entries": [{"queue": "q", "offset": 0}]})["entries"][0]
    assert [r["payload"] for r in default["records"]] == ["d"]


def test_fetch_refuses_what_it_cannot_mean(env):
    broker = env.broker().start()
    push_one(broker)
    entry = {"queue": "q", "partition": "p", "offset": 0}
    assert broker.call("POST", "/api/v1/fetch", {"entries": [entry] * 1025}, 400) == {"error": "too many entries"}
    assert broker.call("POST", "/api/v1/fetch", {"entries": [{**entry, "offset": -1}]}, 400) == {
        "error": "offset must be non-negative"
    }
    for body in (
        {},
        [],
        {"entries": 1},
        {"entries": [1]},
        {"entries": [{"queue": "q", "partition": "p"}]},
        {"entries": [{"offset": 0}]},
        {"entries": [{**entry, "offset": "0"}]},
        {"entries": [{**entry, "offset": 0.5}]},
        {"entries": [{**entry, "queue": None}]},
        {"entries": [{**entry, "partition": True}]},
        "{",
    ):
        answer = broker.request("POST", "/api/v1/fetch", body)
        assert answer.status == 400 and answer.json.get("code") == "bad_body", (body, answer)
    assert len(broker.call("POST", "/api/v1/fetch", {"entries": [entry] * 1024})["entries"]) == 1024


def test_fetch_stops_before_the_byte_limit_but_gives_one_record(env):
    broker = env.broker().start()
    big = '"' + "x" * (2 * 1048576 - 2) + '"'
    broker.push(
        '{"items":['
        + ",".join(f'{{"queue":"q","partition":"p","payload":{p}}}' for p in (big, "1", '"abc"', "null"))
        + "]}"
    )
    assert [r["offset"] for r in broker.fetch("q", "p", 0, max_bytes=1)["records"]] == [0], "2 MiB with maxBytes 1"
    assert [r["offset"] for r in broker.fetch("q", "p", 1, max_bytes=1)["records"]] == [1]
    assert [r["offset"] for r in broker.fetch("q", "p", 1, max_bytes=5)["records"]] == [1], "1 + 5 would be six"
    assert [r["offset"] for r in broker.fetch("q", "p", 1, max_bytes=6)["records"]] == [1, 2]
    assert len(broker.fetch("q", "p", 0, max_bytes=10**9)["records"]) == 4, "clamped to 8 MiB"
    entry = {"queue": "q", "partition": "p", "offset": 0}
    default = broker.call("POST", "/api/v1/fetch", {"entries": [entry]})["entries"][0]
    assert len(default["records"]) == 1, "1 MiB when nothing is said"
    two = broker.call("POST", "/api/v1/fetch", {"entries": [entry, {**entry, "offset": 1}], "maxBytes": 1024})[
        "entries"
    ]
    assert [len(e["records"]) for e in two] == [1, 0] and two[1]["highWatermark"] == 4, "the call's own limit"


def test_fetch_gives_at_most_10000_records_an_entry(env):
    broker = env.broker().start()
    broker.push('{"items":[' + ",".join('{"queue":"q","partition":"p","payload":1}' for _ in range(10500)) + "]}")
    records = broker.fetch("q", "p")["records"]
    assert [r["offset"] for r in records] == list(range(10000))
    assert len(broker.fetch("q", "p", 10000)["records"]) == 500


@mark(timeout=60)
def test_a_waiting_fetch_is_woken_by_a_push(env):
    broker = env.broker().start()
    push_one(broker)
    got = {}

    def wait(name, **body):
        began = time.monotonic()
        entries = body.pop("entries", [{"queue": "q", "partition": "p", "offset": 1}])
        answer = broker.call("POST", "/api/v1/fetch", {"entries": entries, **body})
        got[name] = (time.monotonic() - began, answer["entries"])

    def start(name, **body):
        thread = threading.Thread(target=wait, args=(name,), kwargs=body)
        thread.start()
        return thread

    waiting = [
        start("one", maxWaitMs=20000),
        start(
            "many",
            maxWaitMs=20000,
            entries=[{"queue": "q", "partition": p, "offset": o} for p, o in (("x", 0), ("y", 0), ("p", 1))],
        ),
        start("bytes", maxWaitMs=3000, minBytes=1000),
    ]
    time.sleep(1.3)
    assert not got, got
    began = time.monotonic()
    push_one(broker, payload="woken")
    for thread in waiting[:2]:
        thread.join(10)
    assert time.monotonic() - began < 0.8, "woken, not found at the next look of once a second"
    assert got["one"][1][0]["records"][0]["payload"] == "woken"
    assert [len(e["records"]) for e in got["many"][1]] == [0, 0, 1]
    waiting[2].join(10)
    assert 2.5 < got["bytes"][0] < 6 and len(got["bytes"][1][0]["records"]) == 1, "held until its time is over"
    wait("zero", maxWaitMs=20000, minBytes=0, entries=[{"queue": "q", "partition": "p", "offset": 2}])
    wait("error", maxWaitMs=20000, entries=[{"queue": "nope", "partition": "p", "offset": 0}])
    assert got["zero"][0] < 2 and got["error"][0] < 2, got
    thread = start("last", maxWaitMs=30000, entries=[{"queue": "q", "partition": "p", "offset": 2}])
    time.sleep(0.5)
    began = time.monotonic()
    assert broker.sigterm() == 0
    assert time.monotonic() - began < 10, "a waiting fetch is answered when the broker stops"
    thread.join(10)
    assert "last" in got


# --- partitions/changed ---


def changed(broker, status=200, **entry):
    return broker.call("POST", "/api/v1/partitions/changed", {"entries": [entry]}, status)


@mark(timeout=60)
def test_changed_pages_over_2500_partitions(env):
    broker = env.broker().start()
    names = [f"p-{n}" for n in range(2500)]
    for n in range(0, 2500, 500):
        broker.push([{"queue": "q", "partition": p, "payload": 1} for p in names[n : n + 500]])
    rows, after, pages = [], None, 0
    while True:
        answer = changed(broker, queue="q", after=after)
        assert answer["safeTimeDegraded"] is False and TS.fullmatch(answer["safeTime"])
        entry = answer["entries"][0]
        rows += entry["partitions"]
        pages += 1
        assert (entry["next"] is not None) == (len(entry["partitions"]) == 1000)
        after = entry["next"]
        if after is None:
            break
        if pages == 1:
            push_one(broker, "q", "created-meanwhile")
    assert pages == 3 and [r["name"] for r in rows] == names + ["created-meanwhile"], "creation order, none twice"
    assert len({r["id"] for r in rows}) == 2501 and all(uuid.UUID(r["id"]) for r in rows)
    assert all((r["lastOffset"], r["logStart"]) == (0, 0) and r["lastWriteAt"] <= answer["safeTime"] for r in rows)
    since = rows[2499]["lastWriteAt"]
    later = changed(broker, queue="q", since=since)["entries"][0]["partitions"]
    assert [r["name"] for r in later] == names[2000:] + ["created-meanwhile"], "inclusive"
    push_one(broker, "q", "p-7")
    assert [r["name"] for r in changed(broker, queue="q", since=since)["entries"][0]["partitions"]][0] == "p-7"
    page = changed(broker, queue="q", limit=501)["entries"][0]
    assert len(page["partitions"]) == 501
    full = changed(broker, queue="q", after=page["next"], limit=10**6)["entries"][0]
    assert len(full["partitions"]) == 1000 and full["partitions"][0]["name"] == "p-501"
    assert len(changed(broker, queue="q", limit=0)["entries"][0]["partitions"]) == 1
    last = changed(
        broker, queue="q", limit=1000, after=changed(broker, queue="q", after=full["next"])["entries"][0]["next"]
    )
    assert last["entries"][0]["next"] is None


def test_changed_refuses_what_it_cannot_mean(env):
    broker = env.broker().start()
    push_one(broker)
    push_one(broker, "r")
    cursor = changed(broker, queue="r", limit=1)["entries"][0]["next"]
    assert cursor is not None
    for bad in (1, "nonsense", cursor + "x", cursor[:-1], {}, "ü", "\0"):
        entry = changed(broker, queue="q", after=bad)["entries"][0]
        assert entry == {"queue": "q", "error": "BAD_CURSOR"}, (bad, entry)
    assert changed(broker, queue="q", after=cursor)["entries"][0]["error"] == "BAD_CURSOR", "another queue's"
    assert changed(broker, queue="nope", after=1)["entries"][0] == {
        "queue": "nope",
        "error": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert len(changed(broker, queue="q", after="")["entries"][0]["partitions"]) == 1
    error = broker.call(
        "POST", "/api/v1/partitions/changed", {"entries": [{"queue": "q"}, {"queue": "q", "since": "soon"}]}, 400
    )["error"]
    assert error == 'bad body: entry 1: since is not a timestamp: "soon"', error
    assert broker.call("POST", "/api/v1/partitions/changed", {"entries": [{"queue": "q"}] * 1025}, 400) == {
        "error": "too many entries"
    }
    for body in ({}, [], {"entries": [{}]}, {"entries": [{"queue": 1}]}, "{"):
        answer = broker.request("POST", "/api/v1/partitions/changed", body)
        assert answer.status == 400 and answer.json.get("code") == "bad_body", (body, answer)
    for since in (
        "2020-01-01",
        "2020-01-01T00:00",
        "2020-01-01T00:00:00Z",
        "2020-01-01T00:00:00.5+02:00",
        "2020-01-01T00:00:00.123456Z",
    ):
        assert len(changed(broker, queue="q", since=since)["entries"][0]["partitions"]) == 1, since
    assert changed(broker, queue="q", since="2999-01-01")["entries"][0]["partitions"] == []


def test_the_clock_of_a_new_broker(env):
    broker = env.broker().start()
    first = traffic.safe_time(broker)
    time.sleep(0.3)
    assert traffic.safe_time(broker) == first, "it moves when an entry applies, not by itself"
    push_one(broker)
    second = traffic.safe_time(broker)
    assert second > first and broker.fetch("q", "p")["records"][0]["ts"] <= second
    broker.kv({"op": "put", "ns": "n", "key": "k", "value": 1, "forever": True})
    third = traffic.safe_time(broker)
    assert third > second, "a KV write counts"
    broker.kill()
    broker.start()
    assert traffic.safe_time(broker) >= third, "and it never goes back"


@mark(timeout=60)
def test_nothing_at_or_below_the_clock_comes_later(env):
    """While pushes run: read the clock, then everything; a record stamped at or below the clock that shows up in
    a later read was not readable when the clock promised it."""
    broker = env.broker().start()
    ledger = traffic.Ledger(env.dir / "ledger")
    batches = traffic.Batches(env.random, ["q"], [f"p{n}" for n in range(8)], hostile=False, largest=20)
    pushers = [traffic.Pusher(broker, ledger, batches.next, f"pusher{n}") for n in range(3)]
    for p in pushers:
        p.start()
    names = [("q", f"p{n}") for n in range(8)]
    seen, promised, looks = {name: 0 for name in names}, "", 0
    end = time.monotonic() + 6
    while time.monotonic() < end:
        answer = broker.call("POST", "/api/v1/partitions/changed", {"entries": [{"queue": "q"}]})
        clock = answer["safeTime"]
        assert clock >= promised
        entries = [{"queue": q, "partition": p, "offset": seen[(q, p)], "maxBytes": 8388608} for q, p in names]
        for name, (fields, records) in zip(names, traffic.fetch_texts(broker, entries)):
            assert all(r[2] > promised for r in records), (name, promised, records[0])
            if records:
                seen[name] = records[-1][0] + 1
            if seen[name] < fields.get("highWatermark", 0):
                clock = min(clock, records[-1][2])  # not read to the end: promises less
        promised = clock
        looks += 1
    for p in pushers:
        p.stop()
    for p in pushers:
        p.finish()
    assert looks > 10 and sum(seen.values()) > 100
    traffic.check_read_back(broker, ledger)
