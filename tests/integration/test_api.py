"""The HTTP API as spec/broker-api.md 1, 2 and 17 say: push, dedup, deletion, and what is answered to input that is not
a request. Reads are in test_fetch.py, options in test_configure.py, every route's refusals in test_refusals.py."""

import json
import re
import socket
import threading
import time
import uuid

import traffic
from harness import Answer, cases, mark, wait_until
from traffic import push_one

TS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def raw(broker, data, timeout=20, half_close=False):
    """Sends bytes as they are; everything that comes back until the broker closes or `timeout` passes."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=timeout) as s:
        try:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass
        got = b""
        try:
            while chunk := s.recv(65536):
                got += chunk
                if parse(got) is not None and not half_close:
                    break
        except (socket.timeout, ConnectionResetError):
            pass
        return got


def parse(got):
    """The first whole answer with a length, or None."""
    head, mark_, body = got.partition(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)
    if not mark_ or length is None or len(body) < int(length[1]):
        return None
    return Answer(int(head.split()[1]), {}, body[: int(length[1])])


def request_bytes(body, path="/api/v1/push", extra=""):
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{extra}\r\n".encode() + body


def chunked(body, size, path="/api/v1/push"):
    pieces = [body[n : n + size] for n in range(0, len(body), size)] + [b""]
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


# --- push ---


def test_the_guides_demo(env):
    broker = env.broker().start()
    body = """{"items":[
      {"queue":"orders","partition":"cust-1","payload":{"order":1,"status":"new","total":42.00}},
      {"queue":"orders","partition":"cust-2","payload":{"order":2,"status":"new","total":17.50}},
      {"queue":"orders","partition":"cust-1","payload":{"order":1,"status":"paid","total":42.00}}
    ]}"""
    answer = broker.push(body)
    assert [list(a) for a in answer] == [
        ["index", "message_id", "transaction_id", "queueName", "status", "offset"]
    ] * 3, answer
    assert [(a["index"], a["status"], a["offset"]) for a in answer] == [
        (0, "queued", 0),
        (1, "queued", 0),
        (2, "queued", 1),
    ]
    ids = [uuid.UUID(a["message_id"]) for a in answer]
    assert all(i.version == 7 and i.variant == uuid.RFC_4122 for i in ids) and ids == sorted(ids), ids
    assert all(a["transaction_id"] == a["message_id"] and a["queueName"] == "orders" for a in answer)
    (first, one_records), (second, two_records) = traffic.fetch_texts(
        broker, [{"queue": "orders", "partition": p, "offset": 0} for p in ("cust-1", "cust-2")]
    )
    assert (first["highWatermark"], first["logStartOffset"], second["highWatermark"]) == (2, 0, 1)
    assert [r[3] for r in one_records] == [
        '{"order":1,"status":"new","total":42.00}',
        '{"order":1,"status":"paid","total":42.00}',
    ]
    assert [r[1] for r in one_records + two_records] == [answer[n]["transaction_id"] for n in (0, 2, 1)]
    stamps = {r[2] for r in one_records + two_records}
    assert len(stamps) == 1 and TS.fullmatch(stamps.pop())


def test_payloads_come_back_byte_by_byte_also_after_a_crash(env):
    broker = env.broker().start()
    ledger = traffic.Ledger(env.dir / "ledger")
    batches = traffic.Batches(env.random, ["q"], ["p"])
    payloads = traffic.HOSTILE + [traffic.LONG_STRING, " \r\n\t[1, 2]\t ", '\n"x"\n']
    traffic.push_all(broker, ledger, [[batches.item(payload=p)] for p in payloads])
    traffic.check_read_back(broker, ledger)
    broker.kill()
    broker.start()
    traffic.check_read_back(broker, ledger)


def test_one_push_has_one_stamp_over_all_its_partitions_and_each_its_own_gapless_offsets(env):
    broker = env.broker().start()
    names = [f"p{n}" for n in range(300)]
    for _ in range(2):
        answer = broker.push([{"queue": "q", "partition": names[n % 300], "payload": n} for n in range(900)])
    assert [a["offset"] for a in answer] == [3 + n // 300 for n in range(900)]
    found = traffic.read_back(broker, [("q", name) for name in names])
    stamps = [sorted({r[2] for records in found.values() for r in records[n : n + 3]}) for n in (0, 3)]
    assert [len(s) for s in stamps] == [1, 1] and stamps[0] < stamps[1]


def test_an_absent_null_or_empty_partition_is_the_default_one(env):
    broker = env.broker().start()
    answer = broker.push(
        '{"items":[{"queue":"q","payload":0},{"queue":"q","partition":null,"payload":1},'
        '{"queue":"q","partition":"","payload":2},{"queue":"q","partition":"Default","payload":3}]}'
    )
    assert [a["offset"] for a in answer] == [0, 1, 2, 3]
    assert [r["payload"] for r in broker.fetch("q", "Default")["records"]] == [0, 1, 2, 3]


BAD_PUSHES = {
    "not JSON": ("{items", None),
    "empty body": ("", None),
    "two documents": ('{"items":[]} {}', None),
    "a trailing comma": ('{"items":[{"queue":"q","payload":1},]}', None),
    "no items": ("{}", None),
    "items is an object": ('{"items":{}}', None),
    "an item is a number": ('{"items":[1]}', "item 0"),
    "an array": ("[]", None),
    "no queue": ('{"items":[{"payload":1}]}', "queue"),
    "queue is a number": ('{"items":[{"queue":1,"payload":1}]}', "queue"),
    "queue is null": ('{"items":[{"queue":null,"payload":1}]}', "queue"),
    "queue is empty": ('{"items":[{"queue":"","payload":1}]}', "queue"),
    "no payload": ('{"items":[{"queue":"q"}]}', "payload"),
    "data instead of payload": ('{"items":[{"queue":"q","data":1}]}', "payload"),
    "partition is a number": ('{"items":[{"queue":"q","partition":1,"payload":1}]}', "partition"),
    "transactionId is a number": ('{"items":[{"queue":"q","transactionId":1,"payload":1}]}', "transactionId"),
    "transactionId too long": ('{"items":[{"queue":"q","transactionId":"' + "x" * 65536 + '","payload":1}]}', "item 0"),
    "lone surrogate in a queue": ('{"items":[{"queue":"\\ud800","payload":1}]}', "item 0"),
    "lone surrogate in a partition": (
        '{"items":[{"queue":"q","payload":1},{"queue":"q","partition":"\\udc00","payload":1}]}',
        "item 1",
    ),
    "lone surrogate in a transactionId": (
        '{"items":[{"queue":"q","transactionId":"a\\ud800b","payload":1}]}',
        "item 0",
    ),
    "invalid UTF-8 in a payload": (b'{"items":[{"queue":"q","payload":"\xff"}]}', None),
    "overlong UTF-8 in a payload": (b'{"items":[{"queue":"q","payload":"\xc0\x80"}]}', None),
    "a surrogate in UTF-8": (b'{"items":[{"queue":"q","payload":"\xed\xa0\x80"}]}', None),
    "invalid UTF-8 in a queue": (b'{"items":[{"queue":"\xff","payload":1}]}', None),
    "a raw control character": (b'{"items":[{"queue":"q","payload":"\x01"}]}', None),
    "a NUL in a string": (b'{"items":[{"queue":"q","payload":"\x00"}]}', None),
    "a NUL behind the body": (b'{"items":[{"queue":"q","payload":1}]}\x00', None),
    "only NULs": (b"\x00" * 100, None),
    "a byte order mark": (b'\xef\xbb\xbf{"items":[{"queue":"q","payload":1}]}', None),
    "number with a leading zero": ('{"items":[{"queue":"q","payload":01}]}', None),
    "number with a plus": ('{"items":[{"queue":"q","payload":+1}]}', None),
    "NaN": ('{"items":[{"queue":"q","payload":NaN}]}', None),
    "single quotes": ("{'items':[]}", None),
    "501 deep": ('{"items":[{"queue":"q","payload":' + "[" * 501 + "]" * 501 + "}]}", "QUEEN_MAX_JSON_DEPTH"),
    "1,000,000 brackets": ("[" * 1000000, None),
    "1,000,000 brackets as a payload": (
        '{"items":[{"queue":"q","payload":' + "[" * 1000000 + "]" * 1000000 + "}]}",
        None,
    ),
    "1,000,000 objects as a payload": (
        '{"items":[{"queue":"q","payload":' + '{"":' * 250000 + "1" + "}" * 250000 + "}]}",
        None,
    ),
}


def test_a_bad_push_is_refused_in_words_and_stores_nothing(env):
    """Each body twice: alone, and behind a good item that must not be stored either."""
    broker = env.broker().start()
    wrong = []
    for name, (body, word) in BAD_PUSHES.items():
        answer = broker.request("POST", "/api/v1/push", body)
        good = answer.status == 400 and answer.json.get("code") == "bad_body"
        good = good and answer.json["error"].startswith("bad push body: ") and (word or "") in answer.json["error"]
        if not good:
            wrong.append((name, answer))
    body = '{"items":[{"queue":"q","payload":0},{"queue":"q","payload":' + "[" * 501 + "]" * 501 + "}]}"
    error = broker.push(body, status=400)["error"]
    assert "item 1" in error and "501" in error and "QUEEN_MAX_JSON_DEPTH" in error, error
    assert not wrong, wrong
    assert broker.fetch("q", "p")["error"] == "UNKNOWN_TOPIC_OR_PARTITION", "a refused push made the queue"
    assert push_one(broker, "q")["offset"] == 0
    assert broker.push('{"items":[]}') == []


def test_names_have_no_character_rules_but_a_length(env):
    broker = env.broker().start()
    for queue in [name for name in traffic.ODD_NAMES if name]:
        for partition in ("p", queue):
            assert push_one(broker, queue, partition)["offset"] == 0, (queue, partition)
            assert broker.fetch(queue, partition)["highWatermark"] == 1, (queue, partition)
    assert push_one(broker, "q" * 200, "p" * (447 - 36 - 200))["status"] == "queued"
    for queue, partition in (("q" * 200, "p" * (448 - 36 - 200)), ("ü" * 206, "p"), ("q", "p" * 70000)):
        answer = broker.request(
            "POST", "/api/v1/push", {"items": [{"queue": queue, "partition": partition, "payload": 1}]}
        )
        assert answer.status == 413 and answer.json["code"] == "name_too_long", answer
    # A NUL is a character like any other; whatever is answered, it is an answer.
    answer = broker.request("POST", "/api/v1/push", '{"items":[{"queue":"n","partition":"a\\u0000b","payload":1}]}')
    assert answer.status in (201, 400), answer
    if answer.status == 201:
        assert broker.fetch("n", "a\0b")["highWatermark"] == 1 and broker.fetch("n", "a")["highWatermark"] == 0


def test_sizes_that_are_refused(env):
    broker = env.broker(QUEEN_RAFT_ENTRY_MAX_BYTES=65536, QUEEN_MAX_BODY_BYTES=262144).start()
    assert push_one(broker, payload="x" * 50000)["offset"] == 0
    answer = broker.request(
        "POST", "/api/v1/push", {"items": [{"queue": "q", "partition": "p", "payload": "x" * 70000}]}
    )
    assert answer.status == 400 and answer.json["code"] == "too_large", answer
    answer = broker.request(
        "POST", "/api/v1/push", {"items": [{"queue": "q", "partition": "p", "payload": "x" * 262144}]}
    )
    assert answer.status == 413 and not answer.headers["content-type"].startswith("application/json"), answer
    body = b'{"items":[{"queue":"q","partition":"p","payload":"' + b"x" * 400000 + b'"}]}'
    answer = parse(raw(broker, chunked(body, 65536)))
    assert answer is None or answer.status == 413, answer  # or it closed before it had all of it
    assert push_one(broker)["offset"] == 1


# --- dedup ---


def test_a_duplicate_answers_with_the_first_id_and_offset(env):
    broker = env.broker().start()
    first = push_one(broker, transactionId="t", payload="first")
    for _ in range(3):
        again = push_one(broker, transactionId="t", payload="second")
        assert again == {**first, "status": "duplicate"}, (first, again)
    assert push_one(broker, partition="other", transactionId="t")["status"] == "queued", "dedup is per partition"
    assert push_one(broker, queue="other", transactionId="t")["status"] == "queued"
    empty = push_one(broker, transactionId="")
    assert empty["transaction_id"] == "" and push_one(broker, transactionId="")["status"] == "duplicate"
    minted = push_one(broker)
    again = push_one(broker, transactionId=minted["message_id"])
    assert (again["status"], again["offset"]) == ("duplicate", minted["offset"]), "minted ids count too"
    assert [r["payload"] for r in broker.fetch("q", "p")["records"]] == ["first", 1, 1]


def test_repeats_within_one_push(env):
    broker = env.broker().start()
    for window in (3600, 0):
        queue = f"w{window}"
        broker.call("POST", "/api/v1/configure", {"queue": queue, "options": {"dedupWindowSeconds": window}})
        items = [
            {"queue": queue, "partition": p, "transactionId": t, "payload": n}
            for n, (p, t) in enumerate([("a", "x"), ("a", "y"), ("a", "x"), ("b", "x"), ("a", "x")])
        ]
        answer = broker.push(items)
        assert [a["status"] for a in answer] == ["queued", "queued", "duplicate", "queued", "duplicate"]
        assert [a["offset"] for a in answer] == [0, 1, 0, 0, 0]
        assert answer[2]["message_id"] == answer[4]["message_id"] == answer[0]["message_id"]
        assert [r["payload"] for r in broker.fetch(queue, "a")["records"]] == [0, 1]
        again = broker.push(items)[0]
        assert again["status"] == ("duplicate" if window else "queued"), again


@mark(timeout=60)
def test_eight_concurrent_pushes_of_one_id_give_one_record(env):
    broker = env.broker().start()
    for round_ in range(20):
        answers, barrier = [], threading.Barrier(8)

        def push():
            with broker.session() as call:
                call("GET", "/health")
                barrier.wait()
                answers.append(
                    call(
                        "POST",
                        "/api/v1/push",
                        {"items": [{"queue": "q", "partition": "p", "transactionId": f"t{round_}", "payload": 1}]},
                    ).json[0]
                )

        threads = [threading.Thread(target=push) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert sorted(a["status"] for a in answers) == ["duplicate"] * 7 + ["queued"], answers
        assert len({(a["offset"], a["message_id"]) for a in answers}) == 1, answers
    assert broker.fetch("q", "p")["highWatermark"] == 20


@cases("kill", "sigterm")
def test_duplicates_are_known_after_a_restart(env, case):
    broker = env.broker(QUEEN_RAFT_DURABLE_EVERY_MS=100).start()
    ledger = traffic.Ledger(env.dir / "ledger")
    batches = traffic.Batches(env.random, ["q", "r"], ["a", "b", "c"])
    for wait in (0.3, 0):  # some of it in a checkpoint, some in the write-ahead log only
        traffic.push_all(broker, ledger, [batches.next() for _ in range(30)])
        time.sleep(wait)
    assert (broker.kill() if case == "kill" else broker.sigterm()) == (-9 if case == "kill" else 0)
    broker.start()
    traffic.check_duplicates(broker, ledger)
    traffic.check_read_back(broker, ledger)


def test_an_id_is_forgotten_after_its_window(env):
    broker = env.broker().start()
    broker.call("POST", "/api/v1/configure", {"queue": "q", "options": {"dedupWindowSeconds": 1}})
    first = push_one(broker, transactionId="t")
    assert push_one(broker, transactionId="t")["status"] == "duplicate"
    time.sleep(1.3)
    again = push_one(broker, transactionId="t")
    assert again["status"] == "queued" and again["offset"] == 1 and again["message_id"] != first["message_id"]


# --- deletion ---


def configure(broker, status=200, **body):
    return broker.call("POST", "/api/v1/configure", body, status)


@mark(timeout=60)
def test_a_deleted_queue_begins_anew(env):
    broker = env.broker().start()
    for queue in ("plain", "a b/c d", "%41", "ünï 🐝"):
        path = "/api/v1/resources/queues/" + "".join(
            f"%{b:02X}" if b > 127 or b in b" %" else chr(b) for b in queue.encode()
        )
        first = configure(broker, queue=queue)
        for n in range(3):
            push_one(broker, queue, transactionId=f"t{n}", payload="old")
        assert broker.call("DELETE", path) == {"deleted": True, "existed": True, "queue": queue}
        gone = broker.call("DELETE", path)
        assert gone.pop("message") and gone == {"deleted": False, "existed": False, "queue": queue}
        assert broker.fetch(queue, "p")["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
        again = push_one(broker, queue, transactionId="t1", payload="new")
        assert (again["status"], again["offset"]) == ("queued", 0), "ids and offsets of the old queue are gone"
        assert configure(broker, queue=queue)["queueId"] != first["queueId"]
        assert [r["payload"] for r in broker.fetch(queue, "p")["records"]] == ["new"]
    broker.kill()
    broker.start()
    assert [r["payload"] for r in broker.fetch("plain", "p")["records"]] == ["new"]


# --- what is not a request ---


def test_requests_that_are_none_are_answered_and_harm_nothing(env):
    broker = env.broker().start()
    good = json.dumps({"items": [{"queue": "q", "partition": "p", "payload": 1}]}).encode()
    both = parse(raw(broker, request_bytes(good, extra="Transfer-Encoding: chunked\r\n")))
    assert both is not None and both.status == 400, both
    twice = parse(raw(broker, request_bytes(good, extra="Content-Length: 3\r\n"), timeout=3))
    assert twice is None or twice.status >= 400, twice
    assert broker.fetch("q", "p")["error"] == "UNKNOWN_TOPIC_OR_PARTITION", "a smuggled push"
    large = parse(raw(broker, b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100000 + b"\r\n\r\n"))
    assert large is None or large.status in (400, 413, 431, 414), large
    for junk in (
        b"\x00" * 1000,
        b"\xff\xfe\r\n\r\n",
        b"GET\r\n\r\n",
        b"\r\n" * 100,
        b"GET /health HTTP/9.9\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + good[:20],
    ):
        got = raw(broker, junk, timeout=2, half_close=True)
        assert not got.startswith(b"HTTP/1.1 2"), (junk[:60], got[:100])
    assert broker.health().status == 200
    assert push_one(broker)["offset"] == 0


def test_chunked_bodies_and_expect_work(env):
    broker = env.broker().start()
    good = json.dumps({"items": [{"queue": "q", "partition": "p", "payload": 1}]}).encode()
    assert parse(raw(broker, chunked(good, 7))).status == 201
    head = (
        f"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: {len(good)}\r\nExpect: 100-continue\r\n\r\n".encode()
    )
    with socket.create_connection(("127.0.0.1", broker.port), timeout=10) as s:
        s.sendall(head)
        assert s.recv(1000).startswith(b"HTTP/1.1 100"), "the body may come"
        s.sendall(good)
        assert s.recv(1000).startswith(b"HTTP/1.1 201")
    with socket.create_connection(("127.0.0.1", broker.port), timeout=10) as s:  # two requests in one write
        s.sendall(request_bytes(good) * 2)
        got = b""
        while got.count(b"HTTP/1.1 201") < 2:
            chunk = s.recv(65536)
            assert chunk, got
            got += chunk
    assert broker.fetch("q", "p")["highWatermark"] == 4


def test_routes_that_are_none(env):
    broker = env.broker().start()
    for path in (
        "/api/v1/nothing",
        "/api/",
        "/api/v1/push/x",
        "/streams/v1/x",
        "/api/v1/../v1/push",
        "/api/v1/%00",
        "/api/v1/%C3%BC%FF",
    ):
        answer = broker.request("POST", path, {})
        assert (
            answer.status == 404 and answer.json["code"] == "no_such_route" and answer.json["error"] == "not found"
        ), (path, answer)
        assert "path" in answer.json
    for method, path in (
        ("GET", "/api/v1/push"),
        ("PUT", "/api/v1/fetch"),
        ("POST", "/health"),
        ("DELETE", "/status"),
        ("BREW", "/health"),
    ):
        assert broker.request(method, path).status in (404, 405, 501), (method, path)
    assert broker.request("HEAD", "/health").status == 200
    for path in ("/", "/favicon.ico", "/%2e%2e/etc/passwd", "/health/../status", "//", "/" + "x" * 5000):
        assert broker.request("GET", path).status in (400, 404, 414), path


@mark(timeout=60)
def test_a_full_disk_by_its_gate_is_507_and_reads_and_deletes_go_on(env):
    broker = env.broker().start()
    push_one(broker)
    assert broker.sigterm() == 0
    broker.start(QUEEN_RAFT_DISK_HIGH_PCT="1.1", QUEEN_RAFT_DISK_LOW_PCT="1")
    wait_until(
        lambda: broker.request(
            "POST", "/api/v1/push", {"items": [{"queue": "q", "partition": "p", "payload": 1}]}
        ).status
        == 507,
        10,
        what="the gate closes",
    )
    answer = broker.request("POST", "/api/v1/push", {"items": [{"queue": "q", "partition": "p", "payload": 1}]})
    assert answer.status == 507 and answer.json["code"] == "storage_full", answer
    answer = broker.request("POST", "/api/v1/kv", [{"op": "put", "ns": "n", "key": "k", "value": 1, "forever": True}])
    assert answer.status == 507, answer
    assert len(broker.fetch("q", "p")["records"]) >= 1
    assert broker.metrics()["queen_raft_storage_full"] == 1
    assert broker.call("DELETE", "/api/v1/resources/queues/q")["deleted"] is True
    assert broker.health().status == 200
    assert broker.sigterm() == 0
    broker.start(QUEEN_RAFT_DISK_HIGH_PCT="99.9", QUEEN_RAFT_DISK_LOW_PCT="99.8")
    assert push_one(broker)["offset"] == 0 and broker.metrics()["queen_raft_storage_full"] == 0


@mark(timeout=60)
def test_two_hundred_connections_at_once(env):
    broker = env.broker().start()
    with_records, errors = [], []

    def work(n):
        try:
            with broker.session() as call:
                for m in range(5):
                    items = [{"queue": "q", "partition": f"p{n % 10}", "transactionId": f"{n}-{m}", "payload": n}]
                    with_records.append(call("POST", "/api/v1/push", {"items": items}).json[0]["status"])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(200)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(40)
    assert not errors, errors[:3]
    assert with_records == ["queued"] * 1000
    total = sum(broker.fetch("q", f"p{n}")["highWatermark"] for n in range(10))
    assert total == 1000
