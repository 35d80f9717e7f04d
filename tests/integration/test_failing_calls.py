"""File calls that fail, one after another, at every place where the broker keeps something.

EIO and a failed sync in the data folder stop the node with one line that names the file; no space there is waited out;
what fails in the bucket is tried again. Whatever it was: behind a power cut and on a healed disk everything that was
acknowledged is there, and the lake is exact. The slow test prints a table of places, calls and outcomes.
"""

import json
import os
import subprocess
import time
import traceback
import typing

import faults
import oracle
import traffic
from faults import LOG_LOST, rule
from harness import mark, wait_until
from traffic import Batches, Ledger, Pusher

STOPS = "stops"  # up, /health 503, one ERROR line that names the file
WAITS = "waits"  # 507 while it lasts, then goes on by itself
GOES_ON = "goes on"  # nobody notices
RETRIES = "tries again"  # the bucket's error is in the status; then goes on by itself
REFUSES = "no start"  # exit code 1, one ERROR line that names the file


class Row(typing.NamedTuple):
    place: str
    call: str
    pattern: str
    action: str
    outcome: str
    when: str = "traffic"  # or what provokes it: provoke(), prepare()
    times: int = 1  # 0: until it is healed
    names: str = None  # what the line must name; default: the pattern's last part


def rows_of(place, when, pattern, calls, actions, outcome, full=WAITS):
    """full: the outcome of ENOSPC, which lasts."""
    return [
        Row(place, call, pattern, action, *((full, when, 0) if action == "ENOSPC" else (outcome, when)))
        for call in calls.split()
        for action in actions.split()
    ]


SEGMENT, FRESH, SPARE = "*/data/wal/seg-*", "*/data/wal/tmp-*", "*/data/wal/spare-*"
ROWS = [
    # the log that is the promise
    *rows_of("log", "traffic", SEGMENT, "write fdatasync", "EIO", STOPS),
    Row("log", "fdatasync", SEGMENT, "ENOSPC", STOPS),
    Row("log", "write", SEGMENT, "ENOSPC", WAITS),
    Row("log", "write", SEGMENT, "short", GOES_ON),
    *rows_of("log", "roll", FRESH, "create fallocate write fdatasync rename", "EIO", STOPS),
    *rows_of("log", "roll", FRESH, "create fallocate write rename", "ENOSPC", WAITS),
    *rows_of("log", "roll", SPARE, "open write fdatasync rename", "EIO", STOPS),
    *rows_of("log", "roll", SPARE, "write rename", "ENOSPC", WAITS),
    Row("log", "fsync", "*/data/wal", "EIO", STOPS, "roll"),
    Row("log", "rename", SEGMENT, "EIO", STOPS, "retire"),
    # the queue logs
    Row("queue log", "write", "*/data/qlog/*", "EIO", STOPS),
    Row("queue log", "write", "*/data/qlog/*", "ENOSPC", WAITS, times=0),
    Row("queue log", "write", "*/data/qlog/*", "short", GOES_ON),
    Row("queue log", "create", "*/data/qlog/*", "EIO", STOPS),
    Row("queue log", "create", "*/data/qlog/*", "ENOSPC", WAITS, times=0),
    Row("queue log", "mkdir", "*/data/qlog/*", "EIO", STOPS, "new queue"),
    Row("queue log", "mkdir", "*/data/qlog/*", "ENOSPC", WAITS, "new queue", times=0),
    Row("queue log", "read", "*/data/qlog/*", "EIO", STOPS, "fetch", times=0),
    Row("queue log", "read", "*/data/qlog/*", "EIO", STOPS, "sink"),
    Row("queue log", "unlink", "*/data/qlog/*", "EIO", STOPS, "delete"),
    Row("queue log", "rmdir", "*/data/qlog/*", "EIO", STOPS, "delete"),
    Row("queue log", "syncfs", "*/data", "EIO", STOPS),
    Row("queue log", "syncfs", "*/data", "ENOSPC", STOPS),
    # the state database
    *rows_of("state", "traffic", "*/data/state/*.log", "write fdatasync", "EIO", STOPS),
    Row("state", "fdatasync", "*/data/state/*.log", "ENOSPC", STOPS),
    Row("state", "write", "*/data/state/*.log", "ENOSPC", WAITS, times=0),
    Row("state", "write", "*/data/state/*.log", "ENOSPC", WAITS, "reboot"),  # before anything else was written
    Row("state", "write", "*/data/state/*.log", "short", GOES_ON),
    # the spool
    *rows_of("spool", "spool", "*/data", "create", "EIO ENOSPC", RETRIES, RETRIES),
    *rows_of("spool", "spool", "*/data/#*", "write", "EIO ENOSPC", RETRIES, RETRIES),
    Row("spool", "write", "*/data/#*", "short", GOES_ON, "spool"),
    Row("spool", "read", "*/data/#*", "EIO", RETRIES, "spool"),
    # the bucket
    *rows_of("bucket", "traffic", "*/.queen-tmp/*", "create write fsync rename", "EIO ENOSPC", RETRIES, RETRIES),
    Row("bucket", "create", "*/.queen-tmp/*", "EROFS", RETRIES, times=0),
    Row("bucket", "write", "*/.queen-tmp/*", "short", GOES_ON),
    Row("bucket", "mkdir", "*/s3/lake/queen/*", "EIO", RETRIES, "new queue"),
    Row("bucket", "fsync", "*/s3/lake/queen/*", "EIO", RETRIES),
    Row("bucket", "open", "*/s3/lake/queen/*", "EIO", RETRIES),
    Row("bucket", "open", "*/windows/*", "EIO", RETRIES, "restore"),
    Row("bucket", "read", "*/checkpoint/*", "EIO", RETRIES, "restore"),
    # a boot behind a kill
    *rows_of("root", "boot", "*/data/LOCK", "create", "EIO", REFUSES),
    *rows_of("root", "boot", "*/data/FORMAT", "open read", "EIO", REFUSES),
    *rows_of("root", "boot", "*/data/NODE", "open read", "EIO", REFUSES),
    *rows_of("state", "boot", "*/data/state/CURRENT", "open read", "EIO", REFUSES),
    *rows_of("state", "boot", "*/data/state/MANIFEST-*", "read create write fdatasync", "EIO", REFUSES),
    Row("state", "read", "*/data/state/*.log", "EIO", REFUSES, "boot"),
    Row("state", "create", "*/data/state/*.log", "EIO", GOES_ON, "boot"),  # only to cut off what was preallocated
    *rows_of("state", "boot", "*/data/state/*.dbtmp", "create write rename", "EIO ENOSPC", REFUSES),
    *rows_of("state", "boot", "*/data/state/*.dbtmp", "fdatasync", "EIO ENOSPC", REFUSES, REFUSES),
    *rows_of("state", "boot", "*/data/state/*.sst", "create write fdatasync read", "EIO", REFUSES),
    *rows_of("state", "boot", "*/data/state", "fsync", "EIO", REFUSES),
    *rows_of("log", "boot", "*/data/wal/hard", "open read", "EIO", REFUSES),
    *rows_of("log", "boot", "*/data/wal/hard.tmp", "create write rename", "EIO ENOSPC", REFUSES),
    *rows_of("log", "boot", "*/data/wal/hard.tmp", "fdatasync", "EIO ENOSPC", REFUSES, REFUSES),
    *rows_of("log", "boot", SEGMENT, "open read write fdatasync", "EIO", REFUSES),
    *rows_of("log", "boot", SEGMENT, "write", "ENOSPC", WAITS),
    *rows_of("log", "boot", "*/data/wal", "open fsync", "EIO", REFUSES),
    *rows_of("queue log", "boot", "*/data/qlog/*", "open read ftruncate unlink write create", "EIO", REFUSES),
    *rows_of("queue log", "boot", "*/data/qlog/*", "write create", "ENOSPC", WAITS),
    # the very first one
    *rows_of("root", "first boot", "*/data/FORMAT.tmp", "create write rename", "EIO ENOSPC", REFUSES),
    *rows_of("root", "first boot", "*/data/FORMAT.tmp", "fdatasync", "EIO ENOSPC", REFUSES, REFUSES),
    *rows_of("root", "first boot", "*/data/NODE.tmp", "create write rename", "EIO ENOSPC", REFUSES),
    *rows_of("root", "first boot", "*/data", "fsync", "EIO", REFUSES),
    *rows_of("log", "first boot", FRESH, "create fallocate write rename", "EIO ENOSPC", REFUSES),
    *rows_of("root", "first boot", "*/data/*", "mkdir", "EIO ENOSPC", REFUSES),
    *rows_of("state", "first boot", "*/data/state/*", "create write rename", "EIO ENOSPC", REFUSES),
]
BIG = 3 << 20  # a record that no compression makes smaller than the spool's threshold


class Play:
    """One row: a broker of its own on the disk, a call that fails, what came of it, and everything after that."""

    def __init__(self, env, disk, calls, broker, row):
        self.env, self.disk, self.calls, self.broker, self.row = env, disk, calls, broker, row
        self.root = disk.path / "run"
        (self.root / "s3").mkdir(parents=True)
        disk.flush()
        self.broker.settings.update(
            env.lake(
                "*",
                QUEEN_RAFT_DIR=self.root / "data",
                QUEEN_S3_ENDPOINT=f"file://{self.root}/s3",
                QUEEN_S3_MAX_WINDOW_MS=100,
                QUEEN_S3_LEASE_TTL_MS=6000,
                QUEEN_S3_CHECKPOINT_EVERY=1,
                QUEEN_S3_MEMORY_MB=1,
                # Without checkpoints no file is recycled, and a boot cuts off whole segments.
                QUEEN_RAFT_DURABLE_EVERY_MS=60000 if row.when == "roll" or self.cuts_off() else 100,
                QUEEN_RAFT_SEGMENT_BYTES=65536,
            )
        )
        self.ledger = Ledger(env.dir / f"ledger{self.broker.starts}")
        self.batches = Batches(env.random, ["orders"], ["a", "b", "ü/1"], largest=30)
        self.pushers = []
        self.refused = False  # a 507 was seen
        self.deleted = False
        self.again = 0.0

    def cuts_off(self):
        """The call takes away what the last checkpoint does not know."""
        return (self.row.call, self.row.when) == ("unlink", "boot")

    # --- traffic ---

    def start_pushers(self):
        for n in range(2):
            name = f"pusher-{self.broker.starts}-{n}"
            self.pushers.append(Pusher(self.broker, self.ledger, self.batches.next, name, pause=0.01))
            self.pushers[-1].start()

    def end_pushers(self):
        traffic.finish_all(self.pushers)
        self.pushers = []

    def push(self, queue="orders", payload=None, **flags):
        """One record; its status. Without an answer its outcome stays unknown."""
        item = self.batches.item(queue=queue, payload=payload)
        name = f"alone-{item.transaction_id}"
        try:
            answer = self.broker.request("POST", "/api/v1/push", traffic.body_of([item]), timeout=3)
        except OSError:
            self.ledger.unknown([item], name, **flags)
            return None
        if answer.status == 201:
            self.ledger.acknowledged([item], answer.json, name, **flags)
        elif answer.status == 507:
            self.refused = True
        else:
            assert answer.status == 503, answer
            self.ledger.unknown([item], name, **flags)
        return answer.status

    # --- the failure ---

    def arm(self):
        r = self.row
        self.calls.set(rule(r.call, r.pattern, r.action, times=r.times))

    def provoke(self):
        """What makes the call happen, beside the traffic."""
        when = self.row.when
        if when in ("roll", "retire"):
            self.push(payload=json.dumps("r" * 400000))
        elif when == "new queue":
            self.push(queue=f"new-{self.batches.made}")
        elif when == "fetch":
            asked = {"entries": [{"queue": "orders", "partition": "a", "offset": 0, "maxBytes": 1 << 20}]}
            answer = self.broker.request("POST", "/api/v1/fetch", asked, timeout=20)
            assert answer.status in (500, 503), answer
        elif when == "delete" and not self.deleted:
            self.deleted = True
            assert self.broker.call("DELETE", "/api/v1/resources/queues/gone")["deleted"] is True
        elif when == "spool" and time.monotonic() > self.again:  # or the disk runs full in earnest
            self.again = time.monotonic() + 2
            self.push(payload=json.dumps(os.urandom(BIG // 2).hex()))

    def prepare(self):
        r = self.row
        if r.when == "first boot":
            return
        self.broker.start()
        for _ in range(5):
            self.push(queue="gone", payload=json.dumps("g" * 40000), optional=True)
        self.start_pushers()
        self.broker.wait_log("window committed queue=orders", count=2)
        if r.when in ("boot", "reboot"):
            if self.cuts_off():
                self.push(payload=json.dumps("c" * 400000))
            self.broker.kill()
        elif r.when == "fetch":
            self.end_pushers()
            assert self.broker.sigterm() == 0
            self.broker.start(QUEEN_S3_EMBEDDED="false")
            self.start_pushers()
        elif r.when == "restore":
            self.end_pushers()
            assert self.broker.sigterm() == 0

    def fail(self):
        self.arm()
        if self.row.when in ("boot", "first boot", "restore", "reboot"):
            self.broker.start(wait=False)
        end = time.monotonic() + 12
        while not self.calls.hits():
            if time.monotonic() > end or not self.broker.running:
                raise NotMet(self.row)
            if self.broker.find_log("boot: listening"):
                self.provoke()
            time.sleep(0.02)
        return self.observe()

    def bucket_failed(self):
        return bool(self.broker.find_log("(ERROR|WARN) queen-s3: "))

    def observe(self):
        """What came of it, as far as a second and a half shows."""
        end = time.monotonic() + 1.5
        while time.monotonic() < end or not self.broker.find_log("boot: listening"):
            if not self.broker.running:
                return REFUSES
            if self.broker.find_log("ERROR node: stopped"):
                return STOPS
            if self.broker.find_log("boot: listening"):
                self.push()
                if self.row.when == "roll":
                    self.provoke()  # until what was made ready is used up
            elif time.monotonic() > end + 2:
                return WAITS  # for room, before it listens
            time.sleep(0.05)
        return WAITS if self.refused else RETRIES if self.bucket_failed() else GOES_ON

    # --- what must hold then ---

    def check_line(self, line):
        path = self.calls.hits()[0][2]
        name = self.row.names or ("the data folder" if self.row.call == "syncfs" else path.rsplit("/", 1)[1])
        assert name in line.text, ("does not name the file", name, line.text)
        if self.row.place == "queue log" and self.row.call == "read":
            assert "offset " in line.text, ("does not name the offset", line.text)

    def check(self, outcome):
        """The outcome's own promises."""
        errors = self.broker.find_log(" ERROR (node|boot)")
        if outcome == STOPS:
            assert len([line for line in errors if "stopped" in line.text]) == 1, errors
            self.check_line(self.broker.find_log("ERROR node: stopped")[0])
            assert self.broker.health().status == 503
            assert self.push() == 503
            time.sleep(0.2)
            assert self.broker.running
        elif outcome == REFUSES:
            assert self.broker.wait(5) == 1, self.broker.process.returncode
            assert len(errors) == 1, errors
            self.check_line(errors[0])
        elif self.broker.find_log("boot: listening"):
            health = self.broker.health()  # 503 while a boot waits for room for what the log holds
            assert health.status == 200 or (outcome == WAITS and health.json["status"] == "settling"), health

    def heal(self, outcome):
        if outcome == STOPS:
            self.disk.cut(LOG_LOST)
            self.broker.kill()
            self.calls.set()
            self.disk.restore()
        self.calls.set()
        if not self.broker.running:
            self.broker.start(QUEEN_S3_EMBEDDED="true")
        self.broker.wait_listening()
        wait_until(lambda: self.push() == 201, 20, 0.2, "pushes are taken again")

    def check_everything(self):
        self.end_pushers()
        queues = sorted({row["queue"] for row in self.ledger.rows} - {"gone"})
        traffic.wait_complete(self.broker, queues)
        there = Ledger(None)
        there.rows = [row for row in self.ledger.rows if not (self.deleted and row["queue"] == "gone")]
        traffic.check_read_back(self.broker, there)
        traffic.check_duplicates(self.broker, there)
        assert self.broker.sigterm() == 0
        oracle.judge(self.root / "s3" / "lake", self.ledger.save())

    def run(self):
        self.prepare()
        outcome = self.fail()
        log = self.broker.find_log(" (ERROR|WARN) (node|boot|queen-s3|api): ")
        if outcome == STOPS and self.row.when == "boot" and self.broker.find_log("boot: listening"):
            raise NotMet(self.row)  # the boot had nothing to do there; what came next has rows of its own
        assert outcome == self.row.outcome, (outcome, log[-4:])
        self.check(outcome)
        self.heal(outcome)
        self.check_everything()

    def end(self):
        """Whatever happened: nothing holds the disk any more, and nothing is left on it."""
        for p in self.pushers:
            p.gives_up = lambda: True
            p.stop()
        self.calls.set()
        if self.broker.running:
            self.broker.kill()
        for p in self.pushers:
            p.join(30)  # or its last push reaches the broker of the next row
        if subprocess.run(["find", self.root, "-delete"], capture_output=True).returncode != 0:
            self.disk.restore()  # it was cut
            subprocess.run(["find", self.root, "-delete"], check=True)


class NotMet(AssertionError):
    """The call was not made."""


TRIES = 3  # of a row whose call a checkpoint just before made needless


def play_one(env, disk, calls, broker, row):
    for left in reversed(range(TRIES)):
        play = Play(env, disk, calls, broker, row)
        try:
            return play.run()
        except NotMet:
            if left == 0:
                raise
        finally:
            play.end()


def play(env, rows):
    """Plays them one after another; what went wrong with each."""
    failures = []
    print(f"{'place':10} {'call':10} {'error':7} {'when':11} {'path':28} outcome")
    with faults.power_disk(env.dir, size=96 << 20) as disk:
        calls = faults.Calls(env)
        broker = env.broker(calls.settings)
        for row in rows:
            words = row.outcome
            try:
                play_one(env, disk, calls, broker, row)
            except (AssertionError, OSError, KeyError) as error:
                words = "FAILED"
                failures.append((row, error))
                traceback.print_exc()
            print(f"{row.place:10} {row.call:10} {row.action:7} {row.when:11} {row.pattern:28} {words}", flush=True)
    assert not failures, f"{len(failures)} of {len(rows)}: {failures}"


def sample(*names):
    """The first row of each (place, call, action, when)."""
    return [next(r for r in ROWS if (r.place, r.call, r.action, r.when) == name) for name in names]


@mark(timeout=180)
def test_a_call_that_fails_in_the_data_folder_stops_the_node_or_is_waited_out(env):
    play(
        env,
        sample(
            ("log", "fdatasync", "EIO", "traffic"),
            ("log", "write", "ENOSPC", "traffic"),
            ("queue log", "syncfs", "EIO", "traffic"),
            ("queue log", "create", "ENOSPC", "traffic"),
            ("queue log", "read", "EIO", "sink"),
            ("state", "fdatasync", "ENOSPC", "traffic"),
            ("state", "write", "ENOSPC", "reboot"),
            ("log", "rename", "EIO", "boot"),
        ),
    )


@mark(timeout=180)
def test_a_call_that_fails_in_the_bucket_is_tried_again(env):
    play(
        env,
        sample(
            ("bucket", "fsync", "EIO", "traffic"),
            ("bucket", "rename", "ENOSPC", "traffic"),
            ("bucket", "write", "short", "traffic"),
            ("spool", "write", "EIO", "spool"),
        ),
    )


@mark(timeout=1800, slow=True)
def test_every_call_that_fails(env):
    play(env, ROWS)
