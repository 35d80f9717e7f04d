"""No input does harm: while clients misbehave, others are served, memory and descriptors stay bounded, and nothing
that was acknowledged is lost. abuse.py has the probe that says so."""

import concurrent.futures
import contextlib
import json
import os
import socket
import stat
import threading
import time

import abuse
from abuse import connect, head, read_answer, reset, send_some
from harness import mark, wait_until
from traffic import push_one

MIB = 1 << 20
BODY_MAX = 64 * MIB
DEEP = 1_000_000


def chunked(body):
    return f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"


def ask(broker, data, timeout=30):
    """Sends bytes as they are; the status and the answer."""
    with contextlib.closing(connect(broker)) as s:
        send_some(s, data)
        return read_answer(s, timeout)


GET = b"GET /health HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\n"
EMPTY = b'{"items":[]}'

# name, bytes, the statuses that are right; 0: closed without an answer
MALFORMED = [
    ("length and encoding", POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    ("two lengths", POST + b"Content-Length: 12\r\nContent-Length: 12\r\n\r\n" + EMPTY, {400}),
    ("two lengths in one", POST + b"Content-Length: 12, 12\r\n\r\n" + EMPTY, {400}),
    ("a negative length", POST + b"Content-Length: -12\r\n\r\n" + EMPTY, {400}),
    ("a length with a sign", POST + b"Content-Length: +12\r\n\r\n" + EMPTY, {400}),
    ("a length of 2^63", POST + b"Content-Length: 9223372036854775808\r\n\r\n", {413}),
    ("a length above 2^64", POST + b"Content-Length: 99999999999999999999999\r\n\r\n", {413}),
    ("a length with a NUL", POST + b"Content-Length: 12\0junk\r\n\r\n" + EMPTY, {400}),
    ("an unknown encoding", POST + b"Transfer-Encoding: gzip\r\n\r\n", {400}),
    ("a blank before the colon", POST + b"Content-Length : 12\r\n\r\n" + EMPTY, {400}),
    ("a chunk of no size", POST + b"Transfer-Encoding: chunked\r\n\r\n\r\n\r\n", {400}),
    ("a chunk of size -1", POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n", {400}),
    ("a chunk of size x", POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n", {400}),
    ("a chunk above 2^64", POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffffff\r\n\r\n", {413}),
    ("a chunk that is longer than it says", POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabcdef\r\n0\r\n\r\n", {400}),
    ("a NUL in the path", b"GET /health\0/x HTTP/1.1\r\nHost: x\r\n\r\n", {400}),
    ("a NUL in a queue's path", b"DELETE /api/v1/resources/queues/probe\0x HTTP/1.1\r\nHost: x\r\n\r\n", {400}),
    ("a NUL in a header's name", GET + b"X-\0Y: 1\r\n\r\n", {400}),
    ("a NUL in a header's value", GET + b"X-Y: a\0b\r\nX-Z: 1\r\n\r\n", {400}),
    ("a NUL before a header", GET + b"\0X-Y: a\r\n\r\n", {400}),
    ("a folded header", GET + b"X-Y: a\r\n b\r\n\r\n", {400}),
    ("lines without CR", b"GET /health HTTP/1.1\nHost: x\n\n", {400}),
    ("a header without a colon", GET + b"nothing\r\n\r\n", {400}),
    ("a header without a name", GET + b": x\r\n\r\n", {400}),
    ("a blank in the path", b"GET /hea lth HTTP/1.1\r\nHost: x\r\n\r\n", {400}),
    ("HTTP/0.9", b"GET /health\r\n\r\n", {400}),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {505}),
    ("HTTP/9.9", b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", {505}),
    ("a method of its own", b"BREW /health HTTP/1.1\r\nHost: x\r\n\r\n", {405}),
    ("garbage", b"\xff\xfe\xfd\r\n\r\n", {0, 400}),
    ("one word", b"hello\r\n\r\n", {0, 400}),
    ("20,000 headers", GET + b"X-Y: 1\r\n" * 20000 + b"\r\n", {431}),
    ("a header line of 1 MB", GET + b"X-Y: " + b"a" * MIB + b"\r\n\r\n", {431}),
    ("a request line of 1 MB", b"GET /" + b"a" * MIB + b" HTTP/1.1\r\nHost: x\r\n\r\n", {414}),
    ("a method of 1 MB", b"A" * MIB + b" / HTTP/1.1\r\n\r\n", {414}),
    ("invalid UTF-8 in the path", b"GET /api/v1/\xff\xc0\x80 HTTP/1.1\r\nHost: x\r\n\r\n", {404}),
    ("invalid UTF-8 in the body", POST + b"Content-Length: 3\r\n\r\n\"\xff\"", {400}),
    ("NULs as a body", POST + b"Content-Length: 5\r\n\r\n\0\0\0\0\0", {400}),
    ("a NUL in a name", POST + b"Content-Length: 45\r\n\r\n" + b'{"items":[{"queue":"a\0b", "payload":       1}]}'[:45], {400}),
]


@mark(serial=True)
def test_malformed_requests_are_refused_or_cut(env):
    broker = env.broker().start()
    with abuse.attacked(broker, rss_mb=64):
        for name, data, statuses in MALFORMED:
            for times in range(3):
                status, answer = ask(broker, data)
                assert status in statuses, (name, status, answer[:300])
    assert broker.fetch("probe", "first")["highWatermark"] == 1  # no path that was cut at its NUL deleted it


def test_names_may_hold_any_character(env):
    """A NUL is one, as JSON's \\u0000; a half of a surrogate pair is none."""
    broker = env.broker().start()
    for name in ("\0", "a\0b", "\x7f", "\U0010ffff", "..", "/", "%00"):
        broker.push([{"queue": name, "partition": name, "transactionId": name, "payload": name}])
        assert broker.fetch(name, name)["records"][0]["payload"] == name
    broker.call("POST", "/api/v1/push", '{"items":[{"queue":"\\ud800","payload":1}]}', 400)


@mark(serial=True, timeout=180)
def test_a_million_brackets_are_refused(env):
    deep = "[" * DEEP + "]" * DEEP
    objects = '{"a":' * DEEP + "1" + "}" * DEEP
    open_only = "[" * DEEP
    broker = env.broker().start()
    with abuse.attacked(broker, rss_mb=192):
        for text in (deep, objects, open_only):
            for path in ("push", "fetch", "partitions/changed", "kv", "configure"):
                broker.call("POST", f"/api/v1/{path}", text, 400)
            broker.push('{"items":[{"queue":"q","payload":' + text + "}]}", 400)
            broker.push('{"deep":' + text + ',"items":[]}', 400)
            answer = broker.request("POST", "/api/v1/kv", '[{"op":"put","ns":"n","key":"k","value":' + text + "}]")
            assert answer.status == 400, answer
            answer = broker.request("PUT", "/api/v1/kv/n/k", '{"value":' + text + "}")
            assert answer.status in (400, 404), answer  # 404 where there is no such route
            broker.call("POST", "/api/v1/configure", '{"queue":"q","options":' + text + "}", 400)


@mark(serial=True, timeout=180)
def test_bodies_over_the_limit_are_413(env):
    """Announced, and with chunks; before, during and after their bodies; 64 of them."""
    broker = env.broker().start()
    big = b" " * (BODY_MAX + 1)

    def announced(_):
        return ask(broker, head("/api/v1/push", BODY_MAX + 1) + big)[0]

    def in_chunks(_):
        return ask(broker, head("/api/v1/push", extra="Transfer-Encoding: chunked\r\n") + chunked(big))[0]

    def expecting(_):
        return ask(broker, head("/api/v1/kv", BODY_MAX + 1, extra="Expect: 100-continue\r\n"))[0]

    with abuse.attacked(broker, rss_mb=400), concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(expecting, range(32))) == {413}
        assert set(pool.map(announced, range(16))) == {413}
        assert set(pool.map(in_chunks, range(16))) <= {413, 429}  # 429: too many of them at a time


@mark(serial=True, timeout=180)
def test_thousands_of_idle_and_half_open_connections(env):
    """5,000 that send nothing and 2,000 whose headers never end, beside clients that come and go."""
    broker = env.broker().start()
    with abuse.attacked(broker, rss_mb=160, fresh=True), contextlib.ExitStack() as sockets:
        began = time.monotonic()
        for _ in range(5000):
            sockets.enter_context(connect(broker))
        for i in range(2000):
            s = sockets.enter_context(connect(broker))
            s.sendall(b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nX-" + b"y" * (i % 1000))
        print(f"{time.monotonic() - began:.1f} s to connect")
        wait_until(lambda: abuse.open_sockets(broker) > 7000, what="7,000 connections")
        time.sleep(3)


@mark(serial=True, timeout=120)
def test_slow_writers_hold_nobody_up(env):
    """Bodies and headers of a byte a second, 600 of them, which announced 36 GB."""
    broker = env.broker(QUEEN_RAFT_ADMIT_HOLD_MS=1000).start()
    with abuse.attacked(broker, rss_mb=160), contextlib.ExitStack() as sockets:
        slow = []
        for i in range(600):
            s = sockets.enter_context(connect(broker))
            path = "/api/v1/push" if i % 2 == 0 else "/api/v1/kv"
            s.sendall(head(path, 1000 if i % 4 == 0 else 60 * MIB)[: None if i % 3 else -2])
            slow.append(s)
        for _ in range(8):
            time.sleep(1)
            for s in slow:
                send_some(s, b"[")


@mark(serial=True, timeout=120)
def test_a_body_that_dawdles_gives_its_room_back(env):
    """Two slow pushes take all the room there is, and a third waits for it no longer than they may dawdle."""
    broker = env.broker(QUEEN_RAFT_ADMIT_MAX_MB=128, QUEEN_RAFT_ADMIT_HOLD_MS=30000).start()
    with contextlib.ExitStack() as sockets:
        for _ in range(2):
            s = sockets.enter_context(connect(broker))
            s.sendall(head("/api/v1/push", BODY_MAX) + b"{")
        time.sleep(0.5)
        began = time.monotonic()
        broker.push([{"queue": "q", "payload": "x" * 100000}])  # larger than what does not stand in line
        took = time.monotonic() - began
        assert 5 < took < 20, took


@mark(serial=True, timeout=120)
def test_slow_readers_hold_nobody_up(env):
    """400 fetches of 8 MiB each whose answers nobody reads: 3.2 GB, were they all kept."""
    broker = env.broker().start()
    payload = "x" * MIB
    for _ in range(8):
        broker.push([{"queue": "big", "payload": payload}])
    body = json.dumps({"entries": [{"queue": "big", "offset": 0, "maxBytes": 8388608}]}).encode()
    count = 40 if abuse.sanitized(broker) else 400  # what it takes to make them is not the question
    with abuse.attacked(broker, rss_mb=400), contextlib.ExitStack() as sockets:
        for _ in range(count):
            s = sockets.enter_context(connect(broker, receive=4096))
            s.sendall(head("/api/v1/fetch", len(body)) + body)
        time.sleep(8)
    wait_until(lambda: broker.fetch("big", "Default")["records"], what="a whole answer")


@mark(serial=True, timeout=120)
def test_a_large_record_is_429_while_slow_readers_hold_the_memory(env):
    broker = env.broker().start()
    broker.push([{"queue": "big", "payload": "x" * (40 * MIB)}])
    body = json.dumps({"entries": [{"queue": "big", "offset": 0}]}).encode()
    with contextlib.ExitStack() as sockets:

        def one_more():
            for _ in range(4):
                s = sockets.enter_context(connect(broker, receive=4096))
                s.sendall(head("/api/v1/fetch", len(body)) + body)
            answer = broker.request("POST", "/api/v1/fetch", body)
            return answer.status == 429 and answer

        refused = wait_until(one_more, what="a 429")
        assert refused.json["code"] == "overloaded" and 1 <= int(refused.headers["retry-after"]) <= 5
        push_one(broker, "small")
        assert broker.fetch("small", "p")["records"]  # a small answer always goes
        wait_until(lambda: broker.request("POST", "/api/v1/fetch", body).status == 200, what="room again")


@mark(serial=True, timeout=120)
def test_parked_polls_whose_clients_leave_go(env):
    """500 long polls, whose clients close, half-close or reset."""
    broker = env.broker().start()
    broker.push([{"queue": "poll", "payload": 1}])
    entry = {"queue": "poll", "offset": 1}
    body = json.dumps({"entries": [entry], "maxWaitMs": 30000}).encode()
    with abuse.attacked(broker, rss_mb=64):
        polls = []
        for _ in range(500):
            s = connect(broker)
            s.sendall(head("/api/v1/fetch", len(body)) + body)
            polls.append(s)
        wait_until(lambda: broker.metrics().get("queen_parked_long_polls", 500) >= 500, what="500 polls parked")
        for i, s in enumerate(polls):
            if i % 3 == 0:
                s.close()
            elif i % 3 == 1:
                reset(s)
            else:
                s.shutdown(socket.SHUT_WR)
        time.sleep(3)
        for s in polls:
            s.close()


@mark(serial=True, timeout=180)
def test_many_large_pushes_at_once(env):
    """Twelve pushes of 60 MiB against room for 128: each is taken or told to come later. A small push does not wait
    for those that are not admitted, but it does for those that are: for what the disk needs for 128 MiB."""
    broker = env.broker(QUEEN_RAFT_ADMIT_HOLD_MS=20000).start()
    items = [{"queue": "large", "partition": str(i % 7), "payload": "x" * 61440} for i in range(1023)]
    body = json.dumps({"items": items}).encode()
    assert 59 * MIB < len(body) <= BODY_MAX

    def push(_):
        return ask(broker, head("/api/v1/push", len(body)) + body, timeout=90)[0]

    with abuse.attacked(broker, rss_mb=640, worst_s=4), concurrent.futures.ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(push, range(12)))
        assert set(statuses) <= {201, 429}, statuses
    stored = sum(broker.fetch("large", str(p), 0, 1)["highWatermark"] for p in range(7))
    assert stored == 1023 * statuses.count(201)


@mark(serial=True, timeout=180)
def test_pushes_of_the_smallest_items_are_admitted_by_what_they_take(env):
    """200,000 items in 5 MiB take 80 MiB until they are answered: eight such pushes at once."""
    broker = env.broker(QUEEN_RAFT_ADMIT_MAX_MB=32).start()
    n = 200000
    body = ('{"items":[' + ",".join(['{"queue":"t","payload":1}'] * n) + "]}").encode()

    def push(_):
        return ask(broker, head("/api/v1/push", len(body)) + body, timeout=90)[0]

    with abuse.attacked(broker, rss_mb=400, worst_s=20), concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(push, range(8)))
        assert 201 in statuses and set(statuses) <= {201, 429}, statuses
    assert broker.fetch("t", "Default", 0, 1)["highWatermark"] == n * statuses.count(201)


@mark(serial=True, timeout=120)
def test_clients_that_reset_at_every_stage(env):
    body = json.dumps({"items": [{"queue": "r", "payload": "y" * 200000}]}).encode()
    whole = head("/api/v1/push", len(body)) + body
    fetch = json.dumps({"entries": [{"queue": "r", "offset": 0, "maxBytes": 8388608}]}).encode()
    stages = [whole[:n] for n in (0, 1, 20, 60, len(whole) - len(body), 70000, len(whole) - 1, len(whole))]
    stages.append(head("/api/v1/fetch", len(fetch)) + fetch)
    stages.append(head("/api/v1/push", len(body), extra="Expect: 100-continue\r\n"))
    stages.append(whole * 4)
    broker = env.broker().start()
    with abuse.attacked(broker, rss_mb=160):
        for turn in range(20):
            for data in stages:
                s = connect(broker)
                send_some(s, data)
                if turn % 2:
                    time.sleep(0.002)
                reset(s)


@mark(serial=True)
def test_pipelined_requests_without_end(env):
    """A client that sends on and on and reads nothing, and one that reads all."""
    broker = env.broker().start()
    with abuse.attacked(broker, rss_mb=64):
        with contextlib.closing(connect(broker, receive=4096)) as deaf:
            deaf.settimeout(3)
            request = GET + b"\r\n"
            with contextlib.suppress(TimeoutError):
                for _ in range(200):
                    deaf.sendall(request * 1000)
        with contextlib.closing(connect(broker)) as s:
            threading.Thread(target=send_some, args=(s, request * 2000)).start()
            answers = b""
            while answers.count(b"HTTP/1.1 200 ") < 2000:
                piece = s.recv(65536)
                assert piece, "closed"
                answers += piece


@mark(serial=True)
def test_a_client_that_speaks_tls(env):
    broker = env.broker().start()
    with abuse.attacked(broker, rss_mb=64):
        import ssl

        context = ssl.create_default_context()
        for _ in range(20):
            with contextlib.closing(connect(broker)) as s:
                s.settimeout(1)
                with contextlib.suppress(OSError):
                    context.wrap_socket(s, server_hostname="localhost")


@mark(serial=True)
def test_expect_100_continue(env):
    broker = env.broker().start()
    body = b'{"items":[{"queue":"e","payload":1}]}'
    with abuse.attacked(broker, rss_mb=64):
        for _ in range(100):
            with contextlib.closing(connect(broker)) as s:
                s.sendall(head("/api/v1/push", len(body), extra="Expect: 100-continue\r\n"))
                status, first = read_answer(s)
                assert status == 100, first
                s.sendall(body)
                status, answer = read_answer(s)
                assert status == 201, answer


def test_a_client_that_sends_no_more_is_answered_and_closed(env):
    """Its end may come together with its last request; the connection does not stay for the idle time then."""
    broker = env.broker().start()
    request = GET + b"\r\n"
    for data in (request, request * 4, b"GET /api/v1/no/route HTTP/1.1\r\nHost: x\r\n\r\n" * 4, b"GET /hea", b""):
        with contextlib.closing(connect(broker)) as s:
            s.settimeout(30)
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            answers = b""
            while piece := s.recv(65536):
                answers += piece
            assert answers.count(b"HTTP/1.1 ") == data.count(b"\r\n\r\n"), (data, answers)


def small_broker(env, files, **settings):
    """A broker that may open few files, and half as many connections."""
    script = env.dir / "few-files"
    script.write_text(f'#!/bin/sh\nulimit -n {files}\nexec "{os.path.abspath(env.binary)}"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    env.binary = str(script)
    return env.broker(**settings).start()


@mark(serial=True, timeout=120)
def test_at_the_limit_idle_connections_make_room(env):
    """Four times as many as there may be: those that never asked go first, and who asks is served."""
    broker = small_broker(env, 1000)
    with broker.session() as call:
        assert call("GET", "/health").status == 200
        with abuse.attacked(broker, rss_mb=64, fresh=True), contextlib.ExitStack() as sockets:
            for i in range(2000):
                s = sockets.enter_context(connect(broker))
                if i % 2:
                    s.sendall(b"GET /health HTTP/1.1\r\nX")
            time.sleep(2)
            assert abuse.open_sockets(broker) < 1000
        assert call("GET", "/health").status == 200  # it came before all of them and was not sent away


@mark(serial=True, timeout=120)
def test_at_the_limit_of_requests_newcomers_are_told(env):
    """All connections wait for records: nobody makes room, and a newcomer gets a 503 at once."""
    broker = small_broker(env, 1000)
    broker.push([{"queue": "poll", "payload": 1}])
    body = json.dumps({"entries": [{"queue": "poll", "offset": 1}], "maxWaitMs": 30000}).encode()
    with contextlib.ExitStack() as sockets:

        def ten_more():
            for _ in range(10):
                s = sockets.enter_context(connect(broker))
                send_some(s, head("/api/v1/fetch", len(body)) + body)
            answer = broker.health()
            return answer.status == 503 and answer

        answer = wait_until(ten_more, every=0, timeout=25, what="a 503")
        assert answer.headers["retry-after"] == "1" and answer.json["error"] == "too many connections", answer
    wait_until(lambda: broker.health().status == 200, what="room again")
