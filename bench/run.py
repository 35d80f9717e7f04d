#!/usr/bin/env python3
"""Runs the benchmarks on a release build and prints one table: each figure beside its limit from the same run.

    bench/run.py [--seconds 5] [--rounds 3] [--build build-bench] [question...]

Questions: push sink memory idle restart tail (default: all). bench/run.sh builds first. --seconds is what a single
measurement takes, and what sizes follow: with fewer than 5 the sink's data is smaller in proportion. The data goes
where TMPDIR says: it should be a disk, not a tmpfs. Exit code 1 when a ledger is wrong; no speed is judged.

Every figure is a median of the rounds, with the least and the most behind it.
"""

import argparse
import contextlib
import glob
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parents[1]
GIB = 1 << 30
PAIR = re.compile(r"(\w+)=(\S+)")
TICK = os.sysconf("SC_CLK_TCK")
WAIT = 300  # seconds for anything that must happen


class Run:
    """The arguments, a temporary folder, the processes, and what was found."""

    def __init__(self, arguments, folder):
        self.seconds = arguments.seconds
        self.rounds = arguments.rounds
        self.build = pathlib.Path(arguments.build).resolve()
        self.dir = folder
        self.processes = []
        self.rows = []
        self.good = True

    def scaled(self, most):
        """A size, smaller when measurements are to be short."""
        return max(1, int(most * min(1.0, self.seconds / 5)))

    def row(self, question, figure, limit="", ratio="", aim=""):
        self.rows.append((question, figure, limit, ratio, aim))
        print(f"  {question}: {figure}" + (f"; limit {limit}; ratio {ratio}" if limit else ""), flush=True)

    # --- processes ---

    def start(self, command, pattern, log, env=None, cpu=None):
        """Starts a server; returns it when its log has a line with the pattern, whose match is .match."""
        if cpu is not None:
            command = ["taskset", "-c", str(cpu), *command]
        with open(log, "wb") as out:
            process = subprocess.Popen([str(c) for c in command], env=env, stdout=out, stderr=subprocess.STDOUT)
        self.processes.append(process)
        process.log = pathlib.Path(log)
        process.match = wait_for(lambda: re.search(pattern, process.log.read_text()), process, f"start of {command[0]}")
        return process

    def stop(self, process, number=signal.SIGTERM):
        process.send_signal(number)
        process.wait(60)
        self.processes.remove(process)

    def program(self, name, *arguments):
        """Runs a program of bench/; the pairs of each line of its output."""
        command = [str(self.build / "bench" / name), *(f"--{k}" for k in arguments)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=WAIT)
        if done.returncode != 0:
            self.good = False
            print(f"{name} failed: {done.stdout}", flush=True)
            if not PAIR.search(done.stdout):
                raise SystemExit(1)
        return [dict(PAIR.findall(line)) for line in done.stdout.splitlines() if PAIR.search(line)]

    def broker(self, name="data", cpu=None, **settings):
        env = {
            "PATH": os.environ["PATH"],
            "HOSTNAME": "bench",
            "PORT": "0",
            "QUEEN_BIND_ADDR": "127.0.0.1",
            "QUEEN_RAFT_DIR": str(self.dir / name),
            "QUEEN_RAFT_DISK_HIGH_PCT": "99.9",
            "QUEEN_RAFT_DISK_LOW_PCT": "99.8",
            **{k: str(v) for k, v in settings.items()},
        }
        pattern = r" boot: listening .*port=(\d+)"
        process = self.start([self.build / "queen"], pattern, self.dir / f"{name}.log", env, cpu)
        process.port = int(process.match.group(1))
        return process

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()


def wait_for(condition, process, what, every=0.01):
    end = time.monotonic() + WAIT
    while True:
        value = condition()
        if value:
            return value
        if process.poll() is not None:
            raise SystemExit(f"{what}: it ended with {process.returncode}:\n{process.log.read_text()[-2000:]}")
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {WAIT} s")
        time.sleep(every)


def cpu_seconds(pid):
    """Of all threads, also those that ended; to a hundredth."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def anon_bytes(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", text).group(1)) << 10


class Peak(threading.Thread):
    """The most RssAnon of a process while the block runs."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.bytes, self.done = pid, 0, threading.Event()

    def run(self):
        while not self.done.wait(0.02):
            self.bytes = max(self.bytes, anon_bytes(self.pid))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.done.set()
        self.join()


def spread(values, form="{:,.0f}"):
    low, middle, high = min(values), statistics.median(values), max(values)
    text = form.format(middle)
    return text if low == high else f"{text} ({form.format(low)} to {form.format(high)})"


def megabytes(size):
    return f"{size / 1e6:.0f} MB"


# --- the questions ---


def push(run):
    """Durable pushes beside a bare server that writes and syncs the same bodies."""
    loads = [
        ("push, 100 records of 1 KiB a request, 16 connections", ["batch=100", "connections=16"], "200,000/s, 0.4"),
        ("push, 1 record of 1 KiB, 16 connections", ["batch=1", "connections=16"], "24,000/s"),
        ("push, 1 record of 1 KiB, 64 connections", ["batch=1", "connections=64"], "40,000/s"),
    ]
    limit = run.start(
        [run.build / "bench" / "limit_server", f"--file={run.dir}/limit", f"--mb={run.scaled(1024)}"],
        r"listening port=(\d+)",
        run.dir / "limit.log",
    )
    for question, load, aim in loads:
        broker = run.broker()
        ours, theirs = [], []
        for number in range(run.rounds):
            common = [*load, f"seconds={run.seconds}"]
            theirs += run.program(
                "push_bench", f"port={limit.match.group(1)}", f"pid={limit.pid}", "ledger=0", *common
            )
            ours += run.program("push_bench", f"port={broker.port}", f"pid={broker.pid}", f"queue=q{number}", *common)
        run.stop(broker)
        shutil.rmtree(run.dir / "data")
        rates = [float(r["records_per_s"]) for r in ours]
        limits = [float(r["records_per_s"]) for r in theirs]
        ratio = statistics.median(a / b for a, b in zip(rates, limits))
        run.row(question, f"{spread(rates)} records/s", f"{spread(limits)} records/s", f"{ratio:.2f}", aim)
        for name, results in (("queen", ours), ("limit", theirs)):
            median = {k: statistics.median(float(r[k]) for r in results) for k in results[0] if k.endswith("_us")}
            figures = " ".join(f"{k[:-3]}={v:,.2f}" if "cpu" in k else f"{k[:-3]}={v:,.0f}" for k, v in median.items())
            print(f"    {name}, us: {figures}", flush=True)
    run.stop(limit)
    os.unlink(run.dir / "limit")


def fill(run, records, size, batch=100):
    """A broker's folder with that many records in the queue `bench`."""
    broker = run.broker()
    run.program(
        "push_bench", f"port={broker.port}", f"records={records}", f"bytes={size}", f"batch={batch}",
        "connections=8", "seconds=100000", "queue=bench",
    )
    run.stop(broker)


def sink_settings(name, endpoint, **more):
    return {
        "QUEEN_S3_EMBEDDED": "true",
        "QUEEN_S3_QUEUES": "bench",
        "QUEEN_S3_ENDPOINT": endpoint,
        "QUEEN_S3_REGION": "us-east-1",
        "QUEEN_S3_BUCKET": "bench",
        "QUEEN_S3_ACCESS_KEY": "nobody",
        "QUEEN_S3_SECRET_KEY": "nothing",
        "QUEEN_S3_PATH_STYLE": "true",
        "QUEEN_S3_START": "earliest",
        "QUEEN_S3_SAFE_GUARD_MS": "0",
        "QUEEN_S3_SINK": name,
        "QUEEN_S3_PREFIX": name,
        **more,
    }


def committed(process):
    """Records of the windows that were committed so far."""
    text = process.log.read_text()
    return sum(int(n) for n in re.findall(r"window committed .*?\brecords=(\d+)", text))


def wait_committed(process, records):
    wait_for(lambda: committed(process) >= records, process, f"{records} records in the lake")


def ship(run, name, endpoint, records, **more):
    """Starts a broker with a sink of that name on what is in the folder; CPU and wall seconds until all is shipped,
    on one core."""
    broker = run.broker(cpu=0, **sink_settings(name, endpoint, **more))
    cpu, start = cpu_seconds(broker.pid), time.monotonic()
    wait_committed(broker, records)
    took = time.monotonic() - start, cpu_seconds(broker.pid) - cpu
    run.stop(broker)
    return took


def sink(run):
    """Log to bucket on one core, beside zstd alone on the same bytes."""
    size = 1024
    records = run.scaled(1_000_000)
    fill(run, records, size)
    lake = pathlib.Path(tempfile.mkdtemp(prefix="queen-bench.", dir="/dev/shm"))
    try:
        _, to_files = ship(run, "files", f"file://{lake}", records, QUEEN_S3_MAX_WINDOW_MS=1000)
        objects = sorted(glob.glob(f"{lake}/**/*.zst", recursive=True))
        zstd, cpu, wall = [], [], []
        server = run.start([run.build / "bench" / "null_s3"], r"listening port=(\d+)", run.dir / "null.log", cpu=1)
        for number in range(run.rounds):
            # Now and then, so that both meet the same machine.
            zstd += run.program("zstd_bench", "runs=1", "files=" + ",".join(objects))
            endpoint = f"http://127.0.0.1:{server.match.group(1)}"
            seconds, busy = ship(run, f"null{number}", endpoint, records, QUEEN_S3_MAX_WINDOW_MS=1000)
            cpu.append(busy)
            wall.append(seconds)
        run.stop(server)
    finally:
        shutil.rmtree(lake)
        shutil.rmtree(run.dir / "data")
    gb = float(zstd[0]["text_mb"]) / 1000
    limits = [float(r["cpu_s_per_gb"]) for r in zstd]
    ours = [c / gb for c in cpu]
    ratio = statistics.median(a / b for a, b in zip(limits, ours))
    run.row(
        f"sink, {records:,} records of 1 KiB to a null S3 server, one core",
        f"{spread(ours, '{:.2f}')} CPU s/GB; {spread([gb * 1000 / s for s in wall])} MB/s",
        f"zstd -3: {spread(limits, '{:.2f}')} CPU s/GB", f"{ratio:.2f}", "0.7",
    )
    print(f"    into a folder on tmpfs: {to_files / gb:.2f} CPU s/GB; zstd's ratio {zstd[0]['ratio']}", flush=True)


def memory(run):
    """The most anonymous memory while one window is cut and shipped."""
    for size, aim in ((1024, "150 MB"), (100, "400 MB")):
        batch = 100 if size > 100 else 1000
        target = run.scaled(1024)  # MiB; a record weighs its payload, its id (36) and 64, and its partition's name
        records = target * (1 << 20) // (size + 102) // batch * batch + 8000
        fill(run, records, size, batch)
        server = run.start([run.build / "bench" / "null_s3"], r"listening port=(\d+)", run.dir / "null.log")
        endpoint = f"http://127.0.0.1:{server.match.group(1)}"
        broker = run.broker(**sink_settings("one", endpoint, QUEEN_S3_TARGET_MB=target, QUEEN_S3_MAX_WINDOW_MS=86400000))
        with Peak(broker.pid) as peak:
            wait_committed(broker, 1)
        shipped = committed(broker)
        run.stop(broker)
        run.stop(server)
        shutil.rmtree(run.dir / "data")
        run.row(f"sink memory, a window of {target} MiB: {shipped:,} records of {size} bytes",
                f"{megabytes(peak.bytes)} RssAnon", aim=aim)


def idle(run):
    """Broker and sink with nothing to do."""
    endpoint = f"file://{run.dir}/lake"
    os.makedirs(run.dir / "lake")
    broker = run.broker(**sink_settings("idle", endpoint, QUEEN_S3_QUEUES="*"))
    time.sleep(10 if run.seconds >= 5 else run.seconds)
    cpu, start = cpu_seconds(broker.pid), time.monotonic()
    time.sleep(max(run.seconds, 2) * 2)
    busy = (cpu_seconds(broker.pid) - cpu) / (time.monotonic() - start)
    size = anon_bytes(broker.pid)
    run.stop(broker)
    shutil.rmtree(run.dir / "data")
    run.row("idle, broker and sink, ten seconds after boot", f"{megabytes(size)} RssAnon, {busy * 100:.2f} % of a core",
            aim="20 MB, 1 %")


def read_all(folder):
    """Seconds to read every file of a folder."""
    start, size = time.monotonic(), 0
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        with open(path, "rb", buffering=0) as file:
            while chunk := file.read(1 << 20):
                size += len(chunk)
    return time.monotonic() - start, size


def restart(run):
    """Boot on a folder that holds data, beside reading its files (bench/scale does the large one)."""
    records = run.scaled(1_000_000)
    fill(run, records, 1024)
    for how, number in (("after SIGTERM", signal.SIGTERM), ("after kill -9", signal.SIGKILL)):
        took, reads = [], []
        for round_ in range(run.rounds):
            reads.append(read_all(run.dir / "data"))
            start = time.monotonic()
            broker = run.broker()
            took.append(time.monotonic() - start)
            if number == signal.SIGKILL:
                run.program("push_bench", f"port={broker.port}", f"seconds={run.seconds}", f"queue=more{round_}")
            run.stop(broker, number)
            if number == signal.SIGKILL:
                start = time.monotonic()
                broker = run.broker()
                took[-1] = time.monotonic() - start
                run.stop(broker)
        run.row(f"restart {how}, {reads[0][1] / 1e9:.1f} GB in the folder", f"{spread(took, '{:.2f}')} s",
                f"reading it: {spread([r[0] for r in reads], '{:.2f}')} s",
                f"{statistics.median(t / r[0] for t, r in zip(took, reads)):.2f}", "3 s (10 GB)")
    shutil.rmtree(run.dir / "data")


def tail(run):
    """From push to a waiting reader, with the sink off and on."""
    for name, settings in (
        ("sink off", {}),
        ("sink on", sink_settings("tail", f"file://{run.dir}/lake", QUEEN_S3_QUEUES="*",
                                  QUEEN_S3_MAX_WINDOW_MS=1000, QUEEN_S3_DISCOVERY_INTERVAL_MS=100)),
    ):
        os.makedirs(run.dir / "lake", exist_ok=True)
        broker = run.broker(**settings)
        results = [run.program("tail_bench", f"port={broker.port}", f"seconds={run.seconds}", f"queue=t{n}")
                   for n in range(run.rounds)]
        run.stop(broker)
        shutil.rmtree(run.dir / "data")
        for at, what in ((0, "answered"), (1, "fetched by a reader that waits")):
            figures = [f"{p} {spread([float(r[at][f'{p}_us']) for r in results])}" for p in ("p50", "p99")]
            run.row(f"push until {what}, 200/s, {name}", f"{', '.join(figures)} us")


QUESTIONS = {f.__name__: f for f in (push, sink, memory, idle, restart, tail)}


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    load = " ".join(f"{x:.1f}" for x in os.getloadavg())
    return f"{os.cpu_count()} x {model.group(1) if model else '?'}, Linux {os.uname().release}, load {load}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", default=REPO / "build-bench")
    parser.add_argument("questions", nargs="*", choices=[[], *QUESTIONS], metavar="question")
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="queen-bench."))
    usage = shutil.disk_usage(folder)
    print(f"machine: {machine()}\ndisk: {usage.free / 1e9:.0f} GB free", flush=True)
    run = Run(arguments, folder)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        stack.callback(run.close)
        for name in arguments.questions or QUESTIONS:
            print(f"{name}: {QUESTIONS[name].__doc__}", flush=True)
            QUESTIONS[name](run)
    print("\n| question | figure | limit, same run | ratio | aim |\n|---|---|---|---|---|")
    for row in run.rows:
        print("| " + " | ".join(cell or "-" for cell in row) + " |")
    print(f"\n{len(run.rows)} figures; ledgers {'right' if run.good else 'WRONG'}")
    return 0 if run.good else 1


if __name__ == "__main__":
    sys.exit(main())
