"""Traffic for the end-to-end tests: awkward names and payloads, pushers that keep a ledger, and reading back.

Everything is a fixed function of the test's seeded random source but the interleaving of threads. Bodies are built as
text, so that a payload goes out exactly as the ledger has it.
"""

import contextlib
import http.client
import itertools
import json
import subprocess
import threading
import time
import typing

import oracle
from harness import Skip, wait_until

ODD_NAMES = [
    "ünï cødé/1",
    "p:2 100%",
    'quo"ted\\name',
    "🐝 emoji",
    "tab\tand\nbreak",
    "..",
    ".",
    "~tilde",
    "a=b&c",
    "%41",
    "日本語",
    "\u2028",
    "",
    "semi;colon",
    "'single'",
    "{json}",
    "\x7f",
    "trailing ",
    " leading",
    "CamelCase",
    "x" * 200,
    "ü" * 90,
]

LONG_STRING = '"' + "the quick brown fox " * 75000 + '"'  # 1.5 MB

HOSTILE = [
    "null",
    "true",
    '""',
    "0",
    "-0",
    "-0.0",
    "1E+400",
    "1e-400",
    "123456789012345678901234567890",
    "-999999999999999999999999999999",
    "0.1000000000000000055511151231257827",
    "1E5",
    "42.00",
    "[]",
    "{}",
    '{"":""}',
    '{"a":1,"a":2,"a":{"a":3}}',
    '"\\u0000"',
    '{"\\u0000":"\\u0000"}',
    '"\u2028\u2029"',
    '"raw \ufeff bom and \x7f del"',
    '"\U0001f41d"',
    '"\\ud83d\\udc1d"',
    '"\\uD83D\\uDC1D"',
    '"\\ud800"',
    '{"\\udc00":1}',
    '["\\udc1d\\ud83d"]',
    '"\\\\ud800"',
    '"\\ud800\\u0041"',
    '{\n  "pretty": [\n\t1,\r\n\t2\r\n  ]\n}',
    "[1,\r2]",
    "[\t1\t]",
    '"\\n\\r\\t\\b\\f\\/\\\\\\""',
    "[" * 500 + "]" * 500,
    '{"d":' * 499 + "{}" + "}" * 499,
    '"' + "\\u0001" * 1000 + '"',
    '{"encrypted":"AA==","iv":"AA==","authTag":"AA=="}',
    '{ "spaces" :  [ 1 , 2 ]  }',
    '{"partition":"x","offset":7,"payload":null}',
    '"</script><!-- & -->"',
    '"' + "é" * 5000 + '"',
]


class Item(typing.NamedTuple):
    queue: str
    partition: str
    transaction_id: str
    payload: str  # JSON text


def body_of(items):
    """The text of a push."""
    parts = (
        f'{{"queue":{json.dumps(i.queue)},"partition":{json.dumps(i.partition)},'
        f'"transactionId":{json.dumps(i.transaction_id)},"payload":{i.payload}}}'
        for i in items
    )
    return '{"items":[' + ",".join(parts) + "]}"


def push_one(broker, queue="q", partition="p", payload=1, **more):
    """Pushes one record; its answer."""
    return broker.push([{"queue": queue, "partition": partition, "payload": payload, **more}])[0]


class Ledger:
    """What was pushed and what came of it; the file that the oracle reads."""

    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()
        self.rows = []

    def acknowledged(self, items, answer, push, **flags):
        """answer: the list that the broker sent."""
        assert [a["index"] for a in answer] == list(range(len(items))), answer
        rows = []
        for item, a in zip(items, answer):
            assert a["status"] in ("queued", "duplicate"), a
            assert a["transaction_id"] == item.transaction_id and a["queueName"] == item.queue, (a, item)
            rows.append(
                {
                    "queue": item.queue,
                    "partition": item.partition or "Default",
                    "transactionId": item.transaction_id,
                    "payload": item.payload,
                    "offset": a["offset"],
                    "message_id": a["message_id"],
                    "push": push,
                    **flags,
                }
            )
        with self.lock:
            self.rows += rows

    def unknown(self, items, push, **flags):
        with self.lock:
            self.rows += [
                {
                    "queue": i.queue,
                    "partition": i.partition or "Default",
                    "transactionId": i.transaction_id,
                    "payload": i.payload,
                    "push": push,
                    "unknown": True,
                    **flags,
                }
                for i in items
            ]

    @property
    def acknowledged_rows(self):
        with self.lock:
            return [row for row in self.rows if not row.get("unknown")]

    def count(self, queue=None):
        return sum(queue in (None, row["queue"]) for row in self.acknowledged_rows)

    def save(self):
        with self.lock, open(self.path, "w", encoding="utf-8") as file:
            for row in self.rows:
                file.write(json.dumps(row) + "\n")
        return self.path


class Batches:
    """Makes pushes: batches of varying size over the partitions of some queues. Any thread."""

    def __init__(self, random, queues, partitions, hostile=True, largest=60):
        """partitions: their names, or a function of the queue that gives them."""
        self.random = random
        self.lock = threading.Lock()
        self.queues = queues
        self.partitions = partitions if callable(partitions) else lambda queue: partitions
        self.hostile = hostile
        self.largest = largest
        self.made = 0

    def payload(self):
        n = self.made
        if self.hostile and self.random.random() < 0.25:
            return self.random.choice(HOSTILE)
        return json.dumps({"n": n, "text": "x" * self.random.choice([0, 10, 100, 1000]), "price": n / 7})

    def next(self, size=None):
        with self.lock:
            return [self.make() for _ in range(size or self.random.choice([1, 1, 2, 5, 20, self.largest]))]

    def item(self, queue=None, partition=None, payload=None):
        with self.lock:
            return self.make(queue, partition, payload)

    def make(self, queue=None, partition=None, payload=None):
        """One item; the lock is held: no two have one id."""
        queue = self.random.choice(self.queues) if queue is None else queue
        partition = self.random.choice(self.partitions(queue)) if partition is None else partition
        self.made += 1
        return Item(queue, partition, f"t-{self.made}", self.payload() if payload is None else payload)


class Pusher(threading.Thread):
    """Pushes batches one after another until stop(); outlives the broker's deaths.

    next_batch()   gives the items of the next push, or None at the end
    gives_up()     true: a failed push is not repeated, its outcome stays unknown
    pause          seconds between pushes
    """

    def __init__(self, broker, ledger, next_batch, name, gives_up=None, pause=0.0, flags=None):
        super().__init__(daemon=True)
        self.broker = broker
        self.ledger = ledger
        self.next_batch = next_batch
        self.label = name
        self.gives_up = gives_up or (lambda: False)
        self.pause = pause
        self.flags = flags or {}
        self.stopping = threading.Event()
        self.error = None
        self.acknowledged = 0
        self.repeated = 0
        self.sent = False  # the push at hand may have reached the broker
        self.connection = None

    def run(self):
        try:
            number = 0
            while not self.stopping.is_set():
                items = self.next_batch()
                if items is None:
                    return
                number += 1
                self.push(items, f"{self.label}-{number}")
                if self.pause:
                    self.stopping.wait(self.pause)
        except BaseException as error:
            self.error = error
        finally:
            if self.connection:
                self.connection.close()

    def push(self, items, name):
        body = body_of(items).encode("utf-8", "surrogatepass")
        attempts = 0
        self.sent = False
        while True:
            answer = self.attempt(body)
            attempts += self.sent
            if answer is not None:
                statuses = {a["status"] for a in answer}
                # One push is one command: its records are there together or not at all.
                assert statuses == {"queued"} or (attempts > 1 and statuses == {"duplicate"}), (attempts, answer[:5])
                self.ledger.acknowledged(items, answer, name, **self.flags)
                self.acknowledged += len(items)
                return
            if self.sent and self.gives_up():
                self.ledger.unknown(items, name, **self.flags)
                return
            if not self.sent and self.stopping.is_set():
                return  # nobody ever saw it
            self.repeated += self.sent
            time.sleep(0.05)

    def attempt(self, body):
        """The parsed answer, or None: try again."""
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.broker.port, timeout=40)
                self.connection.connect()
            self.sent = True
            self.connection.request("POST", "/api/v1/push", body, {"content-type": "application/json"})
            response = self.connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException):
            if self.connection:
                self.connection.close()
            self.connection = None
            return None
        if response.status in (429, 503, 507):
            return None
        assert response.status == 201, (response.status, data[:500])
        return json.loads(data)

    def stop(self):
        self.stopping.set()

    def finish(self, timeout=60):
        """Waits for the end; raises what went wrong in it."""
        self.join(timeout)
        if self.error is not None:
            raise self.error
        assert not self.is_alive(), f"pusher {self.label} still runs"


def finish_all(pushers):
    """Each ends with its push at hand; then all that went wrong in one is raised."""
    for pusher in pushers:
        pusher.stop()
    for pusher in pushers:
        pusher.finish()


_calls = itertools.count()  # no two pushes have one name


def push_all(broker, ledger, batches, threads=4, **options):
    """Pushes the batches of a list from several threads; every one is acknowledged afterwards."""
    lock = threading.Lock()
    left = list(batches)

    def next_batch():
        with lock:
            return left.pop() if left else None

    call = next(_calls)
    pushers = [Pusher(broker, ledger, next_batch, f"{call}-{n}", **options) for n in range(threads)]
    for pusher in pushers:
        pusher.start()
    for pusher in pushers:
        pusher.finish(120)


# --- reading back ---

_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, strict=False)
_SPACE = " \t\r\n"


def _skip(text, at):
    while text[at] in _SPACE:
        at += 1
    return at


def members(text, at=0):
    """{name: text of the value} of the object that begins at `at`, and the position behind it."""
    at = _skip(text, at)
    assert text[at] == "{", text[at : at + 50]
    at = _skip(text, at + 1)
    found = {}
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        assert text[at] == ":"
        at = _skip(text, at + 1)
        _, end = _DECODER.raw_decode(text, at)
        found[name] = text[at:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found, at + 1


def elements(text):
    """Texts of the elements of an array of objects."""
    at = _skip(text, 0)
    assert text[at] == "["
    at = _skip(text, at + 1)
    while text[at] != "]":
        end = members(text, at)[1]
        yield text[at:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def fetch_texts(broker, entries):
    """One fetch call: for each entry its members with `records` as [(offset, transactionId, ts, payload text)]."""
    answer = broker.request("POST", "/api/v1/fetch", {"entries": entries})
    assert answer.status == 200, answer
    text = answer.body.decode()
    result = []
    for entry in elements(members(text)[0]["entries"]):
        fields = members(entry)[0]
        records = []
        for record in elements(fields.pop("records")):
            r = members(record)[0]
            records.append((int(r["offset"]), json.loads(r["transactionId"]), json.loads(r["ts"]), r["payload"]))
        result.append(({name: json.loads(value) for name, value in fields.items()}, records))
    return result


def read_back(broker, names, at_a_time=200):
    """Every record of these (queue, partition): {name: [(offset, transactionId, ts, payload text)]}."""
    positions = {name: 0 for name in names}
    found = {name: [] for name in names}
    while positions:
        asked = list(positions)[:at_a_time]
        entries = [{"queue": q, "partition": p, "offset": positions[(q, p)], "maxBytes": 4194304} for q, p in asked]
        answers = fetch_texts(broker, entries)
        weight = sum(len(r[3]) for _, records in answers for r in records)
        for name, (fields, records) in zip(asked, answers):
            assert "error" not in fields, (name, fields)
            found[name] += records
            positions[name] = records[-1][0] + 1 if records else positions[name]
            if positions[name] >= fields["highWatermark"]:
                assert positions[name] == fields["highWatermark"], (name, fields, positions[name])
                del positions[name]
            else:
                # Only the ceiling of a whole answer leaves an entry out.
                assert records or weight > 32 * 1048576, (name, fields, "nothing below the high watermark")
    return found


def check_read_back(broker, ledger):
    """Fetch gives every acknowledged record byte by byte, at its offset, and no offset is left out. The stamps
    go into the ledger."""
    rows = ledger.acknowledged_rows
    maybe = {}
    for row in ledger.rows:
        if row.get("unknown"):
            maybe[(row["queue"], row["partition"], row["transactionId"])] = row
    found = read_back(broker, sorted({(row["queue"], row["partition"]) for row in rows}))
    for name, records in found.items():
        assert [r[0] for r in records] == list(range(len(records))), (name, [r[0] for r in records][:50])
    seen = set()
    for row in rows:
        records = found[(row["queue"], row["partition"])]
        assert row["offset"] < len(records), ("lost", row, len(records))
        _, transaction_id, ts, payload = records[row["offset"]]
        assert transaction_id == row["transactionId"], ("another record at its offset", row, transaction_id)
        assert payload == row["payload"].strip(" \t\r\n"), ("payload", row, payload[:200])
        row["ts"] = oracle.from_iso(ts)
        assert row["ts"] is not None, ts
        seen.add((row["queue"], row["partition"], row["offset"]))
    for (queue, partition), records in found.items():
        for offset, transaction_id, _, payload in records:
            if (queue, partition, offset) not in seen:
                row = maybe.get((queue, partition, transaction_id))
                assert row and row["payload"].strip(" \t\r\n") == payload, (
                    "nobody pushed",
                    queue,
                    partition,
                    offset,
                    transaction_id,
                )
    return found


def check_duplicates(broker, ledger, at_a_time=500):
    """Every acknowledged push repeated: `duplicate`, with the offset and the id of the first time."""
    rows = [row for row in ledger.acknowledged_rows if not row.get("optional")]
    with broker.session() as call:
        for n in range(0, len(rows), at_a_time):
            part = rows[n : n + at_a_time]
            items = [Item(r["queue"], r["partition"], r["transactionId"], '"another payload"') for r in part]
            answer = call("POST", "/api/v1/push", body_of(items))
            assert answer.status == 201, answer
            for row, a in zip(part, answer.json):
                assert a["status"] == "duplicate", (row, a)
                assert (a["offset"], a["message_id"]) == (row["offset"], row["message_id"]), (row, a)


# --- the machine ---


@contextlib.contextmanager
def small_filesystem(path, size):
    path.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "queen-test", path], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise Skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


# --- the lake ---


def kv_rows(broker, prefix="s3:default:"):
    """{key: value} of the sink's documents."""
    rows = {}
    after = None
    while True:
        operation = {
            "op": "getPrefix",
            "ns": "queen-s3",
            "prefix": prefix,
            "limit": 1000,
            **({"after": after} if after else {}),
        }
        result = broker.kv(operation)[0]
        rows.update({row["key"]: row["value"] for row in result["rows"]})
        if not result["truncated"]:
            return rows
        after = result["nextAfter"]


def lake_counts(env, prefix="queen"):
    """{queue: (windows, records)} by the manifests."""
    counts = {}
    for path in (env.bucket / prefix / "_queen").glob("tenant=*/queue=*/windows/*.json"):
        manifest = json.loads(path.read_text())
        windows, records = counts.get(manifest["queue"], (0, 0))
        counts[manifest["queue"]] = (windows + 1, records + manifest["records"])
    return counts


def safe_time(broker):
    return broker.call("POST", "/api/v1/partitions/changed", {"entries": []})["safeTime"]


def nudge(broker):
    """A write that moves the clock of an idle broker, as any traffic would."""
    broker.kv({"op": "put", "ns": "nudge", "key": "k", "value": 1, "forever": True})


def wait_complete(broker, queues, timeout=60):
    """Waits until the sink says that everything pushed so far is in committed windows."""
    now = safe_time(broker)
    state = {}

    def done():
        assert broker.running, f"the broker ended with {broker.process.returncode}"
        nudge(broker)
        rows = {row["name"]: row for row in broker.sink().get("queues", [])}
        state.clear()
        for queue in queues:
            through = rows.get(queue, {}).get("completeThrough")
            if through is None or through <= now:
                state[queue] = rows.get(queue)
        return not state

    wait_until(done, timeout, every=0.1, what=f"complete through {now}: {state}")


def wait_committed(broker, queue, k=1, timeout=30):
    """Waits until window k is committed and the next one fills."""

    def done():
        row = broker.sink_queue(queue) or {}
        return row.get("k", 0) >= k and row["state"] == "filling"

    wait_until(done, timeout, 0.05, f"window {k} of {queue} is committed")


def files(env):
    """{key: (bytes, version)} of everything in the bucket; a write makes another version, also of the same bytes."""
    listing = env.store.listing()
    root = env.bucket
    return {key: ((root / key).read_bytes(), version) for key, version in listing.items()}
