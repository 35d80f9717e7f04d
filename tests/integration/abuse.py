"""What the abuse tests stand on: raw clients that misbehave, and a probe that asks how well-behaved clients fare.

The probe is a process of its own: it pushes, fetches and asks /health over and over, keeps a ledger of what was
acknowledged and the slowest call of each kind. What the machine itself stalls meanwhile (a second thread sleeps and
looks how late it wakes) is granted on top of the bound.
"""

import contextlib
import errno
import http.client
import json
import multiprocessing
import os
import pathlib
import resource
import select
import socket
import threading
import time

from harness import wait_until

WORST_S = 0.3  # seen: 5 to 30 ms where nothing else runs
WORST_SANITIZED_S = 5
PAUSE_S = 0.01
RSS_AT_REST_MB = 48  # a broker that did a little, and its allocator


def many_files():
    """Room for thousands of sockets in this process."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def sanitized(broker):
    maps = pathlib.Path(f"/proc/{broker.pid}/maps").read_text()
    return "libasan" in maps or "libtsan" in maps or "libclang_rt" in maps


def open_sockets(broker):
    count = 0
    for fd in pathlib.Path(f"/proc/{broker.pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            count += os.readlink(fd).startswith("socket:")
    return count


def rss_anon_mb(broker):
    for line in pathlib.Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no RssAnon")


# --- the probe ---


class Probe:
    """One probe's clients, in its own process."""

    def __init__(self, port, name, fresh):
        self.port, self.name, self.fresh = port, name, fresh
        self.connection = None
        self.worst = {}
        self.calls = 0
        self.ledger = {}  # offset to payload
        self.machine = 0.0

    def call(self, kind, method, path, body=None):
        if self.connection is None or self.fresh:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        began = time.perf_counter()
        self.connection.request(method, path, body if body is None else json.dumps(body))
        response = self.connection.getresponse()
        data = response.read()
        taken = time.perf_counter() - began
        self.worst[kind] = max(self.worst.get(kind, 0), taken)
        self.calls += 1
        if self.fresh:
            self.connection.close()
        return response.status, data

    def turn(self):
        payload = f"{self.name}-{self.calls}"
        item = {"queue": "probe", "partition": self.name, "payload": payload}
        status, data = self.call("push", "POST", "/api/v1/push", {"items": [item]})
        assert status == 201, (status, data)
        offset = json.loads(data)[0]["offset"]
        self.ledger[offset] = payload
        entry = {"queue": "probe", "partition": self.name, "offset": offset}
        status, data = self.call("fetch", "POST", "/api/v1/fetch", {"entries": [entry]})
        assert status == 200, (status, data)
        assert json.loads(data)["entries"][0]["records"][0]["payload"] == payload, data
        status, data = self.call("health", "GET", "/health")
        assert status == 200, (status, data)

    def watch_machine(self, stop):
        while not stop.is_set():
            began = time.perf_counter()
            time.sleep(PAUSE_S)
            self.machine = max(self.machine, time.perf_counter() - began - PAUSE_S)

    def run(self, stop, out):
        try:
            threading.Thread(target=self.watch_machine, args=(stop,), daemon=True).start()
            while not stop.is_set():
                self.turn()
                time.sleep(PAUSE_S)
            out.put({"worst": self.worst, "calls": self.calls, "ledger": self.ledger, "machine": self.machine})
        except Exception as e:  # told to the test
            out.put({"error": f"{type(e).__name__}: {e}"})


class Watch:
    """A broker under attack: what it must still do, and what it may take."""

    def __init__(self, broker, rss_mb):
        self.broker, self.rss_mb = broker, rss_mb
        self.peak = 0.0

    def look(self):
        self.peak = max(self.peak, rss_anon_mb(self.broker))

    def follow(self, stop):
        while not stop.is_set():
            with contextlib.suppress(OSError):
                self.look()
            time.sleep(0.05)


@contextlib.contextmanager
def attacked(broker, rss_mb, fresh=False, worst_s=WORST_S):
    """Runs the block while a probe runs: every call of the probe answered in time, RssAnon at most rss_mb MiB above
    what a broker at rest takes; afterwards open files and ledger are as they should be."""
    many_files()
    broker.push([{"queue": "probe", "partition": "first", "payload": 0}])
    wait_until(lambda: broker.health().status == 200, what="a healthy broker")
    base = open_sockets(broker)
    context = multiprocessing.get_context("fork")
    stop, out = context.Event(), context.SimpleQueue()
    probe = Probe(broker.port, f"p{time.time_ns()}", fresh)
    process = context.Process(target=probe.run, args=(stop, out), daemon=True)
    process.start()
    watch = Watch(broker, rss_mb)
    done = threading.Event()
    follower = threading.Thread(target=watch.follow, args=(done,))
    follower.start()
    try:
        time.sleep(0.2)
        yield watch
    finally:
        done.set()
        follower.join()
        stop.set()
        result = out.get()
        process.join()
    check(broker, watch, result, base, probe.name, worst_s)


def check(broker, watch, result, base, partition, worst_s):
    assert "error" not in result, result
    strict = not sanitized(broker)
    bound = (worst_s if strict else max(worst_s, WORST_SANITIZED_S)) + 3 * result["machine"]
    shown = {k: f"{1000 * v:.0f} ms" for k, v in result["worst"].items()}
    print(f"{result['calls']} calls, worst {shown}, machine {1000 * result['machine']:.0f} ms, peak {watch.peak:.0f} MiB")
    assert max(result["worst"].values()) <= bound, (shown, f"bound {1000 * bound:.0f} ms")
    if strict:
        assert watch.peak <= RSS_AT_REST_MB + watch.rss_mb, (watch.peak, watch.rss_mb)
    # one that is just ending may be among them, at either look
    wait_until(lambda: open_sockets(broker) <= base + 1, timeout=20, what=f"{base} sockets, not {open_sockets(broker)}")
    check_ledger(broker, partition, result["ledger"])
    assert broker.running


def check_ledger(broker, partition, ledger):
    """Every acknowledged record is there, once, and nothing else."""
    records, at = [], 0
    while True:
        page = broker.fetch("probe", partition, at)["records"]
        if not page:
            break
        records += page
        at = page[-1]["offset"] + 1
    assert {r["offset"]: r["payload"] for r in records} == ledger, f"{len(records)} records, {len(ledger)} acknowledged"
    assert len(records) == len(ledger)


# --- raw clients ---


def connect(broker, receive=None):
    """A socket of a client; receive: the size of its receive buffer."""
    s = socket.socket()
    if receive is not None:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    s.settimeout(30)
    s.connect(("127.0.0.1", broker.port))
    return s


def head(path, length=None, method="POST", extra=""):
    lines = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{extra}"
    if length is not None:
        lines += f"Content-Length: {length}\r\n"
    return (lines + "\r\n").encode()


def send_some(s, data):
    """Sends as long as the other side takes it; False when it has closed."""
    try:
        s.sendall(data)
        return True
    except OSError as e:
        assert e.errno in (errno.EPIPE, errno.ECONNRESET, None), e
        return False


def read_answer(s, timeout=30):
    """(status, head and body as far as they came); status 0: closed or reset without an answer; None: neither."""
    data = b""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        readable, _, _ = select.select([s], [], [], max(0, end - time.monotonic()))
        if not readable:
            break
        try:
            piece = s.recv(1 << 16)
        except ConnectionResetError:
            piece = b""
        data += piece
        whole = answer_length(data)
        if not piece or (whole is not None and len(data) >= whole):
            return (int(data[9:12]) if data.startswith(b"HTTP/1.1 ") else 0), data
    return None, data


def answer_length(data):
    """Bytes of the first answer, when its head is there and says so."""
    at = data.find(b"\r\n\r\n")
    if at < 0:
        return None
    for line in data[:at].lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return at + 4 + int(line.split(b":")[1])
    return at + 4 if data[9:12] == b"100" else None


def reset(s):
    """Closes with a reset."""
    with contextlib.suppress(OSError):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    s.close()
