"""What the broker's settings do: each shows in something a user can see.

spec/cluster.md 1.9-1.12, spec/decisions.md 21. Those that other files are about: limits of bodies, commands and payloads
(test_api.py), the disk gate (test_disk.py, test_full_disk.py), request deadlines (test_fetch.py).
"""

import contextlib
import http.client
import os
import re
import socket
import subprocess
import tempfile
import threading
import time

from harness import Skip, mark, wait_until

WITHOUT_EFFECT = """
QUEEN_STMT_TIMEOUT_MS DEFAULT_SUBSCRIPTION_MODE QUEEN_QLOG_SHARDS QUEEN_QLOG_SEAL_AGE_S QUEEN_RAFT_PIPELINE
QUEEN_RAFT_COMMAND_QUEUE_DEPTH QUEEN_RAFT_REQUEST_ID_WINDOW_S QUEEN_RAFT_ANSWER_AT_COMMIT
QUEEN_RAFT_FOLLOWER_ANSWER_AT_DONE QUEEN_RAFT_ADMIT_FWD_HOLD_MS QUEEN_RAFT_MAX_CLOCK_SKEW_MS QUEEN_CONSUME_CHECKPOINT_MS
QUEEN_CONSUME_FAST QUEEN_CONSUME_LEADER_LEASE_MS QUEEN_CONSUME_TXN_TTL_MS QUEEN_CONSUME_ROWS_PER_COMMAND
QUEEN_RAFT_POP_REPLY_MARGIN_MS QUEEN_LANES QUEEN_RAFT_APPLY_SHARDS QUEEN_STORE_SCRUB_EVERY_S QUEEN_STORE_SCRUB_ROWS_PER_S
RETENTION_INTERVAL RETENTION_BATCH_SIZE QUEEN_RAFT_RETENTION_SCAN_PER_S QUEEN_RAFT_TXN_WINDOW_MIN_S PARTITION_CLEANUP_DAYS
QUEEN_PARTITION_CLEANUP_ENABLED QUEEN_RAFT_KV_SWEEP_MS QUEEN_RAFT_TIMER_TICK_MS QUEEN_RAFT_TRACE_RETENTION_S METRICS_FLUSH_MS
QUEEN_RAFT_ELECTION_MS QUEEN_RAFT_HEARTBEAT_MS QUEEN_RAFT_LOG_KEEP QUEEN_RAFT_CLIENT_OFFLOAD QUEEN_RAFT_READY_LAG_MS
""".split()


def item(n, size=10):
    return {"queue": "q", "partition": "p", "transactionId": f"t{n}", "payload": "x" * size}


def index(broker, kind):
    return broker.metrics()[f'queen_raft_index{{kind="{kind}"}}']


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as s:
        s.bind(("::1", 0))
        return True
    return False


def test_an_ipv6_address_is_taken_with_and_without_brackets(env):
    if not has_ipv6():
        raise Skip("no IPv6 here")
    for address in ("::1", "[::1]"):
        broker = env.broker(QUEEN_BIND_ADDR=address).start()
        connection = http.client.HTTPConnection("::1", broker.port, timeout=20)
        with contextlib.closing(connection):
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
        assert broker.find_log(" boot: listening ")[0].fields["address"] == "::1"
        assert broker.sigterm() == 0


def test_port_0_takes_a_free_one_and_tells_which(env):
    broker = env.broker(PORT=0).start()
    broker.port = int(broker.find_log(" boot: listening ")[0].fields["port"])
    assert broker.port > 0 and broker.health().status == 200
    assert broker.sigterm() == 0


def test_log_filters(env):
    messages = lambda broker: [line.text for line in broker.find_log("config: server")]
    for settings, shown in (
        ({"RUST_LOG": "warn"}, 0),
        ({"LOG_LEVEL": "error"}, 0),
        ({"RUST_LOG": "info", "LOG_LEVEL": "error"}, 1),
        ({"RUST_LOG": "  ", "LOG_LEVEL": "error"}, 0),
        ({"RUST_LOG": ""}, 1),
        ({"LOG_LEVEL": "warn,boot=info"}, 1),
        ({"LOG_LEVEL": "INFO,boot=off"}, 0),
        ({"RUST_LOG": "every=thing=!"}, 1),
    ):
        broker = env.broker(settings).start(wait=False)
        wait_until(lambda: answers(broker), 30, what="it listens")
        assert len(messages(broker)) == shown, (settings, broker.log())
        fallen_back = broker.find_log('WARN boot: log filter "every=thing=!" does not parse: "info" is used')
        assert len(fallen_back) == (1 if "!" in str(settings) else 0), broker.log()
        assert broker.sigterm() == 0


def answers(broker):
    with contextlib.suppress(OSError):
        return broker.health().status == 200


def test_settings_of_parts_made_differently_are_named_in_one_line(env):
    code, out, _ = env.run("check-config", **{name: "1" for name in WITHOUT_EFFECT})
    lines = [line for line in out.splitlines() if "settings without effect in this version: " in line]
    assert code == 0 and len(lines) == 1 and " INFO boot: " in lines[0] and " WARN " not in out, out
    assert set(re.split(", |: ", lines[0])) >= set(WITHOUT_EFFECT), set(WITHOUT_EFFECT) - set(re.split(", |: ", lines[0]))


def test_a_checkpoint_comes_by_time_or_by_bytes(env):
    """The durable index follows within the interval; without one, when enough was written, and not before."""
    broker = env.broker(QUEEN_RAFT_DURABLE_EVERY_MS=50).start()
    broker.push([item(1)])
    wait_until(lambda: index(broker, "durable") >= index(broker, "applied") > 0, 20, what="a checkpoint by time")
    assert broker.sigterm() == 0
    broker = env.broker(QUEEN_RAFT_DURABLE_EVERY_MS=86400000, QUEEN_RAFT_DURABLE_EVERY_BYTES=1000000).start()
    begun = index(broker, "durable")
    broker.push([item(1, 100000)])
    time.sleep(0.5)
    assert index(broker, "durable") == begun < index(broker, "applied")
    for n in range(2, 14):
        broker.push([item(n, 100000)])
    wait_until(lambda: index(broker, "durable") > begun, 20, what="a checkpoint by bytes")
    assert broker.sigterm() == 0


def test_files_of_a_queue_have_the_size_of_the_setting(env):
    broker = env.broker(QUEEN_RAFT_SEGMENT_BYTES=65536).start()
    for n in range(20):
        broker.push([item(n, 20000)])
    files = [path for path in (broker.dir / "data" / "qlog").rglob("*") if path.is_file()]
    sizes = [path.stat().st_size for path in files]
    assert len(files) >= 400000 // 65536 and max(sizes) <= 65536 + 30000, sizes
    assert broker.sigterm() == 0


@mark(timeout=60)
def test_entries_hold_as_much_as_the_setting_says(env):
    """With one command an entry, or two that do not fit into one, as many entries as commands, however many wait."""
    for settings in ({"QUEEN_RAFT_BATCH_MAX_CMDS": 1}, {"QUEEN_RAFT_BATCH_MAX_BYTES": 4096}):
        broker = env.broker(settings).start()
        entries, commands = index(broker, "log"), broker.metrics()["queen_raft_proposals_total"]

        def work(n):
            with broker.session() as call:
                for m in range(20):
                    assert call("POST", "/api/v1/push", {"items": [item(f"{n}-{m}", 3000)]}).status == 201

        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        commands = broker.metrics()["queen_raft_proposals_total"] - commands
        entries = index(broker, "log") - entries
        assert commands == 320 <= entries, (settings, commands, entries)
        assert broker.sigterm() == 0


def send_head(broker, length):
    """A push whose body was announced and does not come."""
    s = socket.create_connection(("127.0.0.1", broker.port), timeout=20)
    s.sendall(f"POST /api/v1/push HTTP/1.1\r\nHost: q\r\nContent-Length: {length}\r\n\r\n".encode())
    return s


@mark(timeout=60)
def test_admission_has_the_room_and_the_patience_of_its_settings(env):
    body = {"items": [item(1, 700000)]}
    for room, hold, status in ((1, 300, 429), (1, 0, 429), (0, 300, 201), (2, 300, 201)):
        broker = env.broker(QUEEN_RAFT_ADMIT_MAX_MB=room, QUEEN_RAFT_ADMIT_HOLD_MS=hold).start()
        with contextlib.closing(send_head(broker, 700000)):
            wait_until(lambda: broker.metrics()['queen_raft_admit_total{outcome="admitted"}'] == 1, 20)
            begun = time.monotonic()
            answer = broker.request("POST", "/api/v1/push", body)
            took = time.monotonic() - begun
        assert answer.status == status, (room, hold, answer)
        if status == 429:
            assert answer.json["code"] == "overloaded" and 1 <= int(answer.headers["retry-after"]) <= 5, answer.headers
            assert took >= 0.75 * hold / 1000, took
            assert broker.metrics()['queen_raft_admit_total{outcome="overloaded"}'] == 1
        assert broker.sigterm() == 0


# --- secrets ---


def as_nobody(arguments, **more):
    """Starts a program as a user who is not root, also when we are root, who may look into everything."""
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **user, **more)


def look_into(pid):
    """What another program of that user gets to see: {name: (bytes, complaint)}."""
    read = {}
    for name in ("environ", "mem", "limits"):
        out, err = as_nobody(["head", "-c", "4000", f"/proc/{pid}/{name}"]).communicate(timeout=20)
        read[name] = (out, err.decode())
    return read


@contextlib.contextmanager
def broker_of_nobody(env, folder, settings):
    environ = {"QUEEN_RAFT_DIR": f"{folder}/data", "PORT": "0", "QUEEN_BIND_ADDR": "127.0.0.1", **settings}
    environ["ASAN_OPTIONS"] = "detect_leaks=0"  # it looks into the process too
    broker = as_nobody([env.binary], env=environ, cwd=folder)
    try:
        for line in broker.stdout:
            if b" boot: listening " in line:
                break
        yield broker
    finally:
        broker.terminate()
        broker.communicate(timeout=60)
    assert broker.returncode == 0


@mark(timeout=90)
def test_others_of_the_same_user_cannot_look_into_a_process_with_secrets(env):
    """They read neither its environment nor its memory, and there is no core file; QUEEN_CORE_DUMPS allows it, and
    without secrets there is nothing to hide."""
    secret = {"QUEEN_S3_SECRET_KEY": "S3cr3t-in-the-environment"}
    rows = ((secret, False), ({**secret, "QUEEN_CORE_DUMPS": "true"}, True), ({}, True))
    with tempfile.TemporaryDirectory() as top:  # ours is closed to others
        os.chmod(top, 0o777)
        if as_nobody(["test", "-x", env.binary], cwd=top).wait(20) != 0:
            raise Skip(f"{env.binary} is closed to other users")
        for n, (settings, open_to_all) in enumerate(rows):
            folder = os.path.join(top, str(n))
            os.mkdir(folder)
            os.chmod(folder, 0o777)
            with broker_of_nobody(env, folder, settings) as broker:
                read = look_into(broker.pid)
            assert (b"QUEEN_RAFT_DIR" in read["environ"][0]) == open_to_all, (settings, read["environ"])
            for name in ("environ", "mem"):
                assert ("ermission denied" in read[name][1]) != open_to_all, (settings, name, read[name])
            core = re.search(rb"Max core file size +(\S+) +(\S+)", read["limits"][0])
            assert open_to_all or core is None or core.groups() == (b"0", b"0"), core
