"""docs/operations.md, When a queue does not ship: each trouble is made, and looks as the page says, from outside too: one
of its alarms sees it."""

import json
import re
import shutil
import subprocess

from harness import REPO, Skip, mark, wait_until

LAG, WINDOWS = "queen_s3_lag_seconds", "queen_s3_windows_committed_total"


def alarms(broker, queue):
    """The page's expressions about a lag that is not there, as Prometheus would judge them."""
    metrics = broker.metrics()
    series = f'{{queue="{queue}"}}'
    found = set()
    if WINDOWS + series in metrics and LAG + series not in metrics:
        found.add("counted without a lag")
    if not any(name.startswith(LAG) for name in metrics):
        found.add("no lag at all")
    return found


def page_alarms():
    """The expressions of the page, in order."""
    text = (REPO / "docs" / "operations.md").read_text()
    table = text.split("| alarm, for some minutes |")[1].split("\n\n")[0]
    return [e.replace(r"\|", "|") for e in re.findall(r"^\| `([^`]+)`", table, re.M)]


def fires(env, expression, metrics):
    """Does Prometheus answer something to it, when these samples stand for half an hour?"""
    promtool = shutil.which("promtool") or shutil.which(REPO / "build-tools" / "promtool")
    if not promtool:
        raise Skip("promtool is not there: scripts/setup test fetches it")

    def series(name):
        family, _, labels = name.rstrip("}").partition("{")
        return f'{family}{{{labels + "," if labels else ""}instance="i",job="queen"}}'

    test = {
        "interval": "1m",
        "input_series": [{"series": series(n), "values": f"{v}x30"} for n, v in {**metrics, "up": 1.0}.items()],
        "promql_expr_test": [
            {
                "expr": f"count({expression}) > bool 0 or vector(0)",
                "eval_time": "20m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
        ],
    }
    path = env.dir / "alarm.yml"
    path.write_text(json.dumps({"tests": [test]}))  # JSON is YAML
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode == 0 or "got:" in said and "nil" not in said, said
    return done.returncode == 0


def row_when(broker, queue, state):
    return wait_until(
        lambda: (row := broker.sink_queue(queue)) is not None and row["state"] == state and row, what=f"state {state}"
    )


def rows(broker, queue):
    """The call of the page: the sink's rows of a queue."""
    (answer,) = broker.kv({"op": "getPrefix", "ns": "queen-s3", "prefix": f"s3:default:{queue}:"})
    return {row["key"].rsplit(":", 1)[1]: row["value"] for row in answer["rows"]}


def push(broker, queue="orders"):
    broker.push([{"queue": queue, "payload": 1}])


def test_no_sink(env):
    broker = env.broker().start()
    assert "s3" not in broker.status()
    broker.kill()
    broker.start(QUEEN_S3_EMBEDDED="true")
    assert broker.status()["s3"]["sinks"] == []
    assert broker.find_log("QUEEN_S3_EMBEDDED is true, but QUEEN_S3_QUEUES is not set: nothing is mirrored")


def test_a_misspelt_queue(env):
    broker = env.broker(env.lake("ordres")).start()
    push(broker)
    row = row_when(broker, "ordres", "missing")
    assert row["lastError"]["message"] == "the queue does not exist" and broker.sink()["ok"]
    assert alarms(broker, "ordres") == {"counted without a lag", "no lag at all"}


@mark(timeout=90)
def test_the_alarms_of_the_page(env):
    """On a healthy broker none fires; beside a misspelt queue the one that is about it."""
    late, uncounted, none, refused, full, clock = page_alarms()
    broker = env.broker(env.lake("orders,ordres")).start()
    push(broker)
    wait_until(lambda: broker.sink_queue("orders") and broker.sink_queue("orders")["k"] == 1, what="window 1")
    row_when(broker, "ordres", "missing")
    metrics = broker.metrics()
    healthy = {name: value for name, value in metrics.items() if "ordres" not in name}
    assert not [e for e in (late, uncounted, none, refused, full, clock) if fires(env, e, healthy)]
    assert fires(env, uncounted, metrics)
    assert fires(env, late, {**metrics, LAG + '{queue="orders"}': 1000.0})
    assert fires(env, none, {name: value for name, value in metrics.items() if not name.startswith(LAG)})
    assert fires(env, full, {**metrics, "queen_raft_storage_full": 1.0})
    assert fires(env, clock, {**metrics, "queen_clock_ahead_seconds": 600.0})


def test_an_upload_that_cannot_end_shows_its_window(env):
    broker = env.broker(env.lake("orders")).start()
    push(broker)
    wait_until(lambda: rows(broker, "orders").get("committed", {}).get("k") == 1, what="window 1")
    assert rows(broker, "orders")["intent"]["k"] == 1
    env.store.down("refused")
    push(broker)
    row_when(broker, "orders", "upload")
    wait_until(lambda: broker.sink_queue("orders")["lastError"], what="an error")
    assert broker.sink()["bucket"]["reachable"] is False and not broker.sink()["ok"]
    now = rows(broker, "orders")
    assert (now["committed"]["k"], now["intent"]["k"]) == (1, 2) and now["lease"]
    assert [pin["key"] for pin in broker.status()["s3"]["pins"]] == ["s3:default:orders:intent"]
    env.store.up()
    wait_until(lambda: rows(broker, "orders")["committed"]["k"] == 2, what="window 2")


@mark(store="file")
def test_a_lake_that_is_not_ours(env):
    """The data folder was emptied, the lake was not."""
    broker = env.broker(env.lake("orders")).start()
    push(broker)
    wait_until(lambda: broker.sink_queue("orders") and broker.sink_queue("orders")["k"] == 1, what="window 1")
    broker.kill()
    shutil.rmtree(broker.dir / "data")
    broker.start()
    push(broker)
    row = row_when(broker, "orders", "failed")
    assert "another broker, or an older copy of this one's data, writes this lake" in row["lastError"]["message"]
    assert alarms(broker, "orders") == {"counted without a lag", "no lag at all"}


def test_the_lease_of_its_former_self(env):
    broker = env.broker(env.lake("orders", QUEEN_S3_LEASE_TTL_MS=5000)).start()
    push(broker)
    row_when(broker, "orders", "filling")
    broker.kill()
    broker.start(QUEEN_S3_INSTANCE="renamed")
    row = row_when(broker, "orders", "held")
    assert row["heldBy"] == rows(broker, "orders")["lease"]["instance"] != "renamed/node-1", json.dumps(row)
    row_when(broker, "orders", "filling")


def test_where_a_lake_of_the_latest_begins(env):
    broker = env.broker(env.lake("orders", QUEEN_S3_START="latest")).start()
    push(broker)
    row_when(broker, "orders", "filling")
    intent = wait_until(lambda: rows(broker, "orders").get("intent"), what="the intent row")
    assert intent["k"] == 0 and intent["tStart"] == intent["tEnd"]
    push(broker)
    wait_until(lambda: rows(broker, "orders").get("committed"), what="window 1")
    committed = rows(broker, "orders")["committed"]
    assert committed["records"] == 1, committed
