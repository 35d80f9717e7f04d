"""A data folder that runs full (decisions.md 20): nothing acknowledged is lost, and it goes on when there is room."""

import json
import subprocess

import oracle
import traffic
from harness import mark, wait_until
from traffic import Batches, Item, Ledger, small_filesystem

ON_EVERY_STORE = True
SMALL, LARGE = "96m", "512m"


def resize(path, size):
    subprocess.run(["mount", "-o", f"remount,size={size}", path], check=True)


def fill(broker, ledger, batches, most=4000):
    """Pushes of 100 KB until one is refused; the items of that one."""
    with broker.session() as call:
        for n in range(most):
            items = [batches.item(payload=json.dumps("x" * 100000))]
            answer = call("POST", "/api/v1/push", traffic.body_of(items))
            if answer.status == 507:
                assert answer.json["code"] == "storage_full", answer
                return items
            assert answer.status == 201, answer
            ledger.acknowledged(items, answer.json, f"fill-{batches.made}")
    raise AssertionError("the filesystem never ran full")


def push_when_there_is_room(broker, ledger, items, name):
    answers = []

    def taken():
        answer = broker.request("POST", "/api/v1/push", traffic.body_of(items))
        assert answer.status in (201, 507), answer
        answers.append(answer)
        return answer.status == 201

    wait_until(taken, 20, every=0.2, what="pushes are taken again")
    ledger.acknowledged(items, answers[-1].json, name)


def settings(env, path, **more):
    return {
        **env.lake("orders"),
        "QUEEN_RAFT_DIR": path / "data",
        "QUEEN_S3_MAX_WINDOW_MS": 500,
        "QUEEN_S3_SAFE_GUARD_MS": 100,
        "QUEEN_RAFT_SEGMENT_BYTES": 4194304,
        "QUEEN_RAFT_DURABLE_EVERY_MS": 200,
        **more,
    }


@mark(timeout=120)
def test_a_full_data_folder_refuses_pushes_and_goes_on_when_there_is_room(env):
    with small_filesystem(env.dir / "small", SMALL) as path:
        broker = env.broker(settings(env, path)).start()
        ledger = Ledger(env.dir / "ledger")
        batches = Batches(env.random, ["orders"], ["a", "b"])
        refused = fill(broker, ledger, batches)
        assert broker.metrics()["queen_raft_storage_full"] == 1
        assert broker.health().status == 200, broker.health()
        traffic.check_read_back(broker, ledger)
        resize(path, LARGE)
        push_when_there_is_room(broker, ledger, refused, "refused")
        traffic.wait_complete(broker, ["orders"])
        traffic.check_read_back(broker, ledger)
        assert broker.sigterm() == 0
        oracle.judge(env.bucket, ledger.save(), temporary=False)


@mark(timeout=120)
def test_a_kill_on_a_full_data_folder_loses_nothing(env):
    with small_filesystem(env.dir / "small", SMALL) as path:
        broker = env.broker(settings(env, path)).start()
        ledger = Ledger(env.dir / "ledger")
        batches = Batches(env.random, ["orders"], ["a", "b"])
        refused = fill(broker, ledger, batches)
        broker.kill()
        broker.start()
        traffic.check_read_back(broker, ledger)
        answer = broker.request("POST", "/api/v1/push", traffic.body_of(refused))
        assert answer.status in (201, 507), answer
        if answer.status == 201:
            ledger.acknowledged(refused, answer.json, "after the kill")
        broker.kill()
        resize(path, LARGE)
        broker.start()
        push_when_there_is_room(broker, ledger, [Item("orders", "a", "room", "1")], "room")
        traffic.check_read_back(broker, ledger)
        traffic.check_duplicates(broker, ledger)
        traffic.wait_complete(broker, ["orders"])
        assert broker.sigterm() == 0
        oracle.judge(env.bucket, ledger.save(), temporary=False)


@mark(timeout=120)
def test_deleting_a_queue_makes_room_on_a_full_data_folder(env):
    with small_filesystem(env.dir / "small", SMALL) as path:
        broker = env.broker(settings(env, path)).start()
        ledger, other = Ledger(env.dir / "ledger"), Ledger(env.dir / "other")
        batches = Batches(env.random, ["orders"], ["a"])
        traffic.push_all(broker, ledger, [[batches.item(payload="1")] for _ in range(20)])
        fill(broker, other, Batches(env.random, ["bulk"], ["a"]))
        assert broker.call("DELETE", "/api/v1/resources/queues/bulk")["deleted"] is True
        push_when_there_is_room(broker, ledger, [Item("orders", "a", "room", '"' + "y" * 100000 + '"')], "room")
        traffic.wait_complete(broker, ["orders"])
        assert broker.sigterm() == 0
        oracle.judge(env.bucket, ledger.save(), temporary=False)
