"""The oracle itself: a good lake is accepted, and every kind of damage is found.

The lake is made by a small writer of its own, which shares no code with the product or with the oracle. Damage is
done in two ways: to the model before it is written, so that digests, counts and keys agree with the damage and only
the content gives it away; and to files, as a bad disk or a bug of the upload would.
"""

import datetime
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.parse
import zlib

import harness
import oracle
from harness import cases

HOUR = 3600 * 1000000
T0 = 1791007200000000  # 2026-10-03T06:00:00Z
TENANT = "00000000-0000-0000-0000-000000000001"
ODD = "ünï cødé/1"


def utc(us):
    return datetime.datetime.fromtimestamp(us // 1000000, datetime.timezone.utc)


def escaped(name):
    return urllib.parse.quote(name, safe="").replace("~", "%7E")


class Lake:
    """queues: name -> list of windows {tStart, tEnd, rows}; a row is [partition, offset, transactionId, ts, payload]."""

    def __init__(self):
        self.queues = {
            "orders": [
                {
                    "tStart": T0,
                    "tEnd": T0 + 500,
                    "rows": [
                        ["cust-1", 0, "a0", T0 + 100, '{"n": 42.00}'],
                        ["cust-1", 1, "a1", T0 + 100, "[1E+400, -0]"],
                        ["cust-1", 2, "a2", T0 + 200, '"\\ud83d\\ude00"'],
                        ["cust-2", 0, "b0", T0 + 100, "null"],
                    ],
                },
                {
                    "tStart": T0 + 500,
                    "tEnd": T0 + HOUR,
                    "rows": [["cust-1", 3, "a3", T0 + 500, '{"a":1,"a":2}'], ["cust-2", 1, "b1", T0 + 900, '"x"']],
                },
                {
                    "tStart": T0 + 3 * HOUR,
                    "tEnd": T0 + 3 * HOUR + 70,
                    "rows": [  # two empty hours were skipped
                        ["cust-1", 4, "a4", T0 + 3 * HOUR + 1, "{}"],
                        ["cust-2", 2, "b2", T0 + 3 * HOUR + 2, '{"t":"one"}'],
                    ],
                },
            ],
            ODD: [
                {
                    "tStart": T0,
                    "tEnd": T0 + HOUR,
                    "rows": [
                        ['p:2 "100%" \t', 0, "", T0 + 300, '{ "two":  1 }'],
                        ["🐝", 0, "t\\\n", T0 + 300, json.dumps('{"lone":"\\ud800"}')],  # quoted
                        ["🐝", 1, "u", T0 + 301, json.dumps("[" * 501 + "]" * 501)],
                    ],
                }
            ],
        }
        self.pushed = {  # what was pushed, where the line differs from it
            (ODD, "🐝", 0): '{"lone":"\\ud800"}',
            (ODD, "🐝", 1): "[" * 501 + "]" * 501,
            (ODD, 'p:2 "100%" \t', 0): ' \n{\n"two":\r\n1 }\t',
        }
        self.ledger = self.make_ledger()

    def rows(self, queue="orders", window=0):
        return self.queues[queue][window]["rows"]

    def make_ledger(self):
        entries = []
        for queue, windows in self.queues.items():
            for partition, offset, transaction_id, ts, payload in (r for w in windows for r in w["rows"]):
                entries.append(
                    {
                        "queue": queue,
                        "partition": partition,
                        "offset": offset,
                        "transactionId": transaction_id,
                        "payload": self.pushed.get((queue, partition, offset), payload),
                        "message_id": "m",
                        "push": f"at {ts}",
                    }
                )
        return entries

    def object_key(self, queue, k, window):
        start = utc(window["tStart"])
        return (
            f"queen/tenant={TENANT}/queue={escaped(queue)}/dt={start:%Y-%m-%d}/hour={start:%H}/"
            f"w-{str(k).zfill(10)}-{window['tStart']}-{window['tEnd']}.jsonl{self.ending()}"
        )

    def ending(self):
        return ".zst"

    def compress(self, text):
        return subprocess.run(["zstd", "-qc", "-3", "--no-check"], input=text, check=True, capture_output=True).stdout

    def line(self, row):
        partition, offset, transaction_id, ts, payload = row
        fraction = str(ts % 1000000).zfill(6)
        return (
            f'{{"partition":{json.dumps(partition, ensure_ascii=False)},"offset":{offset},'
            f'"transactionId":{json.dumps(transaction_id, ensure_ascii=False)},'
            f'"ts":"{utc(ts):%Y-%m-%dT%H:%M:%S}.{fraction}Z","payload":{payload}}}\n'
        )

    def manifest_path(self, bucket, queue="orders", k=1):
        return bucket / f"queen/_queen/tenant={TENANT}/queue={escaped(queue)}/windows/{str(k).zfill(10)}.json"

    def write(self, bucket, manifest_changes=()):
        """manifest_changes: functions (queue, k, manifest)."""
        for queue, windows in self.queues.items():
            for n, window in enumerate(windows, 1):
                self.write_window(bucket, queue, window.get("k", n), window, manifest_changes)
        folder = bucket / f"queen/_queen/tenant={TENANT}/queue=orders/checkpoint"
        folder.mkdir(parents=True)
        positions = [["cust-1", 4, "5d0c7cc0-0000-7000-8000-000000000001"], ["cust-2", 2]]
        document = {"k": 2, "tEnd": T0 + HOUR, "positions": positions}
        (folder / "0000000002.json.zst").write_bytes(Lake.compress(self, json.dumps(document).encode()))

    def write_window(self, bucket, queue, k, window, manifest_changes):
        rows = window["rows"]
        data = self.compress("".join(map(self.line, rows)).encode())
        key = self.object_key(queue, k, window)
        path = bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        stamps = [row[3] for row in rows]
        codec = {".zst": "zstd", ".gz": "gzip", "": "none"}[self.ending()]
        manifest = {
            "sink": "default",
            "tenant": TENANT,
            "queue": queue,
            "k": k,
            "tStart": window["tStart"],
            "tEnd": window["tEnd"],
            "format": "jsonl",
            "compression": codec,
            "layout": "merged",
            "objects": [
                {"key": key, "bytes": len(data), "records": len(rows), "sha256": hashlib.sha256(data).hexdigest()}
            ],
            "records": len(rows),
            "bytes": len(data),
            "partitions": len({row[0] for row in rows}),
            "minTs": min(stamps),
            "maxTs": max(stamps),
            "lost": [],
            "writer": "queen-s3/2.0.0 jsonl" + ("" if codec == "none" else "+" + codec),
            "committedAt": "2026-10-03T10:37:44.741000Z",
        }
        for change in manifest_changes:
            manifest = change(queue, k, manifest) or manifest
        path = self.manifest_path(bucket, queue, k)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(manifest), encoding="utf-8")


def look(env, lake, **rules):
    ledger = env.dir / "ledger"
    ledger.write_text("".join(json.dumps(entry) + "\n" for entry in lake.ledger))
    with open(ledger) as lines:
        return oracle.Oracle(env.bucket, lines, oracle.Rules(**rules)).judge()


# --- damage to the content: everything else agrees with it ---


def lost_line(lake):
    del lake.rows()[1]


def doubled_line(lake):
    lake.rows().insert(2, list(lake.rows()[1]))


def altered_payload(lake):
    lake.rows()[0][4] = '{"n": 42.0}'


def payload_spaces_lost(lake):
    lake.rows(ODD)[0][4] = '{"two":1}'


def swapped_order(lake):
    rows = lake.rows()
    rows[0], rows[1] = rows[1], rows[0]


def partitions_not_in_byte_order(lake):
    lake.rows().insert(0, lake.rows().pop())


def wrong_offset(lake):
    lake.rows("orders", 2)[0][1] = 5


def transaction_id_altered(lake):
    lake.rows()[0][2] = "A0"


def record_outside_bounds(lake):
    lake.queues["orders"][0]["tEnd"] = T0 + 200
    lake.queues["orders"][1]["tStart"] = T0 + 200


def record_before_its_window(lake):
    lake.rows("orders", 1)[0][3] = T0 + 499


def altered_ts_within_the_bounds(lake):
    lake.rows()[3][3] += 1


def altered_ts_of_a_lone_push(lake):
    lake.rows("orders", 1)[1][3] += 1
    lake.ledger[[e["transactionId"] for e in lake.ledger].index("b1")]["ts"] = T0 + 900


def one_stamp_for_two_pushes(lake):
    lake.rows()[2][3] = T0 + 100


def ts_falls_while_the_offset_rises(lake):
    for entry in lake.ledger:
        del entry["push"]
    lake.rows()[2][3] = T0 + 99


def line_in_two_windows(lake):
    lake.rows("orders", 1).insert(0, list(lake.rows()[2]))


def line_in_the_wrong_queue(lake):
    lake.rows("orders", 1).append(list(lake.rows(ODD)[2]))


def unreadable_payload_not_quoted(lake):
    lake.rows(ODD)[1][4] = '{"lone":"\\ud800"}'


def deep_payload_not_quoted(lake):
    lake.rows(ODD)[2][4] = "[" * 501 + "]" * 501


def readable_payload_quoted(lake):
    lake.rows()[2][4] = json.dumps(lake.rows()[2][4])


def line_break_kept(lake):
    lake.rows(ODD)[0][4] = '{ "two": \n1 }'


def other_escapes_in_a_name(lake):
    lake.line = lambda row: Lake.line(lake, row).replace("ü", "\\u00fc").replace("🐝", "\\ud83d\\udc1d")


def spaces_between_fields(lake):
    lake.line = lambda row: Lake.line(lake, row).replace(',"offset":', ', "offset":')


def fields_in_another_order(lake):
    lake.line = lambda row: json.dumps(json.loads(Lake.line(lake, row)), sort_keys=True) + "\n"


def ts_in_milliseconds(lake):
    lake.line = lambda row: Lake.line(lake, row).replace('Z","payload', '","payload')


def nobody_pushed_it(lake):
    lake.rows("orders", 2).append(["cust-3", 0, "zz", T0 + 3 * HOUR + 3, "1"])


def end_of_a_queue_missing(lake):
    lake.queues["orders"].pop()


def a_whole_queue_missing(lake):
    del lake.queues[ODD]


def overlapping_windows(lake):
    lake.queues["orders"][1]["tStart"] = T0 + 400


def gap_between_windows(lake):
    lake.queues["orders"][2]["tStart"] += 1


def window_crosses_the_hour(lake):
    lake.queues["orders"][2]["tEnd"] = T0 + 4 * HOUR + 1


def first_window_begins_late(lake):
    lake.queues["orders"][0]["tStart"] = T0 + 50


def k_gap(lake):
    lake.queues["orders"][2]["k"] = 4


def k_from_zero(lake):
    for k, window in enumerate(lake.queues["orders"]):
        window["k"] = k


def empty_object_beside(lake):
    lake.queues["orders"].append(
        {"tStart": T0 + 3 * HOUR + 70, "tEnd": T0 + 3 * HOUR + 80, "rows": [["x", 0, "", 1, "1"]]}
    )


def key_in_lower_case_escapes(lake):
    lake.object_key = lambda *a: Lake.object_key(lake, *a).replace("%2F", "%2f")


def key_of_another_hour(lake):
    lake.object_key = lambda *a: Lake.object_key(lake, *a).replace("hour=06", "hour=07")


def key_with_other_padding(lake):
    lake.object_key = lambda *a: Lake.object_key(lake, *a).replace("w-00000", "w-0000")


CONTENT = {
    lost_line: "missing",
    doubled_line: "doubled",
    altered_payload: "payload",
    payload_spaces_lost: "payload",
    swapped_order: "order",
    partitions_not_in_byte_order: "order",
    wrong_offset: "offset",
    transaction_id_altered: "unasked",
    record_outside_bounds: "bounds",
    record_before_its_window: "bounds",
    altered_ts_within_the_bounds: "stamp",
    altered_ts_of_a_lone_push: "stamp",
    one_stamp_for_two_pushes: "stamp",
    ts_falls_while_the_offset_rises: "order",
    line_in_two_windows: "doubled",
    line_in_the_wrong_queue: "unasked",
    unreadable_payload_not_quoted: "payload",
    deep_payload_not_quoted: "payload",
    readable_payload_quoted: "payload",
    line_break_kept: "object",
    other_escapes_in_a_name: "line",
    spaces_between_fields: "line",
    fields_in_another_order: "line",
    ts_in_milliseconds: "line",
    nobody_pushed_it: "unasked",
    end_of_a_queue_missing: "missing",
    a_whole_queue_missing: "missing",
    overlapping_windows: "window",
    gap_between_windows: "window",
    window_crosses_the_hour: "window",
    first_window_begins_late: "window",
    k_gap: "window",
    k_from_zero: "window",
    empty_object_beside: "bounds",
    key_in_lower_case_escapes: "key",
    key_of_another_hour: "key",
    key_with_other_padding: "key",
}


# --- damage to manifests ---


def field_changed(name, value):
    def change(queue, k, manifest):
        if queue == "orders" and k == 2:
            manifest[name] = value(manifest[name]) if callable(value) else value

    return change


def object_changed(name, value):
    def change(queue, k, manifest):
        if queue == "orders" and k == 2:
            manifest["objects"][0][name] = value(manifest["objects"][0][name]) if callable(value) else value

    return change


def field_removed(name):
    def change(queue, k, manifest):
        manifest.pop(name)

    return change


def fields_sorted(queue, k, manifest):
    return dict(sorted(manifest.items()))


def object_fields_sorted(queue, k, manifest):
    manifest["objects"] = [dict(sorted(o.items())) for o in manifest["objects"]]


def plus_one(value):
    return value + 1


MANIFEST = {
    "sha256": (object_changed("sha256", lambda s: s[:-1] + ("0" if s[-1] != "0" else "1")), "object"),
    "sha256 in capitals": (object_changed("sha256", str.upper), "object"),
    "records": (field_changed("records", plus_one), "manifest"),
    "records of the object": (object_changed("records", plus_one), "object"),
    "bytes": (field_changed("bytes", plus_one), "manifest"),
    "bytes of the object": (object_changed("bytes", plus_one), "object"),
    "partitions": (field_changed("partitions", plus_one), "manifest"),
    "minTs": (field_changed("minTs", plus_one), "manifest"),
    "maxTs": (field_changed("maxTs", plus_one), "manifest"),
    "minTs absent": (field_removed("minTs"), "manifest"),
    "lost": (field_changed("lost", [{"partition": "cust-1", "from": 1, "to": 2}]), "manifest"),
    "lost absent": (field_removed("lost"), "manifest"),
    "writer": (field_changed("writer", "queen-s3/2.0.0 jsonl+gzip"), "manifest"),
    "compression": (field_changed("compression", "zst"), "manifest"),
    "tenant": (field_changed("tenant", TENANT[:-1] + "2"), "manifest"),
    "queue": (field_changed("queue", "other"), "key"),
    "k": (field_changed("k", 7), "key"),
    "k as a text": (field_changed("k", "2"), "manifest"),
    "tEnd": (field_changed("tEnd", plus_one), "key"),
    "committedAt": (field_changed("committedAt", "2026-10-03T10:37:44Z"), "manifest"),
    "committedAt in microseconds": (field_changed("committedAt", "2026-10-03T10:37:44.741001Z"), "manifest"),
    "order of fields": (fields_sorted, "manifest"),
    "order of object fields": (object_fields_sorted, "manifest"),
    "object twice": (field_changed("objects", lambda o: o + o), "manifest"),
    "no object": (field_changed("objects", []), "manifest"),
}


# --- damage to files ---


def data_objects(env):
    return sorted(p for p in env.bucket.rglob("w-*") if p.is_file())


def missing_object(env, lake):
    data_objects(env)[0].unlink()


def missing_manifest(env, lake):
    lake.manifest_path(env.bucket).unlink()


def missing_last_manifest(env, lake):
    lake.manifest_path(env.bucket, k=3).unlink()


def extra_object(env, lake):
    first = data_objects(env)[0]
    shutil.copy(first, first.parent / first.name.replace("w-0000000001", "w-0000000009"))


def flipped_bit(env, lake):
    path = data_objects(env)[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def torn_object(env, lake):
    path = data_objects(env)[1]
    os.truncate(path, path.stat().st_size - 1)


def empty_object(env, lake):
    os.truncate(data_objects(env)[0], 0)


def torn_manifest(env, lake):
    path = lake.manifest_path(env.bucket)
    os.truncate(path, path.stat().st_size - 1)


def manifest_is_a_list(env, lake):
    lake.manifest_path(env.bucket).write_text("[]")


def field_twice_in_a_manifest(env, lake):
    path = lake.manifest_path(env.bucket)
    path.write_text(path.read_text().replace('{"sink"', '{"k": 1, "sink"'))


def temporary_beside_the_objects(env, lake):
    first = data_objects(env)[0]
    shutil.copy(first, first.parent / (first.name + ".tmp"))


def unfinished_upload(env, lake):
    (env.bucket / ".queen-tmp").mkdir()
    (env.bucket / ".queen-tmp" / "node-1-0-0").write_bytes(b"x")


def unknown_file(env, lake):
    (env.bucket / "queen" / "README").write_text("hello")


def object_is_a_link(env, lake):
    first = data_objects(env)[0]
    first.rename(env.dir / "moved")
    first.symlink_to(env.dir / "moved")


def checkpoint_goes_on_elsewhere(env, lake):
    path = next(env.bucket.rglob("checkpoint/*"))
    document = {"k": 2, "tEnd": T0 + HOUR, "positions": [["cust-1", 5], ["cust-2", 2]]}
    path.write_bytes(lake.compress(json.dumps(document).encode()))


def checkpoint_without_a_partition(env, lake):
    path = next(env.bucket.rglob("checkpoint/*"))
    document = {"k": 2, "tEnd": T0 + HOUR, "positions": [["cust-1", 4]]}
    path.write_bytes(lake.compress(json.dumps(document).encode()))


def resealed(env, lake, change):
    """Replaces the first object's bytes, and its size and digest in the manifest."""
    path = lake.manifest_path(env.bucket)
    manifest = json.loads(path.read_text())
    o = manifest["objects"][0]
    data = change((env.bucket / o["key"]).read_bytes())
    (env.bucket / o["key"]).write_bytes(data)
    o["bytes"] = manifest["bytes"] = len(data)
    o["sha256"] = hashlib.sha256(data).hexdigest()
    path.write_text(json.dumps(manifest))


def no_line_break_at_the_end(env, lake):
    resealed(env, lake, lambda data: lake.compress(harness.decompress("x.zst", data)[:-1]))


def frame_with_a_checksum(env, lake):
    def change(data):
        text = harness.decompress("x.zst", data)
        return subprocess.run(["zstd", "-qc", "-3", "--check"], input=text, check=True, capture_output=True).stdout

    resealed(env, lake, change)


def frame_of_another_level(env, lake):
    def change(data):
        text = harness.decompress("x.zst", data)
        return subprocess.run(["zstd", "-qc", "-19", "--no-check"], input=text, check=True, capture_output=True).stdout

    resealed(env, lake, change)


def bytes_behind_the_frame(env, lake):
    resealed(env, lake, lambda data: data + b"x")


FILES = {
    missing_object: "object",
    missing_manifest: "orphan",
    missing_last_manifest: "orphan",
    extra_object: "orphan",
    flipped_bit: "object",
    torn_object: "object",
    empty_object: "object",
    torn_manifest: "manifest",
    manifest_is_a_list: "manifest",
    field_twice_in_a_manifest: "manifest",
    temporary_beside_the_objects: "stray",
    unfinished_upload: "temporary",
    unknown_file: "stray",
    object_is_a_link: "stray",
    checkpoint_goes_on_elsewhere: "checkpoint",
    checkpoint_without_a_partition: "checkpoint",
    no_line_break_at_the_end: "object",
    frame_with_a_checksum: "object",
    frame_of_another_level: "object",
    bytes_behind_the_frame: "object",
}


def has(problems, kind):
    return any(p.startswith(kind + ": ") for p in problems)


def test_a_good_lake_is_accepted(env):
    lake = Lake()
    lake.write(env.bucket)
    problems = look(env, lake, temporary=False, exact_frames=True, one_life=True)
    assert not problems, problems


def test_every_damage_to_the_content_is_found(env):
    """Each of the functions above, on a lake of its own."""
    unfound = []
    for damage, kind in CONTENT.items():
        shutil.rmtree(env.bucket, ignore_errors=True)
        lake = Lake()
        damage(lake)
        lake.write(env.bucket)
        problems = look(env, lake)
        print(damage.__name__, problems[:2])
        if not has(problems, kind):
            unfound.append((damage.__name__, kind, problems))
    assert not unfound, unfound


def test_every_damage_to_a_manifest_is_found(env):
    unfound = []
    for name, (change, kind) in MANIFEST.items():
        shutil.rmtree(env.bucket, ignore_errors=True)
        lake = Lake()
        lake.write(env.bucket, [change])
        problems = look(env, lake)
        print(name, problems[:2])
        if not has(problems, kind):
            unfound.append((name, kind, problems))
    assert not unfound, unfound


def test_every_damage_to_the_files_is_found(env):
    unfound = []
    for damage, kind in FILES.items():
        shutil.rmtree(env.bucket, ignore_errors=True)
        lake = Lake()
        lake.write(env.bucket)
        damage(env, lake)
        problems = look(env, lake, temporary=False, exact_frames=True, one_life=True)
        print(damage.__name__, problems[:2])
        if not has(problems, kind):
            unfound.append((damage.__name__, kind, problems))
    assert not unfound, unfound


def test_a_record_of_unknown_outcome_may_be_there_or_not(env):
    lake = Lake()
    lake.write(env.bucket)
    shipped = lake.ledger[-1]
    del shipped["offset"]
    shipped["unknown"] = True
    lake.ledger.append({"queue": "orders", "partition": "x", "transactionId": "t", "payload": "1", "unknown": True})
    assert not look(env, lake)
    shipped["payload"] = "2"
    assert has(look(env, lake), "payload"), "there it must be as it was pushed"


def test_a_record_of_unknown_outcome_is_there_once(env):
    lake = Lake()
    lake.rows("orders", 2).append(["cust-2", 3, "b2", T0 + 3 * HOUR + 2, '{"t":"one"}'])
    lake.write(env.bucket)
    entry = next(e for e in lake.ledger if e["transactionId"] == "b2")
    assert has(look(env, lake), "offset")
    del entry["offset"]
    entry["unknown"] = True
    assert has(look(env, lake), "doubled")


def test_a_repeated_push_settles_an_unknown_outcome(env):
    lake = Lake()
    lake.ledger.append({**lake.ledger[0], "offset": None, "unknown": True})
    lake.write(env.bucket)
    assert not look(env, lake)
    del lake.rows()[0]
    shutil.rmtree(env.bucket)
    lake.write(env.bucket)
    assert has(look(env, lake), "missing")


def test_an_optional_record_may_be_missing_but_not_wrong(env):
    lake = Lake()
    lake.ledger.append(
        {"queue": "gone", "partition": "p", "transactionId": "t", "payload": "1", "offset": 0, "optional": True}
    )
    for entry in lake.ledger:
        entry["optional"] = entry["queue"] == "orders" or entry["queue"] == "gone"
    lake.queues["orders"][0]["rows"] = lake.rows()[2:3]
    lake.write(env.bucket)
    problems = [p for p in look(env, lake, start="latest") if not p.startswith("checkpoint")]
    assert not problems, problems
    lake.rows()[0][4] = "1"
    shutil.rmtree(env.bucket)
    lake.write(env.bucket)
    assert has(look(env, lake, start="latest"), "payload")


def test_a_partition_created_anew_begins_at_offset_0(env):
    lake = Lake()
    again = ["cust-1", 0, "c0", T0 + 3 * HOUR + 5, "true"]
    lake.rows("orders", 2).insert(1, again)
    entry = {"queue": "orders", "partition": "cust-1", "transactionId": "c0", "payload": "true", "offset": 0}
    lake.ledger.append(entry)
    lake.write(env.bucket)
    assert has(look(env, lake), "offset"), "nobody created it anew"
    entry["incarnation"] = 1
    problems = look(env, lake)
    assert not problems, problems


@cases("gzip", "none")
def test_other_compressions(env, case):
    lake = Lake()
    if case == "gzip":

        def member(text):
            deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
            body = deflate.compress(text) + deflate.flush()
            head = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
            return head + body + zlib.crc32(text).to_bytes(4, "little") + len(text).to_bytes(4, "little")

        lake.ending, lake.compress = lambda: ".gz", member
    else:
        lake.ending, lake.compress = lambda: "", lambda text: text
    lake.write(env.bucket)
    problems = look(env, lake, exact_frames=True, compression=case)
    assert not problems, problems
    assert has(look(env, lake, compression="zstd"), "manifest")
    if case == "gzip":
        lake.compress = lambda text: gzip.compress(text, 6)  # stamped, and of another system
        shutil.rmtree(env.bucket)
        lake.write(env.bucket)
        assert has(look(env, lake), "object")


def test_names_too_long_for_a_folder_are_shortened(env):
    """255 bytes a segment: 'queue=', the whole escapes that fit, ~ and 16 digits of the name's digest."""
    lake = Lake()
    name = "ü" * 100
    lake.queues = {name: lake.queues["orders"]}
    lake.ledger = lake.make_ledger()
    short = "%C3%BC" * 38 + "%C3" + "~" + hashlib.sha256(name.encode()).hexdigest()[:16]
    assert 255 - 3 < len("queue=" + short) <= 255
    lake.object_key = lambda *a: Lake.object_key(lake, *a).replace(escaped(name), short)
    lake.manifest_path = lambda bucket, queue, k: (
        bucket / f"queen/_queen/tenant={TENANT}/queue={short}/windows/{str(k).zfill(10)}.json"
    )
    lake.write(env.bucket)
    (env.bucket / f"queen/_queen/tenant={TENANT}/queue=orders/checkpoint/0000000002.json.zst").unlink()
    problems = look(env, lake)
    assert not problems, problems


def test_the_command_line(env):
    lake = Lake()
    lake.write(env.bucket)
    look(env, lake)
    command = [sys.executable, oracle.__file__, env.bucket, env.dir / "ledger"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "0 problems" in done.stdout, done
    missing_object(env, lake)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "object: " in done.stdout and "missing: " in done.stdout, done
