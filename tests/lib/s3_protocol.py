"""HTTP/1.1 as the S3 server of the tests speaks it: a socket with its leftovers, heads, answers, errors as XML."""

import re
import select
import socket
import ssl
import struct
import threading
import time
import urllib.parse

HEAD_MAX = 64 << 10
CHUNK = 256 << 10
TICK = 0.02  # seconds between two looks at whether a wait is over

REASONS = {
    100: "Continue", 200: "OK", 204: "No Content", 301: "Moved Permanently", 400: "Bad Request", 403: "Forbidden",
    404: "Not Found", 408: "Request Timeout", 409: "Conflict", 411: "Length Required", 412: "Precondition Failed",
    429: "Too Many Requests", 500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
}

STATUS = {
    "AccessDenied": 403, "InvalidAccessKeyId": 403, "SignatureDoesNotMatch": 403, "RequestTimeTooSkewed": 403,
    "SecondLevelDomainForbidden": 403, "NoSuchBucket": 404, "NoSuchKey": 404, "NoSuchUpload": 404,
    "PermanentRedirect": 301, "MissingContentLength": 411, "NotImplemented": 501, "InternalError": 500,
    "SlowDown": 503, "ServiceUnavailable": 503, "BucketAlreadyOwnedByYou": 409, "TooManyRequests": 429,
}  # every other code is 400


class Gone(Exception):
    """The peer closed or reset the connection, or the server is going down."""


class Ended(Exception):
    """The exchange is over before its usual end; nothing is wrong."""


class Stalled(Exception):
    """Nothing came for as long as the socket's timeout says."""


class S3Error(Exception):
    """An answer of S3. extra: further elements of the document. close: what follows on the wire is not known."""

    def __init__(self, code, message="", status=None, extra=None, headers=None, close=False, expected=False):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status or STATUS.get(code, 400)
        self.extra = extra or {}
        self.headers = headers or {}
        self.close = close
        self.expected = expected  # by the test that set the server up so: no problem of the client


def escape(text):
    """Text for XML; what XML 1.0 cannot hold goes as a reference, as S3 sends it."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    return re.sub(r"[\x00-\x1f\x7f]", lambda m: f"&#x{ord(m.group()):X};", text)


def document(name, inner):
    namespace = "" if name == "Error" else ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{name}{namespace}>{inner}</{name}>'.encode()


def elements(**values):
    """<Name>value</Name>...; lists repeat the element, None leaves it out."""
    out = ""
    for name, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                out += f"<{name}>{one if isinstance(one, Xml) else escape(str(one))}</{name}>"
    return Xml(out)


class Xml(str):
    """Text that is XML already."""


class Answer:
    def __init__(self, status=200, body=b"", headers=None, length=None, content_type="application/xml"):
        self.status = status
        self.body = body
        self.headers = dict(headers or {})
        self.length = length  # of the object that a HEAD describes
        self.content_type = content_type
        self.close = False  # announced
        self.etag = None  # with its quotes; then with_etag(etag) makes the same answer with another one

    @classmethod
    def of_error(cls, error, resource, request_id):
        inner = elements(Code=error.code, Message=error.message or error.code, **error.extra)
        inner += elements(Resource=resource, RequestId=request_id)
        answer = cls(error.status, document("Error", inner), error.headers)
        answer.close = error.close
        return answer

    def head(self, now, request_id, is_head=False, chunked=False):
        lines = [f"HTTP/1.1 {self.status} {REASONS.get(self.status, 'Status')}"]
        lines.append("Date: " + time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now)))
        lines.append(f"x-amz-request-id: {request_id}")
        if self.body or self.length is not None:
            lines.append(f"Content-Type: {self.content_type}")
        if chunked:
            lines.append("Transfer-Encoding: chunked")
        elif self.length is not None:
            lines.append(f"Content-Length: {self.length}")
        elif not (is_head and self.status >= 300) and self.status != 204:
            lines.append(f"Content-Length: {len(self.body)}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if self.close:
            lines.append("Connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")


class Head:
    """Request line and headers. Malformed ones raise S3Error."""

    def __init__(self, raw):
        lines = raw.decode("utf-8", "surrogateescape").split("\r\n")
        words = lines[0].split(" ")
        bare = raw.count(b"\n") != raw.count(b"\r\n")
        if len(words) != 3 or not words[1].startswith("/") or words[2] != "HTTP/1.1" or bare:
            raise S3Error("BadRequest", "An error occurred when parsing the HTTP request.", close=True)
        self.method, self.target, _ = words
        self.path, _, self.query = self.target.partition("?")
        self.headers = []
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                raise S3Error("BadRequest", "A header line is malformed.", close=True)
            self.headers.append((name, value.strip(" \t")))
        self.params = [pair.partition("=")[::2] for pair in self.query.split("&")] if self.query else []
        self.params = [(unquote(name), unquote(value)) for name, value in self.params]

    def get(self, name, default=None):
        values = [value for n, value in self.headers if n.lower() == name]
        return ",".join(values) if values else default

    @property
    def names(self):
        return {name.lower() for name, _ in self.headers}


def unquote(text):
    return urllib.parse.unquote(text, errors="surrogateescape")


class Wire:
    """One connection. Everything but abort() belongs to its thread."""

    def __init__(self, sock, number):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.number = number
        self.lock = threading.Lock()
        self.closed = False
        self.aborted = False
        self.left = b""  # received, not taken yet

    def start_tls(self, context, timeout=30):
        with self.lock:
            self.sock = context.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)
        self.sock.settimeout(timeout)
        try:
            self.sock.do_handshake()
        except (OSError, ValueError) as error:
            raise Gone from error

    def timeout(self, seconds):
        self.sock.settimeout(seconds)

    def _receive(self, call, *arguments):
        try:
            n = call(*arguments)
        except TimeoutError as error:
            raise Stalled from error
        except (OSError, ValueError) as error:
            raise Gone from error
        if not n:
            raise Gone
        return n

    def read_head(self):
        """Bytes up to, and without, the empty line. Gone: closed before that."""
        while True:
            end = self.left.find(b"\r\n\r\n")
            if end >= 0:
                head, self.left = self.left[:end], self.left[end + 4 :]
                return head
            if len(self.left) > HEAD_MAX:
                raise S3Error("RequestHeaderSectionTooLarge", close=True)
            self.left += self._receive(self.sock.recv, HEAD_MAX)

    def read_into(self, view):
        """Some bytes of a body; how many."""
        if self.left:
            n = min(len(self.left), len(view))
            view[:n] = self.left[:n]
            self.left = self.left[n:]
            return n
        return self._receive(self.sock.recv_into, view[:CHUNK])

    def send(self, data):
        try:
            self.sock.sendall(data)
        except (OSError, ValueError) as error:
            raise Gone from error

    @property
    def peer_left(self):
        poll = select.poll()
        try:
            poll.register(self.sock, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
            return self.aborted or bool(poll.poll(0))
        except (OSError, ValueError):
            return True

    def half_close(self):
        try:
            socket.socket.shutdown(self.sock, socket.SHUT_WR)
        except OSError:
            pass

    def close(self, how="fin"):
        """fin: a normal end, though unread bytes turn it into a reset. rst: a reset."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            try:
                if how == "rst":
                    self._reset_on_close()
                elif isinstance(self.sock, ssl.SSLSocket):
                    self._say_goodbye()
                self.sock.close()
            except OSError:
                pass

    def _say_goodbye(self):
        """TLS: the end is announced, and the peer's own announcement not waited for."""
        try:
            self.sock.settimeout(0)
            self.sock.unwrap()
        except (OSError, ValueError):
            pass

    def abort(self):
        """Ends it from another thread, whatever its own one waits for."""
        self.aborted = True
        with self.lock:
            if self.closed:
                return
            try:
                self._reset_on_close()
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)
            except OSError:
                pass

    def _reset_on_close(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
