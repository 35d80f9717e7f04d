"""Checkpoints of the sink: a cache, which shortens a restart and never decides what is in the lake.

How many bytes one saves is shown by tests/unit/sink/sink_checkpoint_test.c, with a disk that counts.
"""

import json

import oracle
import traffic
from harness import cases, mark
from traffic import Batches, Ledger

PARTITIONS = [f"p{n}" for n in range(30)]


def settings(env, **more):
    """Small segments: where a window ended lies in a sealed one, as a rule."""
    return {
        **env.lake("orders"),
        "QUEEN_RAFT_SEGMENT_BYTES": 65536,
        "QUEEN_S3_MAX_WINDOW_MS": 200,
        "QUEEN_S3_CHECKPOINT_EVERY": 1,
        **more,
    }


def checkpoints(env):
    return sorted(env.bucket.rglob("checkpoint/*.json.zst"))


def restored(broker):
    """Committed k, and k and rows of the checkpoint, of this start's restore."""
    line = broker.wait_log("queue restored queue=orders")
    return tuple(int(line.fields[name]) for name in ("committed_k", "checkpoint_k", "positions"))


def push_some(broker, ledger, batches, pushes=20, **flags):
    traffic.push_all(broker, ledger, [batches.next(40) for _ in range(pushes)], flags=flags)


def judge(env, ledger, **rules):
    judged = oracle.judge(env.bucket, ledger.save(), temporary=False, exact_frames=True, **rules)
    print(judged.summary())
    return judged


@mark(timeout=120)
def test_every_restart_finds_its_checkpoint_and_each_names_what_came_since_the_one_before(env):
    """SIGTERM and kill -9 in turn, with a backlog that no sink has seen; the checkpoints of all lives are complete."""
    broker = env.broker(settings(env, QUEEN_S3_CHECKPOINT_EVERY=3)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], PARTITIONS, hostile=False)
    found = 0
    for life in range(8):
        push_some(broker, ledger, batches)
        traffic.wait_complete(broker, ["orders"])
        push_some(broker, ledger, batches, pushes=3)
        if life % 2:
            assert broker.kill() < 0
        else:
            assert broker.sigterm() == 0
        if life % 3 == 0:
            broker.start(QUEEN_S3_EMBEDDED="false")
            push_some(broker, ledger, batches)
            assert broker.sigterm() == 0
        broker.start(QUEEN_S3_EMBEDDED="true")
        committed_k, k, rows = restored(broker)
        assert k <= committed_k and committed_k - k <= 6, (committed_k, k)
        found += k > 0 and rows > 0
    assert found >= 6, found
    traffic.wait_complete(broker, ["orders"])
    assert broker.sigterm() == 0
    judge(env, ledger, one_life=True)


# --- damage ---


def rewrite(path, change):
    """Changes the document and packs it again."""
    document = json.loads(oracle.zstd(path.read_bytes(), "-d"))
    change(document)
    path.write_bytes(oracle.zstd(json.dumps(document, separators=(",", ":")).encode(), "-3"))


def gone(env, path):
    path.unlink()


def all_gone(env, path):
    for each in checkpoints(env):
        each.unlink()


def a_bit(env, path):
    data = bytearray(path.read_bytes())
    data[env.random.randrange(len(data))] ^= 1 << env.random.randrange(8)
    path.write_bytes(data)


def cut(env, path):
    path.write_bytes(path.read_bytes()[: env.random.randrange(path.stat().st_size)])


def rewrite_rows(path, change):
    """change: of a list of name, offset and id, to the one to put in its place."""
    rewrite(path, lambda d: d.update(positions=[change(*row) for row in d["positions"]]))


def ahead(env, path):
    """As of a node that knew more of the log."""
    rewrite_rows(path, lambda name, offset, id: [name, offset + env.random.choice([1, 5, 50, 10**9]), id])


def behind(env, path):
    rewrite_rows(path, lambda name, offset, id: [name, env.random.randrange(offset + 1), id])


def other_ids(env, path):
    rewrite_rows(path, lambda name, offset, id: [name, offset, "01a10000-0000-7000-8000-000000000001"])


def no_ids(env, path):
    rewrite_rows(path, lambda name, offset, id: [name, offset + 7])


def other_window(env, path):
    rewrite(path, lambda d: d.update(k=d["k"] + env.random.choice([-1, 1, 1000])))


def other_end(env, path):
    rewrite(path, lambda d: d.update(tEnd=d["tEnd"] + env.random.choice([-3600, -1, 1, 3600]) * 10**6))


def later_window(env, path):
    """One of a window that was never committed."""
    path.with_name("0000999999.json.zst").write_bytes(path.read_bytes())


DAMAGES = [gone, all_gone, a_bit, cut, ahead, behind, other_ids, no_ids, other_window, other_end, later_window]


@mark(timeout=120)
@cases("sigterm", "kill")
def test_no_damage_to_a_checkpoint_costs_or_doubles_a_record(env, case):
    broker = env.broker(settings(env)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], PARTITIONS, hostile=False)
    for damage in DAMAGES:
        push_some(broker, ledger, batches, pushes=10)
        traffic.wait_complete(broker, ["orders"])
        push_some(broker, ledger, batches, pushes=2)
        assert broker.kill() < 0 if case == "kill" else broker.sigterm() == 0
        broker.start(QUEEN_S3_EMBEDDED="false")
        push_some(broker, ledger, batches, pushes=10)
        assert broker.sigterm() == 0
        before = {path: path.read_bytes() for path in checkpoints(env)}
        damage(env, max(before))
        broker.start(QUEEN_S3_EMBEDDED="true")
        committed_k, k, rows = restored(broker)
        print(damage.__name__, committed_k, k, rows)
        traffic.wait_complete(broker, ["orders"])
        for path in checkpoints(env):  # the oracle looks at them too
            if path.name.startswith("0000999999"):
                path.unlink()
        for path, data in before.items():
            path.write_bytes(data)
    assert broker.sigterm() == 0
    judge(env, ledger)


@mark(timeout=60)
def test_a_checkpoint_of_a_deleted_queue_says_nothing_of_the_next_one(env):
    """The same names, lower offsets, other ids; made again before and after the sink's restart."""
    broker = env.broker(settings(env)).start()
    ledger = Ledger(env.dir / "ledger")
    batches = Batches(env.random, ["orders"], PARTITIONS, hostile=False)
    for incarnation in range(4):
        push_some(broker, ledger, batches, pushes=12 - 3 * incarnation, incarnation=incarnation)
        traffic.wait_complete(broker, ["orders"])
        assert broker.sigterm() == 0
        if incarnation == 3:
            break
        before = env.random.random() < 0.5
        broker.start(QUEEN_S3_EMBEDDED="false" if before else "true")
        broker.call("DELETE", "/api/v1/resources/queues/orders")
        if before:
            push_some(broker, ledger, batches, pushes=2, incarnation=incarnation + 1)
            assert broker.sigterm() == 0
            broker.start(QUEEN_S3_EMBEDDED="true")
    judge(env, ledger)
