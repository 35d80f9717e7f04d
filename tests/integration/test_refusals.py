"""Every route against input that is none of what it takes (spec/broker-api.md 1): status and shape of each refusal, and
that nothing of it happened. The routes are those that `queen --api-doc` lists: a new one is tested from its first day
with what is wrong for all of them."""

import json
import re

from harness import cases, mark
from traffic import push_one

PUSH, FETCH, CHANGED = "/api/v1/push", "/api/v1/fetch", "/api/v1/partitions/changed"
CONFIGURE, KV, QUEUES = "/api/v1/configure", "/api/v1/kv", "/api/v1/resources/queues"
ROUTE = re.compile(r"^\| `([A-Z]+) (/\S*)` \|", re.M)
HUGE = "9" * 400
LONG = "x" * 412
KEY = {"ns": "n", "key": "k"}

# What is no JSON, or not enough of it to be a request to any route.
NO_REQUESTS = {
    "nothing": b"",
    "white space": b" \r\n\t ",
    "a word": b"nope",
    "half an object": b'{"a":',
    "half a string": b'{"a":"b',
    "a bracket too many": b"{}}",
    "two documents": b"{} {}",
    "a trailing comma": b'{"a":1,}',
    "a comment": b'{"a":1/**/}',
    "single quotes": b"{'a':1}",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "a NUL behind it": b"{}\x00",
    "NULs": b"\x00" * 64,
    "a NUL in a key": b'{"a\x00":1}',
    "a raw line break in a string": b'{"a":"\n"}',
    "invalid UTF-8": b'{"a":"\xff\xfe"}',
    "overlong UTF-8": b'{"a":"\xc0\xaf"}',
    "a surrogate in UTF-8": b'{"a":"\xed\xa0\x80"}',
    "half a character": b'{"a":"\xf0\x9f\x90"}',
    "a bad escape": b'{"a":"\\x41"}',
    "half an escape": b'{"a":"\\u12"}',
    "a number with a plus": b'{"a":+1}',
    "a number with a leading zero": b'{"a":01}',
    "Infinity": b'{"a":Infinity}',
    "a number": b"1",
    "a huge number": b"1" + b"0" * 100000,
    "a number no double holds": b"1e999999",
    "a string": b'"x"',
    "true": b"true",
    "null": b"null",
    "brackets without end": b"[" * 100000,
    "1,000,000 arrays": b"[" * 1000000 + b"]" * 1000000,
    "1,000,000 objects": b'{"a":' * 1000000 + b"1" + b"}" * 1000000,
    "100,000 arrays in an unknown field": b'{"unknown":' + b"[" * 100000 + b"]" * 100000 + b"}",
    "a list of numbers": b"[1,2]",
    "a list of lists": b"[[[]]]",
}

# Beyond that: path, body, status, code (KV: reason; None: there is none), a word of the text.
BODIES = [
    (PUSH, "[]", 400, "bad_body", "object"),
    (PUSH, "{}", 400, "bad_body", "items"),
    (PUSH, '{"items":null}', 400, "bad_body", "items"),
    (PUSH, '{"items":{}}', 400, "bad_body", "items"),
    (PUSH, '{"items":[{}]}', 400, "bad_body", "item 0"),
    (PUSH, '{"items":[{"queue":"q","payload":1},null]}', 400, "bad_body", "item 1"),
    (PUSH, '{"items":[{"queue":[],"payload":1}]}', 400, "bad_body", "queue"),
    (PUSH, f'{{"items":[{{"queue":{HUGE},"payload":1}}]}}', 400, "bad_body", "queue"),
    (PUSH, '{"items":[{"queue":"q","queue":null,"payload":1}]}', 400, "bad_body", "queue"),
    (PUSH, '{"items":[{"queue":"a\\ud83d","payload":1}]}', 400, "bad_body", "item 0"),
    (PUSH, '{"items":[{"queue":"q","partition":"\\udc1d\\ud83d","payload":1}]}', 400, "bad_body", "item 0"),
    (PUSH, '{"items":[{"queue":"q","partition":{},"payload":1}]}', 400, "bad_body", "partition"),
    (PUSH, '{"items":[{"queue":"q","transactionId":[],"payload":1}]}', 400, "bad_body", "transactionId"),
    (PUSH, '{"items":[{"queue":"q","payload":1}],"items":7}', 400, "bad_body", "items"),
    (PUSH, {"items": [{"queue": LONG, "partition": "", "payload": 1}]}, 413, "name_too_long", "queue"),
    (PUSH, {"items": [{"queue": "q", "partition": "ü" * 206, "payload": 1}]}, 413, "name_too_long", "partition"),
    (FETCH, "[]", 400, "bad_body", "object"),
    (FETCH, "{}", 400, "bad_body", "entries"),
    (FETCH, '{"entries":{}}', 400, "bad_body", "entries"),
    (FETCH, '{"entries":[1]}', 400, "bad_body", "entry 0"),
    (FETCH, '{"entries":[{"offset":0}]}', 400, "bad_body", "queue"),
    (FETCH, '{"entries":[{"queue":"","offset":0}]}', 400, "bad_body", "queue"),
    (FETCH, '{"entries":[{"queue":"q"}]}', 400, "bad_body", "offset"),
    (FETCH, '{"entries":[{"queue":"q","offset":null}]}', 400, "bad_body", "offset"),
    (FETCH, '{"entries":[{"queue":"q","offset":"0"}]}', 400, "bad_body", "offset"),
    (FETCH, '{"entries":[{"queue":"q","offset":0.5}]}', 400, "bad_body", "offset"),
    (FETCH, f'{{"entries":[{{"queue":"q","offset":{HUGE}}}]}}', 400, "bad_body", "offset"),
    (FETCH, '{"entries":[{"queue":"q","offset":-1}]}', 400, None, "offset must be non-negative"),
    (FETCH, '{"entries":[{"queue":"q","offset":0,"maxBytes":"1"}]}', 400, "bad_body", "maxBytes"),
    (FETCH, '{"entries":[{"queue":"\\ud800","offset":0}]}', 400, "bad_body", "entry 0"),
    (FETCH, '{"entries":[{"queue":"q","partition":[],"offset":0}]}', 400, "bad_body", "partition"),
    (FETCH, '{"entries":[],"maxWaitMs":"1"}', 400, "bad_body", "maxWaitMs"),
    (FETCH, '{"entries":[],"maxWaitMs":1.5}', 400, "bad_body", "maxWaitMs"),
    (FETCH, f'{{"entries":[],"minBytes":{HUGE}}}', 400, "bad_body", "minBytes"),
    (FETCH, {"entries": [{"queue": "q", "offset": 0}] * 1025}, 400, None, "too many entries"),
    (CHANGED, "[]", 400, "bad_body", "object"),
    (CHANGED, "{}", 400, "bad_body", "entries"),
    (CHANGED, '{"entries":"q"}', 400, "bad_body", "entries"),
    (CHANGED, '{"entries":[{}]}', 400, "bad_body", "queue"),
    (CHANGED, '{"entries":[{"queue":""}]}', 400, "bad_body", "queue"),
    (CHANGED, '{"entries":[{"queue":7}]}', 400, "bad_body", "queue"),
    (CHANGED, '{"entries":[{"queue":"q","limit":"9"}]}', 400, "bad_body", "limit"),
    (CHANGED, '{"entries":[{"queue":"q"},{"queue":"q","since":"soon"}]}', 400, None,
     'bad body: entry 1: since is not a timestamp: "soon"'),
    (CHANGED, '{"entries":[{"queue":"q","since":7}]}', 400, None, "entry 0: since is not a timestamp: 7"),
    (CHANGED, '{"entries":[{"queue":"q","since":"2026-02-30"}]}', 400, None, "since is not a timestamp"),
    (CHANGED, {"entries": [{"queue": "q"}] * 1025}, 400, None, "too many entries"),
    (CONFIGURE, "[]", 400, "bad_request", "object"),
    (CONFIGURE, "{}", 400, "bad_request", "queue is required"),
    (CONFIGURE, '{"queue":null}', 400, "bad_request", "queue is required"),
    (CONFIGURE, '{"queue":""}', 400, "bad_request", "queue is required"),
    (CONFIGURE, '{"queue":"q","queue":1}', 400, "bad_request", "queue is required"),
    (CONFIGURE, '{"queue":"\\ud800"}', 400, "bad_request", "surrogate"),
    (CONFIGURE, '{"queue":"q","mode":"update"}', 400, "bad_request", 'mode must be "merge" or "replace", got "update"'),
    (CONFIGURE, '{"queue":"q","mode":[]}', 400, "bad_request", 'mode must be "merge" or "replace", got []'),
    (CONFIGURE, f'{{"queue":"q","options":{{"leaseTime":{HUGE}}}}}', 400, "bad_request", "leaseTime must be an integer"),
    (CONFIGURE, '{"queue":"q","options":{"leaseTime":1e2}}', 400, "bad_request", "leaseTime must be an integer"),
    (CONFIGURE, '{"queue":"q","options":{"leaseTime":1,"leaseTime":[]}}', 400, "bad_request", "leaseTime"),
    (CONFIGURE, '{"queue":"q","deadLetterQueue":"false"}', 400, "bad_request", "deadLetterQueue must be a boolean"),
    (CONFIGURE, '{"queue":"q","namespace":1}', 400, "bad_request", "namespace must be a string"),
    (CONFIGURE, '{"queue":"q","task":[],"options":{}}', 400, "bad_request", "task must be a string"),
    (CONFIGURE, {"queue": LONG}, 413, "name_too_long", "queue"),
    (CONFIGURE, {"queue": "q", "options": {"namespace": LONG}}, 413, "name_too_long", "namespace"),
    (KV, "{}", 400, "kv_bad_body", ""),
    (KV, '{"operations":{}}', 400, "kv_bad_body", ""),
    (KV, "[1]", 400, "kv_bad_body", ""),
    (KV, '[{"op":7}]', 400, None, ""),
    (KV, [{"op": "take", **KEY}], 400, "kv_unknown_op", ""),
    (KV, [{"op": "get", "ns": "N", "key": "k"}], 400, "kv_bad_namespace", ""),
    (KV, [{"op": "get", "ns": "n" * 65, "key": "k"}], 400, "kv_bad_namespace", ""),
    (KV, [{"op": "get", "ns": "n"}], 400, "kv_bad_key", ""),
    (KV, [{"op": "get", "ns": "n", "key": "a\0b"}], 400, "kv_bad_key", ""),
    (KV, [{"op": "get", "ns": "n", "key": "k" * 513}], 400, "kv_bad_key", ""),
    (KV, '[{"op":"get","ns":"n","key":"\\ud800"}]', 400, None, ""),
    (KV, [{"op": "put", "value": 1, **KEY}], 400, "kv_expiry_not_specified", ""),
    (KV, [{"op": "put", "value": 1, "ttlSeconds": 0, **KEY}], 400, "kv_bad_ttl", ""),
    (KV, f'[{{"op":"put","ns":"n","key":"k","value":1,"ttlSeconds":{HUGE}}}]', 400, "kv_bad_ttl", ""),
    (KV, [{"op": "put", "value": 1, "forever": True, "expect": -1, **KEY}], 400, "kv_bad_expect", ""),
    (KV, [{"op": "put", "value": "x" * 65536, "forever": True, **KEY}], 413, "kv_value_too_large", ""),
    (KV, '[{"op":"put","ns":"n","key":"k","forever":true,"value":' + "[" * 501 + "]" * 501 + "}]", 400, None, ""),
    (KV, '[{"op":"put","ns":"n","key":"k","forever":true,"value":1E400}]', 400, None, ""),
    (KV, [{"op": "getPrefix", "ns": "n", "prefix": ""}], 400, "kv_prefix_required", ""),
    (KV, [{"op": "get", **KEY}] * 257, 400, "kv_too_many_ops", ""),
    (KV, [{"op": "delete", **KEY}] * 2, 400, "kv_duplicate_key_in_call", ""),
]

QUERIES = [  # refused as plain text, or not at all
    ("/api/v1/resources/partitions?limit=ten", 400),
    ("/api/v1/resources/partitions?limit=", 400),
    ("/api/v1/resources/partitions?limit=1.0", 400),
    ("/api/v1/resources/partitions?limit=0x10", 400),
    ("/api/v1/resources/partitions?limit=99999999999999999999", 400),
    ("/api/v1/resources/partitions?limit=%31%30&unknown=%", 200),
    ("/api/v1/resources/partitions?queue=%FF%00", 200),
    ("/api/v1/resources/queues?stats=1&limit=x", 200),
    ("/api/v1/resources/overview?" + "a=b&" * 2000, 200),
    ("/api/v1/resources/partitions?" + "a&" * 4000 + "limit=x", 400),
    ("/health?x=y", 200),
]


def routes(env):
    """(method, path) of every route; '*' as a name."""
    code, out, _ = env.run("--api-doc")
    assert code == 0
    listed = ROUTE.findall(out[: out.index("<!-- end -->")])
    assert len(listed) >= 17 and ("POST", PUSH) in listed, listed
    return [(method, path.replace("*", "a/b")) for method, path in listed]


def shape(path, answer, code):
    """What is wrong with a refusal's body, or None. code ...: any."""
    try:
        body = answer.json
    except ValueError:
        return "no JSON"
    if not answer.headers["content-type"].startswith("application/json"):
        return "not sent as JSON"
    kv = path.startswith(KV) or "/resources/kv/" in path
    names = {"error", "reason", "detail"} if kv else {"error"} if code is None else {"error", "code"}
    if code is ... and not kv:
        names |= {"code"}
    if set(body) != names or not all(isinstance(v, str) and v for v in body.values()):
        return f"other members than {sorted(names)}"
    got = body["reason"] if kv else body.get("code")
    return f"{got} instead of {code}" if code not in (..., None) and got != code else None


def nothing_happened(broker):
    assert broker.call("GET", QUEUES)["queues"] == []
    assert broker.kv({"op": "get", **KEY})[0]["found"] is False
    assert broker.health().status == 200


@mark(timeout=120)
def test_what_is_no_request_is_refused_by_every_route_that_takes_one(env):
    broker = env.broker(QUEEN_KV_READ_RATE=0, QUEEN_KV_WRITE_RATE=0).start()
    wrong = []
    for method, path in routes(env):
        if method not in ("POST", "PUT") or path == "/api/v1/stats/refresh":
            continue
        with broker.session() as call:
            for name, body in NO_REQUESTS.items():
                if path == KV and name in ("a list of lists", "a list of numbers"):
                    continue  # in BODIES
                answer = call(method, path, body)
                problem = shape(path, answer, ...) if answer.status == 400 else "not 400"
                if problem:
                    wrong.append((method, path, name, problem, answer))
    assert not wrong, "\n".join(map(str, wrong))
    nothing_happened(broker)


def test_requests_with_a_mistake_are_refused_by_its_name(env):
    broker = env.broker(QUEEN_KV_READ_RATE=0, QUEEN_KV_WRITE_RATE=0).start()
    wrong = []
    with broker.session() as call:
        for path, body, status, code, word in BODIES:
            answer = call("POST", path, body)
            problem = shape(path, answer, code) if answer.status == status else f"not {status}"
            if not problem and word not in json.dumps(answer.json, ensure_ascii=False).replace('\\"', '"'):
                problem = f"no word of {word}"
            if problem:
                wrong.append((path, str(body)[:100], problem, answer))
    assert not wrong, "\n".join(map(str, wrong))
    nothing_happened(broker)


def test_every_route_knows_its_methods(env):
    broker = env.broker().start()
    table = routes(env)
    wrong = []
    for path in sorted({path for _, path in table}):
        mine = {method for method, p in table if p == path}
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"):
            if method in mine or (method == "HEAD" and "GET" in mine):
                continue
            answer = broker.request(method, path, b"{}" if method in ("POST", "PUT", "PATCH") else None)
            ok = answer.status in (404, 405)
            if method != "HEAD":
                ok = ok and "error" in answer.json and "code" in answer.json
            if answer.status == 405:
                ok = ok and mine <= set(re.split(", *", answer.headers["allow"]))
            elif method != "HEAD":
                ok = ok and answer.json == {"code": "no_such_route", "error": "not found", "path": path}
            if not ok:
                wrong.append((method, path, mine, answer))
    assert not wrong, "\n".join(map(str, wrong))
    for path in ("/api/v1", "/api/v1/", "/api/v1/pop/queue/q", "/api/v1/ack", "/api/v1/transaction", "/api/v1/dlq",
                 "/api/v1/queues/q/clear", "/streams/v1/x", "/api/v1/push/", "/api/v1//push", "/API/V1/PUSH",
                 "/api/v1/pus%68x", "/api/v1/%F0%9F%90%9D", "/api/v1/resources/", "/api/v1/resources/queues/"):
        for method in ("GET", "POST"):
            answer = broker.request(method, path, b"{}" if method == "POST" else None)
            want = {"code": "no_such_route", "error": "not found", "path": path}
            assert answer.status == 404 and answer.json == want, (method, path, answer)
    for path in ("/", "/favicon.ico", "/metricsx"):
        assert broker.request("GET", path).status == 404, path


def test_queries(env):
    broker = env.broker().start()
    for path, status in QUERIES:
        answer = broker.request("GET", path)
        assert answer.status == status, (path, answer)
        if status == 400:
            assert answer.headers["content-type"].startswith("text/plain"), answer.headers
            assert b"limit must be an integer" in answer.body


def test_bodies_that_are_too_large_are_413_on_every_route(env):
    broker = env.broker(QUEEN_MAX_BODY_BYTES=65536).start()
    for method, path in routes(env):
        if method not in ("POST", "PUT", "DELETE"):
            continue
        answer = broker.request(method, path, b" " * 65537)
        assert answer.status == 413 and answer.headers["content-type"].startswith("text/plain"), (method, path, answer)
    nothing_happened(broker)


def test_habits_of_clients(env):
    """What SDKs send beside the request, and a body where none is wanted (spec/broker-api.md 16.1)."""
    broker = env.broker(QUEEN_KV_READ_RATE=0).start()
    habits = {"Accept-Encoding": "gzip, deflate, zstd", "Accept": "*/*", "Content-Type": "text/x"}
    push_one(broker, "a/b c")
    for method, path in routes(env):
        if method != "GET":
            continue
        path = path.replace("a/b", "a/b%20c")
        plain, got = broker.request("GET", path), broker.request("GET", path, headers=habits)
        assert (got.status, "content-encoding" in got.headers) == (plain.status, False), (path, got)
        assert got.headers["content-type"] == plain.headers["content-type"]
        head = broker.request("HEAD", path)
        assert head.status == plain.status and head.body == b"", (path, head)
        assert broker.request("GET", path, body=b'{"a":1}').status == plain.status, "a body is no matter"
    compact = '{"items":[{"queue":"ü","transactionId":"8b0f0d0e-6f3c-4e9e-9d5a-6f0c1d2e3f40","payload":"🐝"}]}'
    assert broker.call("POST", PUSH, compact, 201, headers=habits)[0]["status"] == "queued"
    for body, kind in ((b"QPB1\x00", "application/x-queen-push"), (b'{"items":[]}', "application/x-queen-push; v=1")):
        answer = broker.request("POST", PUSH, body, headers={"content-type": kind})
        assert answer.status == 400 and answer.json["code"] == "bad_body", answer
        assert "application/x-queen-push" in answer.json["error"]
    assert broker.request("POST", "/api/v1/stats/refresh").status == 200
    assert broker.request("POST", "/api/v1/stats/refresh", b"junk").status == 200
    assert broker.call("DELETE", f"{QUEUES}/a/b%20c", b'{"why":"not"}')["existed"] is True


@cases("1", "0", "99999", "-1", "soon")
def test_the_deadline_is_clamped(env, case):
    """1..60000; what is no whole number is the default. With a deadline of 1 ms an answer still comes."""
    broker = env.broker(POP_DEFAULT_TIMEOUT_MS=case).start()
    answer = broker.request("POST", PUSH, {"items": [{"queue": "q", "partition": "p", "payload": 1}]})
    assert answer.status in (201, 503), answer
    if answer.status == 503:
        assert answer.json["code"] == "timeout" and answer.headers["retry-after"] == "1", answer
    want = {"1": "1", "0": "1", "99999": "60000", "-1": "30000", "soon": "30000"}[case]
    assert broker.find_log(rf"config: server .* DEFAULT_TIMEOUT={want}\b"), broker.log()[:3]
