"""Every setting as the real program takes it: each refusal is one line, the same from the broker and from
`queen check-config`, and nothing was touched; each accepted spelling comes out as the canonical one.

spec/settings.md 1-8, spec/cluster.md 1, spec/decisions.md 21, 22, 29.
"""

import concurrent.futures
import itertools

from harness import LogLine, mark

SINK = "QUEEN_S3_EMBEDDED=true: "
S3 = {  # a sink that is read well
    "QUEEN_S3_EMBEDDED": "true",
    "QUEEN_S3_QUEUES": "orders",
    "QUEEN_S3_ENDPOINT": "http://127.0.0.1:1",
    "QUEEN_S3_REGION": "us-east-1",
    "QUEEN_S3_BUCKET": "lake",
    "QUEEN_S3_PATH_STYLE": "true",
    "QUEEN_S3_ACCESS_KEY": "hush-access",
    "QUEEN_S3_SECRET_KEY": "hush-secret",
}
BOOLEAN = 'is not a boolean (expected true/false, 1/0, yes/no, on/off)'
NOT_UTF8 = "a\udcff"  # the byte FF

# Of the broker: settings, and the sentence (its beginning, up to what is free wording; all of it when it ends in $).
BROKER = [
    ({"QUEEN_BIND_ADDR": ""}, "QUEEN_BIND_ADDR is empty: "),
    ({"QUEEN_BIND_ADDR": "  "}, "QUEEN_BIND_ADDR is empty: "),
    ({"QUEEN_BIND_ADDR": "127.0.0.1:6632"}, "QUEEN_BIND_ADDR=127.0.0.1:6632 carries a port: "),
    ({"QUEEN_BIND_ADDR": "localhost:1"}, "QUEEN_BIND_ADDR=localhost:1 carries a port: "),
    ({"QUEEN_BIND_ADDR": "[::1]:6632"}, "QUEEN_BIND_ADDR=[::1]:6632 carries a port: "),
    ({"QUEEN_BIND_ADDR": "[::1"}, "QUEEN_BIND_ADDR: [::1 is no address of this machine: "),
    ({"QUEEN_BIND_ADDR": "256.1.1.1"}, "QUEEN_BIND_ADDR: 256.1.1.1 is no address of this machine: "),
    ({"QUEEN_MAX_JSON_DEPTH": "63"}, "QUEEN_MAX_JSON_DEPTH=63 is outside 64..=10000: "),
    ({"QUEEN_MAX_JSON_DEPTH": "10001"}, "QUEEN_MAX_JSON_DEPTH=10001 is outside 64..=10000: "),
    ({"QUEEN_MAX_JSON_DEPTH": "many"}, "QUEEN_MAX_JSON_DEPTH=many is not a whole number in 64..=10000: "),
    ({"QUEEN_MAX_JSON_DEPTH": "-1"}, "QUEEN_MAX_JSON_DEPTH=-1 is not a whole number in 64..=10000: "),
    ({"QUEEN_RAFT_DIR": ""}, "QUEEN_RAFT_DIR is empty: "),
    ({"QUEEN_RAFT_NODE_ID": "0"}, "QUEEN_RAFT_NODE_ID=0 is not a node id: "),
    ({"QUEEN_RAFT_NODE_ID": "one"}, "QUEEN_RAFT_NODE_ID=one is not a node id: "),
    (
        {"QUEEN_RAFT_NODE_ID": "Ordinal", "HOSTNAME": "queen"},
        'QUEEN_RAFT_NODE_ID=ordinal, but HOSTNAME="queen" does not end in a number',
    ),
    ({"QUEEN_CORE_DUMPS": "2"}, f'QUEEN_CORE_DUMPS="2" {BOOLEAN}'),
    ({"QUEEN_LOG_JSON": "maybe"}, f'QUEEN_LOG_JSON="maybe" {BOOLEAN}'),
    ({"JWT_ENABLED": "perhaps"}, f'JWT_ENABLED="perhaps" {BOOLEAN}'),
    ({"QUEEN_S3_EMBEDDED": "maybe"}, f'QUEEN_S3_EMBEDDED="maybe" {BOOLEAN}'),
    ({"QUEEN_S3_EMBEDDED": "2"}, f'QUEEN_S3_EMBEDDED="2" {BOOLEAN}'),
    ({"JWT_ENABLED": "true"}, "JWT_ENABLED=true asks for client tokens: not built yet"),
    ({"QUEEN_TENANCY_HEADER": "on"}, "QUEEN_TENANCY_HEADER=on asks for tenants: not built yet"),
    ({"QUEEN_KV_TRUSTED_PROXY": "1"}, "QUEEN_KV_TRUSTED_PROXY=1 asks for tenants: not built yet"),
    ({"QUEEN_KV_REQUIRE_GRANT": "yes"}, "QUEEN_KV_REQUIRE_GRANT=yes asks for tenants: not built yet"),
    ({"QUEEN_RAFT_TOKEN": "hush"}, "QUEEN_RAFT_TOKEN is set and asks for a cluster: not built yet"),
    ({"QUEEN_RAFT_PEERS": "1=a:1/a:2"}, "QUEEN_RAFT_PEERS=1=a:1/a:2 asks for a cluster: not built yet"),
    ({"QUEEN_RAFT_LISTEN": "0.0.0.0:1"}, "QUEEN_RAFT_LISTEN=0.0.0.0:1 asks for a cluster: not built yet"),
    ({"QUEEN_RAFT_JOIN": "true"}, "QUEEN_RAFT_JOIN=true asks for joining a cluster: not built yet"),
    ({"QUEEN_RAFT_REPLICATOR": "raft"}, "QUEEN_RAFT_REPLICATOR=raft asks for a cluster: not built yet"),
    ({"QUEEN_RAFT_QLOG_ZSTD_LEVEL": "1"}, "QUEEN_RAFT_QLOG_ZSTD_LEVEL=1 asks for compressed queue logs: not built yet"),
    ({"QUEEN_ENCRYPTION_KEY": "hush" * 16}, "QUEEN_ENCRYPTION_KEY is set and asks for encryption at rest: not built yet"),
    ({"QUEEN_PROXY_CP_TOKEN": "hush"}, "QUEEN_PROXY_CP_TOKEN is set and asks for the embedded proxy and its control plane"),
]

# Node-wide settings of the sink, then those of one sink: variable without QUEEN_S3_, its value (None: unset), and the
# sentence from the value on.
NODE = [
    ("THREADS", "0", "=0 is not an integer in 1..=64"),
    ("THREADS", "65", "=65 is not an integer in 1..=64"),
    ("THREADS", "two", "=two is not an integer in 1..=64"),
    ("THREADS", "-1", "=-1 is not an integer in 1..=64"),
    ("SHUTDOWN_GRACE_MS", "99", "=99 is not an integer in 100..=3600000"),
    ("SHUTDOWN_GRACE_MS", "3600001", "=3600001 is not an integer in 100..=3600000"),
    ("SHUTDOWN_GRACE_MS", "1.5", "=1.5 is not an integer in 100..=3600000"),
    ("INSTANCE", NOT_UTF8, " is not valid UTF-8."),
    (
        "CRASH_AT",
        "Sometimes",
        "=sometimes is not a crash point. It is `never`, `after_intent`, `mid_upload`, `after_upload`, `before_commit` "
        "or `after_commit`",
    ),
]
RANGES = {  # settings that are whole numbers, in the order of their checks
    "CHECKPOINT_EVERY": (1, 100000),
    "MEMORY_MB": (1, 1048576),
    "FETCH_CONCURRENCY": (1, 256),
    "DISCOVERY_INTERVAL_MS": (10, 3600000),
    "SAFE_GUARD_MS": (0, 3600000),
    "LEASE_TTL_MS": (1000, 3600000),
    "MULTIPART_THRESHOLD_MB": (5, 5120),
    "KEY_SEGMENT_MAX": (255, 1024),
    "TARGET_MB": (1, 5120),
    "MAX_WINDOW_MS": (100, 86400000),
}
for _name, (_low, _high) in RANGES.items():
    NODE += [(_name, str(_high + 1), f"={_high + 1} is outside {_low}..={_high}. It is ")]
    NODE += [(_name, str(_low - 1), f"={_low - 1} is outside {_low}..={_high}. It is ")] if _low > 0 else []
    NODE += [(_name, text, f"={text} is not a whole number. It is ") for text in ("5m", "-1", "1.0", "2" * 30)]
PER_SINK = [
    ("QUEUES", ",", "=, names no queue."),
    ("QUEUES", " , ,, ", "=, ,, names no queue."),
    ("QUEUES", NOT_UTF8, " is not valid UTF-8."),
    ("SINK", "a b", "=a b is not a sink name."),
    ("SINK", "a/b", "=a/b is not a sink name."),
    ("SINK", "x" * 65, f"={'x' * 65} is not a sink name."),
    ("JSONL_QUOTE_UNREADABLE", "maybe", "=maybe is not a boolean. It is `true` or `false`"),
    ("PARTITIONS", "orders:0..3", "=orders:0..3 is not supported."),
    ("ENDPOINT", None, " is not set: it is "),
    ("ENDPOINT", " \t", " is not set: it is "),
    ("ENDPOINT", "minio:9000", "=minio:9000 has no scheme."),
    ("ENDPOINT", "HTTP://minio", "=HTTP://minio has no scheme."),
    ("ENDPOINT", "ftp://minio", "=ftp://minio has no scheme."),
    ("ENDPOINT", "file:/srv", "=file:/srv has no scheme."),
    ("ENDPOINT", "http://", "=http:// has no host."),
    ("ENDPOINT", "https:///", "=https:/// has no host."),
    ("ENDPOINT", "http://:9000", "=http://:9000 has no host."),
    ("ENDPOINT", "http://h/p", "=http://h/p carries a path."),
    ("ENDPOINT", "https://h//p/", "=https://h//p/ carries a path."),
    ("ENDPOINT", "http://h:65536", "=http://h:65536 has a port"),
    ("ENDPOINT", "http://h:", "=http://h: has a port"),
    ("ENDPOINT", "http://me:hush@h", " carries a user name."),
    ("ENDPOINT", "file://", "=file:// has no path."),
    ("ENDPOINT", "file://srv/lake", "=file://srv/lake names a host"),
    ("REGION", None, " is not set: it is "),
    ("REGION", "a\r\nx: y", " holds a line break"),
    ("BUCKET", None, " is not set: it is "),
    ("BUCKET", "a/b", "=a/b is not a bucket name."),
    ("BUCKET", "a b", "=a b is not a bucket name."),
    ("BUCKET", ".", "=. is not a bucket name."),
    ("BUCKET", "..", "=.. is not a bucket name."),
    ("BUCKET", "a\nb", "=a\\nb is not a bucket name."),
    ("PREFIX", "///", "=/// is empty."),
    ("PREFIX", "a//b", "=a//b has an empty or relative segment."),
    ("PREFIX", "a/../b", "=a/../b has an empty or relative segment."),
    ("PREFIX", "./b", "=./b has an empty or relative segment."),
    ("PREFIX", NOT_UTF8, " is not valid UTF-8"),
    ("PREFIX", "/".join(["p" * 90] * 9), " is longer than 768 bytes"),
    ("ACCESS_KEY", None, " is not set: it is "),
    ("ACCESS_KEY", "hush\nhush", " holds a line break"),
    ("SECRET_KEY", None, " is not set: it is "),
    ("SECRET_KEY", "hush\udcff", " is not valid UTF-8."),
    ("PATH_STYLE", "2", "=2 is not a boolean. It is `true` or `false`"),
    ("SSE", "OFF", "=off is not a mode. It is `AES256` or `aws:kms`"),
    ("SSE", "rot13", "=rot13 is not a mode. It is `AES256` or `aws:kms`"),
    ("SSE_KMS_KEY_ID", "key-1", " is set but QUEEN_S3_SSE=off."),
    ("FORMAT", "CSV", "=csv is not a format. It is `jsonl` or `parquet`"),
    ("COMPRESSION", "lz4", "=lz4 is not a codec. It is `zstd`, `gzip` or `none`"),
    ("PARQUET_CODEC", "GZip", "=gzip is not a codec. It is `zstd` or `snappy`"),
    ("LAYOUT", "split", "=split is not a layout. It is `merged` or `per-partition`"),
    ("ALIGN", "week", "=week is not a alignment. It is `hour`, `day` or `none`"),
    ("START", "middle", "=middle is not a start. It is `latest` or `earliest`"),
    ("FORMAT", "Parquet", "=parquet is not built yet; accepted now: jsonl"),
    ("LAYOUT", "PER_PARTITION", "=per-partition is not built yet; accepted now: merged"),
]
# Everything wrong; then one after another is put right: None unsets. The first wrong one is named.
ORDER = [
    ("THREADS", "x", None),
    ("SHUTDOWN_GRACE_MS", "x", None),
    ("CHECKPOINT_EVERY", "x", None),
    ("MEMORY_MB", "x", None),
    ("FETCH_CONCURRENCY", "x", None),
    ("DISCOVERY_INTERVAL_MS", "x", None),
    ("SAFE_GUARD_MS", "x", None),
    ("LEASE_TTL_MS", "x", None),
    ("MULTIPART_THRESHOLD_MB", "x", None),
    ("INSTANCE", NOT_UTF8, None),
    ("CRASH_AT", "x", None),
    ("QUEUES", ",", "orders"),
    ("SINK", "!", None),
    ("KEY_SEGMENT_MAX", "x", None),
    ("JSONL_QUOTE_UNREADABLE", "x", None),
    ("PARTITIONS", "x", None),
    ("ENDPOINT", "x", "http://127.0.0.1:1"),
    ("REGION", None, "r"),
    ("BUCKET", "/", "b"),
    ("PREFIX", "/", None),
    ("ACCESS_KEY", None, "a"),
    ("PATH_STYLE", "x", None),
    ("SSE", "x", "AES256"),
    ("SSE_KMS_KEY_ID", "x", None),
    ("FORMAT", "x", "parquet"),
    ("COMPRESSION", "x", None),
    ("PARQUET_CODEC", "x", None),
    ("LAYOUT", "x", "per-partition"),
    ("ALIGN", "x", None),
    ("START", "x", None),
    ("TARGET_MB", "x", None),
    ("MAX_WINDOW_MS", "x", None),
    ("SECRET_KEY", None, "s"),
]
ON_OFF = (
    "PARTITIONS ENDPOINT REGION BUCKET PREFIX ACCESS_KEY SECRET_KEY PATH_STYLE SSE SSE_KMS_KEY_ID FORMAT COMPRESSION "
    "PARQUET_CODEC LAYOUT ALIGN START TARGET_MB MAX_WINDOW_MS SINK KEY_SEGMENT_MAX JSONL_QUOTE_UNREADABLE"
).split()
# Variable, spelling, field of the start line, canonical spelling.
SPELLINGS = [
    *[("FORMAT", text, "format", "jsonl") for text in ("jsonl", "JSON", "NdJson")],
    *[("COMPRESSION", text, "compression", "zstd") for text in ("zstd", "ZST", "")],
    *[("COMPRESSION", text, "compression", "gzip") for text in ("gzip", " gz ")],
    *[("COMPRESSION", text, "compression", "none") for text in ("none", "Off")],
    *[("PARQUET_CODEC", text, "compression", "zstd") for text in ("zstd", "zst", "snappy", "SNAP")],
    *[("LAYOUT", text, "layout", "merged") for text in ("merged", "MERGED")],
    *[("ALIGN", text, "align", "hour") for text in ("hour", "Hourly")],
    *[("ALIGN", text, "align", "day") for text in ("day", "daily")],
    *[("ALIGN", text, "align", "none") for text in ("none", "off")],
    *[("START", text, "start", "latest") for text in ("latest", "now", "END")],
    *[("START", text, "start", "earliest") for text in ("earliest", "Beginning")],
    *[("SSE", text, "sse", "AES256") for text in ("AES256", "aes256")],
    *[("SSE", text, "sse", "aws:kms") for text in ("aws:kms", "KMS")],
    *[("CRASH_AT", text, "crash_at", "never") for text in ("never", "OFF", "none")],
    *[("CRASH_AT", t, "crash_at", t) for t in "after_intent mid_upload after_upload before_commit after_commit".split()],
    *[("PATH_STYLE", text, "addressing", "path-style") for text in ("true", "1", "YES", "on")],
    *[("PATH_STYLE", text, "addressing", "virtual-host") for text in ("false", "0", "No", "off", "")],
    *[("JSONL_QUOTE_UNREADABLE", text, "jsonl_quote_unreadable", "true") for text in ("yes", "")],
    ("JSONL_QUOTE_UNREADABLE", "OFF", "jsonl_quote_unreadable", "false"),
    ("PREFIX", "/lake/queen/", "prefix", "lake/queen"),
    ("QUEUES", " * ", "queues", "*"),
    ("QUEUES", " b, a ,,b,*", "queues", "b,a,*"),
    ("QUEUES", 'a b,"c"', "queues", 'a b,"c"'),
    ("INSTANCE", "blue", "instance", "blue/node-1"),
    ("INSTANCE", "blue/node-1", "instance", "blue/node-1"),
    ("ENDPOINT", "https://h///", "s3", "https://h"),
]


def run_all(env, rows, one):
    """one(row, data folder) for each, some at a time; every failure is told."""
    folders = (env.dir / f"data-{n}" for n in itertools.count())
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        work = [pool.submit(one, row, folder) for row, folder in zip(rows, folders)]
    failures = [str(done.exception()) for done in work if done.exception() is not None]
    assert not failures, "\n".join(failures)
    assert not list(env.dir.glob("data-*")), "the store was touched"


def check_refused(env, settings, sentence, folder):
    """Refused by the broker and by check-config in one and the same line, the last one; nothing was made."""
    given = {"QUEEN_RAFT_DIR": folder, "PORT": 0, "QUEEN_BIND_ADDR": "127.0.0.1", **settings}
    given = {name: value for name, value in given.items() if value is not None}
    seen = []
    for arguments in ([], ["check-config"]):
        code, out, err = env.run(*arguments, **given)
        fatal = [line for line in out.splitlines() if " ERROR " in line]
        assert code == 1, (settings, arguments, code, out, err)
        assert len(fatal) == 1 and out.splitlines()[-1] == fatal[0] and not err, (settings, out, err)
        assert "hush" not in out, (settings, "a secret in the log")
        seen.append(fatal[0].split(" ", 1)[1])
    assert seen[0] == seen[1], (settings, seen)
    want = f"ERROR boot: FATAL: {sentence}"
    good = seen[0] == want[:-1] if want.endswith("$") else seen[0].startswith(want)
    assert good, f"{settings}\n  got  {seen[0]}\n  want {sentence}"


@mark(timeout=120)
def test_every_refusal_of_the_broker(env):
    run_all(env, BROKER, lambda row, folder: check_refused(env, *row, folder))


@mark(timeout=180)
def test_every_refusal_of_the_sink(env):
    def one(row, folder):
        name, value, sentence = row
        check_refused(env, {**S3, f"QUEEN_S3_{name}": value}, f"{SINK}QUEEN_S3_{name}{sentence}", folder)

    run_all(env, NODE + PER_SINK, one)


@mark(timeout=60)
def test_a_lake_in_a_folder_is_checked_alike_and_not_made(env):
    lake = env.dir / "lake"
    file = {"QUEEN_S3_EMBEDDED": "1", "QUEEN_S3_QUEUES": "*", "QUEEN_S3_ENDPOINT": f"file://{lake}", "QUEEN_S3_BUCKET": "b"}
    rows = [
        ({"QUEEN_S3_BUCKET": None}, "QUEEN_S3_BUCKET is not set: it is "),
        ({"QUEEN_S3_BUCKET": ".."}, "QUEEN_S3_BUCKET=.. is not a bucket name."),
        ({"QUEEN_S3_SSE": "AES256"}, "QUEEN_S3_SSE=AES256 does not go with a file:// endpoint."),
        ({"QUEEN_S3_PREFIX": "p" * 256}, "QUEEN_S3_PREFIX has a segment longer than 255 bytes"),
        ({"QUEEN_S3_MAX_WINDOW_MS": "50"}, "QUEEN_S3_MAX_WINDOW_MS=50 is outside 100..=86400000. It is how long a window "
         "may stay open; the lag SLO is about this plus the safe lag$"),
        ({"QUEEN_S3_FORMAT": "parquet"}, "QUEEN_S3_FORMAT=parquet is not built yet"),
    ]  # fmt: skip
    run_all(env, rows, lambda row, folder: check_refused(env, {**file, **row[0]}, SINK + row[1], folder))
    assert not lake.exists()


@mark(timeout=120)
def test_the_first_wrong_setting_is_named(env):
    """Settings of the sink in the order of settings.md, the broker's before them, what is not built behind them all."""

    def one(right, folder):
        settings = {f"QUEEN_S3_{name}": good if n < right else bad for n, (name, bad, good) in enumerate(ORDER)}
        settings |= {"QUEEN_S3_EMBEDDED": "true", "QUEEN_RAFT_PEERS": "1=a:1/a:2"}
        name = ORDER[right][0]
        check_refused(env, settings, f"{SINK}QUEEN_S3_{name}", folder)

    run_all(env, range(len(ORDER)), one)
    good = {f"QUEEN_S3_{name}": value for name, _, value in ORDER} | {"QUEEN_S3_EMBEDDED": "true"}
    rows = [
        ({**good, "JWT_ENABLED": "1", "QUEEN_RAFT_PEERS": "1=a:1/a:2"}, "QUEEN_RAFT_PEERS=1=a:1/a:2 asks for a cluster"),
        ({**good, "JWT_ENABLED": "1"}, "JWT_ENABLED=1 asks for client tokens"),
        (good, f"{SINK}QUEEN_S3_FORMAT=parquet is not built yet"),
        ({**good, "QUEEN_S3_FORMAT": "jsonl"}, f"{SINK}QUEEN_S3_LAYOUT=per-partition is not built yet"),
        ({**good, "QUEEN_S3_THREADS": "x", "QUEEN_LOG_JSON": "maybe"}, "QUEEN_LOG_JSON="),
        ({**good, "QUEEN_S3_THREADS": "x", "QUEEN_S3_EMBEDDED": "maybe"}, "QUEEN_S3_EMBEDDED="),
    ]
    run_all(env, rows[:-2], lambda row, folder: check_refused(env, *row, folder))
    run_all(env, rows[-2:], lambda row, folder: check_refused(env, *row, folder))


@mark(timeout=120)
def test_a_sink_without_queues_is_refused_by_the_first_name(env):
    def one(first, folder):
        settings = {f"QUEEN_S3_{name}": "hush" for name in ON_OFF[first:]} | {"QUEEN_S3_EMBEDDED": "true"}
        sentence = f"{SINK}QUEEN_S3_{ON_OFF[first]} is set but QUEEN_S3_QUEUES is not: "
        check_refused(env, {**settings, "QUEEN_S3_QUEUES": " "}, sentence, folder)

    run_all(env, range(len(ON_OFF)), one)


def check_config(env, settings):
    """What check-config prints of accepted settings."""
    code, out, err = env.run("check-config", **settings)
    assert code == 0 and not err and out.splitlines()[-1].endswith(" INFO boot: the settings are accepted"), (out, err)
    return [LogLine(line) for line in out.splitlines()[:-1]]


def start_line(lines):
    found = [line for line in lines if line.target == "queen-s3" and line.message == "queen-s3 2.0.0"]
    assert len(found) == 1, lines
    return found[0]


@mark(timeout=120)
def test_spellings_come_out_canonical_and_blanks_are_the_default(env):
    def one(row, _folder):
        name, value, field, want = row
        got = start_line(check_config(env, {**S3, f"QUEEN_S3_{name}": value})).fields[field]
        assert got == want, (row, got)

    run_all(env, SPELLINGS, one)
    for name, (low, high) in RANGES.items():
        for value in (low, high):
            line = start_line(check_config(env, {**S3, f"QUEEN_S3_{name}": value}))
            assert line.fields[name.lower()] == str(value), (name, line)


@mark(timeout=60)
def test_kms_ids_show_four_characters_and_keys_none(env):
    given = {**S3, "QUEEN_S3_SSE": "kms", "QUEEN_S3_SSE_KMS_KEY_ID": "arn:aws:kms:hush-1234"}
    lines = check_config(env, given)
    assert start_line(lines).fields["sse"] == "aws:kms(…1234)"
    text = "\n".join(line.text for line in lines)
    assert "hush" not in text and "QUEEN_S3_SECRET_KEY=\"<set:11 chars>\"" in text, text


@mark(timeout=60)
def test_a_boot_says_of_its_settings_what_check_config_says(env):
    """The same groups and the same start line, with odd values in both."""
    settings = {
        **env.lake('orders,odd "name"'),
        "HOSTNAME": "queen-4",
        "QUEEN_RAFT_NODE_ID": "ordinal",
        "DEFAULT_TIMEOUT": "soon",
        "QUEEN_RAFT_SEGMENT_BYTES": "1",
        "QUEEN_RAFT_DISK_HIGH_PCT": "99.95",
        "QUEEN_RAFT_DISK_LOW_PCT": "0.5",
        "QUEEN_LANES": "8",
        "QUEEN_NO_SUCH": "1",
        "LOG_LEVEL": "info,queen-s3=debug",
    }
    broker = env.broker(settings).start()
    given = {name: str(value) for name, value in broker.settings.items() if value is not None}
    lines = check_config(env, given)
    told = [line.text.split(" ", 1)[1] for line in lines]
    booted = [line.split(" ", 1)[1] for line in broker.log()]
    assert [line for line in told if line not in booted] == [], booted
    groups = "server storage auth security kv_timers ephemeral logging".split()
    assert [line.message for line in lines[:7]] == [f"config: {group}" for group in groups], told
    config = {group: broker.find_log(f"boot: config: {group}( |$)")[0].fields for group in groups}
    assert config["server"]["PORT"] == str(broker.port) and config["server"]["QUEEN_SERVER_ID"] == "queen-4"
    assert config["server"]["DEFAULT_TIMEOUT"] == "30000" and config["storage"]["QUEEN_RAFT_NODE_ID"] == "5"
    assert config["storage"]["QUEEN_RAFT_SEGMENT_BYTES"] == "65536"
    assert config["storage"]["QUEEN_RAFT_DISK_HIGH_PCT"] == "99.95" and config["storage"]["QUEEN_RAFT_DISK_LOW_PCT"] == "80.0"
    warnings = [line.text.split(" WARN boot: ")[1] for line in broker.find_log(" WARN boot: ")]
    assert warnings == [
        'DEFAULT_TIMEOUT="soon" is not a whole number: the default 30000 is used',
        "QUEEN_RAFT_SEGMENT_BYTES=1 is outside 65536..=4294967295: 65536 is used",
        'QUEEN_RAFT_DISK_LOW_PCT="0.5" is not a percentage in 1..=100: the default 80 is used',
        "unknown settings, ignored: QUEEN_NO_SUCH",
    ], warnings
    assert len(broker.find_log("INFO boot: settings without effect in this version: QUEEN_LANES$")) == 1
    line = start_line(broker.find_log("queen-s3"))
    assert line.fields["queues"] == 'orders,odd "name"' and line.fields["instance"] == "node-5@queen-4(generated)"
    assert broker.sigterm() == 0


@mark(timeout=60)
def test_one_warning_for_leftovers_and_one_for_an_armed_crash(env):
    broker = env.broker(
        env.lake("orders"), QUEEN_S3_LISTEN="0.0.0.0:1", QUEEN_S3_LOG_FORMAT="json", QUEEN_S3_CRASH_AT="AFTER_COMMIT"
    ).start()
    warnings = [line.text.split(" WARN queen-s3: ")[1] for line in broker.find_log(" WARN queen-s3: ")]
    assert warnings == [
        "QUEEN_S3_LISTEN, QUEEN_S3_LOG_FORMAT belong to the standalone sink and are ignored",
        "QUEEN_S3_CRASH_AT=after_commit is armed: the broker aborts there; for crash tests only",
    ], warnings
    assert broker.sigterm() == 0
