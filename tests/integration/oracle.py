#!/usr/bin/env python3
"""Says whether a lake is exact: every acknowledged record in exactly one object, and nothing else.

    tests/integration/oracle.py BUCKET_FOLDER LEDGER [--align day] [--start latest] ...

It reads two things only: the folder that is the bucket, and the ledger, which its writer kept while it pushed.
It is written from the specification and shares nothing with the product. Exit code 0 when the lake is exact.

The ledger is JSON lines, one per record:

    queue, partition   names as the broker knows them (an absent partition is `Default`)
    transactionId      of the push, or the minted one
    payload            the JSON text exactly as it was pushed
    offset             of the answer; absent when the outcome of the push is not known
    message_id         of the answer (for others; not looked at here)
    push               optional: any value that is the same for all records of one push and for no others
    ts                 optional: the stamp in microseconds, when it was fetched
    incarnation        optional: a number that rises when the queue or partition was created anew
    optional           true: acknowledged, and allowed to be missing from the lake (the queue was deleted
                       later, or start=latest began behind it)
    unknown            true: the answer never came; the record may be in the lake once or not at all

A later acknowledged line with the same queue, partition, transactionId and payload settles an `unknown` one.

What is looked at, by the word that begins a problem:

    stray       a file that is neither an object, a manifest nor a checkpoint
    temporary   an unfinished upload in .queen-tmp (only where none may be left)
    orphan      an object that no manifest names
    object      a named object is missing, or its size, digest, framing or count of lines is another
    manifest    fields, their order, types or values
    key         an object's or manifest's key is not the one its window gives
    window      k not contiguous from 1, windows that overlap or leave a gap, a crossed boundary
    line        a record's text is not the canonical one for its values
    bounds      a record outside its window
    order       records not sorted by partition and offset
    missing     an acknowledged record that no object holds
    doubled     a record in two places
    unasked     a record nobody pushed
    payload     a record whose payload is not what was pushed
    offset      a record at another offset than the one acknowledged, or a gap in a partition
    stamp       two stamps in one push, one stamp for two pushes, or another than the one fetched
    checkpoint  one that disagrees with the windows
"""

import argparse
import collections
import dataclasses
import datetime
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import zlib

TENANT = "00000000-0000-0000-0000-000000000001"
TEMPORARY = ".queen-tmp"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
EPOCH_DAY_US = 86400 * 1000000
UNITS_US = {"hour": 3600 * 1000000, "day": EPOCH_DAY_US, "none": 0}
EXTENSIONS = {"zstd": "jsonl.zst", "gzip": "jsonl.gz", "none": "jsonl"}
WRITERS = {
    "zstd": re.compile(r"queen-s3/2\.0\.0 jsonl\+zstd( zstd/\S+)?( raw)?"),
    "gzip": re.compile(r"queen-s3/2\.0\.0 jsonl\+gzip( zlib/\S+)?( raw)?"),
    "none": re.compile(r"queen-s3/2\.0\.0 jsonl( raw)?"),
}
MANIFEST_FIELDS = [
    "sink",
    "tenant",
    "queue",
    "k",
    "tStart",
    "tEnd",
    "format",
    "compression",
    "layout",
    "objects",
    "records",
    "bytes",
    "partitions",
    "minTs",
    "maxTs",
    "lost",
    "writer",
    "committedAt",
]
OBJECT_FIELDS = ["key", "bytes", "records", "sha256"]
KEY_MAX = 1024
READERS_DEPTH_MAX = 500
DEFAULT_SEGMENT_MAX = 255  # of a bucket that is a folder


# --- the specification's functions ---


def percent_encode(name):
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
    return "".join(chr(b) if b in plain else f"%{b:02X}" for b in name.encode())


def shorten(name, limit):
    """The encoded name, cut on a whole %XX to fit with ~ and 16 digits of its digest when it is too long."""
    encoded = percent_encode(name)
    if len(encoded) <= limit:
        return encoded
    pieces = re.findall("%..|.", encoded)
    kept = ""
    for piece in pieces:
        if len(kept) + len(piece) > limit - 17:
            break
        kept += piece
    return kept + "~" + hashlib.sha256(name.encode()).hexdigest()[:16]


def _key(prefix, sidecar, tenant, queue, rest, segment_max):
    def build(limit):
        root = f"{prefix}/_queen" if sidecar else prefix
        return f"{root}/tenant={tenant}/queue={shorten(queue, limit)}/{rest}"

    limit = segment_max - len("queue=")
    key = build(limit)
    if len(key.encode()) <= KEY_MAX:
        return key
    return build(len(shorten(queue, limit)) - (len(key.encode()) - KEY_MAX))


def data_key(prefix, queue, k, t_start, t_end, align, compression, tenant=TENANT, segment_max=DEFAULT_SEGMENT_MAX):
    start = EPOCH + datetime.timedelta(microseconds=t_start)
    hour = "" if align == "day" else f"/hour={start:%H}"
    name = f"w-{k:010d}-{max(t_start, 0):016d}-{max(t_end, 0):016d}.{EXTENSIONS[compression]}"
    return _key(prefix, False, tenant, queue, f"dt={start:%Y-%m-%d}{hour}/{name}", segment_max)


def manifest_key(prefix, queue, k, tenant=TENANT, segment_max=DEFAULT_SEGMENT_MAX):
    return _key(prefix, True, tenant, queue, f"windows/{k:010d}.json", segment_max)


def checkpoint_key(prefix, queue, k, tenant=TENANT, segment_max=DEFAULT_SEGMENT_MAX):
    return _key(prefix, True, tenant, queue, f"checkpoint/{k:010d}.json.zst", segment_max)


def iso(us):
    return f"{EPOCH + datetime.timedelta(microseconds=us):%Y-%m-%dT%H:%M:%S.%f}Z"


def from_iso(text):
    """Microseconds, or None when it is not the one spelling."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", text):
        return None
    try:
        moment = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return None
    return (moment - EPOCH) // datetime.timedelta(microseconds=1)


def json_string(text):
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(short.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"')
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)")


def has_lone_surrogate(json_text):
    """An unpaired \\uD800-\\uDFFF escape in any string or key."""
    if "\\u" not in json_text:
        return False
    for string in STRING.finditer(json_text):
        high_end = None  # where a high surrogate's partner must begin
        for escape in ESCAPE.finditer(string.group(1)):
            code = int(escape.group(1), 16) if escape.group(1) else 0
            if high_end is not None and (escape.start() != high_end or not 0xDC00 <= code <= 0xDFFF):
                return True
            if high_end is None and 0xDC00 <= code <= 0xDFFF:
                return True
            high_end = escape.end() if high_end is None and 0xD800 <= code <= 0xDBFF else None
        if high_end is not None:
            return True
    return False


def depth(json_text):
    """Containers inside one another."""
    deepest = now = 0
    for c in re.findall(r"[\[\]{}]", STRING.sub("", json_text)):
        now += 1 if c in "[{" else -1
        deepest = max(deepest, now)
    return deepest


def is_quoted(payload):
    """Readers cannot parse it: the line carries it as a JSON string (decisions.md 1)."""
    return has_lone_surrogate(payload) or depth(payload) > READERS_DEPTH_MAX


def lake_payload(pushed, raw=False):
    """What stands behind "payload": in a line."""
    stored = pushed.strip(" \t\r\n")
    if stored == "":
        return "null"
    if not raw and is_quoted(stored):
        return json_string(stored)
    return stored.replace("\n", " ").replace("\r", " ")


def lake_line(partition, offset, transaction_id, ts, payload):
    """payload: lake_payload()."""
    return (
        f'{{"partition":{json_string(partition)},"offset":{offset},"transactionId":{json_string(transaction_id)},'
        f'"ts":"{iso(ts)}","payload":{payload}}}'
    )


def floor(us, align):
    unit = UNITS_US[align]
    return us // unit * unit if unit else us


# --- reading ---


@dataclasses.dataclass
class Entry:
    """A line of the ledger."""

    queue: str
    partition: str
    transaction_id: str
    payload: str
    offset: int = None
    push: object = None
    ts: int = None
    incarnation: int = 0
    optional: bool = False
    unknown: bool = False
    seen: bool = False

    @property
    def name(self):
        return f"{self.queue}/{self.partition} offset {self.offset} transactionId {self.transaction_id!r}"


@dataclasses.dataclass
class Record:
    """A line of an object."""

    queue: str
    key: str
    k: int
    partition: str
    offset: int
    transaction_id: str
    ts: int
    payload: str

    @property
    def name(self):
        return f"{self.queue}/{self.partition} offset {self.offset} transactionId {self.transaction_id!r} in window {self.k}"


@dataclasses.dataclass
class Window:
    queue: str
    k: int
    key: str  # of its manifest
    manifest: dict
    records: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Rules:
    """What the lake was written with."""

    prefix: str = "queen"
    sink: str = "default"
    tenant: str = TENANT
    align: str = "hour"
    start: str = "earliest"
    compression: str = None  # None: whatever each manifest says
    segment_max: int = DEFAULT_SEGMENT_MAX
    raw: bool = False  # QUEEN_S3_JSONL_QUOTE_UNREADABLE=false
    temporary: bool = True  # unfinished uploads may lie in .queen-tmp
    exact_frames: bool = False  # compress again and compare; needs the same library versions
    one_life: bool = False  # no queue was deleted: a checkpoint names every partition since the one before


def parse_line(text):
    """(partition, offset, transactionId, ts text, payload text) of a line, or None. It is strict in the shape
    and tolerant in the spelling of strings: that is compared afterwards."""
    decoder = json.JSONDecoder(strict=False)
    values = []
    at = 0
    for before, pattern in (
        ('{"partition":', None),
        (',"offset":', r"-?\d+"),
        (',"transactionId":', None),
        (',"ts":', None),
    ):
        if not text.startswith(before, at):
            return None
        at += len(before)
        if pattern is None:
            if text[at : at + 1] != '"':
                return None
            try:
                value, at = decoder.raw_decode(text, at)
            except ValueError:
                return None
            values.append(value)
        else:
            match = re.compile(pattern).match(text, at)
            if match is None:
                return None
            values.append(int(match.group()))
            at = match.end()
    if not text.startswith(',"payload":', at) or not text.endswith("}"):
        return None
    return (*values, text[at + len(',"payload":') : -1])


def read_ledger(lines):
    """Entries; an unknown one that a later push settled is left out."""
    entries = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = json.loads(line)
        entry = Entry(
            row["queue"],
            row["partition"],
            row["transactionId"],
            row["payload"],
            row.get("offset"),
            row.get("push"),
            row.get("ts"),
            row.get("incarnation", 0),
            row.get("optional", False),
            row.get("unknown", False),
        )
        if entry.unknown == (entry.offset is not None):
            raise ValueError(f"ledger line {number}: a record is either acknowledged with an offset or unknown")
        entries.append(entry)
    settled = collections.Counter((e.queue, e.partition, e.transaction_id, e.payload) for e in entries if not e.unknown)
    return [e for e in entries if not e.unknown or not settled[(e.queue, e.partition, e.transaction_id, e.payload)]]


def zstd(data, *options):
    """Output of the zstd program, or None when it refuses the input."""
    done = subprocess.run(["zstd", "-q", "-c", *options], input=data, capture_output=True)
    return done.stdout if done.returncode == 0 else None


class Oracle:
    def __init__(self, bucket, ledger, rules=None):
        self.bucket = pathlib.Path(bucket)
        self.ledger = read_ledger(ledger)
        self.rules = rules or Rules()
        self.problems = []
        self.windows = collections.defaultdict(list)  # queue -> windows in order of k
        self.checkpoints = collections.defaultdict(dict)  # queue -> k -> key
        self.objects = {}  # key -> path

    def problem(self, kind, text):
        self.problems.append(f"{kind}: {text}")

    def judge(self):
        """Looks at everything; the problems found, none when the lake is exact."""
        self.read_tree()
        for queue in sorted(self.windows):
            self.windows[queue].sort(key=lambda w: w.k)
            self.judge_tiling(queue)
            for window in self.windows[queue]:
                self.judge_window(window)
            self.judge_partitions(queue)
            self.judge_checkpoints(queue)
        for queue in sorted(set(self.checkpoints) - set(self.windows)):
            self.problem("checkpoint", f"queue {queue} has checkpoints and no windows")
        named = {o["key"] for ws in self.windows.values() for w in ws for o in objects_of(w)}
        for key in sorted(set(self.objects) - named):
            self.problem("orphan", f"no manifest names {key}")
        self.judge_ledger()
        return self.problems

    @property
    def records(self):
        return [r for ws in self.windows.values() for w in ws for r in w.records]

    def summary(self):
        return (
            f"{len(self.windows)} queues, {sum(map(len, self.windows.values()))} windows, {len(self.records)} records "
            f"in the lake, {sum(not e.unknown for e in self.ledger)} acknowledged, "
            f"{sum(e.unknown for e in self.ledger)} of unknown outcome, {len(self.problems)} problems"
        )

    # --- the tree ---

    def read_tree(self):
        prefix = re.escape(self.rules.prefix)
        data = re.compile(
            rf"{prefix}/tenant=[^/]+/queue=[^/]+/dt=[^/]+/(hour=[^/]+/)?w-[^/]+\.(jsonl|jsonl\.gz|jsonl\.zst)"
        )
        sidecar = re.compile(
            rf"{prefix}/_queen/tenant=[^/]+/queue=([^/]+)/(windows|checkpoint)/(\d+)(\.json|\.json\.zst)"
        )
        for path in sorted(self.bucket.rglob("*")):
            key = path.relative_to(self.bucket).as_posix()
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                self.problem("stray", f"{key} is not a plain file")
            elif path.is_dir():
                continue
            elif key.split("/")[0] == TEMPORARY:
                if not self.rules.temporary:
                    self.problem("temporary", key)
            elif data.fullmatch(key):
                self.objects[key] = path
            elif match := sidecar.fullmatch(key):
                name, folder, k, ending = match.groups()
                if folder == "windows" and ending == ".json":
                    self.read_manifest(key, path)
                elif folder == "checkpoint" and ending == ".json.zst":
                    self.checkpoints[name][int(k)] = key
                else:
                    self.problem("stray", key)
            else:
                self.problem("stray", key)

    def read_manifest(self, key, path):
        def pairs(items):
            fields = [name for name, _ in items]
            if len(set(fields)) != len(fields):
                raise ValueError("a field twice")
            return dict(items)

        try:
            manifest = json.loads(path.read_bytes().decode(), object_pairs_hook=pairs)
        except ValueError as error:
            self.problem("manifest", f"{key} cannot be read: {error}")
            return
        if not isinstance(manifest, dict):
            self.problem("manifest", f"{key} is no object")
            return
        missing = [f for f in MANIFEST_FIELDS if f not in manifest and f not in ("minTs", "maxTs")]
        if missing:
            self.problem("manifest", f"{key} has no {', '.join(missing)}")
            return
        numbers = ["k", "tStart", "tEnd", "records", "bytes", "partitions", "minTs", "maxTs"]
        wrong = [f for f in numbers if f in manifest and type(manifest[f]) is not int]
        wrong += [f for f in ("queue", "writer", "compression") if not isinstance(manifest[f], str)]
        if wrong:
            self.problem("manifest", f"{key}: wrong type of {', '.join(wrong)}")
            return
        expected = manifest_key(
            self.rules.prefix, manifest["queue"], manifest["k"], self.rules.tenant, self.rules.segment_max
        )
        if key != expected:
            self.problem("key", f"manifest {key} should be {expected}")
        self.windows[manifest["queue"]].append(Window(manifest["queue"], manifest["k"], key, manifest))

    # --- windows ---

    def judge_tiling(self, queue):
        align = self.rules.align
        previous = None
        for n, window in enumerate(self.windows[queue], 1):
            m = window.manifest
            where = f"{queue} window {window.k}"
            if window.k != n:
                self.problem("window", f"{where} where {n} should be")
            if m["tEnd"] <= m["tStart"]:
                self.problem("window", f"{where} ends at {m['tEnd']}, before its start {m['tStart']}")
            elif align != "none" and floor(m["tStart"], align) != floor(m["tEnd"] - 1, align):
                self.problem("window", f"{where} crosses the boundary of its {align}")
            if previous is not None and m["tStart"] != previous:
                if m["tStart"] < previous:
                    self.problem(
                        "window", f"{where} starts at {m['tStart']}, inside the one before, which ends at {previous}"
                    )
                elif align == "none" or m["tStart"] != floor(m["tStart"], align):
                    self.problem(
                        "window", f"{where} starts at {m['tStart']}: neither where the one before ended nor a boundary"
                    )
            if n == 1 and self.rules.start == "earliest" and "minTs" in m and m["tStart"] != floor(m["minTs"], align):
                self.problem(
                    "window",
                    f"{where} starts at {m['tStart']}, not at {floor(m['minTs'], align)}, with the first record",
                )
            previous = m["tEnd"]

    def judge_window(self, window):
        self.judge_manifest(window)
        m = window.manifest
        where = f"{window.queue} window {window.k}"
        for o in objects_of(window):
            self.read_object(window, o)
        found = window.records
        if m["records"] != len(found):
            self.problem("manifest", f"{where} says {m['records']} records, there are {len(found)}")
        if m["partitions"] != len({r.partition for r in found}):
            self.problem(
                "manifest", f"{where} says {m['partitions']} partitions, there are {len({r.partition for r in found})}"
            )
        for name, value in (("minTs", min), ("maxTs", max)):
            right = value((r.ts for r in found), default=None)
            if m.get(name) != right:
                self.problem("manifest", f"{where} says {name} {m.get(name)}, it is {right}")
        if not found:
            self.problem("window", f"{where} holds no record")
        for r in found:
            if not m["tStart"] <= r.ts < m["tEnd"]:
                self.problem("bounds", f"{r.name}: {r.ts} is outside [{m['tStart']}, {m['tEnd']})")
        places = [(r.partition.encode(), r.ts, r.offset) for r in found]
        for before, after in zip(places, places[1:]):
            if before >= after:
                self.problem("order", f"{where}: {after} behind {before}")

    def judge_manifest(self, window):
        m, rules = window.manifest, self.rules
        where = f"{window.queue} window {window.k}"
        fields = [f for f in MANIFEST_FIELDS if f in m]
        if list(m) != fields:
            self.problem("manifest", f"{where}: fields {list(m)}, should be {fields}")
        for name, right in (
            ("sink", rules.sink),
            ("tenant", rules.tenant),
            ("format", "jsonl"),
            ("layout", "merged"),
            ("lost", []),
        ):
            if m[name] != right:
                self.problem("manifest", f"{where}: {name} {m[name]!r}, should be {right!r}")
        if m["compression"] not in EXTENSIONS or rules.compression not in (None, m["compression"]):
            self.problem("manifest", f"{where}: compression {m['compression']!r}")
        elif not WRITERS[m["compression"]].fullmatch(m["writer"]) or m["writer"].endswith(" raw") != rules.raw:
            self.problem("manifest", f"{where}: writer {m['writer']!r}")
        committed = m["committedAt"]
        if not isinstance(committed, str) or from_iso(committed) is None or not committed.endswith("000Z"):
            self.problem("manifest", f"{where}: committedAt {committed!r}")
        objects = m["objects"]
        if not isinstance(objects, list) or len(objects) != 1:
            self.problem("manifest", f"{where}: objects {str(objects)[:200]}, should be one")
        for o in objects_of(window):
            if list(o) != OBJECT_FIELDS:
                self.problem("manifest", f"{where}: fields of its object {list(o)}, should be {OBJECT_FIELDS}")
            if m["compression"] in EXTENSIONS:
                right = data_key(
                    rules.prefix,
                    window.queue,
                    window.k,
                    m["tStart"],
                    m["tEnd"],
                    rules.align,
                    m["compression"],
                    rules.tenant,
                    rules.segment_max,
                )
                if o["key"] != right:
                    self.problem("key", f"{where}: object {o['key']} should be {right}")
        for name in ("bytes", "records"):
            total = sum(o.get(name, 0) for o in objects_of(window))
            if m[name] != total:
                self.problem("manifest", f"{where} says {m[name]} {name}, its objects {total}")

    # --- objects ---

    def read_object(self, window, o):
        key = o["key"]
        path = self.objects.get(key)
        if path is None:
            self.problem("object", f"{window.queue} window {window.k}: {key} is not there")
            return
        data = path.read_bytes()
        if o.get("bytes") != len(data):
            self.problem("object", f"{key}: the manifest says {o.get('bytes')} bytes, there are {len(data)}")
        digest = hashlib.sha256(data).hexdigest()
        if o.get("sha256") != digest:
            self.problem("object", f"{key}: the manifest says sha256 {o.get('sha256')}, it is {digest}")
        text = self.decompress(key, data)
        if text is None:
            return
        lines = text.split(b"\n")
        if lines.pop() != b"":
            self.problem("object", f"{key} does not end in a line break")
        if o.get("records") != len(lines):
            self.problem("object", f"{key}: the manifest says {o.get('records')} records, there are {len(lines)}")
        for number, line in enumerate(lines, 1):
            self.read_line(window, key, number, line)

    def decompress(self, key, data):
        """The text, or None; the framing must be the one the specification pins."""
        if key.endswith(".jsonl"):
            return data
        if key.endswith(".gz"):
            if data[:10] != b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff":
                self.problem("object", f"{key}: gzip header {data[:10].hex()}")
            stream = zlib.decompressobj(31)
            try:
                text = stream.decompress(data) + stream.flush()
            except zlib.error as error:
                self.problem("object", f"{key} is damaged: {error}")
                return None
            if not stream.eof or stream.unused_data:
                self.problem("object", f"{key} is not one whole gzip member")
            deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
            if self.rules.exact_frames and deflate.compress(text) + deflate.flush() != data[10:-8]:
                self.problem("object", f"{key}: other bytes than level 6 gives")
            return text
        if data[:5] != b"\x28\xb5\x2f\xfd\x00":  # streaming: no content size, checksum, dictionary, single segment
            self.problem("object", f"{key}: zstd header {data[:5].hex()}")
        text = zstd(data, "-d")
        if text is None:
            self.problem("object", f"{key} is damaged")
            return None
        if self.rules.exact_frames and zstd(text, "-3", "--no-check", "--single-thread") != data:
            self.problem("object", f"{key}: other bytes than level 3 gives")
        return text

    def read_line(self, window, key, number, line):
        where = f"line {number} of {key}"
        try:
            text = line.decode()
        except UnicodeDecodeError:
            self.problem("line", f"{where} is not UTF-8")
            return
        values = parse_line(text)
        if values is None:
            self.problem("line", f"{where} has not the five fields: {text[:200]}")
            return
        partition, offset, transaction_id, ts_text, payload = values
        ts = from_iso(ts_text)
        if ts is None:
            self.problem("line", f"{where}: ts {ts_text!r}")
            return
        if text != lake_line(partition, offset, transaction_id, ts, payload):
            self.problem("line", f"{where} is spelled otherwise: {text[:200]}")
        window.records.append(Record(window.queue, key, window.k, partition, offset, transaction_id, ts, payload))

    # --- against the ledger ---

    def judge_ledger(self):
        expected = collections.defaultdict(list)
        for entry in self.ledger:
            expected[(entry.queue, entry.partition, entry.transaction_id)].append(entry)
        pushes, stamps = {}, {}
        for record in self.records:
            entries = expected.get((record.queue, record.partition, record.transaction_id), [])
            entry = self.match(record, entries)
            if entry is None:
                continue
            entry.seen = True
            if record.payload != lake_payload(entry.payload, self.rules.raw):
                self.problem("payload", f"{record.name}: {record.payload[:100]!r}, pushed {entry.payload[:100]!r}")
            if entry.ts is not None and entry.ts != record.ts:
                self.problem("stamp", f"{record.name}: {record.ts}, fetched {entry.ts}")
            if entry.push is not None:
                push = json.dumps(entry.push)
                if pushes.setdefault(push, record.ts) != record.ts:
                    self.problem("stamp", f"{record.name}: {record.ts}, others of its push {pushes[push]}")
                if stamps.setdefault(record.ts, push) != push:
                    self.problem("stamp", f"{record.name}: {record.ts} is the stamp of two pushes")
        for entry in self.ledger:
            if not (entry.seen or entry.unknown or entry.optional):
                self.problem("missing", entry.name)

    def match(self, record, entries):
        """The ledger's entry of a record: same offset first, then one of unknown outcome."""
        fits = [e for e in entries if e.offset == record.offset] or [e for e in entries if e.unknown]
        free = [e for e in fits if not e.seen]
        if free:
            # Incarnations of a partition come in order; one that may be missing is passed over when it does not fit.
            same = [e for e in free if record.payload == lake_payload(e.payload, self.rules.raw)]
            return min(same or free, key=lambda e: e.incarnation)
        if fits:
            self.problem("doubled", record.name)
        elif entries:
            self.problem("offset", f"{record.name}, acknowledged at {', '.join(str(e.offset) for e in entries)}")
        else:
            self.problem("unasked", record.name)
        return None

    def judge_partitions(self, queue):
        """Offsets without a gap over the windows; only an incarnation begins anew, at 0."""
        entries = [e for e in self.ledger if e.queue == queue and not e.unknown]
        several = {e.partition for e in entries if e.incarnation > 0}
        optional = collections.defaultdict(lambda: -1)  # greatest offset of those that may be missing
        for e in entries:
            if e.optional:
                optional[e.partition] = max(optional[e.partition], e.offset)
        last = {}
        for window in self.windows[queue]:
            for r in window.records:
                before = last.get(r.partition)
                last[r.partition] = r
                if before is None:
                    if r.offset > 0 and r.offset > optional[r.partition] + 1:
                        self.problem("offset", f"{r.name} is the partition's first")
                elif (r.offset, r.ts) <= (before.offset, before.ts) and r.offset == before.offset and r.ts == before.ts:
                    self.problem("doubled", r.name)
                elif r.offset == before.offset + 1:
                    if r.ts < before.ts:
                        self.problem("order", f"{r.name}: stamped before offset {before.offset}")
                elif r.offset != 0 or r.partition not in several or r.ts <= before.ts:
                    self.problem("offset", f"{r.name} behind offset {before.offset}")

    def judge_checkpoints(self, queue):
        limit = self.rules.segment_max - len("queue=")
        windows = self.windows[queue]
        several = {e.partition for e in self.ledger if e.queue == queue and e.incarnation > 0}
        since = 0
        for k, key in sorted(self.checkpoints.pop(shorten(queue, limit), {}).items()):
            if key != checkpoint_key(self.rules.prefix, queue, k, self.rules.tenant, self.rules.segment_max):
                self.problem("key", f"checkpoint {key}")
            text = zstd((self.bucket / key).read_bytes(), "-d")
            try:
                document = json.loads(text or b"")
                rows = [(row[0], row[1]) for row in document["positions"]]
                head = (document["k"], document["tEnd"])
            except (ValueError, KeyError, TypeError, IndexError):
                self.problem("checkpoint", f"{key} cannot be read")
                continue
            window = next((w for w in windows if w.k == k), None)
            if window is None or head != (k, window.manifest["tEnd"]):
                self.problem("checkpoint", f"{key} says k, tEnd {head}, which is no window")
                continue
            right = {}
            for w in windows:
                if since < w.k <= k:
                    right.update({r.partition: r.offset + 1 for r in w.records})
            names = [name for name, _ in rows]
            if names != sorted(set(names), key=str.encode):
                self.problem("checkpoint", f"{key}: positions not sorted")
            for name, offset in rows:
                if name not in several and name in right and offset != right[name]:
                    self.problem("checkpoint", f"{key}: {name} goes on at {offset}, should be {right[name]}")
            if self.rules.one_life and (absent := set(right) - set(names)):
                self.problem("checkpoint", f"{key} has no {sorted(absent)[:5]}")
            since = k


def objects_of(window):
    objects = window.manifest["objects"]
    return (
        [o for o in objects if isinstance(o, dict) and isinstance(o.get("key"), str)]
        if isinstance(objects, list)
        else []
    )


def judge(bucket, ledger_path, **rules):
    """Raises an AssertionError that lists the problems; the oracle, when there are none."""
    with open(ledger_path, encoding="utf-8") as lines:
        oracle = Oracle(bucket, lines, Rules(**rules))
    problems = oracle.judge()
    if problems:
        shown = "\n  ".join(problems[:30])
        raise AssertionError(f"the lake is not exact: {oracle.summary()}\n  {shown}")
    return oracle


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bucket")
    parser.add_argument("ledger")
    defaults = Rules()
    parser.add_argument("--prefix", default=defaults.prefix)
    parser.add_argument("--sink", default=defaults.sink)
    parser.add_argument("--align", default=defaults.align, choices=sorted(UNITS_US))
    parser.add_argument("--start", default=defaults.start, choices=["earliest", "latest"])
    parser.add_argument("--compression", choices=sorted(EXTENSIONS))
    parser.add_argument("--segment-max", type=int, default=defaults.segment_max)
    parser.add_argument("--raw", action="store_true", help="unreadable payloads are not quoted")
    parser.add_argument(
        "--no-temporary", dest="temporary", action="store_false", help="no unfinished upload may be left"
    )
    parser.add_argument("--one-life", action="store_true", help="no queue was deleted: checkpoints are complete")
    parser.add_argument("--exact-frames", action="store_true", help="compress again and compare the bytes")
    options = vars(parser.parse_args())
    bucket, ledger = options.pop("bucket"), options.pop("ledger")
    with open(ledger, encoding="utf-8") as lines:
        oracle = Oracle(bucket, lines, Rules(**options))
    problems = oracle.judge()
    print(*problems, sep="\n", end="\n" if problems else "")
    print(oracle.summary())
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
