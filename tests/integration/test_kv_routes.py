"""The key-value store's other routes: one key by its path, listings; its rates, and many expired rows
(spec/kv.md 2, 4, 5, 8)."""

import re
import threading
import time
import urllib.parse

from harness import mark, wait_until

from test_kv import NO_RATES, delete, get, put

LIST_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
LIST = "/api/v1/resources/kv/list"
NAMESPACES = "/api/v1/resources/kv/namespaces"


def path(key, ns="n"):
    return f"/api/v1/kv/{ns}/{urllib.parse.quote(key, safe='')}"


def test_one_key_by_its_path(env):
    broker = env.broker().start()
    nothing = broker.request("GET", path("k"))
    assert nothing.status == 200 and "etag" not in nothing.headers, nothing
    assert nothing.json == {"index": 0, "op": "get", "found": False, "key": "k"}
    written = broker.call("PUT", path("k"), {"value": {"b": 1, "a": 2}, "forever": True})
    assert written == {
        "index": 0,
        "op": "put",
        "applied": True,
        "key": "k",
        "value": {"a": 2, "b": 1},
        "version": written["version"],
    }
    found = broker.request("GET", path("k"))
    assert found.headers["etag"] == f'"{written["version"]}"', found
    assert found.json == broker.kv(get("k"))[0]
    head = broker.request("HEAD", path("k"))
    assert (head.status, head.headers["etag"], head.body) == (200, found.headers["etag"], b"")
    assert head.headers["content-length"] == found.headers["content-length"]
    # A lost precondition is 200 here too.
    lost = broker.call("PUT", path("k"), {"value": 3, "ttlSeconds": 5, "expect": 0})
    assert (lost["applied"], lost["reason"], lost["version"]) == (False, "exists", written["version"])
    lost = broker.call("PUT", path("k"), {"value": 3, "ttlSeconds": 5, "expect": 0, "required": True})
    assert lost == {
        "ok": False,
        "reason": "kv_precondition",
        "failedIndex": 0,
        "kvReason": "exists",
        "version": written["version"],
        "value": {"a": 2, "b": 1},
    }
    won = broker.call("PUT", path("k"), {"value": 3, "ttlSeconds": 5, "expect": written["version"]})
    assert won["applied"] is True and broker.call("GET", path("k"))["expiresAt"] is not None
    lost = broker.call("DELETE", path("k"), {"expect": written["version"]})
    assert (lost["applied"], lost["reason"], lost["value"]) == (False, "version", 3)
    gone = broker.call("DELETE", path("k"))
    assert gone == {"index": 0, "op": "delete", "applied": True, "key": "k", "value": 3, "version": won["version"]}
    assert broker.call("DELETE", path("k"))["reason"] == "absent"
    assert broker.call("DELETE", path("k"), {"expect": 0})["applied"] is True


@mark(timeout=60)
def test_keys_of_any_characters_through_the_path(env):
    """kv.md 8.8: each part is decoded once, and the batch knows the same key."""
    broker = env.broker(NO_RATES).start()
    keys = ["a/b", "/", "//", "a//b/", "100%", "%41", "a b", "a+b", "é/ü", "👑", "?x=1", "#", "..", "a/../b", "%2F", "\x01\x7f", '"\\']
    for n, key in enumerate(keys):
        written = broker.call("PUT", path(key), {"value": n, "forever": True})
        assert (written["applied"], written["key"]) == (True, key), written
    for n, key in enumerate(keys):
        rows = broker.kv(get(key))[0], broker.call("GET", path(key))
        assert rows[0] == rows[1] and rows[0]["value"] == n and rows[0]["key"] == key, (key, rows)
    rows = broker.call("POST", LIST, {"namespace": "n"})["rows"]
    assert [r["key"] for r in rows] == sorted(keys, key=lambda k: k.encode()), rows
    # '/' may stand in the path as it is, and '%2F' is the same.
    assert broker.call("GET", "/api/v1/kv/n/a/b")["value"] == broker.call("GET", "/api/v1/kv/n/a%2fb")["value"] == 0
    assert broker.call("GET", "/api/v1/kv/n//")["value"] == keys.index("/")
    assert broker.call("GET", "/api/v1/kv/n/a%2F%2Fb/")["value"] == keys.index("a//b/")
    # What is no escape stays as it is, and what was decoded is not decoded again.
    assert broker.call("GET", "/api/v1/kv/n/100%")["value"] == keys.index("100%")
    assert broker.call("GET", "/api/v1/kv/n/%2541")["value"] == keys.index("%41")
    assert broker.call("GET", "/api/v1/kv/n/a+b")["value"] == keys.index("a+b")
    assert broker.call("GET", "/api/v1/kv/%6e/a%20b")["value"] == keys.index("a b")
    for key in keys:
        assert broker.call("DELETE", path(key))["applied"] is True, key
    assert broker.call("GET", NAMESPACES) == {"namespaces": []}


REFUSED = [  # method, path, body, status, reason
    ("GET", "/api/v1/kv/n/k?x=1", None, 400, "kv_no_query_string"),
    ("PUT", "/api/v1/kv/n/k?forever=true", {"value": 1, "forever": True}, 400, "kv_no_query_string"),
    ("DELETE", "/api/v1/kv/n/k?expect=1", None, 400, "kv_no_query_string"),
    ("GET", "/api/v1/kv/N/k", None, 400, "kv_bad_namespace"),
    ("GET", "/api/v1/kv//k", None, 400, "kv_bad_namespace"),
    ("GET", "/api/v1/kv/n%2Fk", None, 400, "kv_bad_namespace"),
    ("GET", "/api/v1/kv/n", None, 400, "kv_bad_key"),
    ("GET", "/api/v1/kv/n/", None, 400, "kv_bad_key"),
    ("GET", "/api/v1/kv/n/%00", None, 400, "kv_bad_key"),
    ("GET", "/api/v1/kv/n/%ff", None, 400, "kv_bad_key"),
    ("GET", "/api/v1/kv/n/%ed%a0%80", None, 400, "kv_bad_key"),
    ("GET", "/api/v1/kv/n/" + "k" * 513, None, 400, "kv_bad_key"),
    ("GET", "/api/v1/kv/n/" + "k" * 512, None, 413, "kv_key_too_large"),
    ("PUT", "/api/v1/kv/n/k", None, 400, "kv_bad_body"),
    ("PUT", "/api/v1/kv/n/k", "[]", 400, "kv_bad_body"),
    ("PUT", "/api/v1/kv/n/k", {"forever": True}, 400, "kv_bad_body"),
    ("PUT", "/api/v1/kv/n/k", b'{"value":"\xff","forever":true}', 400, "kv_bad_body"),
    ("PUT", "/api/v1/kv/n/k", '{"value":' + "[" * 1000 + "]" * 1000 + ',"forever":true}', 400, "kv_bad_body"),
    ("PUT", "/api/v1/kv/n/k", {"value": 1}, 400, "kv_expiry_not_specified"),
    ("PUT", "/api/v1/kv/n/k", {"value": 1, "ttlSeconds": 1, "forever": True}, 400, "kv_expiry_not_specified"),
    ("PUT", "/api/v1/kv/n/k", {"value": 1, "ttlSeconds": "1"}, 400, "kv_bad_ttl"),
    ("PUT", "/api/v1/kv/n/k", {"value": 1, "forever": True, "expect": None}, 400, "kv_bad_expect"),
    ("PUT", "/api/v1/kv/n/k", {"value": "x" * 65536, "forever": True}, 413, "kv_value_too_large"),
    *(
        ("PUT", "/api/v1/kv/n/k", {"value": 1, "forever": True, field: "k"}, 400, "kv_field_in_path")
        for field in ("op", "ns", "namespace", "key")
    ),
    ("DELETE", "/api/v1/kv/n/k", {"key": "k"}, 400, "kv_field_in_path"),
    ("PUT", "/api/v1/kv/n/k", {"value": 1, "forever": True, "tenant": "k"}, 400, "kv_tenant_not_an_input"),
    ("DELETE", "/api/v1/kv/n/k", "[]", 400, "kv_bad_body"),
    ("DELETE", "/api/v1/kv/n/k", {"expect": -1}, 400, "kv_bad_expect"),
    ("POST", LIST, "", 400, "kv_bad_body"),
    ("POST", LIST, [], 400, "kv_bad_body"),
    ("POST", LIST, {}, 400, "kv_bad_namespace"),
    ("POST", LIST, {"namespace": "N"}, 400, "kv_bad_namespace"),
    ("POST", LIST, {"namespace": "n", "prefix": 1}, 400, "kv_bad_key"),
    ("POST", LIST, {"namespace": "n", "after": 1}, 400, "kv_bad_key"),
    ("POST", LIST, {"namespace": "n", "after": "x" * 513}, 400, "kv_bad_key"),
    ("POST", LIST, {"namespace": "n", "limit": "1"}, 400, "kv_bad_body"),
    ("POST", LIST, {"namespace": "n", "keysOnly": 1}, 400, "kv_bad_body"),
    ("POST", LIST, {"namespace": "n", "includeExpired": 1}, 400, "kv_bad_body"),
    ("POST", LIST, {"namespace": "n", "tenant": "x"}, 400, "kv_tenant_not_an_input"),
    # Next to a write all of a call goes into the log: what it may hold is bounded there too.
    ("POST", "/api/v1/kv", [put("k", 1), {"op": "getPrefix", "ns": "n", "prefix": "p", "after": "x" * 70000}], 400, "kv_bad_key"),
]


def test_refusals_of_the_other_routes(env):
    broker = env.broker(NO_RATES).start()
    wrong = []
    for method, where, body, status, reason in REFUSED:
        answer = broker.request(method, where, body)
        kind = {400: "kv_bad_request", 413: "payload_too_large"}[status]
        if (
            answer.status != status
            or set(answer.json) != {"error", "reason", "detail"}
            or (answer.json["error"], answer.json["reason"]) != (kind, reason)
        ):
            wrong.append((method, where[:60], str(body)[:60], status, reason, answer))
    assert not wrong, wrong
    assert broker.call("GET", NAMESPACES) == {"namespaces": []}, "a refused call wrote"
    for method, where, status in (
        ("POST", "/api/v1/kv/n/k", 404),
        ("GET", "/api/v1/kv", 405),
        ("GET", LIST, 405),
        ("POST", NAMESPACES, 405),
    ):
        assert broker.request(method, where, {}).status == status, (method, where)


@mark(timeout=60)
def test_listings(env):
    broker = env.broker(NO_RATES).start()
    assert broker.call("POST", LIST, {"namespace": "n"}) == {"rows": [], "truncated": False, "nextAfter": None, "bytes": 0}
    broker.kv(put("b", [1, 2], ns="n"), put("a", "x", ns="n", ttlSeconds=1000), put("k", 1, ns="a"), put("k", 1, ns="a.b"))
    assert broker.call("GET", NAMESPACES) == {
        "namespaces": [{"namespace": "a", "keys": 1}, {"namespace": "a.b", "keys": 1}, {"namespace": "n", "keys": 2}]
    }
    page = broker.call("POST", LIST, {"namespace": "n"})
    assert set(page) == {"rows", "truncated", "nextAfter", "bytes"}
    assert [r["key"] for r in page["rows"]] == ["a", "b"] and page["bytes"] == 2 + len('"x"') + len("[1,2]"), page
    assert all(set(r) == {"key", "value", "version", "expiresAt", "updatedAt"} for r in page["rows"]), page
    assert LIST_TIME.fullmatch(page["rows"][0]["expiresAt"]) and page["rows"][1]["expiresAt"] is None
    assert all(LIST_TIME.fullmatch(r["updatedAt"]) for r in page["rows"])
    one = broker.call("POST", LIST, {"namespace": "n", "limit": 1, "keysOnly": True})
    assert "value" not in one["rows"][0] and one["truncated"] is True and one["nextAfter"] == "a" and one["bytes"] == 1
    rest = broker.call("POST", LIST, {"namespace": "n", "after": "a", "prefix": ""})
    assert [r["key"] for r in rest["rows"]] == ["b"] and rest["truncated"] is False and rest["nextAfter"] is None
    assert [r["key"] for r in broker.call("POST", LIST, {"namespace": "n", "prefix": "b"})["rows"]] == ["b"]
    # Counts go with the rows, over restarts too; deletions count at once.
    broker.kv(delete("a"), delete("k", ns="a"))
    left = {"namespaces": [{"namespace": "a.b", "keys": 1}, {"namespace": "n", "keys": 1}]}
    assert broker.call("GET", NAMESPACES) == left
    queues = broker.call("GET", "/api/v1/resources/queues")
    assert (queues["kvRows"], queues["kvBytes"]) == (2, 1 + len("1") + 1 + len("[1,2]")), queues
    broker.kill()
    broker.start()
    assert broker.call("GET", NAMESPACES) == left
    assert broker.call("GET", "/api/v1/resources/queues")["kvRows"] == 2


@mark(timeout=60)
def test_expired_rows_are_listed_on_request_and_go_by_themselves(env):
    broker = env.broker(NO_RATES).start()
    rows = [put(f"k{n:04d}", n, ttlSeconds=2) for n in range(2000)] + [put("stays", 1)]
    for n in range(0, len(rows), 250):
        broker.kv(*rows[n : n + 250])

    def shown(**more):
        return broker.call("POST", LIST, {"namespace": "n", "limit": 1000, **more})

    assert not any("expired" in r for r in shown(includeExpired=True)["rows"])
    wait_until(lambda: [r["key"] for r in shown()["rows"]] == ["stays"], what="only the row that stays to be live")
    seen = shown(includeExpired=True)["rows"]
    assert all(r.get("expired") is True for r in seen if r["key"] != "stays"), seen
    # Nobody writes: they are removed all the same, and counted until then.
    gone = {"namespaces": [{"namespace": "n", "keys": 1}]}
    wait_until(lambda: broker.call("GET", NAMESPACES) == gone, what="the expired rows to go")
    assert [r["key"] for r in shown(includeExpired=True)["rows"]] == ["stays"]
    assert broker.call("GET", "/api/v1/resources/queues")["kvRows"] == 1
    safe = broker.call("POST", "/api/v1/partitions/changed", {"entries": []})["safeTime"]
    time.sleep(2.5)
    assert broker.call("POST", "/api/v1/partitions/changed", {"entries": []})["safeTime"] == safe, "idle: nothing is written"


@mark(timeout=90)
def test_rates_are_per_operation(env):
    broker = env.broker(
        QUEEN_KV_WRITE_RATE=1, QUEEN_KV_WRITE_BURST=20, QUEEN_KV_READ_RATE=1, QUEEN_KV_READ_BURST=20
    ).start()

    def limited(answer):
        if answer.status == 200:
            return False
        assert answer.status == 429 and answer.json == {"error": "rate_limited"}, answer
        assert 1 <= int(answer.headers["retry-after"]) <= 21, answer
        return True

    with broker.session() as call:
        # A check counts as a write; reads have a bucket of their own.
        check = {"op": "check", "ns": "n", "key": "k", "expect": 0}
        assert not limited(call("POST", "/api/v1/kv", [put(f"k{n}", 1) for n in range(10)] + [check] * 10))
        assert limited(call("POST", "/api/v1/kv", [put(f"k{n}", 1) for n in range(15)]))
        assert limited(call("POST", "/api/v1/kv", [get("k")] + [check] * 15)), "a call needs room in both"
        assert not limited(call("POST", "/api/v1/kv", [get("k")] * 17))
        assert not limited(call("GET", path("k")))
        assert not limited(call("POST", LIST, {"namespace": "n"}))
        assert not limited(call("GET", NAMESPACES))
        assert limited(call("POST", "/api/v1/kv", [get("k")] * 15))
        refused = call("POST", "/api/v1/kv", [get("")])
        assert refused.status == 400, "what is refused anyway is told so"
        # More than the burst at once waits for a full bucket, and is let in then.
        def large():
            return not limited(call("POST", "/api/v1/kv", [get("k")] * 30))

        wait_until(large, timeout=40, what="room for more than the burst")
        assert limited(call("POST", "/api/v1/kv", [get("k")] * 5))


@mark(timeout=60)
def test_the_default_rates_let_a_burst_in(env):
    broker = env.broker().start()
    assert len(broker.kv(*[put(f"k{n}", 1) for n in range(200)])) == 200
    answer = broker.request("POST", "/api/v1/kv", [put(f"k{n}", 1) for n in range(150)])
    assert answer.status == 429 and answer.headers["retry-after"] in ("1", "2"), answer
    assert len(broker.kv(*[get(f"k{n}") for n in range(256)])) == 256


@mark(timeout=120)
def test_paging_over_many_expired_rows_holds_nobody_up(env):
    """Pages among dead rows end early and lead on; meanwhile pushes are answered."""
    broker = env.broker(NO_RATES).start()
    total = 60000
    value = "x" * 20
    with broker.session() as call:
        for n in range(0, total, 250):
            body = [put(f"k{m:06d}", value, ttlSeconds=6) for m in range(n, n + 250)]
            assert call("POST", "/api/v1/kv", body).status == 200
        assert call("POST", "/api/v1/kv", [put("k999999", 1), put("k030000x", 2)]).status == 200
    worst, stop = [0.0], threading.Event()

    def push():
        with broker.session() as call:
            while not stop.is_set():
                begun = time.monotonic()
                answer = call("POST", "/api/v1/push", {"items": [{"queue": "q", "payload": 1}]})
                assert answer.status == 201, answer
                worst[0] = max(worst[0], time.monotonic() - begun)

    pusher = threading.Thread(target=push)
    pusher.start()
    try:
        found = []
        deadline = time.monotonic() + 60
        while found != ["k030000x", "k999999"]:
            assert time.monotonic() < deadline, found[:5]
            found, after = [], None
            while True:
                more = {"after": after} if after else {}
                page = broker.kv({"op": "getPrefix", "ns": "n", "prefix": "k", "limit": 10, **more})[0]
                found += [r["key"] for r in page["rows"]]
                after = page["nextAfter"]
                if not page["truncated"] or len(found) > 10:
                    break
    finally:
        stop.set()
        pusher.join()
    assert worst[0] < 5, f"a push took {worst[0]:.2f} s"
    wait_until(lambda: broker.call("GET", NAMESPACES)["namespaces"][0]["keys"] == 2, timeout=60, what="the rows to go")
