"""GET /metrics/prometheus: what a scraper reads. Families and labels against docs/metrics.md, which is made from the
table in code; the text by a strict parser of our own and by promtool; how long a series lives.

spec/sink-status-metrics.md 2, spec/broker-api.md 6.
"""

import re
import shutil
import subprocess

import traffic
from harness import REPO, Skip, mark, wait_until
from traffic import Item

# The broker's families in the order of the specification; the sink's stand in test_status.py.
BROKER = """
uptime_seconds:gauge process_resident_memory_bytes:gauge process_push_requests_total:counter
process_push_messages_total:counter process_pop_requests_total:counter process_pop_messages_total:counter
process_ack_requests_total:counter process_ack_messages_total:counter parked_long_polls:gauge
queue_pop_lag_milliseconds:gauge dlq_depth_by_queue:gauge kv_ops_total:counter kv_op_duration_milliseconds:histogram
raft_storage_full:gauge raft_index:gauge raft_inflight:gauge raft_proposals_total:counter raft_log_storage:gauge
raft_admit_total:counter clock_ahead_seconds:gauge
""".split()
ODD = ['a "b" \\ c\nd', "plain", "ünï/{},=", "\\n", 'end\\"']
FAMILY = re.compile(r"\| `(queen_\w+)` \| (\w+) \|([^|]*)\|")
SAMPLE = re.compile(r"([a-z][a-z0-9_]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
VALUE = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?")
# The words of promtool about names that the specification fixes; nothing else may be complained of.
COMPLAINTS = {
    'queen_kv_op_duration_milliseconds use base unit "seconds" instead of "milliseconds"',
}


def documented():
    """[(name, type, labels)] of docs/metrics.md, in its order."""
    text = (REPO / "docs" / "metrics.md").read_text()
    return [(name, kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in FAMILY.findall(text)]


def unescape(value):
    return re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value)


def parse_labels(text):
    labels, at = [], 0
    while at < len(text):
        label = LABEL.match(text, at)
        assert label and (label[3] or label.end() == len(text)), (text, at)
        labels.append((label[1], unescape(label[2])))
        at = label.end()
    return labels


def parse(text):
    """({family: (type, help)} in order, [(family, name, labels, value)]), every rule of the format checked on the way."""
    families, samples, current = {}, [], None
    assert text.endswith("\n")
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            current, _, words = line[7:].partition(" ")
            assert current not in families and words, f"{line}: the family again, or no text"
            families[current] = (None, words)
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name == current and families[name][0] is None and kind in ("counter", "gauge", "histogram"), line
            families[name] = (kind, families[name][1])
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, f"not a sample: {line!r}"
            suffixes = ("_bucket", "_sum", "_count") if families[current][0] == "histogram" else ("",)
            assert sample[1] in [current + suffix for suffix in suffixes], f"{line} stands under {current}"
            assert VALUE.fullmatch(sample[3]), line
            samples.append((current, sample[1], parse_labels(sample[2] or ""), float(sample[3])))
    seen = [(name, tuple(labels)) for _, name, labels, _ in samples]
    assert len(set(seen)) == len(seen), "a series twice"
    return families, samples


def read(broker):
    answer = broker.request("GET", "/metrics/prometheus")
    assert answer.status == 200 and answer.headers["content-type"] == "text/plain; version=0.0.4", answer
    return answer.body.decode()


def check_against_documents(families, samples, sink):
    rows = [row for row in documented() if sink or not row[0].startswith("queen_s3_")]
    assert [(name, kind) for name, (kind, _) in families.items()] == [(name, kind) for name, kind, _ in rows]
    labels_of = {name: labels for name, _, labels in rows}
    for family, name, labels, _ in samples:
        want = labels_of[family] + (["le"] if name.endswith("_bucket") else [])
        assert [label for label, _ in labels] == want, (name, labels)


def queues_of(samples, family):
    return {dict(labels)["queue"] for f, _, labels, _ in samples if f == family}


def settings(env, queues="*"):
    return env.lake(queues, QUEEN_S3_MAX_WINDOW_MS=200, QUEEN_S3_CHECKPOINT_EVERY=1, QUEEN_S3_LEASE_TTL_MS=1000)


def push(broker, queues, n):
    broker.push(traffic.body_of([Item(queue, "p", f"t{n}", str(n)) for queue in queues]))


def shipped(broker, queues, windows=1):
    """Waits until each queue has that many windows, and a checkpoint of the last; the parsed metrics."""

    def done():
        families, samples = parse(read(broker))
        windows_of = {dict(l)["queue"]: v for f, _, l, v in samples if f == "queen_s3_windows_committed_total"}
        age_of = {dict(l)["queue"]: v for f, _, l, v in samples if f == "queen_s3_checkpoint_age_windows"}
        return all(windows_of.get(q, 0) >= windows and age_of.get(q) == 0 for q in queues) and (families, samples)

    return wait_until(done, 40, what="windows are committed")


@mark(timeout=90)
def test_every_family_and_every_sample_is_as_documented(env):
    broker = env.broker(settings(env)).start()
    families, samples = parse(read(broker))
    check_against_documents(families, samples, sink=True)
    push(broker, ODD, 1)
    families, samples = shipped(broker, ODD)
    check_against_documents(families, samples, sink=True)
    for family in ("queen_s3_windows_committed_total", "queen_s3_lag_seconds", "queen_s3_bytes_written_total"):
        assert queues_of(samples, family) == set(ODD), (family, queues_of(samples, family))
    per_queue = [tuple(labels) for f, _, labels, _ in samples if f == "queen_s3_fetch_calls_total"]
    assert per_queue == sorted(per_queue, key=lambda l: [v.encode() for _, v in l]), per_queue
    values = {name: value for _, name, labels, value in samples if not labels}
    for kind in ("requests", "messages"):
        assert values[f"queen_process_push_{kind}_total"] == {"requests": 1, "messages": len(ODD)}[kind]
        assert values[f"queen_process_pop_{kind}_total"] == values[f"queen_process_ack_{kind}_total"] == 0
    assert not [f for f, *_ in samples if f in ("queen_queue_pop_lag_milliseconds", "queen_dlq_depth_by_queue")]
    assert broker.sigterm() == 0


def test_without_a_sink_there_are_the_brokers_families_alone(env):
    broker = env.broker().start()
    families, samples = parse(read(broker))
    check_against_documents(families, samples, sink=False)
    assert [f"{name}:{kind}" for name, (kind, _) in families.items()] == [f"queen_{row}" for row in BROKER]
    assert broker.sigterm() == 0


@mark(timeout=90)
def test_promtool_finds_nothing_but_names_the_specification_fixes(env):
    """A lake at work, odd names of queues, calls of the key-value store: every family has samples that can have some."""
    promtool = shutil.which("promtool") or REPO / "build-tools" / "promtool"
    if not shutil.which(promtool):
        raise Skip("promtool is not there: scripts/setup test fetches it")
    broker = env.broker(settings(env)).start()
    push(broker, ODD, 1)
    shipped(broker, ODD)
    broker.kv({"op": "get", "ns": "n", "key": "k"})
    text = read(broker)
    done = subprocess.run([promtool, "check", "metrics"], input=text.encode(), capture_output=True, timeout=60)
    complaints = set((done.stdout + done.stderr).decode().splitlines())
    assert complaints == COMPLAINTS, complaints ^ COMPLAINTS
    broken = text.replace("# TYPE queen_raft_inflight gauge", "# TYPE queen_raft_inflight gage")
    done = subprocess.run([promtool, "check", "metrics"], input=broken.encode(), capture_output=True, timeout=60)
    assert b"gage" in done.stderr and done.returncode != 0, "promtool looks"
    assert broker.sigterm() == 0


@mark(timeout=120)
def test_gauges_of_a_queue_go_with_it_and_counters_stay(env):
    gauges = ("queen_s3_lag_seconds", "queen_s3_discovery_partitions", "queen_s3_checkpoint_age_windows")
    counters = ("queen_s3_windows_committed_total", "queen_s3_records_written_total", "queen_s3_bytes_written_total",
                "queen_s3_records_lost_total", "queen_s3_fetch_calls_total")  # fmt: skip
    broker = env.broker(settings(env, "one,two")).start()
    push(broker, ["one", "two"], 1)
    _, samples = shipped(broker, ["one", "two"])
    for family in gauges + counters:
        assert queues_of(samples, family) == {"one", "two"}, (family, samples)
    before = {(name, tuple(labels)): value for f, name, labels, value in samples if f in counters}

    def take(queue, seconds):
        lease = {"instance": "node-9@elsewhere", "incarnation": "0123456789abcdef", "sinceMs": 1}
        key = f"s3:default:{queue}:lease"
        broker.kv({"op": "put", "ns": "queen-s3", "key": key, "value": lease, "ttlSeconds": seconds})

    def gone(*queues):
        rows = {q["name"]: q for q in broker.sink()["queues"]}
        return all(rows[queue]["state"] == "held" for queue in queues)

    take("one", 60)
    wait_until(lambda: gone("one"), 30, what="another node has it")
    _, samples = parse(read(broker))
    for family in gauges:
        assert queues_of(samples, family) == {"two"}, family
    for family in counters:
        assert queues_of(samples, family) == {"one", "two"}, family
    assert [v for f, _, _, v in samples if f == "queen_s3_safe_lag_seconds"], "a queue runs here"
    take("two", 5)
    wait_until(lambda: gone("two"), 30, what="another node has both")
    _, samples = parse(read(broker))
    names = {name for _, name, _, _ in samples}
    assert "queen_s3_safe_lag_seconds" not in names and not names & set(gauges), names
    assert "queen_s3_buffer_bytes" in names
    after = {(name, tuple(labels)): value for f, name, labels, value in samples if f in counters}
    assert set(after) >= set(before) and all(after[series] >= before[series] for series in before), (before, after)
    wait_until(lambda: queues_of(parse(read(broker))[1], "queen_s3_lag_seconds") == {"two"}, 30, what="it is back")
    broker.kill()
    broker.start()
    push(broker, ["two"], 2)
    _, samples = shipped(broker, ["two"])
    windows = {dict(l)["queue"]: v for f, _, l, v in samples if f == "queen_s3_windows_committed_total"}
    assert windows == {"two": 1}, "counters start at 0 with the process"
    assert broker.sigterm() == 0
