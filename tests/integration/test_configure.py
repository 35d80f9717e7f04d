"""POST /api/v1/configure, option by option (spec/broker-api.md 3): what each takes, what it does not, and that a refusal
leaves every option as it was. Options whose effect is not built take their default only (decisions.md 29)."""

import json
import uuid

from harness import mark
from traffic import push_one

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
NO_INTEGERS = ["1", 1.5, 1.0, True, [], {}, INT_MAX + 1, INT_MIN - 1, 10**30, "", "null"]
NO_BOOLEANS = ["true", "", 0, 1, [], {}, 0.0]
NO_HOLDS = ["a b", "x" * 65, "ü", "a/b", "a\0", "\ud800", "\n"]
ANY = {INT_MIN: INT_MIN, -1: -1, 0: 0, 7: 7, INT_MAX: INT_MAX}  # given: kept as
FROM_0 = {0: 0, 7: 7, INT_MAX: INT_MAX}


class Option:
    """default; kept: value given to value kept; refused: values; unbuilt: values of the right type that are refused."""

    def __init__(self, default, kept=None, refused=(), unbuilt=()):
        self.default, self.kept, self.refused, self.unbuilt = default, kept or {default: default}, refused, unbuilt


def integer(default, kept=None, refused=(), unbuilt=()):
    return Option(default, kept, [*NO_INTEGERS, *refused], unbuilt)


OPTIONS = {
    "priority": integer(0, ANY),
    "leaseTime": integer(300, {INT_MIN: 1, 0: 1, 1: 1, 7: 7, INT_MAX: INT_MAX}),
    "retryLimit": integer(3, ANY),
    "retryDelay": integer(1000, ANY),
    "maxSize": integer(0, ANY),
    "ttl": integer(3600, ANY),
    "deadLetterQueue": Option(True, {True: True, False: False}, NO_BOOLEANS),
    "dlqAfterMaxRetries": Option(True, {True: True, False: False}, NO_BOOLEANS),
    "delayedProcessing": integer(0, FROM_0, [-1]),
    "windowBuffer": integer(0, FROM_0, [-1]),
    "retentionSeconds": integer(0, None, [-1], [1, INT_MAX]),
    "completedRetentionSeconds": integer(0, None, [-1], [1, INT_MAX]),
    "retentionEnabled": Option(False, None, NO_BOOLEANS, [True]),
    "encryptionEnabled": Option(False, None, NO_BOOLEANS, [True]),
    "maxWaitTimeSeconds": integer(0, None, [-1], [1, INT_MAX]),
    "minPopWaitTime": integer(0, {-1: 0, INT_MIN: 0, 0: 0, 7: 7, 60000: 60000, 60001: 60000, INT_MAX: 60000}),
    "dedupWindowSeconds": integer(3600, FROM_0, [-1]),
    # null or a non-string is "" (a tuple stands for a list: it is hashable)
    "retentionSinkHold": Option("", {"": "", 7: "", True: "", (): ""}, NO_HOLDS, ["default", "A.b_c-9", "x" * 64]),
    "retentionSinkHoldMaxSeconds": integer(604800, None, [59, 0, -1, 31536001], [60, 31536000, 604801]),
}
DEFAULTS = {name: option.default for name, option in OPTIONS.items()}
OTHERS = {"leaseTime": 77, "retryLimit": 5, "deadLetterQueue": False, "dedupWindowSeconds": 60, "ttl": 9}


def configure(broker, status=200, **body):
    return broker.call("POST", "/api/v1/configure", json.dumps(body), status)


def options(answer):
    """Those of an answer, without the copy of maxSize."""
    got = dict(answer["options"])
    assert got.pop("maxQueueSize") == got["maxSize"], answer
    return got


def shown(broker, queue):
    """What other routes say that the queue's options are."""
    row = next(r for r in broker.call("GET", "/api/v1/resources/queues")["queues"] if r["name"] == queue)
    detail = broker.call("GET", f"/api/v1/resources/queues/{queue}")
    assert detail["options"] == row["options"], (detail, row)
    return options(detail)


def test_the_table_has_every_option(env):
    broker = env.broker().start()
    answer = configure(broker, queue="q")
    assert options(answer) == DEFAULTS == shown(broker, "q")
    assert uuid.UUID(answer.pop("queueId")).version == 7
    assert answer.pop("options") and answer == {
        "configured": True, "partitionId": None, "queue": "q", "namespace": "", "task": "", "storage": "segments",
    }, answer


def test_a_push_makes_a_queue_with_its_own_defaults(env):
    broker = env.broker().start()
    for queue, namespace, task in (("billing.invoices.eu", "billing", "invoices"), ("orders", "orders", "")):
        push_one(broker, queue)
        answer = configure(broker, queue=queue, options={})
        assert (answer["namespace"], answer["task"]) == (namespace, task), answer
        assert options(answer) == {**DEFAULTS, "leaseTime": 60} == shown(broker, queue), answer


@mark(timeout=120)
def test_each_option_takes_what_it_should(env):
    broker = env.broker().start()
    for name, option in OPTIONS.items():
        queue, wrong = f"q-{name}", []
        first = configure(broker, queue=queue, options=OTHERS)
        for given, kept in option.kept.items():
            given = list(given) if isinstance(given, tuple) else given
            want = {**DEFAULTS, **OTHERS, name: kept}
            for body in ({"options": {name: given}}, {name: given}, {name: given, "options": None}):
                configure(broker, queue=queue, options={name: None})
                answer = configure(broker, queue=queue, **body)
                if options(answer) != want or answer["queueId"] != first["queueId"]:
                    wrong.append((body, answer))
            assert shown(broker, queue) == want, (name, given)
            null = options(configure(broker, queue=queue, options={name: None}))
            assert null == {**DEFAULTS, **OTHERS, name: option.default}, ("null", name, null)
        assert not wrong, wrong


@mark(timeout=120)
def test_each_option_refuses_what_it_should_not_take_and_nothing_changes(env):
    broker = env.broker().start()
    before = configure(broker, queue="q", namespace="n", task="t", options=OTHERS)
    wrong = []
    for name, option in OPTIONS.items():
        unbuilt = [(value, f"{name} is not built yet") for value in option.unbuilt]
        for value, word in [(value, name) for value in option.refused] + unbuilt:
            for body in ({"options": {"priority": 1, "namespace": "other", "retryLimit": 9, name: value}},
                         {"mode": "replace", "task": "other", "retryDelay": 4, name: value}):
                answer = broker.request("POST", "/api/v1/configure", json.dumps({"queue": "q", **body}))
                if answer.status != 400 or answer.json.get("code") != "bad_request" or word not in answer.json["error"]:
                    wrong.append((body, answer))
            answer = broker.request("POST", "/api/v1/configure", json.dumps({"queue": "new", "options": {name: value}}))
            assert answer.status == 400, (name, value, answer)
    assert not wrong, "\n".join(map(str, wrong))
    assert configure(broker, queue="q") == before
    assert [q["name"] for q in broker.call("GET", "/api/v1/resources/queues")["queues"]] == ["q"]


def test_messages_say_what_is_accepted(env):
    broker = env.broker().start()
    for name, value, text in (
        ("leaseTime", "1", "leaseTime must be an integer"),
        ("deadLetterQueue", 1, "deadLetterQueue must be a boolean"),
        ("dedupWindowSeconds", -1, "dedupWindowSeconds must be between 0 and 2147483647, got -1"),
        ("retentionSinkHold", "a b", "retentionSinkHold must match [A-Za-z0-9._-]{0,64}"),
        ("retentionSinkHoldMaxSeconds", 59, "retentionSinkHoldMaxSeconds must be between 60 and 31536000, got 59"),
        ("encryptionEnabled", True, "encryptionEnabled is not built yet: only its default is accepted"),
    ):
        answer = configure(broker, 400, queue="q", options={name: value})
        assert answer == {"error": text, "code": "bad_request"}, answer


def test_modes_and_labels(env):
    broker = env.broker().start()
    configure(broker, queue="q", namespace="n", task="t", options=OTHERS)
    cases = [  # body, options and labels afterwards
        ({}, OTHERS, "n", "t"),
        ({"options": {}}, OTHERS, "n", "t"),
        ({"mode": None, "namespace": None, "task": None, "options": {}}, OTHERS, "n", "t"),
        ({"mode": "merge", "namespace": "", "task": "", "options": {"ttl": 10}}, {**OTHERS, "ttl": 10}, "n", "t"),
        ({"namespace": "n2", "options": {"namespace": "n3", "ttl": 9}}, OTHERS, "n3", "t"),
        ({"namespace": "n2", "options": {"namespace": None}}, OTHERS, "", "t"),
        ({"namespace": "n4", "task": "t4", "leaseTime": 77}, OTHERS, "n4", "t4"),
        ({"options": [1], "leaseTime": 78}, {**OTHERS, "leaseTime": 78}, "n4", "t4"),
        ({"options": {"unknown": [1], "LEASETIME": 3}, "leaseTime": 3}, {**OTHERS, "leaseTime": 78}, "n4", "t4"),
        ({"mode": "replace", "options": {"ttl": 9}}, {"ttl": 9}, "", ""),
        ({"mode": "replace", "task": "t5", "options": {}}, {}, "", "t5"),
        ({"mode": "replace", "options": {"leaseTime": None, "task": "t6"}}, {}, "", "t6"),
    ]
    for body, want, namespace, task in cases:
        answer = configure(broker, queue="q", **body)
        got = (options(answer), answer["namespace"], answer["task"])
        assert got == ({**DEFAULTS, **want}, namespace, task), (body, got)
    twice = '{"queue":"x","queue":"q","options":{"ttl":1,"ttl":2,"\\u0074tl":3},"mode":"both","mode":"merge"}'
    assert broker.call("POST", "/api/v1/configure", twice)["options"]["ttl"] == 3, "of equal names the last counts"
    assert [q["name"] for q in broker.call("GET", "/api/v1/resources/queues")["queues"]] == ["q"]


def test_options_outlive_a_kill_and_their_queue_does_not_change(env):
    broker = env.broker().start()
    push_one(broker, "billing.eu")
    queue = broker.call("GET", "/api/v1/resources/queues/billing.eu")
    assert options(queue) == {**DEFAULTS, "leaseTime": 60}
    configure(broker, queue="billing.eu", options={**OTHERS, "namespace": "n"})
    for _ in range(2):
        after = broker.call("GET", "/api/v1/resources/queues/billing.eu")
        assert options(after) == {**DEFAULTS, **OTHERS} and (after["namespace"], after["task"]) == ("n", "eu")
        for name in ("id", "createdAt", "partitions", "totals", "retainedBytes"):
            assert after[name] == queue[name], (name, after[name])
        broker.kill()
        broker.start()
