"""How the S3 server of the tests misbehaves. A fault is given to server.fault() and applied to one exchange at a time.

`how` is the way a connection is ended: "fin", or "rst" for a reset. Byte positions count the request's body, or the
whole answer from its first byte. The methods of Fault are the points of an exchange (see s3_exchange.py); `x` is it.
"""

import re
import threading

from s3_protocol import Answer, Ended, S3Error, document, elements

ERROR_OF = {400: "InvalidRequest", 401: "AccessDenied", 403: "AccessDenied", 404: "NoSuchKey", 408: "RequestTimeout",
            429: "TooManyRequests", 500: "InternalError", 501: "NotImplemented", 503: "SlowDown"}


class Fault:
    body_stop = None  # in_body() is called when that many bytes of the body have come
    receive_rate = send_rate = None  # bytes per second

    @property
    def name(self):
        return type(self).__name__

    def before_body(self, x):
        """The head was read."""

    def in_body(self, x):
        """body_stop bytes were read, or all if they are fewer."""

    def instead(self, x):
        """An Answer in place of the operation, or None."""
        return None

    def change(self, x, answer):
        """The answer of the operation, or another one."""
        return answer

    def before_answer(self, x):
        """The operation is done."""

    def send(self, x, answer):
        x.send_answer(answer)

    def after(self, x):
        """The answer was sent."""


NONE = Fault()


class Status(Fault):
    """Answers with a status. error: the <Code>; body: instead of an error document; done: after doing the operation."""

    def __init__(self, code, error=None, body=None, headers=None, read_body=True, done=False, message=""):
        self.code, self.error, self.body, self.headers = code, error, body, headers or {}
        self.read_body, self.done, self.message = read_body, done, message

    @property
    def name(self):
        return f"Status({self.code})"

    def answer(self, x):
        if self.body is not None:
            return Answer(self.code, self.body, self.headers)
        error = self.error or ERROR_OF.get(self.code, "InternalError")
        return x.error_answer(S3Error(error, self.message, status=self.code, headers=self.headers))

    def before_body(self, x):
        if not self.read_body:
            x.send_answer(self.answer(x))
            x.end()

    def instead(self, x):
        return None if self.done else self.answer(x)

    def change(self, x, answer):
        return self.answer(x) if self.done else answer


class RefuseEarly(Status):
    """Answers after `at_byte` bytes of the body. then: "close", "rst", "read" (what comes is read and dropped, at
    `rate` bytes per second, then the connection is used on), "hold" (nothing is read and nothing is closed)."""

    def __init__(self, code=403, error=None, at_byte=0, then="close", rate=None, **more):
        super().__init__(code, error, **more)
        self.body_stop, self.then, self.receive_rate = at_byte, then, rate

    def in_body(self, x):
        x.send_answer(self.answer(x))
        if self.then == "read":
            x.read_body()
            raise Ended
        if self.then == "hold":
            x.wait()
        x.end("rst" if self.then == "rst" else "fin")


class CutRequest(Fault):
    """Ends the connection after `at_byte` bytes of the body, or of the head (where="head": it is read whole, since
    only the head tells which request this is; nothing of the body is)."""

    def __init__(self, at_byte=0, where="body", how="rst"):
        self.body_stop, self.where, self.how = at_byte, where, how

    def before_body(self, x):
        if self.where == "head":
            x.end(self.how)

    def in_body(self, x):
        x.end(self.how)


class LostAnswer(Fault):
    """Does the operation and answers nothing."""

    def __init__(self, how="fin"):
        self.how = how

    def send(self, x, answer):
        x.end(self.how)


class CutAnswer(Fault):
    """Does the operation and sends the first `at_byte` bytes of the answer; at least the last one is missing."""

    def __init__(self, at_byte, how="fin"):
        self.at_byte, self.how = at_byte, how

    def send(self, x, answer):
        x.send_bytes(x.answer_bytes(answer), stop=self.at_byte)
        x.end(self.how)


class Hang(Fault):
    """Does nothing for `seconds`, or until released; then goes on as if nothing had been.

    where: "before_head" (nothing is read of a new connection, not even TLS; takes no op, key or part), "before_body",
    "in_body" (after at_byte bytes), "before_answer" (the operation is done), "in_answer" (after at_byte bytes).
    It ends early when the client leaves; with late=True it does not, and a request that stands in the socket whole is
    done after all."""

    def __init__(self, where="before_answer", seconds=None, at_byte=0, late=False):
        assert where in ("before_head", "before_body", "in_body", "before_answer", "in_answer"), where
        self.where, self.seconds, self.at_byte, self.late = where, seconds, at_byte, late
        self.body_stop = at_byte if where == "in_body" else None
        self.released = threading.Event()

    @property
    def name(self):
        return f"Hang({self.where})"

    def release(self):
        self.released.set()

    def hold(self, x):
        x.wait(self.seconds, self.released, until_left=not self.late)

    def before_body(self, x):
        if self.where == "before_body":
            self.hold(x)

    def in_body(self, x):
        if self.where == "in_body":
            self.hold(x)

    def before_answer(self, x):
        if self.where == "before_answer":
            self.hold(x)

    def send(self, x, answer):
        if self.where != "in_answer":
            return x.send_answer(answer)
        data = x.answer_bytes(answer)
        x.send_bytes(data, stop=self.at_byte)
        self.hold(x)
        x.send_bytes(data, start=self.at_byte)


class Slow(Fault):
    """Reads the body, sends the answer, at so many bytes per second. (A small body is in the socket at once.)"""

    def __init__(self, receive=None, send=None):
        self.receive_rate, self.send_rate = receive, send


class Etag(Fault):
    """Another ETag, in the header or in the document of a completion. value: as sent, quotes included; None: no
    header, an empty element; or a callable that makes it of the right one. A part is then known by that ETag."""

    def __init__(self, value):
        self.value = value

    def change(self, x, answer):
        if answer.etag is None:
            return answer
        value = self.value(answer.etag) if callable(self.value) else self.value
        return answer.with_etag(value)


class OkWithError(Fault):
    """200 with an <Error> document; done: after doing the operation. spaces: that many blanks come first, spread over
    `seconds`, as from a store that keeps a connection busy while it thinks."""

    def __init__(self, code="InternalError", message="We encountered an internal error. Please try again.", done=False,
                 spaces=0, seconds=0):
        self.code, self.message, self.done, self.spaces, self.seconds = code, message, done, spaces, seconds

    def answer(self):
        return Answer(200, document("Error", elements(Code=self.code, Message=self.message)))

    def instead(self, x):
        return None if self.done else self.answer()

    def change(self, x, answer):
        return self.answer() if self.done else answer

    def send(self, x, answer):
        if self.spaces:
            x.send_with_spaces(answer, self.spaces, self.seconds)
        else:
            x.send_answer(answer)


class Spaces(Fault):
    """A good answer whose document comes after blanks, see OkWithError."""

    def __init__(self, spaces=10, seconds=0):
        self.spaces, self.seconds = spaces, seconds

    def send(self, x, answer):
        x.send_with_spaces(answer, self.spaces, self.seconds)


class CloseAfter(Fault):
    """Closes after a good answer without announcing it; what comes within `after_ms` is not read."""

    def __init__(self, after_ms=0, how="fin"):
        self.after_ms, self.how = after_ms, how

    def after(self, x):
        x.sleep(self.after_ms / 1000)
        x.end(self.how)


class Stray(Fault):
    """Bytes that do not belong there: `data` after the answer, `after_ms` later; `before` in front of it."""

    def __init__(self, data=b"", after_ms=0, before=b""):
        self.data, self.after_ms, self.before = data, after_ms, before

    def send(self, x, answer):
        if self.after_ms == 0:
            return x.send_answer(answer, before=self.before, behind=self.data)
        return x.send_answer(answer, before=self.before)

    def after(self, x):
        if self.after_ms > 0:
            x.sleep(self.after_ms / 1000)
            x.wire.send(self.data)


CHUNK_END = b"0\r\n\r\n"  # Swift, after a HEAD answered 404
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"  # moto sends it twice
SECOND_400 = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"  # versitygw, after a 411


class ForgetUpload(Fault):
    """The upload and its parts are gone, from this request on."""

    def instead(self, x):
        upload_id = x.record.upload
        x.bucket.forget_upload(upload_id)
        return x.error_answer(S3Error("NoSuchUpload", "The specified upload does not exist.",
                                      extra={"UploadId": upload_id}))


class Garbage(Fault):
    """Something that is no HTTP, and the end. done: after doing the operation."""

    def __init__(self, data=b"\x16\x03\x01\x00\x00 this is no HTTP\r\n\r\n", done=False):
        self.data, self.done = data, done

    def instead(self, x):
        if not self.done:
            self.send(x, None)

    def send(self, x, answer):
        x.wire.send(self.data)
        x.end()


class HalfClose(Fault):
    """Ends its own direction after `at_byte` bytes of the body, and goes on reading until the client leaves."""

    def __init__(self, at_byte=0):
        self.body_stop = at_byte

    def in_body(self, x):
        x.wire.half_close()
        x.ended_by_server = True
        x.read_body()
        x.wait()
        x.end()


# --- which fault is for which request ---


class Handle:
    """What server.fault() returns. hits: how often it was applied."""

    def __init__(self, fault, op, key, part, times, after, when):
        self.fault, self.op, self.part, self.times, self.after, self.when = fault, op, part, times, after, when
        self.key = re.compile(key) if key is not None else None
        self.hits = 0
        self.cleared = False

    def clear(self):
        """No more; what hangs in it goes on."""
        self.cleared = True
        self.release()

    def release(self):
        if isinstance(self.fault, Hang):
            self.fault.release()

    def matches(self, record):
        """record None: a new connection."""
        at_connection = isinstance(self.fault, Hang) and self.fault.where == "before_head"
        if self.cleared or (record is None) != at_connection:
            return False
        if record is None:
            return True
        ops = [self.op] if isinstance(self.op, str) else self.op
        return (
            (ops is None or record.op in ops)
            and (self.key is None or self.key.search(record.key) is not None)
            and (self.part is None or record.part == self.part)
            and (self.when is None or bool(self.when(record)))
        )

    def take(self, record):
        """The fault, if this request is to have it."""
        if self.times is not None and self.hits >= self.times or not self.matches(record):
            return None
        fault = self.fault if isinstance(self.fault, Fault) else self.fault(record)
        if fault is None:
            return None
        if self.after > 0:
            self.after -= 1
            return None
        self.hits += 1
        return fault


class Script:
    """Thread-safe: handles in the order in which they were added; the first that takes a request has it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.handles = []

    def add(self, handle):
        with self.lock:
            self.handles.append(handle)
        return handle

    def take(self, record):
        with self.lock:
            for handle in self.handles:
                fault = handle.take(record)
                if fault is not None:
                    return fault
        return NONE

    def clear(self):
        with self.lock:
            for handle in self.handles:
                handle.clear()
            self.handles = []
