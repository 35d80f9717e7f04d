#!/usr/bin/env python3
"""What many queues, many partitions and many ids cost: bench/scale.py [options] WHAT...

  queues      N queues: push to each, configure, list changes, push beside them, restart, a sink over all and over few
  partitions  one queue of N partitions: push, fetch, list changes, one window, restart
  idle        broker and sink with 0, 1, 100 and 1,000 queues that nothing is pushed to
  restart     a log of so many gigabytes over N partitions: restart after SIGTERM and after kill -9
  dedup       so many ids within one dedup window: push rate, memory, repeats, a bucket that goes

Every figure is printed with its unit, beside what it stands for; nothing is asserted but that the answers are right.
The broker runs with its default settings but where a line says otherwise. Standard library only.
"""

import argparse
import concurrent.futures
import contextlib
import datetime
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests" / "integration"))
import harness  # noqa: E402

BATCH = 1000  # items a request
HEALTHY = 600  # seconds that anything may take
TICK = os.sysconf("SC_CLK_TCK")


def say(what, value, unit, note=""):
    number = f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:,.3g}"
    print(f"  {what:<58} {number:>12} {unit}{'  ' + note if note else ''}", flush=True)


def memory_mb(broker):
    """Anonymous memory of the process: what is not the page cache's."""
    with open(f"/proc/{broker.pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssAnon")) / 1024


def cpu_seconds(broker):
    with open(f"/proc/{broker.pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def cpu_share(broker, seconds):
    """Percent of a core over so many seconds."""
    start, cpu = time.monotonic(), cpu_seconds(broker)
    time.sleep(seconds)
    return 100 * (cpu_seconds(broker) - cpu) / (time.monotonic() - start)


def percentiles(values):
    ordered = sorted(values)
    return {p: ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))] for p in (50, 99, 100)}


def timed(function):
    start = time.monotonic()
    result = function()
    return time.monotonic() - start, result


def pushes(broker, bodies, connections=4):
    """Pushes ready bodies over so many connections; seconds of each request."""
    bodies = iter(bodies)  # made one ahead of another, by whoever needs the next
    lock = threading.Lock()

    def run():
        taken = []
        with broker.session() as call:
            while True:
                with lock:
                    body = next(bodies, None)
                if body is None:
                    return taken
                seconds, answer = timed(lambda: call("POST", "/api/v1/push", body))
                assert answer.status == 201, answer
                taken.append(seconds)

    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        return [s for f in [pool.submit(run) for _ in range(connections)] for s in f.result()]


def body_of(items):
    return ('{"items":[' + ",".join(items) + "]}").encode()


def item(queue, partition, payload='{"n":1}'):
    return f'{{"queue":"{queue}","partition":"{partition}","payload":{payload}}}'


def batches(items, size=BATCH):
    batch = []
    for one in items:
        batch.append(one)
        if len(batch) == size:
            yield body_of(batch)
            batch = []
    if batch:
        yield body_of(batch)


def push_beside(broker, name, queue, seconds=5, partitions=1):
    """Latency of single pushes, one after another: what the rest costs them."""
    taken = []
    end = time.monotonic() + seconds
    with broker.session() as call:
        n = 0
        while time.monotonic() < end:
            body = body_of([item(queue, f"p{n % partitions}")])
            took, answer = timed(lambda: call("POST", "/api/v1/push", body))
            assert answer.status == 201, answer
            taken.append(took)
            n += 1
    p = percentiles(taken)
    say(f"{name}: a single push, p50", 1000 * p[50], "ms")
    say(f"{name}: a single push, p99", 1000 * p[99], "ms", f"most {1000 * p[100]:.1f} ms of {len(taken)}")


def changed(broker, queue, **more):
    """Every page of partitions/changed; (rows, pages, the longest page in seconds)."""
    rows, pages, longest, cursor = 0, 0, 0.0, None
    with broker.session() as call:
        while True:
            entry = {"queue": queue, "limit": 1000, **more}
            if cursor:
                entry["after"] = cursor
            took, answer = timed(lambda: call("POST", "/api/v1/partitions/changed", {"entries": [entry]}))
            assert answer.status == 200, answer
            page = answer.json["entries"][0]
            assert "error" not in page, page
            rows += len(page["partitions"])
            pages += 1
            longest = max(longest, took)
            cursor = page["next"]
            if not cursor:
                return rows, pages, longest


def restart(broker, name, end, **settings):
    """Ends the broker with end(), starts it again; seconds to healthy."""
    took, code = timed(end)
    say(f"{name}: end", took, "s", f"exit code {code}")
    start = time.monotonic()
    broker.start(wait=False, **settings)
    while True:
        assert broker.running, broker.log()[-5:]
        with contextlib.suppress(OSError):
            if broker.health().status == 200:
                break
        assert time.monotonic() - start < HEALTHY
        time.sleep(0.005)
    took = time.monotonic() - start
    say(f"{name}: start to healthy", took, "s", broker.wait_log("recovered:").text.split("node: ")[-1])
    say(f"{name}: memory then", memory_mb(broker), "MB")
    return took


def scrape(broker, name):
    for path in ("/status", "/metrics/prometheus"):
        took, answer = timed(lambda: broker.request("GET", path))
        assert answer.status == 200, answer
        say(f"{name}: GET {path}", 1000 * took, "ms", f"{len(answer.body):,} bytes")


# --- what is measured ---


def lake(env, options, queues, **more):
    """Default settings of a sink but the bucket."""
    return {
        "QUEEN_S3_EMBEDDED": "true",
        "QUEEN_S3_QUEUES": queues,
        "QUEEN_S3_START": "earliest",
        "QUEEN_S3_LEASE_TTL_MS": options.lease_ttl_ms,
        **env.store.settings(),
        **more,
    }


def measure_queues(env, options):
    n = options.queues
    print(f"queues: {n:,}")
    broker = env.broker().start()
    push_beside(broker, "before", "beside", options.seconds)
    before = memory_mb(broker)
    took, _ = timed(lambda: pushes(broker, batches(item(f"q{i:06}", "p") for i in range(n))))
    say("a first push to each, 1,000 a request", took, "s", f"{n / took:,.0f} queues/s")
    say("memory for each", 1024 * (memory_mb(broker) - before) / n, "KiB")
    took, _ = timed(lambda: pushes(broker, batches(item(f"q{i:06}", "p") for i in range(n))))
    say("a second push to each", took, "s", f"{n / took:,.0f} records/s")
    few = max(1, min(1000, n // 10))

    def configure():
        with broker.session() as call:
            for i in range(few):
                answer = call("POST", "/api/v1/configure", {"queue": f"q{i:06}", "options": {"leaseTime": 100}})
                assert answer.status == 200, answer

    took, _ = timed(configure)
    say("configure, each", 1000 * took / few, "ms")
    took, _ = timed(lambda: [changed(broker, f"q{i:06}") for i in range(few)])
    say("partitions/changed, each", 1000 * took / few, "ms")
    push_beside(broker, f"beside {n:,} queues", "beside", options.seconds)
    say("CPU while nothing happens", cpu_share(broker, options.seconds), "% of a core")
    scrape(broker, "no sink")
    restart(broker, "SIGTERM", broker.sigterm)
    restart(broker, "kill -9", broker.kill)
    named = ",".join(f"q{i:06}" for i in range(min(n, 5)))
    restart(broker, "a sink of five queues", broker.sigterm, **lake(env, options, named))
    time.sleep(options.settle)
    say("a sink of five queues: CPU idle", cpu_share(broker, options.seconds), "% of a core")
    restart(broker, "a sink of all", broker.sigterm, **lake(env, options, "*"))
    owned(broker, n)
    push_beside(broker, "a sink of all", "beside", options.seconds)
    time.sleep(options.settle)
    say("a sink of all: CPU idle", cpu_share(broker, 4 * options.seconds), "% of a core")
    say("a sink of all: memory", memory_mb(broker), "MB")
    scrape(broker, "a sink of all")
    took, _ = timed(lambda: pushes(broker, batches(item(f"q{i:06}", "p") for i in range(n))))
    say("a sink of all: a push to each", took, "s", f"{n / took:,.0f} records/s")
    took, code = timed(lambda: broker.sigterm(timeout=HEALTHY))
    say("a sink of all: end", took, "s", f"exit code {code}")


def owned(broker, n):
    start = time.monotonic()
    while broker.sink()["placement"]["held"] < n:
        assert time.monotonic() - start < HEALTHY
        time.sleep(0.5)
    say("a sink of all: until it holds every lease", time.monotonic() - start, "s")


def measure_partitions(env, options):
    n = options.partitions
    print(f"partitions of one queue: {n:,}")
    broker = env.broker().start()
    push_beside(broker, "before", "beside", options.seconds)
    before = memory_mb(broker)
    taken = []
    took, taken = timed(lambda: pushes(broker, batches(item("wide", f"p{i:07}") for i in range(n))))
    p = percentiles(taken)
    say("a first push to each, 1,000 a request", took, "s", f"{n / took:,.0f} partitions/s")
    say("... a request, p50", 1000 * p[50], "ms", f"p99 {1000 * p[99]:.1f} ms, most {1000 * p[100]:.1f} ms")
    say("memory for each", 1024 * 1024 * (memory_mb(broker) - before) / n, "bytes")
    push_beside(broker, "right after", "wide", options.seconds, partitions=n)
    took, (rows, pages, longest) = timed(lambda: changed(broker, "wide"))
    assert rows >= n, rows
    say("partitions/changed, a whole pass", took, "s", f"{pages:,} pages, the longest {1000 * longest:.1f} ms")
    cut = json_time(broker)
    broker.push([{"queue": "wide", "partition": "p0000007", "payload": 1}])
    took, (rows, pages, longest) = timed(lambda: changed(broker, "wide", since=cut))
    say("partitions/changed, since the last push", 1000 * took, "ms", f"{rows} rows")
    chooser = random.Random(1)
    names = [f"p{chooser.randrange(n):07}" for _ in range(1000)]

    def fetches():
        taken = []
        with broker.session() as call:
            for name in names:
                entry = {"queue": "wide", "partition": name, "offset": 0, "maxBytes": 65536}
                seconds, answer = timed(lambda: call("POST", "/api/v1/fetch", {"entries": [entry]}))
                assert answer.json["entries"][0]["records"], answer
                taken.append(seconds)
        return taken

    p = percentiles(fetches())
    say("fetch of one partition, p50", 1000 * p[50], "ms", f"p99 {1000 * p[99]:.1f} ms")
    many = [{"queue": "wide", "partition": name, "offset": 0, "maxBytes": 65536} for name in names]
    took, answer = timed(lambda: broker.request("POST", "/api/v1/fetch", {"entries": many}))
    assert answer.status == 200, answer
    say("fetch of 1,000 partitions in one call", 1000 * took, "ms", f"{len(answer.body):,} bytes")
    scrape(broker, "no sink")
    restart(broker, "SIGTERM", broker.sigterm)
    restart(broker, "kill -9", broker.kill)
    restart(broker, "a sink", broker.sigterm, **lake(env, options, "wide", QUEEN_S3_MAX_WINDOW_MS=1000))
    line = broker.wait_log("window committed queue=wide", timeout=HEALTHY)
    say("a window over all of them: from healthy to committed", seconds_since_boot(broker, line), "s", line.message)
    for name, value in line.fields.items():
        if name in ("records", "bytes", "lag_ms"):
            print(f"    {name}={value}")
    say("memory after the window", memory_mb(broker), "MB", f"most ever {peak_mb(broker):,.0f} MB resident")
    push_beside(broker, "beside the sink", "wide", options.seconds, partitions=n)
    took, code = timed(lambda: broker.sigterm(timeout=HEALTHY))
    say("end", took, "s", f"exit code {code}")


def json_time(broker):
    """The broker's safe clock, as partitions/changed takes it."""
    answer = broker.call("POST", "/api/v1/partitions/changed", {"entries": [{"queue": "wide", "limit": 1}]})
    return answer["safeTime"]


def seconds_since_boot(broker, line):
    def at(text):
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))

    return (at(line.time) - at(broker.wait_log("boot: listening").time)).total_seconds()


def peak_mb(broker):
    with open(f"/proc/{broker.pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM")) / 1024


def measure_idle(env, options):
    print("idle, ten seconds after boot")
    for n in options.idle:
        broker = env.broker(lake(env, options, "*")).start()
        pushes(broker, batches((item(f"q{i:06}", "p") for i in range(n)), 100), 1)
        if n:
            owned(broker, n)
        broker.sigterm(timeout=HEALTHY)
        broker.start()
        time.sleep(10)
        if n:
            owned(broker, n)
            time.sleep(10)  # what was open is written
        say(f"{n:,} queues: memory", memory_mb(broker), "MB")
        say(f"{n:,} queues: CPU", cpu_share(broker, options.idle_seconds), "% of a core", f"over {options.idle_seconds} s")
        broker.sigterm(timeout=HEALTHY)


def read_files(folder):
    """Reads every file of a folder; (seconds, bytes)."""
    total, start = 0, time.monotonic()
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            with open(path, "rb", buffering=0) as f:
                while chunk := f.read(1 << 20):
                    total += len(chunk)
    return time.monotonic() - start, total


def drop_caches():
    with contextlib.suppress(OSError):
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
            f.write("3")
        return True
    return False


def measure_restart(env, options):
    n, records = options.partitions, int(options.gigabytes * (1 << 30) / 1024)
    print(f"restart with {options.gigabytes:g} GB in the log over {n:,} partitions")
    broker = env.broker().start()
    payload = '"' + "x" * 870 + '"'
    chunks = (item("wide", f"p{i % n:07}", payload) for i in range(records))
    took, _ = timed(lambda: pushes(broker, batches(chunks)))
    say("pushes of 1,000 records of 1 KiB", took, "s", f"{records / took:,.0f} records/s")
    say("memory", memory_mb(broker), "MB")
    for cold in (False, True):
        name = "cold cache" if cold else "warm cache"
        broker.sigterm()
        if cold and not drop_caches():
            print("  (the page cache cannot be dropped here)")
            return
        broker.start(wait=False)
        start = time.monotonic()
        broker.wait_log("boot: listening")
        say(f"after SIGTERM, {name}", time.monotonic() - start, "s", broker.wait_log("recovered:").text.split("node: ")[-1])
        pushes(broker, batches(item("wide", f"p{i % n:07}", payload) for i in range(50000)))
        broker.kill()
        if cold:
            drop_caches()
        broker.start(wait=False)
        start = time.monotonic()
        broker.wait_log("boot: listening")
        say(f"after kill -9 amid pushes, {name}", time.monotonic() - start, "s",
            broker.wait_log("recovered:").text.split("node: ")[-1])
    broker.sigterm()
    for part in ("state", "wal", "qlog"):
        drop_caches()
        seconds, size = read_files(broker.dir / "data" / part)
        say(f"reading {part}/ alone, cold", seconds, "s", f"{size / 1e9:.2f} GB")


def measure_dedup(env, options):
    n = options.ids
    print(f"dedup: {n:,} ids in the window")
    broker = env.broker().start()
    say("memory before", memory_mb(broker), "MB")
    step = max(BATCH, n // 8)
    for first in range(0, n, step):
        last = min(n, first + step)
        bodies = batches(item("ids", f"p{i % 16}") for i in range(first, last))
        took, _ = timed(lambda: pushes(broker, bodies))
        say(f"up to {last:,} ids: pushes", (last - first) / took, "records/s", f"memory {memory_mb(broker):,.0f} MB")
    known = [f"known-{i}" for i in range(20000)]

    def named(ids):
        return batches(
            f'{{"queue":"ids","partition":"p{hash(i) % 16}","transactionId":"{i}","payload":1}}' for i in ids
        )

    took, _ = timed(lambda: pushes(broker, named(known)))
    say("ids of the caller's own, new", len(known) / took, "records/s")
    took, _ = timed(lambda: pushes(broker, named(known)))
    say("the same again: all duplicates", len(known) / took, "records/s")
    restart(broker, "kill -9", broker.kill)
    took, _ = timed(lambda: pushes(broker, named(known)))
    say("the same again after the restart", len(known) / took, "records/s")
    push_beside(broker, "beside the ids", "ids", options.seconds)
    say("bytes on disk of the state", sum(f.stat().st_size for f in (broker.dir / "data/state").iterdir()) / n, "bytes/id")
    say("memory at the end", memory_mb(broker), "MB")
    broker.sigterm()


MEASURES = {
    "queues": measure_queues,
    "partitions": measure_partitions,
    "idle": measure_idle,
    "restart": measure_restart,
    "dedup": measure_dedup,
}


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=[*MEASURES, []], help="default: all")
    parser.add_argument("--binary", default=REPO / "build-bench" / "queen")
    parser.add_argument("--dir", help="where the data goes; default TMPDIR")
    parser.add_argument("--queues", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--idle", type=lambda t: [int(x) for x in t.split(",")], default=[0, 1, 100, 1000])
    parser.add_argument("--idle-seconds", type=float, default=30)
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--ids", type=int, default=20_000_000)
    parser.add_argument("--seconds", type=float, default=5, help="of each measured stretch")
    parser.add_argument("--lease-ttl-ms", type=int, default=30000)
    parser.add_argument("--settle", type=float, default=10, help="seconds before a measurement of idle cost")
    return parser.parse_args(arguments)


def main(arguments):
    options = options_of(arguments)
    for what in options.what or MEASURES:
        folder = tempfile.mkdtemp(prefix=f"queen-scale-{what}.", dir=options.dir)
        env = harness.Env(folder, pathlib.Path(options.binary).resolve(), seed=1)
        try:
            MEASURES[what](env, options)
        finally:
            env.close()
            shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
