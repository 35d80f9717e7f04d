"""The store is away: at boot, for a minute, every other second, in storms. Pushes go on unharmed, memory stays flat,
and everything arrives afterwards without help.
"""

import os
import pathlib
import threading
import time

from harness import cases, mark
from s3_faults import CutRequest, Garbage, LostAnswer, OkWithError, Status
from s3_server import S3Server
from scripted import Scripted, make_certificate

QUEUES = ["a", "b", "c"]
GROWTH_MAX_KB = 48 << 10
SMALL_QUARANTINE = "quarantine_size_mb=4"  # what a sanitizer keeps of freed memory is no growth
PUSH_P99_MAX_S = 2.0  # ASan, a busy machine: a bound for pushes that wait for the store


def rss_anon(pid):
    """KiB."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise AssertionError("no RssAnon")


class Watch(threading.Thread):
    """Pushes one record now and then and takes the time; looks at the process's memory."""

    def __init__(self, s, every=0.1):
        super().__init__(daemon=True)
        self.s = s
        self.every = every
        self.took = []
        self.memory = []
        self.ending = threading.Event()
        self.error = None

    def run(self):
        try:
            while not self.ending.wait(self.every):
                began = time.monotonic()
                self.s.push(self.s.queues[len(self.took) % len(self.s.queues)], size=1)
                self.took.append(time.monotonic() - began)
                self.memory.append(rss_anon(self.s.broker.pid))
        except BaseException as error:
            self.error = error

    def end(self):
        """p99 of the pushes in seconds; KiB by which memory grew from the first third to the last."""
        self.ending.set()
        self.join(30)
        if self.error is not None:
            raise self.error
        third = len(self.memory) // 3
        growth = max(self.memory[-third:]) - max(self.memory[:third])
        p99 = sorted(self.took)[len(self.took) * 99 // 100]
        print(f"{len(self.took)} pushes, p99 {p99:.3f} s, memory {self.memory[0]} to {self.memory[-1]} KiB")
        return p99, growth


@mark(timeout=90)
@cases("refused", "silent")
def test_away_at_boot_and_then_there(env, case):
    """Nobody listens; or somebody who closes every connection."""
    with Scripted(env, QUEUES) as s:
        if case == "refused":
            s.server.down()
        else:
            closes = s.server.fault(CutRequest(where="head"), times=None)
        s.start()
        s.push()
        s.wait_bucket("transport: ", False)
        assert s.broker.sink()["ok"] is False and s.broker.health().status == 200
        assert s.broker.find_log("ERROR queen-s3: bucket unreachable; trying again bucket=lake")
        s.push()
        s.server.up() if case == "refused" else closes.clear()
        s.wait_well()
        s.push()
        s.finish(exact=case == "silent")


@mark(timeout=200)
def test_away_for_a_minute_under_traffic(env):
    asan = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), SMALL_QUARANTINE]))
    with Scripted(env, QUEUES, ASAN_OPTIONS=asan) as s:
        s.start()
        s.push_on(pushers=2, pause=0.1)
        s.complete()
        s.server.down()
        s.wait_bucket("transport: ", False)
        watch = Watch(s)
        watch.start()
        time.sleep(60)
        committed = {q: s.broker.sink_queue(q)["k"] for q in QUEUES}
        p99, growth = watch.end()
        assert s.broker.sink()["bucket"]["reachable"] is False
        s.server.up()
        s.wait_well(timeout=90)
        s.complete(timeout=90)
        assert all(s.broker.sink_queue(q)["k"] > k for q, k in committed.items())
        assert p99 < PUSH_P99_MAX_S and growth < GROWTH_MAX_KB, (p99, growth)
        s.finish(exact=False)  # the server saw nothing of the attempts that were refused


@mark(timeout=120)
def test_coming_and_going_every_second(env):
    """Two stores, one of them over TLS."""
    options = {"QUEEN_S3_MAX_WINDOW_MS": 100}
    certificate = make_certificate(env.dir)
    with Scripted(env, QUEUES, **options) as http, Scripted(env, QUEUES, certificate=certificate, **options) as https:
        both = (http, https)
        for s in both:
            s.start()
            s.push_on(pushers=2, pause=0.1)
        for _ in range(10):
            for step in (S3Server.down, S3Server.up):
                for s in both:
                    step(s.server)
                time.sleep(1)
        for s in both:
            s.wait_well()
            s.finish(exact=False)


@mark(timeout=120)
def test_a_storm_of_failures(env):
    """Each request fails with two chances in three, in one of many ways, for six seconds."""
    ways = [Status(500), Status(502, body=b""), Status(503), Status(503, headers={"Retry-After": "1"}), Status(429),
            Status(408), CutRequest(at_byte=100), CutRequest(where="head"), LostAnswer(), LostAnswer(how="rst"),
            Garbage(), Status(500, done=True), OkWithError("InternalError", done=True)]
    random, lock = env.random, threading.Lock()

    def one(record):
        reads = record.op in ("get", "head")  # a 200 with something else in it is an answer there
        with lock:
            return random.choice(ways[:-1] if reads else ways) if random.random() < 0.66 else None

    with Scripted(env, QUEUES, QUEEN_S3_CHECKPOINT_EVERY=3) as s:
        s.start()
        s.push()
        s.complete()
        storm = s.server.fault(one, times=None)
        s.push_on(pushers=2, pause=0.1)
        watch = Watch(s)
        watch.start()
        time.sleep(6)
        p99, _ = watch.end()
        assert storm.hits > 10, storm.hits
        storm.clear()
        assert p99 < PUSH_P99_MAX_S, p99
        s.finish(timeout=90)
