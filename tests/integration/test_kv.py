"""The key-value store over HTTP: the checks 1-7 and 9 of spec/kv.md 8. More in test_kv_routes.py."""

import json
import random
import re
import threading
import time

from harness import mark

NO_RATES = {"QUEEN_KV_WRITE_RATE": 0, "QUEEN_KV_READ_RATE": 0}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d*[1-9])?\+00:00")


def put(key, value, ns="n", **more):
    expiry = {} if "ttlSeconds" in more else {"forever": True}
    return {"op": "put", "ns": ns, "key": key, "value": value, **expiry, **more}


def get(key, ns="n"):
    return {"op": "get", "ns": ns, "key": key}


def delete(key, ns="n", **more):
    return {"op": "delete", "ns": ns, "key": key, **more}


def test_the_elements_of_an_answer(env):
    broker = env.broker().start()
    written = broker.kv(put("k", {"b": 1, "a": [1.50, "x"]}))[0]
    assert set(written) == {"index", "op", "applied", "key", "value", "version"}, written
    assert (written["index"], written["op"], written["applied"], written["key"]) == (0, "put", True, "k")
    version = written["version"]
    assert isinstance(version, int) and version > 0
    found = broker.kv(get("k"))[0]
    assert set(found) == {"index", "op", "found", "key", "value", "version", "expiresAt", "updatedAt"}, found
    assert (
        found["found"] is True
        and found["version"] == version
        and found["expiresAt"] is None
        and TIME.fullmatch(found["updatedAt"])
    )
    assert broker.kv(get("none"))[0] == {"index": 0, "op": "get", "found": False, "key": "none"}
    lost = broker.kv({**put("k", 9), "op": "putIfAbsent"})[0]
    assert lost == {
        "index": 0,
        "op": "putIfAbsent",
        "applied": False,
        "reason": "exists",
        "key": "k",
        "value": found["value"],
        "version": version,
    }
    lost = broker.kv(put("k", 9, expect=version + 1))[0]
    assert (lost["applied"], lost["reason"], lost["value"], lost["version"]) == (
        False,
        "version",
        found["value"],
        version,
    )
    lost = broker.kv(put("none", 9, expect=5))[0]
    assert (lost["reason"], lost["value"], lost["version"]) == ("absent", None, 0)
    many = broker.kv({"op": "getMany", "ns": "n", "keys": ["z", "k", "a"]})[0]
    assert (
        [r["key"] for r in many["rows"]] == ["k"]
        and sorted(many["missing"]) == ["a", "z"]
        and many["truncated"] is False
    )
    assert set(many["rows"][0]) == {"key", "value", "version", "expiresAt", "updatedAt"}
    timed = broker.kv(put("t", 1, ttlSeconds=100))[0]
    assert timed["applied"] and TIME.fullmatch(broker.kv(get("t"))[0]["expiresAt"])
    check = broker.kv({"op": "check", "ns": "n", "key": "k", "expect": version})[0]
    assert check["applied"] is True, check
    gone = broker.kv(delete("k", expect=version))[0]
    assert (gone["applied"], gone["value"], gone["version"]) == (True, found["value"], version)
    assert (lambda r: (r["applied"], r["reason"]))(broker.kv(delete("k"))[0]) == (False, "absent")
    nothing = broker.kv(delete("k", expect=0))[0]
    assert (nothing["applied"], nothing["value"], nothing["version"]) == (True, None, 0)
    assert broker.call("POST", "/api/v1/kv", []) == {"results": []}
    assert broker.call("POST", "/api/v1/kv", {"operations": [get("k")]})["results"][0]["found"] is False


def test_values_are_stored_normalised(env):
    broker = env.broker().start()
    body = '[{"op":"put","ns":"n","key":"k","forever":true,"value":{ "b" : 1.0, "a": 1e2 , "c":"\\u00e9\\/", "b":2.50 , "n":-0, "i": 9007199254740993}}]'
    assert broker.request("POST", "/api/v1/kv", body).status == 200
    text = broker.request("POST", "/api/v1/kv", [get("k")]).body.decode()
    value = text[text.index('"value":') + 8 : text.index(',"version"')]
    parsed = json.loads(value)
    assert list(parsed) == ["a", "b", "c", "i", "n"] and " " not in value, value
    assert parsed["b"] == 2.5 and parsed["a"] == 100 and parsed["c"] == "é/" and parsed["i"] == 9007199254740993, value
    broker.kill()
    broker.start()
    assert broker.request("POST", "/api/v1/kv", [get("k")]).body.decode() == text, "and stay so"


@mark(timeout=60)
def test_two_racing_puts_if_absent_have_one_winner(env):
    broker = env.broker(NO_RATES).start()
    for n in range(30):
        answers, barrier = [], threading.Barrier(2)

        def race(who):
            with broker.session() as call:
                barrier.wait()
                answers.append(
                    (who, call("POST", "/api/v1/kv", [{**put(f"k{n}", who), "op": "putIfAbsent"}]).json["results"][0])
                )

        threads = [threading.Thread(target=race, args=(who,)) for who in ("a", "b")]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        winners = [(who, r) for who, r in answers if r["applied"]]
        losers = [r for _, r in answers if not r["applied"]]
        assert len(winners) == len(losers) == 1, answers
        who, won = winners[0]
        assert (losers[0]["reason"], losers[0]["value"], losers[0]["version"]) == ("exists", who, won["version"])


@mark(timeout=90)
def test_compare_and_set_from_16_clients_counts_exactly(env):
    broker = env.broker(NO_RATES).start()
    broker.kv(put("c", 0))
    versions, errors = [], []

    def work(seed):
        r = random.Random(seed)
        try:
            with broker.session() as call:
                seen = call("POST", "/api/v1/kv", [get("c")]).json["results"][0]
                done = 0
                while done < 63:
                    result = call("POST", "/api/v1/kv", [put("c", seen["value"] + 1, expect=seen["version"])]).json[
                        "results"
                    ][0]
                    if result["applied"]:
                        done += 1
                        versions.append((result["version"], result["value"]))
                    else:
                        assert result["reason"] == "version" and result["version"] > seen["version"], result
                        time.sleep(r.random() / 200)
                    seen = result
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(80)
    assert not errors, errors[0]
    assert broker.kv(get("c"))[0]["value"] == 16 * 63
    ordered = sorted(versions)
    assert [value for _, value in ordered] == list(range(1, 16 * 63 + 1)), "versions rise with the writes"
    assert len(set(versions)) == 16 * 63


def test_versions_rise_over_deletion_expiry_and_restart(env):
    broker = env.broker().start()
    versions = [broker.kv(put("k", 1))[0]["version"]]
    broker.kv(delete("k"))
    versions.append(broker.kv(put("k", 1, ttlSeconds=1))[0]["version"])
    time.sleep(1.1)
    versions.append(broker.kv(put("k", 1, expect=0))[0]["version"])
    broker.kv(delete("k"))
    broker.kill()
    broker.start()
    versions.append(broker.kv(put("k", 1))[0]["version"])
    broker.kv(delete("k"))
    assert broker.sigterm() == 0
    broker.start()
    versions.append(broker.kv(put("k", 1))[0]["version"])
    assert versions == sorted(set(versions)), versions


@mark(timeout=60)
def test_a_row_is_gone_at_its_instant_on_an_idle_broker_too(env):
    broker = env.broker(NO_RATES).start()
    before = time.time()
    old = broker.kv(put("k", 1, ttlSeconds=1))[0]["version"]
    assert broker.kv(get("k"))[0]["found"] is True
    while broker.kv(get("k"))[0]["found"]:
        assert time.time() < before + 5
        time.sleep(0.01)
    assert 0.9 <= time.time() - before <= 2.0, "gone at its instant, and no write was needed"
    assert broker.kv({"op": "getPrefix", "ns": "n", "prefix": "k"})[0]["rows"] == []
    lost = broker.kv(put("k", 2, expect=old))[0]
    assert (lost["applied"], lost["reason"]) == (False, "absent"), lost
    assert broker.kv({**put("k", 3), "op": "putIfAbsent"})[0]["applied"] is True
    broker.kv(put("x", 1, ttlSeconds=1))
    broker.kill()
    time.sleep(1.2)
    broker.start()
    assert broker.kv(get("x"))[0]["found"] is False, "expired while the broker was down"
    replaced = broker.kv(put("y", 1, ttlSeconds=1))[0]
    broker.kv(put("y", 2, expect=replaced["version"]))
    time.sleep(1.2)
    assert broker.kv(get("y"))[0]["found"] is True, "a put replaces the expiry too"


def test_a_losing_required_write_undoes_the_whole_call(env):
    broker = env.broker().start()
    broker.kv(put("c", "there"))
    calls = [put("a", 1), put("b", 1), put("c", 1, expect=0, required=True), put("d", 1), delete("e")]
    answer = broker.call("POST", "/api/v1/kv", calls)
    there = broker.kv(get("c"))[0]
    assert answer == {
        "ok": False,
        "reason": "kv_precondition",
        "failedIndex": 2,
        "kvReason": "exists",
        "version": there["version"],
        "value": "there",
    }, answer
    rows = broker.kv({"op": "getMany", "ns": "n", "keys": ["a", "b", "c", "d", "e"]})[0]
    assert [(r["key"], r["value"]) for r in rows["rows"]] == [("c", "there")], rows
    # Two lose: the one reported is the first by the bytes of the keys, not by its place in the call.
    broker.kv(put("y", 1), put("z", 1))
    answer = broker.call(
        "POST", "/api/v1/kv", [put("z", 2, expect=0, required=True), put("y", 2, expect=0, required=True)]
    )
    assert answer["failedIndex"] == 1, answer
    # Without `required` a loser affects only itself.
    results = broker.kv(put("f", 1), put("c", 2, expect=0))
    assert [r["applied"] for r in results] == [True, False]
    # A detail that is too long is left out.
    broker.kv(put("long", "x" * 5000))
    answer = broker.call("POST", "/api/v1/kv", [put("long", 1, expect=0, required=True)])
    assert answer == {"ok": False, "reason": "kv_precondition"}, answer


def test_the_order_inside_a_call(env):
    broker = env.broker().start()
    broker.kv(put("k", "old"))
    results = broker.kv(
        get("k"),
        put("k", "new"),
        get("k"),
        {"op": "getPrefix", "ns": "n", "prefix": "k"},
        put("k2", 1),
        {"op": "getMany", "ns": "n", "keys": ["k2", "k"]},
    )
    assert [r["index"] for r in results] == list(range(6))
    assert (results[0]["value"], results[2]["value"]) == ("old", "new")
    assert [r["key"] for r in results[3]["rows"]] == ["k", "k2"], "a prefix read sees every write of the call"
    assert [r["value"] for r in results[5]["rows"]] == ["new", 1]


@mark(timeout=60)
def test_prefix_paging(env):
    broker = env.broker(NO_RATES).start()
    keys = [f"p{n:04d}" for n in range(2500)] + ["p\U0010ffff", "p\U0010ffffx", "q"]
    for n in range(0, len(keys), 250):
        broker.kv(*[put(key, key) for key in keys[n : n + 250]])
    found, after, pages = [], None, 0
    while True:
        r = broker.kv(
            {"op": "getPrefix", "ns": "n", "prefix": "p", "limit": 1000, **({"after": after} if after else {})}
        )[0]
        found += [row["key"] for row in r["rows"]]
        pages += 1
        if not r["truncated"]:
            assert r["nextAfter"] is None, r["nextAfter"]
            break
        after = r["nextAfter"]
        assert after == found[-1]
    assert found == keys[:-1] and pages == 3
    last = broker.kv({"op": "getPrefix", "ns": "n", "prefix": "p\U0010ffff"})[0]
    assert [row["key"] for row in last["rows"]] == ["p\U0010ffff", "p\U0010ffffx"], "the greatest prefix UTF-8 has"
    assert len(broker.kv({"op": "getPrefix", "ns": "n", "prefix": "p"})[0]["rows"]) == 100
    only = broker.kv({"op": "getPrefix", "ns": "n", "prefix": "p", "limit": 2, "keysOnly": True})[0]
    assert all("value" not in row and "version" in row for row in only["rows"]) and only["truncated"] is True
    assert len(broker.kv({"op": "getPrefix", "ns": "n", "prefix": "p", "limit": 5000})[0]["rows"]) == 1000
    for n in range(80):
        broker.kv(put(f"big{n:03d}", "x" * 65000))
    found, after, truncated = [], None, 0
    while True:
        r = broker.kv(
            {"op": "getPrefix", "ns": "n", "prefix": "big", "limit": 1000, **({"after": after} if after else {})}
        )[0]
        found += [row["key"] for row in r["rows"]]
        truncated += r["truncated"]
        after = r["nextAfter"]
        if not r["truncated"]:
            break
    assert found == [f"big{n:03d}" for n in range(80)] and truncated == 1, "4 MiB a call, and a usable nextAfter"


def test_incr(env):
    broker = env.broker().start()

    def incr(delta, **more):
        return broker.kv({"op": "incr", "ns": "n", "key": "i", "delta": delta, "forever": True, **more})[0]

    assert incr(1)["value"] == 1 and incr(0.1)["value"] == 1.1 and incr(0.2)["value"] == 1.3, "decimal arithmetic"
    assert incr(-1.3)["value"] == 0
    lost = incr(10, max=5)
    assert (lost["applied"], lost["reason"], lost["value"]) == (False, "limit", 0), lost
    assert incr(5, max=5, min=0)["value"] == 5
    assert incr(-6, min=0)["reason"] == "limit"
    assert incr(9007199254740993 - 5)["value"] == 9007199254740993, "64-bit integers are exact"
    broker.kv(put("i", "text"))
    assert incr(1)["reason"] == "type"


REFUSED = [
    ("{", 400, "kv_bad_body"),
    ({"op": "get"}, 400, "kv_bad_body"),
    ([1], 400, "kv_bad_body"),
    ("", 400, "kv_bad_body"),
    ([{"op": "frob", "ns": "n", "key": "k"}], 400, "kv_unknown_op"),
    ([{"op": "putIfVersion", "ns": "n", "key": "k"}], 400, "kv_unknown_op"),
    ([{"ns": "n", "key": "k"}], 400, "kv_unknown_op"),
    ([get("k", ns="")], 400, "kv_bad_namespace"),
    ([get("k", ns="N")], 400, "kv_bad_namespace"),
    ([get("k", ns="a b")], 400, "kv_bad_namespace"),
    ([get("k", ns="-a")], 400, "kv_bad_namespace"),
    ([get("k", ns="a" * 65)], 400, "kv_bad_namespace"),
    ([{"op": "get", "key": "k"}], 400, "kv_bad_namespace"),
    ([get("")], 400, "kv_bad_key"),
    ([get("a\0b")], 400, "kv_bad_key"),
    ([{"op": "get", "ns": "n"}], 400, "kv_bad_key"),
    ([{"op": "get", "ns": "n", "key": 1}], 400, "kv_bad_key"),
    ('[{"op":"get","ns":"n","key":"\\ud800"}]', 400, "kv_bad_key"),
    ([get("k" * 600)], None, ("kv_bad_key", "kv_key_too_large")),
    ([get("k" * 512)], 413, "kv_key_too_large"),
    ([{"op": "put", "ns": "n", "key": "k", "value": 1}], 400, "kv_expiry_not_specified"),
    ([put("k", 1, ttlSeconds=5, forever=True)], 400, "kv_expiry_not_specified"),
    ([put("k", 1, ttlSeconds=0)], 400, "kv_bad_ttl"),
    ([put("k", 1, ttlSeconds=-1)], 400, "kv_bad_ttl"),
    ([put("k", 1, ttlSeconds=1.5)], 400, "kv_bad_ttl"),
    ([put("k", 1, ttlSeconds="5")], 400, "kv_bad_ttl"),
    ([put("k", 1, expect=None)], 400, "kv_bad_expect"),
    ([put("k", 1, expect=-1)], 400, "kv_bad_expect"),
    ([put("k", 1, expect="1")], 400, "kv_bad_expect"),
    ([put("k", 1, expect=1.5)], 400, "kv_bad_expect"),
    ([{**put("k", 1, expect=3), "op": "putIfAbsent"}], 400, "kv_bad_expect"),
    ([{"op": "check", "ns": "n", "key": "k"}], 400, "kv_bad_expect"),
    ([{"op": "getPrefix", "ns": "n"}], 400, "kv_prefix_required"),
    ([{"op": "getPrefix", "ns": "n", "prefix": ""}], 400, "kv_prefix_required"),
    ([get("k")] * 257, 400, "kv_too_many_ops"),
    ([{"op": "getMany", "ns": "n", "keys": [str(n) for n in range(1025)]}], 400, "kv_too_many_keys"),
    ([{"op": "getPrefix", "ns": "n", "prefix": "p", "limit": 1000}] * 2, 400, "kv_too_many_keys"),
    ([put("k", 1), put("k", 2)], 400, "kv_duplicate_key_in_call"),
    ([put("k", 1), delete("k")], 400, "kv_duplicate_key_in_call"),
    ([{**get("k"), "tenant": "x"}], 400, "kv_tenant_not_an_input"),
    ([put("k", "x" * 65536)], 413, "kv_value_too_large"),
    ('[{"op":"put","ns":"n","key":"k","forever":true,"value":1E400}]', 400, None),
    ('[{"op":"put","ns":"n","key":"k","forever":true,"value":"\\ud800"}]', 400, None),
    ('[{"op":"put","ns":"n","key":"k","forever":true,"value":' + "[" * 1000000 + "]" * 1000000 + "}]", None, None),
    (b'[{"op":"get","ns":"n","key":"\xff"}]', 400, None),
    (b"\x00", 400, "kv_bad_body"),
]


@mark(timeout=60)
def test_refusals(env):
    broker = env.broker().start()
    wrong = []
    for body, status, reason in REFUSED:
        answer = broker.request("POST", "/api/v1/kv", body)
        kinds = {400: "kv_bad_request", 413: "payload_too_large"}
        good = answer.status in ((status,) if status else (400, 413)) and set(answer.json) == {
            "error",
            "reason",
            "detail",
        }
        reasons = (reason,) if isinstance(reason, str) else reason
        good = (
            good
            and answer.json["error"] == kinds[answer.status]
            and (reasons is None or answer.json["reason"] in reasons)
        )
        if not good:
            wrong.append((str(body)[:120], status, reason, answer))
    assert not wrong, wrong
    assert broker.kv(get("k"))[0]["found"] is False, "a refused call wrote"
    assert broker.kv(put("k", "x" * 65534))[0]["applied"] is True, "65,536 bytes with its quotes is the most"
    assert broker.kv(put("k" * (511 - 64 - 36), 1, ns="a" * 60))[0]["applied"] is True


@mark(timeout=60)
def test_rows_survive_kills(env):
    """A model beside the store: random batches, kill -9 in between, then every row is what the model says."""
    broker = env.broker(NO_RATES, QUEEN_RAFT_DURABLE_EVERY_MS=50).start()
    r, model = env.random, {}
    for life in range(5):
        for _ in range(40):
            operations, keys = [], set()
            for _ in range(r.randrange(1, 8)):
                key = f"k{r.randrange(60)}"
                if key in keys:
                    continue
                keys.add(key)
                operations.append(
                    delete(key) if r.random() < 0.3 else put(key, [r.randrange(1000), "x" * r.choice([0, 5000])])
                )
            for operation, result in zip(operations, broker.kv(*operations)):
                if operation["op"] == "put":
                    assert result["applied"]
                    model[operation["key"]] = (operation["value"], result["version"])
                else:
                    assert result["applied"] == (operation["key"] in model), (operation, result)
                    model.pop(operation["key"], None)
        if r.random() < 0.5:
            time.sleep(0.1)
        broker.kill()
        broker.start()
        rows = broker.kv({"op": "getPrefix", "ns": "n", "prefix": "k", "limit": 1000})[0]["rows"]
        assert {row["key"]: (row["value"], row["version"]) for row in rows} == model, f"after life {life}"
