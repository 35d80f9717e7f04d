#!/usr/bin/env python3
"""Runs the end-to-end tests: every test_*(env) of the files test_*.py here, each in a process of its own.

    tests/integration/run.py                      all but the slow ones, against build/queen
    tests/integration/run.py crash 'push.*order'  only those whose file:name matches one of the patterns
    tests/integration/run.py --slow --seed 7      the long ones too, with the randomness of seed 7
    tests/integration/run.py --store rgw drain    the tests that have a lake in it, into another store: stores.py

Environment: QUEEN_BIN names the binary; services.py has those of the stores. The last line is `N passed, N failed, N skipped`; exit code 1 when
one failed or none ran. A failed test keeps its folder and prints the end of its brokers' logs.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import harness  # noqa: E402  (after the path is set)
import services  # noqa: E402
import stores  # noqa: E402

PORTS_PER_SLOT = 50
EXIT_PASSED, EXIT_FAILED, EXIT_SKIPPED = 0, 1, 77
TIMEOUT = 180  # seconds a test may take unless it says otherwise
LOG_TAIL = 40  # lines of a broker's log shown after a failure


class Test:
    def __init__(self, module, function, case=None, has_case=False):
        self.name = f"{module}:{function.__name__}" + (f"[{case}]" if has_case else "")
        self.function = function
        self.arguments = (case,) if has_case else ()
        marks = getattr(function, "marks", {})
        self.timeout = marks.get("timeout") or TIMEOUT
        self.slow = marks.get("slow", False)
        self.serial = marks.get("serial", False)
        self.store = marks.get("store")

    def skips(self, store):
        """Why it cannot run on a store, or None."""
        kinds = {store, "file" if store == "file" else "s3"}
        if self.store in (None, *kinds):
            return None
        return {"file": "it is about a folder", "s3": "it is about an S3 store"}.get(
            self.store, f"it is about the store {self.store}"
        )


class Slot:
    """Room for one test at a time: a range of ports, its first one held by us, so that no other run beside
    this one (and no broker of its) takes any of them."""

    def __init__(self, guard, ports):
        self.guard = guard
        self.ports = ports


def make_slots(count):
    slots = []
    every = harness.PORT_RANGE
    for base in range(every.start, every.stop, PORTS_PER_SLOT):
        guard = socket.socket()
        try:
            guard.bind(("127.0.0.1", base))
        except OSError:
            guard.close()
            continue
        slots.append(Slot(guard, range(base + 1, base + PORTS_PER_SLOT)))
        if len(slots) == count:
            return slots
    raise SystemExit("no free ports")


class Running:
    def __init__(self, test, pid, directory, slot):
        self.test = test
        self.pid = pid
        self.directory = directory
        self.slot = slot
        self.began = time.monotonic()
        self.timed_out = False


def find_tests(store):
    """On a store other than a folder only files that say ON_EVERY_STORE = True: the others have no lake in them."""
    tests = []
    for path in sorted(HERE.glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        if store != "file" and not getattr(module, "ON_EVERY_STORE", False):
            continue
        for name, function in vars(module).items():
            if not name.startswith("test_") or not callable(function):
                continue
            if function.__module__ != path.stem:
                continue
            if hasattr(function, "cases"):
                tests += [Test(path.stem, function, case, True) for case in function.cases]
            else:
                tests.append(Test(path.stem, function))
    return tests


def start(test, options, slot):
    directory = tempfile.mkdtemp(prefix="queen-it-", dir=options.tmp)
    pid = os.fork()
    if pid == 0:
        os.setsid()  # the test and its brokers are one group, which ends as a whole
        code = EXIT_FAILED
        try:
            code = child(test, directory, options, slot)
        finally:
            os._exit(code)
    return Running(test, pid, directory, slot)


def child(test, directory, options, slot):
    out = os.open(os.path.join(directory, "output"), os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    seed = f"{options.seed}/{test.name}"
    env = harness.Env(directory, options.binary, seed, slot.ports, options.store, options.service)
    code = EXIT_PASSED
    try:
        if reason := test.skips(options.store):
            raise harness.Skip(reason)
        test.function(env, *test.arguments)
    except harness.Skip as reason:
        print(reason)
        code = EXIT_SKIPPED
    except BaseException:
        traceback.print_exc()
        code = EXIT_FAILED
    try:
        env.close()
    except BaseException:
        traceback.print_exc()
        code = EXIT_FAILED
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def finish(running, status, options, counts):
    try:
        os.killpg(running.pid, signal.SIGKILL)  # what a test left behind
    except ProcessLookupError:
        pass
    code = os.waitstatus_to_exitcode(status)
    took = time.monotonic() - running.began
    output = (pathlib.Path(running.directory) / "output")
    text = output.read_text(errors="replace") if output.exists() else ""
    word = {EXIT_PASSED: "ok", EXIT_SKIPPED: "skip"}.get(code, "FAIL")
    reason = f" ({text.strip().splitlines()[-1]})" if word == "skip" and text.strip() else ""
    if running.timed_out:
        reason = f" (over its {running.test.timeout} s)"
    print(f"{word:4} {running.test.name} {took:.1f} s{reason}", flush=True)
    counts[word] += 1
    if word != "FAIL":
        if not options.keep:
            shutil.rmtree(running.directory, ignore_errors=True)
        return
    print(text)
    for log in sorted(pathlib.Path(running.directory).glob("broker*/std*.*")):
        lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL:]
        if lines:
            print(f"--- {log}", *lines, sep="\n")
    print(f"--- kept: {running.directory}; seed {options.seed}", flush=True)


def reap(running):
    """Waits for one of the running tests to end; ends those over their time. Returns it and its status."""
    while True:
        for entry in running:
            pid, status = os.waitpid(entry.pid, os.WNOHANG)
            if pid != 0:
                return entry, status
            if time.monotonic() - entry.began > entry.test.timeout and not entry.timed_out:
                entry.timed_out = True
                os.kill(entry.pid, signal.SIGINT)  # a traceback shows where it stood
            elif time.monotonic() - entry.began > entry.test.timeout + 20:
                os.kill(entry.pid, signal.SIGKILL)
        time.sleep(0.02)


def run_all(tests, options):
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    waiting = sorted(tests, key=lambda t: (t.serial, -t.timeout))
    running = []
    slots = make_slots(options.jobs)
    try:
        while waiting or running:
            while waiting and slots and not any(r.test.serial for r in running):
                if waiting[0].serial and running:
                    break
                running.append(start(waiting.pop(0), options, slots.pop(0)))
            entry, status = reap(running)
            running.remove(entry)
            slots.append(entry.slot)
            finish(entry, status, options, counts)
    finally:  # of those that still run when the run itself is ended
        for entry in running:
            os.killpg(entry.pid, signal.SIGKILL)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("patterns", nargs="*", help="regular expressions over file:name")
    parser.add_argument("--list", action="store_true", help="print the names only")
    parser.add_argument("--slow", action="store_true", help="run the long ones too")
    parser.add_argument("--keep", action="store_true", help="keep the folders of tests that passed")
    parser.add_argument("--store", choices=stores.NAMES, default="file", help="where the lakes go")
    parser.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 1), help="tests at a time")
    parser.add_argument("--seed", default=os.environ.get("SEED") or str(time.time_ns() % 1000000))
    parser.add_argument("--tmp", default=None, help="where the folders go")
    options = parser.parse_args()
    options.binary = pathlib.Path(os.environ.get("QUEEN_BIN", HERE.parents[1] / "build" / "queen")).resolve()

    tests = [t for t in find_tests(options.store) if options.slow or not t.slow]
    if options.patterns:
        tests = [t for t in tests if any(re.search(p, t.name) for p in options.patterns)]
    if options.list:
        print(*(t.name for t in tests), sep="\n")
        return 0
    if not options.binary.exists():
        print(f"no binary at {options.binary}: build it, or name it with QUEEN_BIN", file=sys.stderr)
        return 1
    print(f"{len(tests)} tests, store {options.store}, seed {options.seed}, {options.binary}", flush=True)
    try:
        counts = run_with_service(tests, options)
    except harness.Skip as reason:
        print(f"skip store {options.store} ({reason})")
        counts = {"ok": 0, "FAIL": 0, "skip": 1}
    print(f"{counts['ok']} passed, {counts['FAIL']} failed, {counts['skip']} skipped")
    return 0 if counts["FAIL"] == 0 and counts["ok"] + counts["skip"] > 0 else 1


def run_with_service(tests, options):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the service is ended then too
    with tempfile.TemporaryDirectory(prefix="queen-it-store-", dir=options.tmp) as directory:
        with services.running(stores.service_of(options.store), directory) as options.service:
            return run_all(tests, options)


if __name__ == "__main__":
    sys.exit(main())
