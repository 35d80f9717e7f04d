"""One request and its answer on the S3 server of the tests, step by step; a fault may step in between any two."""

import functools
import hashlib
import time

import s3_checks
import s3_operations
from s3_faults import CONTINUE
from s3_protocol import TICK, Answer, Ended, Gone, S3Error, Stalled

BODY_MAX = 5 << 30
SLICES = 20  # a second, in which slow bytes go


class Record:
    """What the server saw of a request. Texts of it hold no signature."""

    def __init__(self, connection, nth, head, op, bucket, key):
        params = dict(head.params)
        number = params.get("partNumber", "")
        self.time = time.time()
        self.ended = None  # when the exchange was over
        self.connection = connection
        self.nth = nth  # request on its connection, from 0
        self.method = head.method
        self.target = head.target
        self.headers = {n.lower(): v for n, v in head.headers if n.lower() != "authorization"}
        self.op = op
        self.bucket = bucket
        self.key = key
        self.query = params
        self.part = int(number) if number.isdecimal() else None
        self.upload = params.get("uploadId")
        self.size = 0  # bytes of the body that came
        self.sha256 = None  # of the whole body
        self.status = 0  # of the answer, when it was sent so far that it counts
        self.error = None  # its <Code>
        self.began = False  # a status line was sent
        self.stale = False  # a client takes this for a connection that was closed between two requests
        self.fault = None  # its name
        self.is_sink = s3_checks.is_sink(head)

    def __repr__(self):
        part = f" part {self.part}" if self.part is not None else ""
        fault = f" by {self.fault}" if self.fault else ""
        return f"<{self.connection}.{self.nth} {self.op} {self.key}{part} {self.size} bytes: {self.status}{fault}>"


class Exchange:
    def __init__(self, server, wire, head, nth, last):
        self.server = server
        self.options = server.options
        self.wire = wire
        self.head = head
        self.last = last  # announce the end of the connection
        self.refusal = None
        self.length = 0
        self.body = bytearray()
        self.ended_by_server = False
        self.keep = True  # may the connection serve another request
        self.request_id = server.next_id()
        self.place(nth)

    def place(self, nth):
        """Finds out what is asked for; the first refusal stands."""
        bucket, key = None, ""
        try:
            bucket, key = s3_checks.place_of(self.head, self.options, self.server.buckets)
        except S3Error as error:
            self.refusal = error
        op = s3_checks.op_of(self.head.method, bucket, key, self.head.params)
        self.record = Record(self.wire.number, nth, self.head, op, bucket, key)
        self.bucket = self.server.buckets.get(bucket)

    # --- the course ---

    def run(self):
        """Can the connection serve another request?"""
        self.server.note_request(self.record)
        try:
            self.fault = self.server.script.take(self.record)
            self.record.fault = self.fault.name if self.fault.name != "Fault" else None
            self.serve()
        except Ended:
            pass
        except Gone:
            self.keep = False
            self.ended_by_server = self.ended_by_server or self.wire.aborted
        finally:
            self.settle()
        return self.keep

    def settle(self):
        """The record is final; before the connection ends, since a client may look right after that."""
        if self.record.ended is None:
            self.record.stale = self.ended_by_server and not self.record.began and self.record.nth > 0
            self.record.ended = time.time()
            self.server.note_end()

    def serve(self):
        self.check_head()
        self.fault.before_body(self)
        if self.refusal is not None and (self.refusal.close or self.options.early_refusal and self.length):
            self.send_answer(self.refuse(self.refusal))
            self.end()
        self.read_whole_body()
        self.record.sha256 = hashlib.sha256(self.body).hexdigest()
        answer = self.fault.instead(self) or self.operate()
        answer = self.fault.change(self, answer)
        answer.close = answer.close or self.last
        self.fault.before_answer(self)
        if self.wire.peer_left:
            raise Gone
        self.fault.send(self, answer)
        self.fault.after(self)
        self.keep = self.keep and not self.last and self.head.get("connection", "").lower() != "close"

    def check_head(self):
        try:
            self.length = s3_checks.check_framing(self.head)
            if self.length > BODY_MAX:
                raise S3Error("EntityTooLarge", close=True)
            if self.refusal is None:
                s3_checks.check_auth(self.head, self.options, self.server.now())
                self.check_request()
        except S3Error as error:
            self.refusal = error
        if self.record.is_sink and self.record.bucket is not None:
            self.check_rules()

    def check_request(self):
        if self.bucket is None and self.record.op not in ("create_bucket", "list_buckets"):
            extra = {"BucketName": self.record.bucket}
            raise S3Error("NoSuchBucket", "The specified bucket does not exist", extra=extra)
        s3_checks.check_key(self.record.key, self.options)
        s3_checks.check_features(self.head, self.options, self.record.op)

    def check_rules(self):
        for rule in s3_checks.broken_rules(self.head, self.record.op, self.record.key, self.head.params):
            self.problem(rule)

    def problem(self, text):
        self.server.problem(f"{self.record.method} {self.record.target}: {text}")

    def read_whole_body(self):
        if "100-continue" in self.head.get("expect", "").lower():
            self.wire.send(CONTINUE)
        self.wire.timeout(self.options.stall_s)
        try:
            if self.fault.body_stop is not None:
                self.read_body(self.fault.body_stop)
                self.fault.in_body(self)
            self.read_body()
        except Stalled:
            error = S3Error("RequestTimeout", "Your socket connection to the server was not read from or written to "
                            "within the timeout period.", status=self.options.stall_status, close=True)
            self.send_answer(self.error_answer(error))
            self.end()
        self.wire.timeout(None)

    def read_body(self, stop=None):
        """Reads on until the whole body, or its first `stop` bytes, have come."""
        end = self.length if stop is None else min(stop, self.length)
        if len(self.body) != self.length:
            self.body = bytearray(self.length)
        rate = self.fault.receive_rate
        with memoryview(self.body) as view:
            while self.record.size < end:
                most = end if rate is None else min(end, self.record.size + max(1, rate // SLICES))
                self.record.size += self.wire.read_into(view[self.record.size : most])
                if rate is not None:
                    time.sleep(1 / SLICES)

    @functools.cached_property
    def md5(self):
        return hashlib.md5(self.body)

    def operate(self):
        """The answer of the store."""
        try:
            if self.refusal is not None:
                raise self.refusal
            s3_checks.check_digests(self.head, self.record.sha256, lambda: self.md5.digest())
            return s3_operations.run(self)
        except S3Error as error:
            return self.refuse(error)

    def refuse(self, error):
        if self.record.is_sink and error.code not in s3_checks.BLAMELESS and not error.expected:
            self.problem(f"refused: {error}")
        return self.error_answer(error)

    # --- what faults do ---

    def error_answer(self, error):
        self.record.error = error.code
        return Answer.of_error(error, self.head.path, self.request_id)

    def answer_bytes(self, answer):
        """Sets also where the head ends, for what counts as answered."""
        is_head = self.head.method == "HEAD"
        head = answer.head(self.server.now(), self.request_id, is_head)
        self.answer_status, self.head_size = answer.status, len(head)
        self.keep = self.keep and not answer.close
        return head if is_head else head + answer.body

    def send_answer(self, answer, before=b"", behind=b""):
        self.send_bytes(self.answer_bytes(answer), before=before, behind=behind)

    def send_bytes(self, data, start=0, stop=None, before=b"", behind=b""):
        """Sends data[start:stop], and counts it as answered when it is enough for that."""
        stop = len(data) if stop is None else min(stop, len(data) - 1)
        if stop == len(data) or stop >= self.head_size and self.answer_status >= 300:
            self.record.status = self.answer_status  # before it is sent: a client may look at once
        try:
            self._send(before + data[start:stop] + behind)
        except Gone:
            self.record.status = 0
            raise
        self.record.began = self.record.began or stop > data.index(b"\n")

    def _send(self, data):
        if self.fault.send_rate is None:
            return self.wire.send(data)
        step = max(1, self.fault.send_rate // SLICES)
        for at in range(0, len(data), step):
            self.wire.send(data[at : at + step])
            time.sleep(1 / SLICES)

    def send_with_spaces(self, answer, spaces, seconds):
        """Chunked: the XML declaration, blanks one by one, the rest."""
        head = answer.head(self.server.now(), self.request_id, chunked=True)
        self.record.began = True
        first, _, rest = answer.body.partition(b"\n")
        self.wire.send(head + chunk(first + b"\n"))
        for _ in range(spaces):
            self.sleep(seconds / spaces)
            self.wire.send(chunk(b" "))
        self.record.status = answer.status
        self.wire.send((chunk(rest) if rest else b"") + chunk(b""))

    def end(self, how="fin"):
        """Ends the connection and the exchange."""
        self.ended_by_server = True
        self.keep = False
        self.settle()
        self.wire.close(how)
        raise Ended

    def sleep(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.wire.aborted:
            time.sleep(min(TICK, max(0, end - time.monotonic())))

    def wait(self, seconds=None, released=None, until_left=True):
        wait(self.wire, seconds, released, until_left)


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def wait(wire, seconds=None, released=None, until_left=True):
    """For so long, until released is set, or the client leaves (Gone) or the server stops (Gone)."""
    end = None if seconds is None else time.monotonic() + seconds
    while end is None or time.monotonic() < end:
        if wire.aborted or until_left and wire.peer_left:
            raise Gone
        if released is None:
            time.sleep(TICK)
        elif released.wait(TICK):
            return
