"""The process: signals, files it may leave behind, the subcommands that talk to a running broker."""

import json
import os
import signal
import socket
import subprocess
import threading
import time

from faults import Calls, rule
from harness import mark, wait_until
from traffic import push_one

ON_EVERY_STORE = True


def test_a_second_sigterm_changes_nothing(env):
    broker = env.broker(env.lake()).start()
    broker.signal(signal.SIGTERM)
    broker.signal(signal.SIGTERM)
    broker.signal(signal.SIGINT)
    assert broker.wait() == 0
    assert broker.find_log("INFO shutdown: done")


def test_sigint_is_as_good(env):
    broker = env.broker().start()
    broker.signal(signal.SIGINT)
    assert broker.wait() == 0


def test_the_listener_closes_and_what_waits_is_answered(env):
    """A fetch that waits for records is answered at the signal; new connections are refused."""
    broker = env.broker().start()
    broker.push([{"queue": "q", "partition": "p", "payload": 1}])
    waiting = socket.create_connection(("127.0.0.1", broker.port))
    body = json.dumps({"entries": [{"queue": "q", "partition": "p", "offset": 1}], "maxWaitMs": 30000})
    waiting.sendall(f"POST /api/v1/fetch HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    time.sleep(0.3)
    began = time.monotonic()
    broker.signal(signal.SIGTERM)
    waiting.settimeout(10)
    answer = waiting.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200 ") or answer.startswith(b"HTTP/1.1 503 "), answer
    assert broker.wait() == 0
    assert time.monotonic() - began < 5


@mark(timeout=60)
def test_the_process_ends_within_its_grace_whatever_is_stuck(env):
    """A client that sends half a body and stays: the grace and a second, code 0."""
    broker = env.broker(env.lake(QUEEN_S3_SHUTDOWN_GRACE_MS=2000)).start()
    stuck = socket.create_connection(("127.0.0.1", broker.port))
    stuck.sendall(b"POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    time.sleep(0.3)
    began = time.monotonic()
    assert broker.sigterm() == 0
    assert time.monotonic() - began < 3.5


@mark(timeout=60)
def test_what_is_in_flight_is_answered_without_a_sink_too(env):
    """A push whose sync takes longer than the second that is allowed behind the grace."""
    calls = Calls(env)
    broker = env.broker(calls.settings).start()
    push_one(broker)
    calls.set(rule("fdatasync", "*/wal/*", "hold"))
    got = []
    thread = threading.Thread(target=lambda: got.append(push_one(broker)))
    thread.start()
    calls.wait_hit()
    broker.signal(signal.SIGTERM)
    time.sleep(2.5)
    assert broker.running
    calls.set()
    assert broker.wait() == 0
    thread.join()
    assert [answer["offset"] for answer in got] == [1]
    assert broker.find_log("shutdown: done") and not broker.find_log("out of time")
    assert broker.start().fetch("q", "p")["highWatermark"] == 2


def test_secrets_make_the_process_unreadable(env):
    settings = {"QUEEN_S3_ACCESS_KEY": "AKIDAKID", "QUEEN_S3_SECRET_KEY": "s3cr3t-s3cr3t", **env.lake()}
    broker = env.broker(settings, ASAN_OPTIONS="detect_leaks=0").start()
    status = open(f"/proc/{broker.pid}/status", encoding="utf-8").read()
    assert os.stat(f"/proc/{broker.pid}/environ").st_uid == 0, status
    limits = open(f"/proc/{broker.pid}/limits", encoding="utf-8").read()
    assert [line.split()[4:6] for line in limits.splitlines() if line.startswith("Max core")] == [["0", "0"]]
    assert broker.sigterm() == 0
    log = "\n".join(broker.log())
    for name in ("QUEEN_S3_ACCESS_KEY", "QUEEN_S3_SECRET_KEY"):
        assert settings[name] not in log


def test_the_broker_outlives_the_reader_of_its_log(env):
    """Nobody reads standard output any more: lines are lost, the broker is not."""
    broker = env.broker()
    read_end, write_end = os.pipe()
    with open(os.devnull) as null:
        environ = {k: str(v) for k, v in broker.settings.items()}
        process = subprocess.Popen([env.binary], env=environ, stdin=null, stdout=write_end, stderr=write_end)
    os.close(write_end)
    try:
        text = b""
        while b" boot: listening " not in text:
            text += os.read(read_end, 65536)
        os.close(read_end)
        assert broker.push([{"queue": "q", "payload": 1}])[0]["status"] == "queued"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()


def test_closed_standard_files_harm_no_file_of_the_store(env):
    """Started with standard input, output and error closed, log lines must not land in a data file."""
    broker = env.broker()
    environ = {k: str(v) for k, v in broker.settings.items()}
    process = subprocess.Popen(["/bin/sh", "-c", 'exec "$0" <&- >&- 2>&-', env.binary], env=environ)
    try:
        wait_until(lambda: accepts(broker.port), timeout=60, what="an open port")
        assert broker.push([{"queue": "q", "payload": 1}])[0]["status"] == "queued"
        targets = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in range(3)]
        assert targets == ["/dev/null"] * 3, targets
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
    broker.start()
    assert broker.fetch("q", "Default")["highWatermark"] == 1
    assert broker.sigterm() == 0


def accepts(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def test_push_takes_lines_or_one_text(env):
    broker = env.broker().start()
    url = f"http://127.0.0.1:{broker.port}/"
    lines = '{"n":1.50}\n\n [1, 2]\n"ü"\nnull'
    code, out, err = env.run("push", "or ders", "--partition", "p:1", "--url", url, stdin=lines)
    assert (code, out, err) == (0, "pushed 4 records to or ders\n", "")
    code, out, err = env.run("push", "or ders", '{"last":true}', "--partition", "p:1", PORT=broker.port)
    assert (code, out, err) == (0, "pushed 1 record to or ders\n", "")
    raw = broker.request("POST", "/api/v1/fetch", {"entries": [{"queue": "or ders", "partition": "p:1", "offset": 0}]})
    for payload in ('{"n":1.50}', "[1, 2]", '"ü"', "null", '{"last":true}'):
        assert f'"payload":{payload}' in raw.body.decode(), raw


def test_push_takes_many_lines(env):
    broker = env.broker().start()
    lines = "\n".join(f'{{"n":{n}}}' for n in range(2500))
    code, out, _ = env.run("push", "q", PORT=broker.port, stdin=lines)
    assert (code, out) == (0, "pushed 2500 records to q\n")
    assert broker.fetch("q", "Default", 2499)["highWatermark"] == 2500


def test_push_says_what_is_wrong(env):
    broker = env.broker().start()
    code, out, err = env.run("push", "q", PORT=broker.port, stdin='{"a":1}\n{"a":}\n')
    assert code == 1 and "line 2 is not JSON" in err and "pushed 0" in out, (out, err)
    code, _, err = env.run("push", "q", "1", PORT=1)
    assert code == 1 and "127.0.0.1:1" in err, err
    code, _, err = env.run("push")
    assert code == 2 and "usage: queen push" in err
    code, out, err = env.run("push", "-h", PORT=1)  # no queue of that name
    assert code == 0 and "usage: queen push" in out and err == "", out + err
    code, _, err = env.run("push", "-q", "1", PORT=1)
    assert code == 2 and "-q is no option" in err, err
    code, _, err = env.run("push", "q", "1", "--url", "https://x")
    assert code == 1 and "not http://" in err
    code, _, err = env.run("lake", "ls")
    assert code == 2 and "not built yet" in err
