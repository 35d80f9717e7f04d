#!/usr/bin/env python3
"""An S3 server for end-to-end tests: a real small store in memory, strict with its client, which misbehaves by script.

    with S3Server() as server:                                        # 127.0.0.1, any port
        fault = server.fault(Status(503, "SlowDown"), op="put", times=3)
        env.broker({**env.lake("orders"), **server.settings()}).start()
        ...
        assert fault.hits == 3 and server.problems == []
        assert server.counts() == {("put", 503): 3, ("put", 200): 5, ...}

One thread per connection. The faults are in s3_faults.py. By hand:

    tests/lib/s3_server.py --port 9000 --bucket lake --access-key k --secret-key s
"""

import argparse
import collections
import dataclasses
import socket
import ssl
import threading
import time
import traceback

from s3_client import S3Client
from s3_exchange import Exchange, wait
from s3_faults import NONE, Handle, Script
from s3_protocol import Answer, Gone, Head, S3Error, Stalled, Wire
from s3_store import Bucket

STOP_TIMEOUT = 5  # seconds that the end of all threads is waited for


@dataclasses.dataclass
class Options:
    """May be changed while the server runs; they hold for requests that come then."""

    bucket: str = "lake"
    access_key: str = "test-key"
    secret_key: str = "test-secret/+="
    region: str = "us-east-1"
    addressing: str = "both"  # path, virtual
    region_check: bool = True  # False: any region in the scope
    redirect_region: str = ""  # 301 for every request signed for another one
    clock_offset_s: float = 0  # the server's clock, against the true one
    early_refusal: bool = False  # what the head is refused for is answered before the body is read; then it closes
    multipart_etag: str = "standard"  # plain (of the bytes), unquoted, empty (at first; unquoted in a repeat)
    complete_again: bool = True  # a second completion of an upload is answered like the first; False: NoSuchUpload
    part_min: int = 5 << 20  # bytes of every part but the last
    list_order: str = "bytes"  # folders
    encoding_type_ignored: bool = False
    keep_alive_requests: int = 0  # requests of a connection; the end is announced; 0: no limit
    idle_close_s: float | None = None  # idle connections are closed
    close_each: str = ""  # announced, silent: closes after every answer
    stall_s: float | None = None  # a body that stands still for so long is answered ...
    stall_status: int = 400  # ... with this status
    sse: str = "accept"  # ignore, refuse_400, refuse_501
    segment_max: int = 0  # bytes of a key between two slashes


class S3Server:
    def __init__(self, port=0, certfile=None, keyfile=None, receive_buffer=None, **options):
        self.options = Options(**options)
        self.port = port
        self.receive_buffer = receive_buffer  # SO_RCVBUF; a slow reader is felt only when that is full
        self.tls = None
        if certfile:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certfile, keyfile)
            self.tls.set_alpn_protocols(["http/1.1"])
        self.problems = []
        self.requests = []
        self.script = Script()
        self.buckets = {}
        self.add_bucket(self.options.bucket)
        self.changed = threading.Condition()
        self.lock = threading.Lock()
        self.listener = None
        self.held = None  # keeps the port during an outage
        self.wires = {}  # Wire -> its thread
        self.connections = 0
        self.ids = 0

    # --- running ---

    def start(self):
        self._bind()
        self._listen()
        return self

    def stop(self):
        """Ends everything at once; the objects stay readable."""
        self.down()
        if self.held is not None:
            self.held.close()
            self.held = None

    __enter__ = start

    def __exit__(self, *_):
        self.stop()

    def down(self):
        """An outage: connections are reset, new ones refused. The objects stay."""
        if self.listener is None:
            return
        listener, self.listener = self.listener, None
        socket.socket.shutdown(listener, socket.SHUT_RDWR)  # ends its accept()
        listener.close()
        self.acceptor.join(STOP_TIMEOUT)
        self._bind()
        with self.lock:
            wires = list(self.wires.items())
        for wire, _ in wires:
            wire.abort()
        end = time.monotonic() + STOP_TIMEOUT
        for _, thread in wires:
            thread.join(max(0, end - time.monotonic()))

    def up(self):
        if self.listener is None:
            self._listen()

    def _bind(self):
        """A socket that is bound and does not listen refuses connections."""
        self.held = socket.socket()
        self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.receive_buffer:
            self.held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
        self.held.bind(("127.0.0.1", self.port))
        self.port = self.held.getsockname()[1]

    def _listen(self):
        self.listener, self.held = self.held, None
        self.listener.listen(128)
        self.acceptor = threading.Thread(target=self._accept, args=(self.listener,), daemon=True)
        self.acceptor.start()

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            wire = Wire(sock, self.connections)
            thread = threading.Thread(target=self._serve, args=(wire,), daemon=True)
            with self.lock:
                self.connections += 1
                self.wires[wire] = thread
            thread.start()

    def _serve(self, wire):
        try:
            fault = self.script.take(None)
            if fault is not NONE:
                wait(wire, fault.seconds, fault.released, until_left=not fault.late)
            if self.tls is not None:
                wire.start_tls(self.tls)
            nth = 0
            while not wire.aborted and self._serve_one(wire, nth):
                nth += 1
        except Gone:
            pass
        except Exception:  # a fault of this server fails the test too
            self.problem(traceback.format_exc())
        finally:
            wire.close()
            with self.lock:
                del self.wires[wire]

    def _serve_one(self, wire, nth):
        """One request; does the connection go on?"""
        wire.timeout(self.options.idle_close_s)
        try:
            raw = wire.read_head()
        except Stalled:
            return False
        wire.timeout(None)
        try:
            head = Head(raw)
        except S3Error as error:
            self.problem(f"no HTTP: {raw.splitlines()[0][:200]!r}")
            wire.send((answer := Answer.of_error(error, "", "-")).head(self.now(), "-") + answer.body)
            return False
        limit = self.options.keep_alive_requests
        last = self.options.close_each == "announced" or limit > 0 and nth + 1 >= limit
        return Exchange(self, wire, head, nth, last).run() and self.options.close_each != "silent"

    # --- what the exchanges need ---

    def now(self):
        return time.time() + self.options.clock_offset_s

    def next_id(self):
        with self.lock:
            self.ids += 1
            return f"{self.ids:016X}"

    def add_bucket(self, name):
        self.buckets[name] = Bucket(self.options, self.problem)

    def problem(self, text):
        self.problems.append(text)

    def note_request(self, record):
        with self.changed:
            self.requests.append(record)
            self.changed.notify_all()

    def note_end(self):
        with self.changed:
            self.changed.notify_all()

    # --- for tests ---

    def fault(self, fault, op=None, key=None, part=None, times=1, after=0, when=None):
        """Applies fault to the next requests that match: op (one, or several), key (regular expression), part number,
        when(record). Skips the first `after` of them and ends after `times` (None: never). fault may also be a
        callable(record) -> a fault or None. The first fault that was added and matches is the one; see Handle."""
        return self.script.add(Handle(fault, op, key, part, times, after, when))

    def clear_faults(self):
        self.script.clear()

    @property
    def endpoint(self):
        """The host is an address, so: path style."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def virtual_endpoint(self):
        """libcurl resolves every name under localhost."""
        return f"{'https' if self.tls else 'http'}://s3.localhost:{self.port}"

    def settings(self, addressing="path"):
        """Settings of a sink that writes here."""
        return {
            "QUEEN_S3_ENDPOINT": self.virtual_endpoint if addressing == "virtual" else self.endpoint,
            "QUEEN_S3_PATH_STYLE": "false" if addressing == "virtual" else "true",
            "QUEEN_S3_BUCKET": self.options.bucket,
            "QUEEN_S3_REGION": self.options.redirect_region or self.options.region,
            "QUEEN_S3_ACCESS_KEY": self.options.access_key,
            "QUEEN_S3_SECRET_KEY": self.options.secret_key,
        }

    def client(self, **more):
        """A client of the tests, which is not held to the rules of the sink."""
        options = {"bucket": self.options.bucket, "access_key": self.options.access_key, "port": self.port,
                   "secret_key": self.options.secret_key, "region": self.options.region}
        return S3Client(**{**options, **more})

    @property
    def bucket(self):
        return self.buckets[self.options.bucket]

    @property
    def writes(self):
        """{key: sha256 of every version that was stored}"""
        return self.bucket.writes

    def objects(self):
        with self.bucket.lock:
            return sorted(self.bucket.objects, key=str.encode)

    def get(self, key):
        return b"".join(self.bucket.find(key).data)

    def uploads(self):
        """Open uploads, with .id, .key and .parts {number: .size .sha256}."""
        with self.bucket.lock:
            return list(self.bucket.uploads.values())

    def find(self, op=None, key=None, status=None, is_sink=True):
        """Records of requests of the sink (is_sink=None: of everybody); key: a part of it."""
        with self.changed:
            records = list(self.requests)
        return [r for r in records if (op is None or r.op == op) and (key is None or key in r.key)
                and (status is None or r.status == status) and (is_sink is None or r.is_sink == is_sink)]

    def wait_for(self, condition, timeout=30, what="the condition"):
        """Waits until condition() is true, looking after every request and answer; its value."""
        end = time.monotonic() + timeout
        while not (value := condition()):
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"not within {timeout} s: {what}; requests: {self.requests[-20:]}")
            with self.changed:
                self.changed.wait(min(left, 0.1))
        return value

    def wait_requests(self, count=1, timeout=30, **which):
        """Waits for so many records, see find()."""

        def enough():
            found = self.find(**which)
            return found if len(found) >= count else None

        return self.wait_for(enough, timeout, f"{count} requests {which}")

    def counts(self):
        """{(op, code): n} as the sink should have counted: 0 is an attempt without a whole answer. A connection that
        ended without a status line, after it had served a request, is no attempt; requests on their way are not
        counted yet."""
        done = [r for r in self.find() if (r.ended is not None or r.status) and not r.stale]
        return dict(collections.Counter((r.op, r.status) for r in done))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--certfile")
    parser.add_argument("--keyfile")
    for field in dataclasses.fields(Options):
        if field.type in (str, int, float):
            parser.add_argument("--" + field.name.replace("_", "-"), type=field.type, default=field.default)
    options = vars(parser.parse_args())
    server = S3Server(**options).start()
    print(f"{server.endpoint} bucket={server.options.bucket} region={server.options.region}", flush=True)
    shown = problems = 0
    try:
        while True:
            with server.changed:
                server.changed.wait(0.5)
            while shown < len(server.requests) and server.requests[shown].ended is not None:
                print(server.requests[shown], flush=True)
                shown += 1
            while problems < len(server.problems):
                print("problem:", server.problems[problems], flush=True)
                problems += 1
    except KeyboardInterrupt:
        server.stop()


if __name__ == "__main__":
    main()
