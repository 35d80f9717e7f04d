"""Boot: what is refused, in which words, and what the log says of the settings."""

from harness import cases

REFUSED = {
    "QUEEN_BIND_ADDR empty": {"QUEEN_BIND_ADDR": ""},
    "QUEEN_BIND_ADDR with a port": {"QUEEN_BIND_ADDR": "127.0.0.1:6632"},
    "QUEEN_RAFT_DIR empty": {"QUEEN_RAFT_DIR": ""},
    "QUEEN_RAFT_NODE_ID zero": {"QUEEN_RAFT_NODE_ID": "0"},
    "QUEEN_LOG_JSON spelling": {"QUEEN_LOG_JSON": "maybe"},
    "QUEEN_MAX_JSON_DEPTH outside": {"QUEEN_MAX_JSON_DEPTH": "63"},
    "JWT_ENABLED not built": {"JWT_ENABLED": "true"},
    "QUEEN_TENANCY_HEADER not built": {"QUEEN_TENANCY_HEADER": "true"},
    "QUEEN_RAFT_TOKEN not built": {"QUEEN_RAFT_TOKEN": "hush"},
    "QUEEN_RAFT_PEERS not built": {"QUEEN_RAFT_PEERS": "1=a:1/a:2"},
    "QUEEN_RAFT_REPLICATOR not built": {"QUEEN_RAFT_REPLICATOR": "raft"},
    "QUEEN_ENCRYPTION_KEY not built": {"QUEEN_ENCRYPTION_KEY": "0" * 64},
    "QUEEN_PROXY_CP_TOKEN not built": {"QUEEN_PROXY_CP_TOKEN": "hush"},
    "QUEEN_RAFT_QLOG_ZSTD_LEVEL not built": {"QUEEN_RAFT_QLOG_ZSTD_LEVEL": "1"},
    "QUEEN_S3_EMBEDDED spelling": {"QUEEN_S3_EMBEDDED": "maybe"},
    "QUEEN_S3_MAX_WINDOW_MS outside": {
        "QUEEN_S3_EMBEDDED": "true",
        "QUEEN_S3_QUEUES": "*",
        "QUEEN_S3_ENDPOINT": "file:///tmp",
        "QUEEN_S3_BUCKET": "lake",
        "QUEEN_S3_MAX_WINDOW_MS": "50",
    },
    "QUEEN_S3_FORMAT parquet not built": {
        "QUEEN_S3_EMBEDDED": "true",
        "QUEEN_S3_QUEUES": "*",
        "QUEEN_S3_ENDPOINT": "file:///tmp",
        "QUEEN_S3_BUCKET": "lake",
        "QUEEN_S3_FORMAT": "parquet",
    },
}


def refusal(env, settings):
    """Starts the program with these settings, which it must refuse; the one line it wrote, without its time."""
    code, out, err = env.run(**{"QUEEN_RAFT_DIR": env.dir / "data", **settings})
    fatal = [line for line in out.splitlines() if " ERROR boot: FATAL: " in line]
    assert code == 1, (code, out, err)
    assert len(fatal) == 1 and out.splitlines()[-1] == fatal[0], out
    assert "listening" not in out and "Sanitizer" not in err, (out, err)
    return fatal[0].split(" ", 1)[1]


@cases(*REFUSED)
def test_a_bad_setting_stops_the_boot_in_one_line_that_names_it(env, case):
    settings = REFUSED[case]
    line = refusal(env, settings)
    assert line.startswith("ERROR boot: FATAL: ")
    assert case.split()[0] in line, line
    assert "hush" not in line and "0" * 64 not in line, "a secret in the log"
    if "QUEEN_RAFT_DIR" not in settings:
        assert not (env.dir / "data").exists(), "the store was touched before the settings were read"


def test_the_guides_example_is_refused_in_its_words(env):
    line = refusal(env, REFUSED["QUEEN_S3_MAX_WINDOW_MS outside"])
    assert line == (
        "ERROR boot: FATAL: QUEEN_S3_EMBEDDED=true: QUEEN_S3_MAX_WINDOW_MS=50 is outside 100..=86400000. "
        "It is how long a window may stay open; the lag SLO is about this plus the safe lag"
    ), line


def test_resolved_settings_are_logged_by_group_and_odd_integers_are_warned_about(env):
    broker = env.broker(DEFAULT_TIMEOUT="soon", QUEEN_LANES=8, QUEEN_RAFT_SEGMENT_BYTES="").start()
    for group in ("server", "storage", "auth", "security", "kv_timers", "ephemeral", "logging"):
        assert len(broker.find_log(f"INFO boot: config: {group}( |$)")) == 1, group
    server = broker.find_log("boot: config: server ")[0].fields
    assert server["PORT"] == str(broker.port) and server["DEFAULT_TIMEOUT"] == "30000", server
    assert len(broker.find_log("WARN boot: .*DEFAULT_TIMEOUT")) == 1
    assert len(broker.find_log("INFO boot: .*QUEEN_LANES")) == 1
    assert not broker.find_log("WARN boot: .*SEGMENT_BYTES")
    assert broker.sigterm() == 0


def test_log_lines_are_json_objects_when_asked(env):
    import json

    broker = env.broker(QUEEN_LOG_JSON="true").start(wait=False)
    broker.wait_log("listening")
    assert broker.sigterm() == 0
    lines = [json.loads(line) for line in broker.log()]
    assert all({"timestamp", "level", "target", "message"} <= set(line) for line in lines)
    assert any(line["message"] == "config: server" for line in lines)


def test_a_directory_in_use_is_refused(env):
    broker = env.broker().start()
    code, out, _ = env.run(PORT=env.free_port(), QUEEN_RAFT_DIR=broker.settings["QUEEN_RAFT_DIR"])
    assert code == 1 and out.count("FATAL: ") == 1 and "QUEEN_RAFT_DIR" in out, out
    assert broker.health().status == 200
    assert broker.sigterm() == 0


def test_a_port_in_use_is_refused(env):
    broker = env.broker().start()
    code, out, _ = env.run(PORT=broker.port, QUEEN_BIND_ADDR="127.0.0.1", QUEEN_RAFT_DIR=env.dir / "other")
    assert code == 1 and out.count("FATAL: ") == 1 and str(broker.port) in out, out


def test_check_config_reads_and_prints_without_starting(env):
    code, out, _ = env.run("check-config", QUEEN_RAFT_DIR=env.dir / "data")
    assert code == 0 and "config: server" in out, out
    assert not (env.dir / "data").exists()
    code, out, _ = env.run("check-config", QUEEN_RAFT_NODE_ID="x")
    assert code == 1 and "FATAL: QUEEN_RAFT_NODE_ID" in out, out


def test_a_sink_that_is_off_or_misspelt_is_told_of(env):
    sink = {
        "QUEEN_S3_QUEUES": "*",
        "QUEEN_S3_ENDPOINT": f"file://{env.dir}",
        "QUEEN_S3_BUCKET": "lake",
        "QUEEN_S3_MAX_WINDOWS_MS": "1000",
    }
    warnings = lambda out: [line.split(" WARN boot: ")[1] for line in out.splitlines() if " WARN " in line]
    code, out, _ = env.run("check-config", **sink, QUEEN_S3_EMBEDDED="true")
    assert code == 0 and warnings(out) == ["unknown settings, ignored: QUEEN_S3_MAX_WINDOWS_MS"], out
    code, out, _ = env.run("check-config", **sink, QUEEN_S3_EMBEDED="true")
    told = warnings(out)
    assert code == 0 and len(told) == 2 and "QUEEN_S3_EMBEDED" in told[0] and "there is no sink" in told[1], out
    assert all(name in told[1] for name in list(sink)[:3]), out
    code, out, _ = env.run("check-config", QUEEN_S3_EMBEDDED="true")
    assert code == 0 and len(warnings(out)) == 1 and "nothing is mirrored" in out, out


def test_help_and_version(env):
    code, out, _ = env.run("--version")
    assert (code, out) == (0, "queen 0.1.0\n")
    code, out, _ = env.run("--help")
    assert code == 0 and "QUEEN_RAFT_DIR" in out and "check-config" in out
    code, out, err = env.run("frobnicate")
    assert code == 2 and "frobnicate" in err
    code, out, err = env.run("check-config", "--help")
    assert code == 0 and "QUEEN_RAFT_DIR" in out, out
    code, out, err = env.run("check-config", "x")
    assert code == 2 and "takes no arguments" in err, err


def test_health_status_and_an_orderly_end(env):
    broker = env.broker().start()
    health = broker.health()
    assert health.status == 200 and health.json["status"] == "healthy" and health.json["version"] == "0.1.0"
    assert broker.status()["engine"] == "segments-rust"
    assert broker.call("GET", "/api/v1/nothing", status=404)["code"] == "no_such_route"
    assert broker.sigterm() == 0
    assert broker.find_log("INFO shutdown: ")
    broker.start()  # a second life on the same folder
    assert broker.sigterm() == 0
