"""What the end-to-end tests stand on: real broker processes in temporary folders, HTTP calls, log lines.

A test is a function test_<what it states>(env) in a file test_*.py here; run.py finds and runs it in a
process of its own. Standard library only. The usual shape:

    def test_a_push_is_in_the_lake(env):
        broker = env.broker(env.lake("orders", QUEEN_S3_MAX_WINDOW_MS=1000)).start()
        broker.push([{"queue": "orders", "partition": "p", "payload": {"n": 1}}])
        broker.wait_log(r"window committed queue=orders")
        assert broker.sigterm() == 0

A broker keeps its folder and its port over kill() and start(). At the end of a test every process that is
still there is killed, and anything a sanitizer printed fails the test.
"""

import contextlib
import functools
import gzip
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests" / "lib"))  # the S3 server and client
START_TIMEOUT = 60  # seconds until `listening`; recovery under a sanitizer on a busy machine is slow
STOP_TIMEOUT = 60
PORT_RANGE = range(20000, 32000)  # below what outgoing connections take theirs from
FIELD = re.compile(r'(?:^| )([A-Za-z_][A-Za-z0-9_.]*)=("(?:[^"\\]|\\.)*"|[^ ]*)')
LINE = re.compile(r"^(\S+Z) (ERROR|WARN|INFO|DEBUG|TRACE) ([^ :]+): (.*)$")


class Skip(Exception):
    """Raised by a test that cannot run here; counted apart."""


def mark(timeout=None, slow=False, serial=False, store=None):
    """timeout: seconds. slow: only with --slow. serial: nothing else runs beside it. store: what the test is about,
    "file" (a bucket in a folder), "s3" (any S3 store) or the name of one store; it is skipped on others."""

    def set_marks(function):
        function.marks = {"timeout": timeout, "slow": slow, "serial": serial, "store": store}
        return function

    return set_marks


def cases(*values):
    """Runs the test once per value, as test_name[value](env, value)."""

    def set_cases(function):
        function.cases = values
        return function

    return set_cases


def wait_until(condition, timeout=30, every=0.05, what="the condition"):
    """Calls condition() until it is true and returns its value."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(every)


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers  # names in lower case
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


class LogLine:
    """<time> <LEVEL> <target>: <message> <key=value ...>; fields hold the unquoted values."""

    def __init__(self, text):
        self.text = text
        match = LINE.match(text)
        self.time, self.level, self.target, rest = match.groups() if match else ("", "", "", text)
        first = FIELD.search(rest)
        self.message = rest[: first.start()].rstrip() if first else rest
        self.fields = {name: _unquote(value) for name, value in FIELD.findall(rest)}

    def __repr__(self):
        return self.text


def _unquote(value):
    if len(value) < 2 or value[0] != '"':
        return value
    plain = {"n": "\n", "t": "\t", "r": "\r"}
    return re.sub(r"\\(.)", lambda m: plain.get(m.group(1), m.group(1)), value[1:-1])


class Broker:
    """One broker: a data folder, a port, settings, and the processes started on them one after another."""

    def __init__(self, env, name, settings):
        self.env = env
        self.name = name
        self.dir = env.dir / name
        self.dir.mkdir()
        self.port = env.free_port()
        self.settings = {
            "PORT": self.port,
            "QUEEN_BIND_ADDR": "127.0.0.1",
            "QUEEN_RAFT_DIR": self.dir / "data",
            # The machine's own disk may be nearly full; the tests of the gate set their own.
            "QUEEN_RAFT_DISK_HIGH_PCT": "99.9",
            "QUEEN_RAFT_DISK_LOW_PCT": "99.8",
            **settings,
        }
        self.process = None
        self.starts = 0

    # --- the process ---

    def start(self, wait=True, **settings):
        """Starts the broker; settings hold for this and later starts (None unsets one)."""
        assert not self.running, "already running"
        self.settings.update(settings)
        self.starts += 1
        environ = {"PATH": os.environ.get("PATH", ""), "HOSTNAME": os.environ.get("HOSTNAME", "host")}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS", "LD_PRELOAD"):
            if name in os.environ:
                environ[name] = os.environ[name]
        environ.update({k: str(v) for k, v in self.settings.items() if v is not None})
        with open(self.stdout_path, "wb") as out, open(self.stderr_path, "wb") as err:
            self.process = subprocess.Popen(
                [self.env.binary], env=environ, cwd=self.dir, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        if wait:
            self.wait_listening()
        return self

    def wait_listening(self, timeout=START_TIMEOUT):
        self.wait_log(r" boot: listening ", timeout=timeout)
        return self

    @property
    def stdout_path(self):
        return self.dir / f"stdout.{self.starts}"

    @property
    def stderr_path(self):
        return self.dir / f"stderr.{self.starts}"

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self):
        return self.process.pid

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, timeout=STOP_TIMEOUT):
        """Waits for the end of the process; its exit code, or minus the signal that ended it."""
        return self.process.wait(timeout)

    def sigterm(self, timeout=STOP_TIMEOUT):
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def kill(self):
        """kill -9."""
        self.process.kill()
        return self.wait()

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    # --- its log ---

    def log(self, all_starts=False):
        """The lines of the current (or every) process so far."""
        numbers = range(1, self.starts + 1) if all_starts else [self.starts]
        lines = []
        for number in numbers:
            text = (self.dir / f"stdout.{number}").read_text(errors="replace")
            lines += text.split("\n")[:-1]  # a last line without its end is not there yet
        return lines

    def find_log(self, pattern, all_starts=False):
        """Every line that matches, as LogLine."""
        regex = re.compile(pattern)
        return [LogLine(line) for line in self.log(all_starts) if regex.search(line)]

    def wait_log(self, pattern, timeout=30, count=1):
        """Waits for `count` matching lines of the current process; the last of them."""
        end = time.monotonic() + timeout
        while True:
            ended = not self.running
            found = self.find_log(pattern)
            if len(found) >= count:
                return found[count - 1]
            if ended:
                raise AssertionError(f"{self.name} ended ({self.process.returncode}) before a line {pattern!r}")
            if time.monotonic() >= end:
                raise AssertionError(f"{self.name}: no line {pattern!r} within {timeout} s")
            time.sleep(0.02)

    # --- its HTTP API ---

    def request(self, method, path, body=None, headers=None, timeout=65):
        """One call on a connection of its own. body: bytes, text, or anything else as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            return send(connection, method, path, body, headers)

    @contextlib.contextmanager
    def session(self, timeout=65):
        """A keep-alive connection: `with broker.session() as call: call("POST", path, body)`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            yield functools.partial(send, connection)

    def call(self, method, path, body=None, status=200, **options):
        """request() that expects a status; the parsed JSON."""
        answer = self.request(method, path, body, **options)
        assert answer.status == status, f"{method} {path}: {answer}"
        return answer.json if answer.body else None

    def push(self, items, status=201, **options):
        """items: dicts of the API, or a ready text of the whole body."""
        body = {"items": items} if isinstance(items, list) else items
        return self.call("POST", "/api/v1/push", body, status, **options)

    def kv(self, *operations, status=200):
        """One call of POST /api/v1/kv; its results."""
        answer = self.call("POST", "/api/v1/kv", list(operations), status)
        return answer["results"] if status == 200 and "results" in answer else answer

    def fetch(self, queue, partition, offset=0, max_bytes=8388608, **more):
        """The one entry of a fetch answer."""
        entry = {"queue": queue, "partition": partition, "offset": offset, "maxBytes": max_bytes}
        return self.call("POST", "/api/v1/fetch", {"entries": [entry], **more})["entries"][0]

    def health(self):
        return self.request("GET", "/health")

    def status(self):
        return self.call("GET", "/status")

    def sink(self):
        """The report of the default tenant's sink."""
        return self.status()["s3"]["sinks"][0]

    def sink_queue(self, queue):
        """The row of a queue in the sink's report, or None."""
        return next((q for q in self.sink().get("queues", []) if q["name"] == queue), None)

    def metrics(self):
        """{'name{labels}': value} of /metrics/prometheus."""
        answer = self.request("GET", "/metrics/prometheus")
        assert answer.status == 200, answer
        samples = {}
        for line in answer.body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name] = float(value)
        return samples


def send(connection, method, path, body=None, headers=None):
    if body is not None and not isinstance(body, (bytes, str)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    connection.request(method, path, body, {"content-type": "application/json", **(headers or {})})
    response = connection.getresponse()
    return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


class Env:
    """What a test gets: a temporary folder, a seeded random source, brokers, a bucket."""

    def __init__(self, directory, binary, seed, ports=PORT_RANGE, store="file", service=None):
        self.dir = pathlib.Path(directory)
        self.binary = str(binary)
        self.seed = seed
        self.random = random.Random(seed)
        self.brokers = []
        self._ports = iter(ports)
        self.store_name = store
        self.service = service  # the running server of that store: services.py

    def broker(self, settings=None, **more):
        """A broker, not started yet. Settings are environment variables."""
        broker = Broker(self, f"broker{len(self.brokers) + 1}", {**(settings or {}), **more})
        self.brokers.append(broker)
        return broker

    @functools.cached_property
    def store(self):
        """The test's own bucket."""
        import stores  # which uses this module

        return stores.make(self)

    def lake(self, queues="*", **more):
        """Settings of a sink into the test's bucket: fast windows, no guard, from the first record."""
        return {
            "QUEEN_S3_EMBEDDED": "true",
            "QUEEN_S3_QUEUES": queues,
            **self.store.settings(),
            "QUEEN_S3_START": "earliest",
            "QUEEN_S3_MAX_WINDOW_MS": 1000,
            "QUEEN_S3_SAFE_GUARD_MS": 0,
            "QUEEN_S3_LEASE_TTL_MS": 3000,
            "QUEEN_S3_DISCOVERY_INTERVAL_MS": 100,
            **more,
        }

    @property
    def bucket(self):
        """A folder with what is in the bucket now."""
        return self.store.tree()

    def objects(self):
        """Keys of the bucket, sorted."""
        return sorted(self.store.listing())

    def object_bytes(self, key):
        return self.store.get(key)

    def object_text(self, key):
        """Decompressed by the key's ending."""
        return decompress(key, self.object_bytes(key))

    def free_port(self):
        for port in self._ports:
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    s.bind(("127.0.0.1", port))
                    return port
                except OSError:
                    continue
        raise AssertionError("no free port in this test's range")

    def run(self, *arguments, stdin=None, timeout=60, **settings):
        """Runs the program to its end, with these settings only; (exit code, stdout, stderr) as text."""
        environ = {"PATH": os.environ.get("PATH", ""), **{k: str(v) for k, v in settings.items()}}
        done = subprocess.run(
            [self.binary, *arguments], env=environ, cwd=self.dir, input=stdin, timeout=timeout,
            capture_output=True, text=True, errors="replace"
        )
        return done.returncode, done.stdout, done.stderr

    def close(self):
        """Ends what still runs; raises when a sanitizer or the store had something to say."""
        for broker in self.brokers:
            if broker.running:
                broker.thaw()
                broker.process.kill()
                broker.process.wait()
        for path in sorted(self.dir.glob("broker*/stderr.*")):
            text = path.read_text(errors="replace")
            if "Sanitizer" in text or "runtime error:" in text:
                raise AssertionError(f"{path.name} of {path.parent.name}:\n{text[:8000]}")
        if "store" in vars(self):
            self.store.close()


def decompress(name, data):
    if name.endswith(".zst"):
        if shutil.which("zstd") is None:
            raise Skip("the zstd program is not installed")
        return subprocess.run(["zstd", "-dcq"], input=data, check=True, capture_output=True).stdout
    if name.endswith(".gz"):
        return gzip.decompress(data)
    return data
