"""Real faults for the end-to-end tests: a filesystem that loses its power, and calls that fail.

Power: `with power_disk(folder) as disk` mounts an ext4 of its own; disk.cut() is a power cut (nothing that was not
synced is on the disk any more, every later call fails), disk.restore() brings it back as a reboot would. Calls: Calls
loads tests/lib/failing_calls.c into a broker and changes its rules while it runs. Needs root and loop devices, or
skips.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import struct
import subprocess
import time

from harness import REPO, Skip, wait_until

EXT4_SHUTDOWN = 0x8004587D  # _IOR('X', 125, uint32_t)
LOG_FLUSHED, LOG_LOST = 1, 2  # 0: everything is written first, as for an orderly end
DISK_SIZE = 192 << 20
SHIM_SOURCE = REPO / "tests" / "lib" / "failing_calls.c"
SANITIZER = re.compile(r"lib[at]san\.so\S* => (\S+)")


# --- power ---


class PowerDisk:
    def __init__(self, image, path):
        self.image = image
        self.path = path
        self.mounted = False

    def mount(self, options=""):
        more = [options] if options else []
        run("mount", "-t", "ext4", "-o", ",".join(["loop", *more]), self.image, self.path)
        self.mounted = True

    def unmount(self):
        """Lazily: who still holds a file there does not keep the test from going on."""
        if self.mounted:
            subprocess.run(["umount", self.path], capture_output=True)
        if self.mounted and os.path.ismount(self.path):
            subprocess.run(["umount", "-l", self.path], check=True)
        self.mounted = False

    def cut(self, flags=LOG_LOST):
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, EXT4_SHUTDOWN, struct.pack("I", flags))
        finally:
            os.close(fd)

    def flush(self):
        """What was made so far is no part of a test: it survives."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)

    def restore(self, options=""):
        """The journal is replayed."""
        wait_until(lambda: subprocess.run(["umount", self.path], capture_output=True).returncode == 0, 20,
                   what="nothing holds a file there")
        self.mounted = False
        end = time.monotonic() + 1
        while self.is_attached() and time.monotonic() < end:
            time.sleep(0.01)
        if self.is_attached():  # another mount namespace has it still, and mounting it again would find it cut
            fresh = self.image.with_suffix(f".{time.monotonic_ns()}")
            run("cp", "--sparse=always", self.image, fresh)
            self.image.unlink()
            self.image = fresh
        self.mount(options)

    def is_attached(self):
        return bool(subprocess.run(["losetup", "-j", self.image], capture_output=True).stdout)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Skip(f"{command[0]} does not work here: {done.stderr.strip().splitlines()[-1:]}")


@contextlib.contextmanager
def power_disk(folder, options="", size=DISK_SIZE):
    """An ext4 in an image file, mounted at folder/disk; gone at the end whatever happens."""
    if os.geteuid() != 0:
        raise Skip("mounting a filesystem needs root")
    if shutil.which("mkfs.ext4") is None:
        raise Skip("mkfs.ext4 is not installed")
    image, path = folder / "disk.image", folder / "disk"
    path.mkdir()
    with open(image, "wb") as file:
        file.truncate(size)
    run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
    disk = PowerDisk(image, path)
    try:
        disk.mount(options)
        yield disk
    finally:
        disk.unmount()
        disk.image.unlink()


# --- calls ---


def find_shim(env):
    """What the build of the binary made, or else made here."""
    built = pathlib.Path(env.binary).parent / "tests" / "failing_calls.so"
    if built.exists():
        return built
    made = env.dir / "failing_calls.so"
    compiler = shutil.which("cc")
    if compiler is None:
        raise Skip("no tests/failing_calls.so beside the binary, and no compiler")
    banned = REPO / "src" / "base" / "banned.h"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-include", banned, SHIM_SOURCE, "-o", made],
                   check=True)
    return made


def sanitizer_of(binary):
    """The runtime that must stand first in LD_PRELOAD, if the binary has one."""
    if shutil.which("ldd") is None:
        return []
    found = SANITIZER.search(subprocess.run(["ldd", binary], capture_output=True, text=True).stdout)
    return [found.group(1)] if found else []


class Calls:
    """The file calls of one broker: `settings` go into its start, rule() texts into set()."""

    def __init__(self, env, name="calls"):
        self.path = env.dir / f"{name}.rules"
        self.log_path = env.dir / f"{name}.rules.log"
        self.noted = 0
        preload = [*sanitizer_of(env.binary), str(find_shim(env))]
        self.settings = {"LD_PRELOAD": ":".join(preload), "FAILING_CALLS": self.path}
        self.set()

    def set(self, *rules):
        """These rules hold from now on, counted anew; none: every call passes, what was held goes on."""
        self.noted = len(self.all_hits())
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(rule + "\n" for rule in rules))
        os.replace(fresh, self.path)

    def all_hits(self):
        return self.log_path.read_text().splitlines() if self.log_path.exists() else []

    def hits(self):
        """(call, action, path) of every hit since the last set()."""
        return [tuple(line.split(" ", 2)) for line in self.all_hits()[self.noted :]]

    def wait_hit(self, timeout=20):
        return wait_until(self.hits, timeout, 0.002, "a call is hit")[0]


def rule(call, pattern, action, skip=0, times=1):
    """times=0: every one behind the first `skip`."""
    return f"{call} {pattern} {skip} {times} {action}"
