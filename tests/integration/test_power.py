"""Power cuts for real: an ext4 loses its power under traffic, the broker dies, everything comes up again.

What was acknowledged is there, byte for byte, from the log and from the lake; stamps rise; an object that was there
once is never another. Cuts come at random moments and at chosen ones: a call of the broker is held still, before or
behind it, and then the power goes. QUEEN_CUTS is how many the long test makes.
"""

import hashlib
import json
import os
import time

import faults
import oracle
import traffic
from faults import LOG_FLUSHED, LOG_LOST, rule
from harness import cases, mark
from traffic import Batches, Ledger, Pusher

CUTS = int(os.environ.get("QUEEN_CUTS", "25"))
QUEUES = ["orders", "ünï cødé/1"]
MOUNTS = ["", "noauto_da_alloc,commit=300", "data=writeback,noauto_da_alloc,commit=300", "data=journal"]

# Where a call is held when the power goes: call, path, how many calls of a life may pass before it.
AIMS = {
    "checkpoint": [
        ("syncfs", "*/data", 1),
        ("write", "*/data/state/*.log", 1),
        ("fdatasync", "*/data/state/*.log", 1),
        ("write", "*/data/state/MANIFEST-*", 0),
    ],
    "log write": [("write", "*/data/wal/seg-*", 20), ("fdatasync", "*/data/wal/seg-*", 20)],
    "log roll": [
        ("create", "*/data/wal/tmp-*", 0),
        ("fdatasync", "*/data/wal/tmp-*", 0),
        ("rename", "*/data/wal/tmp-*", 0),
        ("fdatasync", "*/data/wal/spare-*", 0),
        ("rename", "*/data/wal/spare-*", 1),
        ("fsync", "*/data/wal", 1),
    ],
    "queue log": [("write", "*/data/qlog/*", 20), ("create", "*/data/qlog/*", 4)],
    "upload": [
        ("fsync", "*/.queen-tmp/*", 3),
        ("rename", "*/.queen-tmp/*", 3),
        ("mkdir", "*/queue=*/dt=*", 0),
        ("fsync", "*/queue=*", 3),
        ("write", "*/.queen-tmp/*", 3),
    ],
}
RECOVERY = [
    ("open", "*/data/state/*", 2),
    ("fdatasync", "*/data/state/*", 2),
    ("rename", "*/data/state/*", 1),
    ("fdatasync", "*/data/wal/hard.tmp", 0),
    ("rename", "*/data/wal/hard.tmp", 0),
    ("write", "*/data/wal/seg-*", 0),
    ("fdatasync", "*/data/wal/seg-*", 0),
    ("fsync", "*/data/wal", 0),
    ("unlink", "*/data/qlog/*", 0),
    ("ftruncate", "*/data/qlog/*", 0),
    ("write", "*/data/qlog/*", 3),
    ("syncfs", "*/data", 0),
]


class Campaign:
    """One broker on a disk that loses its power again and again."""

    def __init__(self, env, disk, bucket_too):
        self.env, self.disk, self.random = env, disk, env.random
        if bucket_too:  # env.bucket leads onto the disk
            (disk.path / "s3").mkdir()
            (env.dir / "s3").symlink_to(disk.path / "s3")
        self.calls = faults.Calls(env)
        self.broker = env.broker(
            env.lake(
                "*",
                QUEEN_RAFT_DIR=disk.path / "data",
                QUEEN_S3_LEASE_TTL_MS=6000,
                QUEEN_S3_CHECKPOINT_EVERY=2,
                **self.calls.settings,
            )
        )
        disk.flush()
        self.ledger = Ledger(env.dir / "ledger")
        self.batches = Batches(env.random, QUEUES, [f"p{n}" for n in range(12)] + traffic.ODD_NAMES, largest=120)
        self.pushers, self.repeated = [], 0
        self.seen = {}  # key -> digest of every object that was ever there
        self.committed = set()  # (queue, k) whose commit was logged
        self.cuts = 0
        self.latest = 0  # highest stamp read back

    def life_settings(self):
        r = self.random
        return {
            "QUEEN_RAFT_DURABLE_EVERY_MS": r.choice([30, 100, 300, 2000]),
            "QUEEN_RAFT_SEGMENT_BYTES": r.choice([65536, 262144, 4194304]),
            "QUEEN_S3_COMPRESSION": r.choice(["zstd", "gzip", "none"]),
            "QUEEN_S3_MAX_WINDOW_MS": r.choice([100, 200, 500]),
        }

    def start_pushers(self, count=5):
        coin = self.random
        self.pushers = []
        for n in range(count):
            self.pushers.append(
                Pusher(
                    self.broker,
                    self.ledger,
                    self.batches.next,
                    f"pusher{self.cuts}.{n}",
                    pause=0.03,
                    gives_up=(lambda: coin.random() < 0.5) if n % 2 else None,
                )
            )
            self.pushers[-1].start()

    def end_pushers(self):
        """Each once its push at hand is acknowledged, or given up."""
        traffic.finish_all(self.pushers)
        self.repeated += sum(p.repeated for p in self.pushers)

    # --- the cut ---

    def hold(self, aims, boot=False):
        """Arms one of the aims; in a running broker after a while, so that there is something to lose."""
        call, pattern, passing = self.random.choice(aims)
        action = self.random.choice(["hold", "held"])
        if not boot:
            time.sleep(self.random.choice([0.1, 0.5, 1.0]))
        self.calls.set(rule(call, pattern, action, skip=self.random.randint(0, passing)))
        return f"{action} {call} {pattern}"

    def aim(self, kind):
        """Returns at the moment of the cut, with words for it."""
        if kind == "random":
            time.sleep(self.random.uniform(0.2, 2.0))
            return "at random"
        if kind == "answer":
            time.sleep(self.random.uniform(0.2, 1.0))
            self.push_one()
            return "right after an answer"
        if kind == "commit":
            done = len(self.broker.find_log("window committed"))
            self.broker.wait_log(r"window committed", count=done + self.random.randint(1, 4))
            return "right after a commit"
        words = self.hold(AIMS[kind])
        try:
            self.calls.wait_hit(5)
        except AssertionError:
            words += " (not met)"
        return words

    def push_one(self):
        item = self.batches.item()
        answer = self.broker.push(traffic.body_of([item]))
        self.ledger.acknowledged([item], answer, f"alone-{item.transaction_id}")
        return item, answer[0]["offset"]

    def note_objects(self):
        """Objects as they are; one that was noted before must be the same still. A manifest that was not durable
        yet may be written again, later; a checkpoint may begin elsewhere."""
        for key in self.env.objects():
            data = self.env.object_bytes(key)
            if "/checkpoint/" in key:
                continue
            if "/windows/" in key:
                document = json.loads(data)
                if (document["queue"], document["k"]) not in self.committed:
                    continue
            digest = hashlib.sha256(data).hexdigest()
            assert self.seen.setdefault(key, digest) == digest, ("an object changed", key)

    def cut(self, flags=None):
        flags = self.random.choice([LOG_LOST, LOG_LOST, LOG_LOST, LOG_FLUSHED, 0]) if flags is None else flags
        self.disk.cut(flags)
        self.cuts += 1
        if self.random.random() < 0.3:
            self.calls.set()
            time.sleep(self.random.uniform(0.0, 0.4))  # it may notice; what it acknowledges now must hold too
        self.broker.kill()
        self.committed |= {
            (line.fields["queue"], int(line.fields["k"])) for line in self.broker.find_log("window committed")
        }
        self.calls.set()
        self.disk.restore(self.random.choice(MOUNTS))
        self.check_bucket()

    # --- what must hold ---

    def check_bucket(self):
        """Before the broker runs again: every window whose commit was logged is there, whole."""
        for queue, k in self.committed:
            manifest = json.loads(self.env.object_bytes(oracle.manifest_key("queen", queue, k)))
            for o in manifest["objects"]:
                data = self.env.object_bytes(o["key"])
                assert hashlib.sha256(data).hexdigest() == o["sha256"], ("altered", o)
        self.note_objects()

    def check_records(self):
        before = {id(row): row["ts"] for row in self.ledger.acknowledged_rows if "ts" in row}
        traffic.check_read_back(self.broker, self.ledger)
        rows = self.ledger.acknowledged_rows
        assert all(before.get(id(row), row["ts"]) == row["ts"] for row in rows), "a stamp changed"
        self.latest = max(row["ts"] for row in rows)
        item, offset = self.push_one()
        records = traffic.read_back(self.broker, [(item.queue, item.partition or "Default")])
        ts = oracle.from_iso(next(iter(records.values()))[offset][2])
        assert ts > self.latest, ("stamps do not rise", ts, self.latest)

    def play(self, kind, flags=None):
        """One life of traffic and its end; the broker is up again and checked."""
        self.start_pushers()
        words = self.aim("random" if kind == "recovery" else kind)
        self.note_objects()
        self.cut(flags)
        for _ in range(2 if kind == "recovery" else 0):
            words += ", again " + self.cut_recovery()
        self.broker.start(**self.life_settings())
        self.end_pushers()
        self.check_records()
        print(f"cut {self.cuts}: {kind}: {words}; {self.ledger.count()} records", flush=True)

    def cut_recovery(self):
        words = self.hold(RECOVERY, boot=True)
        self.broker.start(wait=False, **self.life_settings())
        try:
            self.calls.wait_hit(5)
        except AssertionError:
            words += " (not met)"
        self.cut(LOG_LOST)
        return words

    def finish(self):
        traffic.check_duplicates(self.broker, self.ledger)
        traffic.wait_complete(self.broker, QUEUES)
        assert self.broker.sigterm() == 0
        self.note_objects()
        assert set(self.seen) <= set(self.env.objects()), "an object is gone"
        judged = oracle.judge(self.env.bucket, self.ledger.save(), temporary=False)
        print(judged.summary(), f"{self.cuts} cuts", f"repeated: {self.repeated}")


CAMPAIGN_DISK = 1 << 30  # sparse; records stay, and a quick machine pushes some 150 MB of them in the whole of it


def cut_again_and_again(env, kinds, bucket_too):
    with faults.power_disk(env.dir, size=CAMPAIGN_DISK) as disk:
        campaign = Campaign(env, disk, bucket_too)
        campaign.broker.start(**campaign.life_settings())
        for kind in kinds:
            campaign.play(kind)
        campaign.finish()


@mark(timeout=180)
@cases("one disk", "a bucket elsewhere")
def test_power_cuts_lose_nothing(env, case):
    kinds = ["answer", "checkpoint", "upload", "recovery"] if case == "one disk" else ["commit", "log write"]
    cut_again_and_again(env, kinds, case == "one disk")


@mark(timeout=120)
@cases(("fdatasync", "*/data/wal/*", "answer"), ("fsync", "*/s3/*", "commit"))
def test_a_sync_that_lies_is_found_by_a_power_cut(env, case):
    """Shows that the tests above could fail: a disk that only says it wrote loses what was promised."""
    call, pattern, kind = case
    with faults.power_disk(env.dir, "commit=300,noauto_da_alloc") as disk:
        campaign = Campaign(env, disk, True)
        campaign.calls.set(rule(call, pattern, "lie", times=0))
        campaign.broker.start(QUEEN_RAFT_DURABLE_EVERY_MS=60000)
        try:
            campaign.play(kind, flags=LOG_LOST)
        except (AssertionError, FileNotFoundError) as found:
            print("found:", found)
            return
    raise AssertionError("nothing was lost: the power cut is none")


@mark(timeout=120 + 40 * CUTS, slow=True)
@cases("one disk", "a bucket elsewhere")
def test_power_is_cut_again_and_again(env, case):
    every = ["random", "answer", "commit", "recovery", *AIMS]
    kinds = [every[n % len(every)] for n in range(CUTS)]
    cut_again_and_again(env, kinds, case == "one disk")


@mark(timeout=600, slow=True)
def test_power_is_cut_in_the_first_boot(env):
    """Behind every call that a new folder needs: the next boot either begins anew or goes on."""
    with faults.power_disk(env.dir) as disk:
        calls = faults.Calls(env)
        broker = env.broker(QUEEN_RAFT_DIR=disk.path / "data", **calls.settings)
        writing = ["create", "write", "fdatasync", "fsync", "rename", "mkdir"]
        cut = 0
        for call in writing:
            for skip in range(40):
                calls.set(rule(call, f"{disk.path}/*", env.random.choice(["hold", "held"]), skip=skip))
                broker.start(wait=False)
                faults.wait_until(lambda: calls.hits() or broker.find_log("boot: listening"), 20)
                met = bool(calls.hits())
                disk.cut()
                broker.kill()
                calls.set()
                disk.restore()
                broker.start()
                offset = broker.push([{"queue": "q", "partition": "p", "payload": 1}])[0]["offset"]
                assert offset == 0 and broker.sigterm() == 0
                faults.run("find", disk.path / "data", "-delete")
                disk.flush()
                cut += 1
                if not met:
                    break
        print(cut, "first boots")
