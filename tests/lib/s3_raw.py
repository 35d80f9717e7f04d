"""What the tests of the S3 server share: keys, requests as the sink makes them, and bytes over a socket."""

import base64
import hashlib
import http.client
import re
import socket

DATA = "queen/tenant=t/queue=q/dt=2026-10-03/hour=06/w-1.jsonl.zst"
MANIFEST = "queen/_queen/tenant=t/queue=q/windows/0000000001.json"
CHECKPOINT = "queen/_queen/tenant=t/queue=q/checkpoint/0000000001.json.zst"
CHECKPOINTS = CHECKPOINT.rpartition("/")[0] + "/"
BODY = b"0123456789" * 100
PART = b"p" * (5 << 20)
TYPE = {"content-type": "application/json"}


def md5_header(data):
    return {"content-md5": base64.b64encode(hashlib.md5(data).digest()).decode()}


def sink_put(client, key, data, **more):
    return client.request("PUT", key, (), data, {**TYPE, **md5_header(data), **more})


def as_sink(server, **more):
    """A client that is held to the rules of the sink."""
    return server.client(user_agent="", **more)


def fails(call, *kinds):
    try:
        call()
    except kinds or (OSError, http.client.HTTPException) as error:
        return error
    raise AssertionError("it did not fail")


def ends(raw):
    """Does the connection end, or reset, without another byte?"""
    try:
        return raw.rest() == b""
    except ConnectionError:
        return True


def check(answer, status, code=None):
    assert (answer.status, answer.code) == (status, code), answer
    return answer


def sink_upload(client, key, parts):
    upload_id = client.create_upload(key)
    return client.complete(key, upload_id, [client.put_part(key, upload_id, n, p) for n, p in enumerate(parts, 1)])


class Raw:
    """A socket to a server, and requests as bytes."""

    def __init__(self, server, timeout=30):
        self.server = server
        self.client = as_sink(server)
        self.sock = socket.create_connection(("127.0.0.1", server.port), timeout)
        self.left = b""  # received, not looked at yet

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def head(self, method, key="", query=(), body=b"", headers=None, length=None, change=None):
        """A signed head. length: another Content-Length, "" for none; change(dict) after signing."""
        path, target_query, sent = self.client._signed(method, key, list(dict(query).items()), body, headers or {})
        if body and length is None or length:
            sent["content-length"] = str(length or len(body))
        if change:
            change(sent)
        target = path + (f"?{target_query}" if target_query else "")
        lines = [f"{method} {target} HTTP/1.1"] + [f"{n}: {v}" for n, v in sent.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def send(self, data):
        self.sock.sendall(data)

    def put(self, key, body, **more):
        self.send(self.head("PUT", key, (), body, {**TYPE, **md5_header(body)}, **more) + body)

    def answer(self, method="PUT"):
        """Status and body of the next answer."""
        head = self._receive(lambda: self.left.find(b"\r\n\r\n") + 4 if b"\r\n\r\n" in self.left else 0)
        length = re.search(rb"\r\nContent-Length: (\d+)\r\n", head) if method != "HEAD" else None
        size = int(length.group(1)) if length else 0
        body = self._receive(lambda: size if len(self.left) >= size else 0) if size else b""
        return int(head.split(b" ")[1]), body

    def _receive(self, enough):
        while not (size := enough()):
            piece = self.sock.recv(65536)
            if not piece:
                raise ConnectionResetError("closed before the end of the answer")
            self.left += piece
        data, self.left = self.left[:size], self.left[size:]
        return data

    def rest(self):
        """All bytes until the end of the connection."""
        data, self.left = self.left, b""
        while piece := self.sock.recv(65536):
            data += piece
        return data
