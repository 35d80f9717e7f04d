"""A broker that mirrors into the scripted S3 server of tests/lib, whatever the store of the run is; its traffic, and
the verdict on its lake.

    with Scripted(env, ["orders"]) as s:
        s.start()
        fault = s.server.fault(Status(503), op="put", key=data_of("orders"), times=2)
        s.push_until(fault)
        s.finish()                    # nothing lost, nothing doubled, counted as the server saw it
"""

import re
import subprocess
import time

import oracle
import traffic
from harness import Skip, wait_until
from s3_server import S3Server
from traffic import Batches, Ledger, Pusher

SECRET = "secret-key-of-the-scripted-server"
PARTITIONS = ["a", "b", "ü"]
REQUESTS = re.compile(r'queen_s3_s3_requests_total\{op="(\w+)",code="(\d+)"\}')
MIB = 1 << 20


def of_queue(queue):
    """The part of a key, or of a list's prefix, that names the queue."""
    return f"/queue={oracle.percent_encode(queue)}/"


def data_of(queue):
    return f"^(?!.*/_queen/).*{re.escape(of_queue(queue))}"


def manifests_of(queue):
    return f"/_queen/.*{re.escape(of_queue(queue))}windows/"


def checkpoints_of(queue):
    return f"/_queen/.*{re.escape(of_queue(queue))}checkpoint/"


def lists(queue):
    """For `when`: the list of that queue's checkpoints."""
    return lambda record: of_queue(queue) in record.query.get("prefix", "")


class Scripted:
    """One server, one broker (of one or more lives), one ledger."""

    def __init__(self, env, queues, server=None, addressing="path", certificate=None, judged=None, **settings):
        """server: options of S3Server. certificate: (file, key), whose file is the authority too. judged: rules of the
        oracle."""
        self.env = env
        self.queues = list(queues)
        files = dict(zip(("certfile", "keyfile"), certificate)) if certificate else {}
        self.server = S3Server(**{"port": env.free_port(), "secret_key": SECRET, **files, **(server or {})})
        self.broker = env.broker(
            {
                "QUEEN_S3_EMBEDDED": "true",
                "QUEEN_S3_QUEUES": "*",
                **self.server.settings(addressing),
                **({"SSL_CERT_FILE": certificate[0]} if certificate else {}),
                "QUEEN_S3_START": "earliest",
                "QUEEN_S3_MAX_WINDOW_MS": 300,
                "QUEEN_S3_SAFE_GUARD_MS": 0,
                "QUEEN_S3_LEASE_TTL_MS": 6000,
                "QUEEN_S3_DISCOVERY_INTERVAL_MS": 100,
                "QUEEN_S3_CHECKPOINT_EVERY": 2,
                **settings,
            }
        )
        self.judged = judged or {}
        self.lake = env.dir / f"lake-{self.broker.name}"
        self.ledger = Ledger(env.dir / f"ledger-{self.broker.name}")
        self.batches = Batches(env.random, self.queues, PARTITIONS)
        self.pushers = []
        self.before = {}  # what the server had counted when the broker was started
        self.uploads_left = 0

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        self.server.stop()

    def start(self, **settings):
        self.server.wait_for(lambda: all(r.ended for r in self.server.find()), 30, "nothing is on its way")
        self.before = self.server.counts()
        self.broker.start(**settings)
        return self

    # --- traffic ---

    def push(self, *queues, size=None):
        """One push to each of them."""
        for queue in queues or self.queues:
            items = [self.batches.item(queue=queue) for _ in range(size or self.env.random.choice([1, 3, 20]))]
            traffic.push_all(self.broker, self.ledger, [items], threads=1)

    def push_big(self, queue, size, partition="big"):
        """One push of about that many bytes which hardly compress; they are in one window."""
        count = int(size / MIB) + 1
        pieces = [self.env.random.randbytes(int(size / count / 2)).hex() for _ in range(count)]
        items = [self.batches.item(queue, partition, f'"{piece}"') for piece in pieces]
        traffic.push_all(self.broker, self.ledger, [items], threads=1)

    def push_on(self, pushers=1, pause=0.02):
        """Traffic until finish() or stop_pushing()."""
        for _ in range(pushers):
            pusher = Pusher(self.broker, self.ledger, self.batches.next, f"on{len(self.pushers)}", pause=pause)
            pusher.start()
            self.pushers.append(pusher)

    def stop_pushing(self):
        traffic.finish_all(self.pushers)

    def push_until(self, *handles, timeout=60):
        """Small pushes to every queue until each fault was applied as often as it may be."""
        end = time.monotonic() + timeout
        while left := [h for h in handles if h.hits < h.times]:
            assert time.monotonic() < end, f"never met: {[(h.fault.name, h.key, h.hits) for h in left]}"
            self.push(size=2)
            time.sleep(0.2)

    # --- what shows ---

    def last_error(self, queue):
        row = self.broker.sink_queue(queue)
        return row["lastError"]["message"] if row and row["lastError"] else None

    def wait_error(self, queue, pattern, timeout=30):
        """Waits until lastError of the queue is like that."""

        def seen():
            return re.search(pattern, self.last_error(queue) or "", re.S)

        try:
            return wait_until(seen, timeout)
        except AssertionError:
            raise AssertionError(f"{queue}: {self.last_error(queue)!r} is not {pattern!r}") from None

    def wait_bucket(self, pattern, reachable, timeout=30):
        """Waits until bucket.error is like that."""
        shown = {}

        def seen():
            shown.update(self.broker.sink()["bucket"])
            return re.search(pattern, shown["error"] or "", re.S) and shown["reachable"] is reachable

        try:
            wait_until(seen, timeout)
        except AssertionError:
            raise AssertionError(f"{shown} is not {pattern!r}, reachable {reachable}") from None

    def wait_well(self, timeout=30):
        wait_until(lambda: (b := self.broker.sink()["bucket"])["reachable"] is True and b["error"] is None, timeout)

    def counted(self):
        """{(op, code): n} of the broker's metrics."""
        found = (REQUESTS.fullmatch(name) and (REQUESTS.fullmatch(name).groups(), value)
                 for name, value in self.broker.metrics().items())
        return {(op, int(code)): int(value) for (op, code), value in filter(None, found) if value}

    def check_counts(self):
        """Every attempt of this life is counted as the server saw it."""
        state = {}

        def equal():
            seen = {name: n - self.before.get(name, 0) for name, n in self.server.counts().items()}
            state.update(server={name: n for name, n in seen.items() if n}, broker=self.counted())
            return state["server"] == state["broker"]

        try:
            wait_until(equal, 10)
        except AssertionError:
            differ = {k: (state["server"].get(k, 0), state["broker"].get(k, 0))
                      for k in {*state["server"], *state["broker"]}}
            differ = {k: v for k, v in differ.items() if v[0] != v[1]}
            silent = [r for r in self.server.find() if r.fault and not r.status]
            raise AssertionError(f"(server, broker): {differ}; {silent[:40]}") from None

    # --- the verdict ---

    def complete(self, timeout=60):
        traffic.wait_complete(self.broker, self.queues, timeout)

    def finish(self, timeout=60, exact=True):
        """The traffic ends, everything arrives; the counters; a stop; the lake. exact: the counters are looked at."""
        self.stop_pushing()
        self.complete(timeout)
        if exact:
            self.check_counts()
        assert self.broker.sigterm() == 0
        return self.judge()

    def judge(self):
        self.check_store()
        return oracle.judge(self.download(), self.ledger.save(), temporary=False, **self.judged)

    def check_store(self):
        """The server found nothing to complain of; what was written more than once was the same each time."""
        assert self.server.problems == [], self.server.problems[:5]
        for key, versions in self.server.writes.items():
            is_sidecar = "/_queen/" in key  # a manifest names the moment at which it was built
            assert len(set(versions)) == 1 or is_sidecar and self.broker.starts > 1, (key, versions)
        left = self.server.uploads()  # of creations whose answer was lost: nobody knows their ids
        assert len(left) == self.uploads_left and not any(upload.parts for upload in left), left

    def download(self):
        """A folder with the bucket in it."""
        for key in self.server.objects():
            path = self.lake / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.server.get(key))
        return self.lake


def make_certificate(directory, name="localhost"):
    """(file, key) of a certificate for 127.0.0.1 that is its own authority."""
    files = directory / "cert.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
               "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:*.localhost,DNS:*.s3.localhost",
               "-keyout", files[1], "-out", files[0]]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        raise Skip("the openssl program is not installed") from None
    return files
