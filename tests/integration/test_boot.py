"""Boot and end of the process, its subcommands, and what the log says of the settings. Refusals: test_settings.py."""

from harness import cases

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
