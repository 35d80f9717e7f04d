"""The S3 server of the tests itself: each of its checks refuses what it must, each of its faults does what it says.

No broker takes part. The signatures of both sides are held against what AWS publishes and against the vectors of
another implementation, which the unit tests of the product's own signer use too.
"""

import ast
import base64
import hashlib
import http.client
import re
import socket
import ssl
import subprocess
import sys
import threading
import time

import harness
import s3_checks
import s3_sigv4
from harness import cases, wait_until
from s3_client import S3Client, S3Failed
from s3_faults import (CHUNK_END, CONTINUE, SECOND_400, CloseAfter, CutAnswer, CutRequest, Etag, ForgetUpload, Garbage,
                       HalfClose, Hang, LostAnswer, OkWithError, RefuseEarly, Slow, Spaces, Status, Stray)
from s3_protocol import Head, S3Error
from s3_server import Options, S3Server

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


# --- signatures ---

AWS = Options(access_key="AKIAIOSFODNN7EXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
AWS_HOST = ("host", "examplebucket.s3.amazonaws.com")
AWS_DATE = ("x-amz-date", "20130524T000000Z")
AWS_NOW = 1369353600
WELCOME = hashlib.sha256(b"Welcome to Amazon S3.").hexdigest()
EMPTY = s3_sigv4.EMPTY_SHA256
PUBLISHED = [  # method, path, query, headers, payload, signature
    ("GET", "/test.txt", "", [("range", "bytes=0-9")], EMPTY,
     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
    ("PUT", "/test%24file.text", "",
     [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")], WELCOME,
     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
    ("GET", "/", "lifecycle=", [], EMPTY, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
    ("GET", "/", "max-keys=2&prefix=J", [], EMPTY, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
]


def make_head(method, target, headers):
    return Head("\r\n".join([f"{method} {target} HTTP/1.1"] + [f"{n}: {v}" for n, v in headers]).encode())


def refused(head, options, now):
    """The code of the verifier's refusal, or None."""
    try:
        s3_checks.check_auth(head, options, now)
    except S3Error as error:
        return error.code
    return None


def check_both_sides(options, now, method, target, headers, payload, wanted):
    """The signer makes `wanted`; the verifier accepts it, and no other."""
    path, _, query = target.partition("?")
    date = dict(headers)["x-amz-date"]
    arguments = (options.access_key, options.secret_key, options.region, date, method, path, query, headers, payload)
    assert s3_sigv4.authorization(*arguments) == wanted
    assert refused(make_head(method, target, [*headers, ("Authorization", wanted)]), options, now) is None
    other = wanted[:-1] + ("0" if wanted[-1] != "0" else "1")
    head = make_head(method, target, [*headers, ("Authorization", other)])
    assert refused(head, options, now) == "SignatureDoesNotMatch"


def test_signatures_are_those_that_aws_publishes(env):
    for method, path, query, headers, payload, signature in PUBLISHED:
        headers = [AWS_HOST, *headers, ("x-amz-content-sha256", payload), AWS_DATE]
        names = ";".join(sorted(name for name, _ in headers))
        wanted = (f"AWS4-HMAC-SHA256 Credential={AWS.access_key}/20130524/us-east-1/s3/aws4_request, "
                  f"SignedHeaders={names}, Signature={signature}")
        target = path + (f"?{query}" if query else "")
        check_both_sides(AWS, AWS_NOW, method, target, headers, payload, wanted)


def vectors():
    """Rows of the unit tests' file: call, path style, sse, key, other, target, authorization."""
    text = (harness.REPO / "tests" / "unit" / "s3" / "sigv4_vectors.inc").read_text()
    literal = r'"(?:[^"\\]|\\.)*"'
    row = re.compile(rf"\{{(\w+), (\w+), (\w+),\s*({literal}), ({literal}),\s*({literal}),\s*({literal})\}}")
    for match in row.finditer(text):
        yield match.groups()[:3] + tuple(ast.literal_eval("b" + literal) for literal in match.groups()[3:])


def test_signatures_are_those_of_another_implementation(env):
    options = Options(access_key="AKIDEXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                      region="eu-central-1")
    now, rows = 1791009457, list(vectors())
    values = {"content-md5": "CZ21Bdkd9JZfUjPMQU4KQg==", "x-amz-date": "20261003T063737Z",
              "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:x:1:key/a b"}
    assert len(rows) > 50
    for call, path_style, sse, key, _, target, authorization in rows:
        signed = re.search(r"SignedHeaders=([^,]+)", authorization.decode()).group(1).split(";")
        has_body = call in ("S3_PUT", "S3_MULTIPART_PART", "S3_MULTIPART_COMPLETE")
        values["host"] = "s3.example.com:9000" if path_style == "true" else "lake.s3.example.com:9000"
        values["content-type"] = "application/xml" if call == "S3_MULTIPART_COMPLETE" else "application/json"
        values["x-amz-content-sha256"] = hashlib.sha256(b"x" * 1000).hexdigest() if has_body else EMPTY
        values["x-amz-server-side-encryption"] = "AES256" if sse == "S3_SSE_AES256" else "aws:kms"
        headers = [(name, values[name]) for name in signed]
        method = {"S3_HEAD": "HEAD", "S3_PUT": "PUT", "S3_MULTIPART_PART": "PUT", "S3_MULTIPART_CREATE": "POST",
                  "S3_MULTIPART_COMPLETE": "POST", "S3_MULTIPART_ABORT": "DELETE"}.get(call, "GET")
        check_both_sides(options, now, method, target.decode(), headers, values["x-amz-content-sha256"],
                         authorization.decode())
        head = make_head(method, target.decode(), headers)
        bucket, found = s3_checks.place_of(head, options, ["lake"])
        assert (bucket, found) == ("lake", "" if call == "S3_LIST" else key.decode())


def test_wrong_credentials_are_refused_by_name(env):
    with S3Server(region="eu-west-9") as server:
        ask = lambda **more: as_sink(server, **more).request("GET", MANIFEST)
        check(ask(access_key="nobody"), 403, "InvalidAccessKeyId")
        check(ask(secret_key="wrong"), 403, "SignatureDoesNotMatch")
        answer = check(ask(region="us-east-1"), 400, "AuthorizationHeaderMalformed")
        assert answer.xml.findtext("Region") == "eu-west-9"
        check(ask(bucket="other"), 404, "NoSuchBucket")
        check(ask(), 404, "NoSuchKey")
        for offset, code in ((16 * 60, "RequestTimeTooSkewed"), (-16 * 60, "RequestTimeTooSkewed"), (14 * 60, "NoSuchKey")):
            server.options.clock_offset_s = offset
            assert ask().code == code
        assert server.problems == [] and b"wrong" not in repr(server.requests).encode()


def test_the_region_may_not_matter_or_lead_elsewhere(env):
    with S3Server(region_check=False) as server:
        check(as_sink(server, region="anywhere").request("GET", MANIFEST), 404, "NoSuchKey")
        server.options.redirect_region = "eu-west-1"
        answer = check(as_sink(server).request("GET", MANIFEST), 301, "PermanentRedirect")
        assert answer.headers["x-amz-bucket-region"] == "eu-west-1"
        answer = as_sink(server).request("HEAD", "queen/")
        assert answer.status == 301 and answer.body == b"" and answer.headers["x-amz-bucket-region"] == "eu-west-1"
        check(as_sink(server, region="eu-west-1").request("GET", MANIFEST), 404, "NoSuchKey")
        assert server.settings()["QUEEN_S3_REGION"] == "eu-west-1"


def test_whatever_is_changed_after_signing_is_refused(env):
    """Every header that must be signed, the path, the query and the method."""
    with S3Server() as server:
        client = as_sink(server)
        change = lambda **values: lambda sent: sent.update({n.replace("_", "-"): v for n, v in values.items()})
        remove = lambda name: lambda sent: sent.pop(name)
        swap = lambda old, new: lambda sent: sent.update(authorization=sent["authorization"].replace(old, new))
        put = lambda sign: client.request("PUT", MANIFEST, (), BODY, {**TYPE, **md5_header(BODY)}, sign)
        check(put(change(content_type="text/plain")), 403, "SignatureDoesNotMatch")
        check(put(change(content_md5=md5_header(b"")["content-md5"])), 403, "SignatureDoesNotMatch")
        check(put(change(x_amz_content_sha256=EMPTY)), 403, "SignatureDoesNotMatch")
        check(put(change(host="lake.elsewhere.com")), 403, "SignatureDoesNotMatch")
        check(put(change(x_amz_acl="private")), 403, "AccessDenied")
        check(put(remove("authorization")), 403, "AccessDenied")
        check(put(remove("x-amz-date")), 403, "AccessDenied")
        check(put(remove("x-amz-content-sha256")), 403, "AccessDenied")
        check(put(swap("content-type;", "")), 403, "AccessDenied")
        check(put(swap("content-md5;content-type", "content-type;content-md5")), 400, "AuthorizationHeaderMalformed")
        check(put(swap("/s3/", "/sts/")), 400, "AuthorizationHeaderMalformed")
        check(put(swap("AWS4-HMAC-SHA256", "AWS4-HMAC")), 400, "AuthorizationHeaderMalformed")
        check(put(swap(time.strftime("%Y%m%d", time.gmtime()), "20200101")), 400, "AuthorizationHeaderMalformed")
        assert server.objects() == [] and server.counts()[("put", 403)] == 9
        assert sum("AccessDenied" in problem for problem in server.problems) == 5


@cases("path plus", "path equals", "query order", "query escapes")
def test_a_target_that_is_not_encoded_canonically_is_refused(env, case):
    """Though its signature is right for the bytes that were sent."""
    targets = {"path plus": ("/lake/a+b", ""), "path equals": ("/lake/a=b", ""),
               "query order": ("/lake", "prefix=a&list-type=2"), "query escapes": ("/lake", "list-type=2&prefix=a/b")}
    path, query = targets[case]
    with S3Server() as server, Raw(server) as raw:
        _, _, sent = raw.client._signed("GET", "", (), b"", {})
        del sent["authorization"]
        sent["authorization"] = s3_sigv4.authorization(
            server.options.access_key, server.options.secret_key, server.options.region, sent["x-amz-date"], "GET",
            path, query, list(sent.items()), EMPTY)
        target = path + (f"?{query}" if query else "")
        lines = [f"GET {target} HTTP/1.1"] + [f"{n}: {v}" for n, v in sent.items()]
        raw.send(("\r\n".join(lines) + "\r\n\r\n").encode())
        status, body = raw.answer("GET")
        assert status == 403 and b"SignatureDoesNotMatch" in body


# --- bodies ---


def test_digests_of_the_body_are_verified(env):
    with S3Server() as server, Raw(server) as raw:
        raw.send(raw.head("PUT", MANIFEST, (), BODY, {**TYPE, **md5_header(BODY)}) + BODY[:-1] + b"x")
        status, body = raw.answer()
        assert status == 400 and b"XAmzContentSHA256Mismatch" in body
        for value, code in (("CZ21Bdkd9JZfUjPMQU4KQg==", "BadDigest"), ("abc", "InvalidDigest")):
            check(sink_put(raw.client, MANIFEST, BODY, **{"content-md5": value}), 400, code)
        assert server.objects() == [] and len(server.problems) == 3
        check(sink_put(raw.client, MANIFEST, BODY), 200)
        assert server.get(MANIFEST) == BODY and len(server.problems) == 3
        assert server.find(status=200)[0].sha256 == hashlib.sha256(BODY).hexdigest()


def test_a_body_needs_its_length(env):
    def ask(server, **more):
        with Raw(server) as raw:
            raw.send(raw.head("PUT", MANIFEST, (), b"", {**TYPE, **md5_header(b"")}, **more))
            return raw.answer()

    with S3Server() as server:
        status, body = ask(server, length="")
        assert status == 411 and b"MissingContentLength" in body
        assert ask(server, change=lambda sent: sent.update({"transfer-encoding": "chunked"}))[0] == 501
        assert ask(server, length="1, 1")[0] == 400
        assert sum("MissingContentLength" in p for p in server.problems) == 1, server.problems
        assert sum("NotImplemented" in p for p in server.problems) == 1, server.problems
        assert server.objects() == []


def test_expect_100_continue_is_answered_and_a_problem(env):
    with S3Server() as server, Raw(server) as raw:
        raw.send(raw.head("PUT", MANIFEST, (), BODY, {**TYPE, **md5_header(BODY)},
                          change=lambda sent: sent.update(expect="100-continue")))
        assert raw.sock.recv(1000) == CONTINUE
        raw.send(BODY)
        assert raw.answer()[0] == 200
        assert len(server.problems) == 1 and "expect" in server.problems[0]


def test_what_is_no_http_is_refused_and_a_problem(env):
    with S3Server() as server:
        for text in (b"hello", b"GET / HTTP/1.0", b"GET / HTTP/1.1\nhost: x", b"GET / HTTP/1.1\r\nbad header: x", b"GET x HTTP/1.1"):
            with Raw(server) as raw:
                raw.send(text + b"\r\n\r\n")
                assert raw.rest().startswith(b"HTTP/1.1 400 ")
        assert len(server.problems) == 5 and server.requests == []


def test_a_client_that_leaves_in_the_middle_stores_nothing(env):
    with S3Server() as server:
        with Raw(server) as raw:
            raw.send(raw.head("PUT", DATA, (), BODY, {**TYPE, **md5_header(BODY)}) + BODY[:100])
            wait_until(lambda: server.find() and server.find()[0].size == 100)
        wait_until(lambda: server.counts() == {("put", 0): 1})
        assert server.objects() == [] and server.problems == []


def test_a_body_that_stands_still_is_given_up(env):
    with S3Server(stall_s=0.2, stall_status=500) as server, Raw(server) as raw:
        raw.send(raw.head("PUT", DATA, (), BODY, {**TYPE, **md5_header(BODY)}) + BODY[:100])
        status, body = raw.answer()
        assert status == 500 and b"RequestTimeout" in body
        assert server.counts() == {("put", 500): 1} and server.objects() == []


# --- the rules of the sink ---


def sink_upload(client, key, parts):
    upload_id = client.create_upload(key)
    return client.complete(key, upload_id, [client.put_part(key, upload_id, n, p) for n, p in enumerate(parts, 1)])


def list_query(**more):
    return {"list-type": "2", "max-keys": "1000", "prefix": CHECKPOINTS, **more}


def test_what_the_sink_does_is_no_problem(env):
    with S3Server() as server:
        client = as_sink(server)
        assert client.request("HEAD", "queen/").status == 404
        sink_put(client, DATA, BODY)
        sink_put(client, DATA, BODY)
        sink_put(client, MANIFEST, b"1")
        sink_put(client, MANIFEST, b"2")
        sink_put(client, CHECKPOINT, BODY)
        assert client.get(MANIFEST) == b"2"
        keys = client.request("GET", "", list_query(**{"start-after": "queen/_queen/a"})).xml.findall("Contents/Key")
        assert [key.text for key in keys] == [CHECKPOINT]
        sink_upload(client, DATA + "2", [PART, BODY])
        client.abort_upload(DATA, client.create_upload(DATA))
        assert server.problems == []
        ops = ["head", "put", "get", "list", "multipart_create", "multipart_part", "multipart_complete", "multipart_abort"]
        assert [op for op in ops if not server.find(op=op)] == []
        assert server.counts() == {("head", 404): 1, ("put", 200): 5, ("get", 200): 1, ("list", 200): 1,
                                   ("multipart_create", 200): 2, ("multipart_part", 200): 2,
                                   ("multipart_complete", 200): 1, ("multipart_abort", 204): 1}
        assert server.writes[DATA] == 2 * [hashlib.sha256(BODY).hexdigest()] and len(server.writes[MANIFEST]) == 2


FORBIDDEN = {  # method, key, query, body, headers, status, a part of the problem
    "delete": ("DELETE", DATA, {}, b"", {}, 204, "no request of the sink"),
    "old list": ("GET", "", {}, b"", {}, 501, "no request of the sink"),
    "list uploads": ("GET", "", {"uploads": ""}, b"", {}, 200, "no request of the sink"),
    "create bucket": ("PUT", "", {}, b"", {}, 409, "no request of the sink"),
    "copy": ("PUT", DATA, {}, b"", {**TYPE, **md5_header(b""), "x-amz-copy-source": "a"}, 200, "x-amz-copy-source"),
    "list data": ("GET", "", list_query(prefix="queen/"), b"", {}, 200, "lists more"),
    "list windows": ("GET", "", list_query(prefix=MANIFEST[:-15]), b"", {}, 200, "lists more"),
    "list pages": ("GET", "", list_query(**{"max-keys": "5"}), b"", {}, 200, "other parameters"),
    "head object": ("HEAD", DATA, {}, b"", {}, 404, "HEAD of an object"),
    "get data": ("GET", DATA, {}, b"", {}, 404, "reads a data object"),
    "conditional": ("PUT", DATA, {}, BODY, {**TYPE, **md5_header(BODY), "if-none-match": "*"}, 501, "if-none-match"),
    "no md5": ("PUT", DATA, {}, BODY, TYPE, 200, "no Content-MD5"),
    "no type": ("PUT", DATA, {}, BODY, md5_header(BODY), 200, "no Content-Type"),
    "long key": ("PUT", "k" * 1025, {}, BODY, {**TYPE, **md5_header(BODY)}, 400, "KeyTooLongError"),
    "checksum": ("PUT", DATA, {}, BODY, {**TYPE, **md5_header(BODY), "x-amz-checksum-crc32c": "x"}, 200, "crc32c"),
    "part with md5": ("PUT", DATA, {"partNumber": "1", "uploadId": "u"}, BODY, md5_header(BODY), 404, "has a Content-MD5"),
    "part with type": ("PUT", DATA, {"partNumber": "1", "uploadId": "u"}, BODY, TYPE, 404, "has a Content-Type"),
    "part 0": ("PUT", DATA, {"partNumber": "0", "uploadId": "u"}, BODY, {}, 400, "InvalidArgument"),
    "part with SSE": ("PUT", DATA, {"partNumber": "1", "uploadId": "u"}, BODY, {s3_checks.SSE: "AES256"}, 400, "encryption"),
    "bad completion": ("POST", DATA, {"uploadId": "u"}, BODY, {"content-type": "application/xml"}, 400, "MalformedXML"),
}


@cases(*FORBIDDEN)
def test_what_the_sink_never_does_is_a_problem(env, case):
    method, key, query, body, headers, status, problem = FORBIDDEN[case]
    with S3Server() as server:
        answer = as_sink(server).request(method, key, query, body, headers)
        assert answer.status == status, answer
        assert any(problem in text for text in server.problems), server.problems
        assert b"test-secret" not in repr(server.problems).encode()


def test_the_client_of_the_tests_may_do_more(env):
    with S3Server() as server:
        client = server.client()
        client.put(DATA, BODY)
        assert client.list() == [DATA] and client.get(DATA) == BODY and client.head(DATA)["content-length"] == "1000"
        client.delete(DATA)
        other = server.client(bucket="other")
        other.create_bucket()
        other.put("a", b"1")
        assert client.list() == [] and client.head(DATA) is None and other.list() == ["a"]
        assert server.problems == [] and server.counts() == {}


def test_other_bytes_under_a_data_key_are_a_problem(env):
    with S3Server() as server:
        client = as_sink(server)
        sink_put(client, DATA, BODY)
        sink_put(client, MANIFEST, BODY)
        sink_upload(client, DATA, [BODY])
        assert server.problems == []
        sink_put(client, MANIFEST, b"other")
        assert server.problems == []
        sink_upload(client, DATA, [b"other"])
        assert len(server.problems) == 1 and DATA in server.problems[0]


# --- the store ---


def test_keys_of_any_kind_come_back(env):
    keys = ["a+b=c!d*e'f(g)h", "q=a%2Fb%20c%25", "unicode/è/日本語/😀", "blank and ~tilde", "a//b/./c/../d", "&<>\"'", "x" * 1024]
    with S3Server() as server:
        for addressing in ("path", "virtual"):
            client = server.client(addressing=addressing)
            for key in keys:
                client.put(key, key.encode())
            assert client.list() == sorted(keys, key=str.encode)
            assert all(client.get(key) == key.encode() for key in keys)


def test_lists_have_pages(env):
    with S3Server() as server:
        client = server.client()
        keys = sorted([f"p/{n:02}" for n in range(25)] + ["p", "q"])
        for key in keys:
            client.put(key, b"")
        assert client.list(page=4) == keys and client.list("p/", page=10) == keys[1:-1]
        first = client.call("GET", "", {"list-type": "2", "prefix": "p/", "start-after": "p/05", "max-keys": "3"}).xml
        assert [k.text for k in first.findall("Contents/Key")] == ["p/06", "p/07", "p/08"]
        assert first.findtext("IsTruncated") == "true" and first.findtext("KeyCount") == "3"


def test_folders_have_an_order_of_their_own(env):
    with S3Server(list_order="folders") as server:
        client = server.client()
        for key in ("a", "a/b", "a-b", "c"):
            client.put(key, b"")
        listed = lambda **more: [k.text for k in client.call("GET", "", {"list-type": "2", **more}).xml.findall("Contents/Key")]
        assert listed() == ["a", "a/b", "a-b", "c"]
        assert listed(**{"start-after": "a"}) == ["a-b", "c"]
        assert client.list(page=1) == sorted(["a", "a/b", "a-b", "c"])
        server.options.list_order = "bytes"
        assert listed() == ["a", "a-b", "a/b", "c"] and listed(**{"start-after": "a"}) == ["a-b", "a/b", "c"]


def test_encoded_lists_may_be_ignored(env):
    with S3Server() as server:
        client = server.client()
        client.put("a b", b"")
        ask = lambda: client.call("GET", "", {"list-type": "2", "encoding-type": "url"}).xml.findtext("Contents/Key")
        assert ask() == "a%20b"
        server.options.encoding_type_ignored = True
        assert ask() == "a b"


def test_an_upload_in_parts_is_put_together(env):
    with S3Server() as server:
        client = server.client()
        upload_id = client.create_upload(DATA)
        etags = [client.put_part(DATA, upload_id, n, part) for n, part in ((2, b"end"), (1, b"redone"), (1, PART))]
        assert client.list_uploads() == [(DATA, upload_id)] and server.objects() == []
        assert server.uploads()[0].parts[1].sha256 == hashlib.sha256(PART).hexdigest()
        assert {n: p.size for n, p in server.uploads()[0].parts.items()} == {1: len(PART), 2: 3}
        answer = client.complete(DATA, upload_id, [etags[2], etags[0]])
        digests = hashlib.md5(PART).digest() + hashlib.md5(b"end").digest()
        assert answer.xml.findtext("ETag") == f'"{hashlib.md5(digests).hexdigest()}-2"'
        assert server.get(DATA) == PART + b"end" and server.uploads() == []
        assert client.get(DATA) == PART + b"end" and server.writes[DATA] == [hashlib.sha256(PART + b"end").hexdigest()]


def test_a_completion_is_validated(env):
    with S3Server() as server:
        client = server.client()
        upload_id = client.create_upload(DATA)
        one, two = (client.put_part(DATA, upload_id, n, b"small%d" % n) for n in (1, 2))
        body = lambda *pairs: "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{e}</ETag></Part>" for n, e in pairs)
        ask = lambda inner, of=upload_id: client.request("POST", DATA, {"uploadId": of}, (
            f"<CompleteMultipartUpload>{inner}</CompleteMultipartUpload>").encode(), {"content-type": "application/xml"})
        check(ask(body((1, two))), 400, "InvalidPart")
        check(ask(body((3, one))), 400, "InvalidPart")
        check(ask(body((2, two), (1, one))), 400, "InvalidPartOrder")
        check(ask(body((1, one), (2, two))), 400, "EntityTooSmall")
        check(ask(""), 400, "MalformedXML")
        check(ask(body((1, one)), "unknown"), 404, "NoSuchUpload")
        check(client.request("PUT", DATA, {"partNumber": "1", "uploadId": "unknown"}, b"x"), 404, "NoSuchUpload")
        check(client.request("DELETE", DATA, {"uploadId": "unknown"}), 404, "NoSuchUpload")
        check(client.request("DELETE", DATA + "x", {"uploadId": upload_id}), 404, "NoSuchUpload")
        server.options.part_min = 1
        check(ask(body((1, one), (2, two))), 200)
        check(ask(body((1, one), (2, two))), 200)
        server.options.complete_again = False
        check(ask(body((1, one), (2, two))), 404, "NoSuchUpload")
        assert len(server.writes[DATA]) == 1


@cases("standard", "plain", "unquoted", "empty")
def test_etags_of_a_completion_differ(env, style):
    with S3Server(multipart_etag=style) as server:
        client = server.client()
        upload_id = client.create_upload(DATA)
        etags = [client.put_part(DATA, upload_id, 1, b"one")]
        first, again = (client.complete(DATA, upload_id, etags).xml.findtext("ETag") for _ in range(2))
        plain, standard = hashlib.md5(b"one").hexdigest(), hashlib.md5(hashlib.md5(b"one").digest()).hexdigest() + "-1"
        wanted = {"standard": f'"{standard}"', "plain": f'"{plain}"', "unquoted": standard, "empty": ""}[style]
        assert first == wanted and again == (standard if style == "empty" else wanted)


def test_both_ways_to_name_the_bucket_or_one(env):
    with S3Server() as server:
        path, virtual = as_sink(server), as_sink(server, addressing="virtual", host="s3.localhost")
        ask = lambda client: client.request("GET", MANIFEST)
        for client in (path, virtual):
            check(ask(client), 404, "NoSuchKey")
        server.options.addressing = "path"
        check(ask(path), 404, "NoSuchKey")
        check(ask(virtual), 404, "NoSuchBucket")
        server.options.addressing = "virtual"
        check(ask(path), 403, "SecondLevelDomainForbidden")
        check(ask(virtual), 404, "NoSuchKey")
        assert server.find(status=403)[0].key == "" and server.problems == []


def test_a_path_style_store_lists_its_buckets_to_a_virtual_host_client(env):
    with S3Server(addressing="path") as server:
        client = server.client(addressing="virtual")
        assert client.call("GET").xml.findtext("Buckets/Bucket/Name") == "lake"


def test_encryption_is_accepted_ignored_or_refused(env):
    kms = {s3_checks.SSE: "aws:kms", s3_checks.SSE + "-aws-kms-key-id": "k"}
    with S3Server() as server:
        ask = lambda headers: sink_put(as_sink(server), MANIFEST, BODY, **headers)
        assert ask({s3_checks.SSE: "AES256"}).headers[s3_checks.SSE] == "AES256"
        assert ask(kms).headers["etag"] != f'"{hashlib.md5(BODY).hexdigest()}"'
        server.options.sse = "ignore"
        assert s3_checks.SSE not in ask(kms).headers
        assert server.find()[-1].headers[s3_checks.SSE] == "aws:kms"
        server.options.sse = "refuse_400"
        check(ask(kms), 400, "InvalidRequest")
        server.options.sse = "refuse_501"
        check(ask(kms), 501, "NotImplemented")
        assert server.problems == []


def test_long_segments_of_a_key_may_be_refused(env):
    with S3Server(segment_max=255) as server:
        client = as_sink(server)
        check(sink_put(client, "a/" + "k" * 256, BODY), 400, "InvalidArgument")
        check(sink_put(client, "k" * 255 + "/" + "k" * 255, BODY), 200)
        assert server.problems == []


# --- connections ---


def test_connections_are_kept_or_not(env):
    with S3Server() as server:
        client = as_sink(server)

        def connections(count):
            client.close()
            before = server.connections
            for _ in range(count):
                client.request("GET", MANIFEST)
            return server.connections - before

        assert connections(5) == 1
        server.options.keep_alive_requests = 2
        assert connections(5) == 3
        server.options.keep_alive_requests = 0
        for how in ("announced", "silent"):
            server.options.close_each = how
            assert connections(3) == 3
        with Raw(server) as raw:
            raw.send(raw.head("GET", MANIFEST))
            assert b"Connection: close" not in raw.rest()
        server.options.close_each = "announced"
        with Raw(server) as raw:
            raw.send(raw.head("GET", MANIFEST))
            assert b"\r\nConnection: close\r\n" in raw.rest()
        assert server.counts() == {("get", 404): 18}


def test_idle_connections_are_closed(env):
    with S3Server(idle_close_s=0.1) as server, Raw(server) as raw:
        raw.send(raw.head("GET", MANIFEST))
        began = time.monotonic()
        assert raw.rest().startswith(b"HTTP/1.1 404 ") and time.monotonic() - began < 10


def test_requests_may_come_in_pieces_and_before_their_turn(env):
    with S3Server() as server, Raw(server) as raw:
        both = raw.head("PUT", MANIFEST, (), b"ab", {**TYPE, **md5_header(b"ab")}) + b"ab" + raw.head("GET", MANIFEST)
        for at in range(len(both)):
            raw.send(both[at : at + 1])
        assert raw.answer() == (200, b"") and raw.answer("GET") == (200, b"ab")


def test_refusals_may_come_before_the_body(env):
    with S3Server(early_refusal=True) as server, Raw(server) as raw:
        raw.client.secret_key = "wrong"
        raw.send(raw.head("PUT", DATA, (), BODY, {**TYPE, **md5_header(BODY)}))
        assert b"SignatureDoesNotMatch" in raw.rest()
        assert server.find()[0].size == 0


def test_an_outage_refuses_and_forgets_nothing(env):
    with S3Server(port=env.free_port()) as server, Raw(server) as raw:
        client = server.client()
        client.put(DATA, BODY)
        port = server.port
        server.down()
        assert ends(raw)
        fails(lambda: client.get(DATA), ConnectionRefusedError)
        server.up()
        assert server.port == port and client.get(DATA) == BODY
        server.down()
        server.down()
        server.up()
        server.up()
        assert client.get(DATA) == BODY


def make_certificate(env):
    done = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,DNS:*.s3.localhost,IP:127.0.0.1",
         "-keyout", "key.pem", "-out", "cert.pem"], cwd=env.dir, capture_output=True)
    assert done.returncode == 0, done.stderr
    return str(env.dir / "cert.pem"), str(env.dir / "key.pem")


def test_tls(env):
    cert, key = make_certificate(env)
    with S3Server(certfile=cert, keyfile=key) as server:
        for addressing in ("path", "virtual"):
            client = server.client(ca=cert, addressing=addressing, host="localhost" if addressing == "path" else "s3.localhost")
            client.put(DATA, PART)
            assert client.get(DATA) == PART
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            context = ssl.create_default_context(cafile=cert)
            context.set_alpn_protocols(["h2", "http/1.1"])
            assert context.wrap_socket(sock, server_hostname="localhost").selected_alpn_protocol() == "http/1.1"
        fails(lambda: server.client(ca=cert, host="example.com").list(), ssl.SSLCertVerificationError)
        for fault in (LostAnswer(), CutRequest(10), Garbage(), CutAnswer(10)):
            server.fault(fault)
            client.close()
            fails(lambda: client.put(DATA, PART))
        hang = server.fault(Hang("before_head"))
        client = server.client(ca=cert, timeout=0.2)
        fails(client.list, TimeoutError)
        hang.clear()
        assert server.client(ca=cert).list() == [DATA] and server.endpoint.startswith("https://127")


def test_stop_never_hangs(env):
    server = S3Server().start()
    server.fault(Hang("in_body", at_byte=10), op="put", times=None)
    server.fault(Hang(), op="get", times=None)
    server.fault(Hang("before_head"), times=1, after=4)
    raws = [Raw(server) for _ in range(5)]
    raws[0].put(DATA, BODY)
    raws[1].send(raws[1].head("GET", MANIFEST))
    raws[2].send(b"GET / HT")
    server.wait_requests(2)
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 3
    assert server.wires == {} and server.counts() == {("put", 0): 1, ("get", 0): 1}
    for raw in raws:
        raw.sock.close()


# --- faults ---


def test_a_fault_hits_what_it_is_meant_for(env):
    with S3Server() as server:
        client = as_sink(server)
        codes = lambda n, op="GET", key=MANIFEST: [client.request(op, key).status for _ in range(n)]
        handle = server.fault(Status(503), op="get", after=1, times=2)
        assert codes(5) == [404, 503, 503, 404, 404] and handle.hits == 2
        handle = server.fault(Status(500), times=None)
        assert codes(3) == [500, 500, 500]
        handle.clear()
        assert codes(1) == [404] and handle.hits == 3
        server.fault(Status(500), op=("put", "list"))
        server.fault(Status(502), key=r"0002\.json$")
        server.fault(Status(504), when=lambda record: record.key.endswith("3"))
        assert codes(1) == [404] and codes(1, key=MANIFEST + "3") == [504]
        assert codes(1, key=MANIFEST.replace("1.json", "2.json")) == [502]
        server.clear_faults()
        server.fault(lambda record: Status(507) if record.key == "b" else None, times=None)
        assert codes(1, key="a") == [404] and codes(2, key="b") == [507, 507]
        server.fault(Status(500), part=2)
        upload_id = client.create_upload(DATA)
        client.put_part(DATA, upload_id, 1, b"x")
        assert fails(lambda: client.put_part(DATA, upload_id, 2, b"x"), S3Failed).status == 500


def test_statuses(env):
    with S3Server() as server:
        client = as_sink(server)
        server.fault(Status(503, headers={"Retry-After": "7"}))
        answer = check(sink_put(client, DATA, BODY), 503, "SlowDown")
        assert answer.headers["retry-after"] == "7" and server.objects() == []
        server.fault(Status(599, body=b"<html>no XML"))
        assert sink_put(client, DATA, BODY).body == b"<html>no XML"
        server.fault(Status(500, "Odd", done=True))
        check(sink_put(client, DATA, BODY), 500, "Odd")
        assert server.objects() == [DATA]
        server.fault(Status(429))
        assert client.request("HEAD", "queen/").body == b""
        assert server.counts() == {("put", 503): 1, ("put", 599): 1, ("put", 500): 1, ("head", 429): 1}
        assert [r.fault for r in server.requests] == ["Status(503)", "Status(599)", "Status(500)", "Status(429)"]


@cases("close", "rst", "read", "hold")
def test_early_refusals(env, then):
    with S3Server() as server, Raw(server) as raw:
        server.fault(RefuseEarly(403, at_byte=100, then=then))
        raw.send(raw.head("PUT", DATA, (), BODY, {**TYPE, **md5_header(BODY)}) + BODY[:100])
        status, body = raw.answer()
        assert status == 403 and b"AccessDenied" in body
        if then == "close":
            assert raw.rest() == b""
        elif then == "rst":
            fails(raw.rest, ConnectionError)
        elif then == "read":
            raw.send(BODY[100:] + raw.head("GET", MANIFEST))
            assert raw.answer("GET")[0] == 404
        assert server.find()[0].size == (1000 if then == "read" else 100)
        assert server.counts()[("put", 403)] == 1 and server.objects() == []


def test_requests_are_cut(env):
    with S3Server() as server:
        for fault, size in ((CutRequest(100), 100), (CutRequest(0, how="fin"), 0), (CutRequest(where="head"), 0)):
            server.fault(fault)
            with Raw(server) as raw:
                raw.put(DATA, BODY)
                assert ends(raw)
            assert server.wait_requests(1)[-1].size == size
        assert server.counts() == {("put", 0): 3} and server.objects() == []


def test_answers_are_lost_or_cut(env):
    with S3Server() as server:
        client = as_sink(server)
        server.fault(LostAnswer())
        fails(lambda: sink_put(client, DATA, BODY), http.client.RemoteDisconnected)
        assert server.get(DATA) == BODY
        server.fault(LostAnswer("rst"))
        fails(lambda: sink_put(client, DATA, BODY), ConnectionResetError)
        sink_put(client, MANIFEST, BODY)
        client.close()
        for at in (0, 10, 200, 10**6):
            server.fault(CutAnswer(at))
            with Raw(server) as raw:
                raw.send(raw.head("GET", MANIFEST))
                got = raw.rest()
            assert got.endswith(b"\r\n\r\n" + BODY[:-1]) if at == 10**6 else len(got) == at
        server.fault(CutAnswer(10**6))
        with Raw(server) as raw:
            raw.send(raw.head("GET", MANIFEST + "x"))
            assert raw.rest().endswith(b"</Error")
        assert server.counts() == {("put", 0): 2, ("put", 200): 1, ("get", 0): 4, ("get", 404): 1}


def test_a_lost_answer_on_a_used_connection_is_no_attempt(env):
    with S3Server() as server, Raw(server) as raw:
        server.fault(LostAnswer(), after=1)
        raw.put(DATA, BODY)
        assert raw.answer()[0] == 200
        raw.put(DATA, BODY)
        assert raw.rest() == b""
        assert server.requests[1].stale and server.counts() == {("put", 200): 1} and len(server.writes[DATA]) == 2


@cases("before_head", "before_body", "in_body", "before_answer", "in_answer")
def test_hangs(env, where):
    with S3Server() as server:
        handle = server.fault(Hang(where, at_byte=10, seconds=60), op="put" if where != "before_head" else None)
        with Raw(server) as raw:
            raw.put(DATA, BODY)
            wait_until(lambda: handle.hits == 1)
            raw.sock.settimeout(0.3)
            if where == "in_answer":
                assert raw.sock.recv(100) == b"HTTP/1.1 2"
            fails(lambda: raw.sock.recv(1), TimeoutError)
            assert (server.objects() == [DATA]) == (where in ("before_answer", "in_answer"))
            assert [r.size for r in server.requests] == {"before_head": [], "before_body": [0], "in_body": [10]}.get(where, [1000])
            handle.release()
            raw.sock.settimeout(30)
            assert raw.sock.recv(10).startswith(b"00 OK" if where == "in_answer" else b"HTTP/1.1 2")
        assert server.objects() == [DATA]


def test_a_hang_ends_with_its_time_or_its_client(env):
    with S3Server() as server:
        server.fault(Hang(seconds=0.2))
        began = time.monotonic()
        sink_put(as_sink(server), DATA, BODY)
        assert 0.2 <= time.monotonic() - began < 10
        for late in (False, True):
            handle = server.fault(Hang("before_body", late=late))
            with Raw(server) as raw:
                raw.put(DATA + "2", BODY)
                wait_until(lambda: handle.hits == 1)
            if not late:
                wait_until(lambda: server.counts().get(("put", 0)) == 1)
            handle.release()
        wait_until(lambda: server.counts() == {("put", 200): 1, ("put", 0): 2})
        assert server.objects() == [DATA, DATA + "2"]


def test_slow_in_either_direction(env):
    with S3Server() as server:
        client = as_sink(server)
        for fault in (Slow(receive=2000), Slow(send=2000)):
            server.fault(fault)
            began = time.monotonic()
            sink_put(client, MANIFEST, BODY) if fault.receive_rate else client.get(MANIFEST)
            assert 0.4 < time.monotonic() - began < 10
        assert server.get(MANIFEST) == BODY


def test_etags_are_wrong(env):
    with S3Server() as server:
        client = as_sink(server)
        right = f'"{hashlib.md5(BODY).hexdigest()}"'
        for value, seen in (('"other"', '"other"'), ("", ""), (None, None), (lambda e: e.strip('"'), right[1:-1])):
            server.fault(Etag(value))
            assert sink_put(client, DATA, BODY).headers.get("etag") == seen
        assert sink_put(client, DATA, BODY).headers["etag"] == right
        server.fault(Etag('"mine"'), part=1)
        server.fault(Etag('"abc-7"'), op="multipart_complete")
        assert sink_upload(client, DATA, [BODY]).xml.findtext("ETag") == '"abc-7"'
        assert server.problems == []


def test_a_good_status_with_an_error(env):
    with S3Server() as server:
        client = as_sink(server)
        upload_id = client.create_upload(DATA)
        etags = [client.put_part(DATA, upload_id, 1, BODY)]
        for fault, done in ((OkWithError("SlowDown"), False), (OkWithError(spaces=5, seconds=0.1), False), (OkWithError(done=True), True)):
            server.fault(fault)
            check(client.complete(DATA, upload_id, etags), 200, fault.code)
            assert (server.objects() == [DATA]) == done
        server.fault(Spaces(20))
        answer = client.complete(DATA, upload_id, etags)
        assert answer.xml.findtext("Key") == DATA and b"\n" + 20 * b" " + b"<C" in answer.body
        assert client.request("GET", MANIFEST).status == 404 and server.connections == 1


def test_connections_end_after_a_good_answer(env):
    with S3Server() as server:
        for how, after_ms in (("fin", 0), ("rst", 0), ("fin", 100)):
            server.fault(CloseAfter(after_ms, how))
            with Raw(server) as raw:
                raw.put(MANIFEST, BODY)
                assert raw.answer() == (200, b"")
                if after_ms:
                    raw.send(raw.head("GET", MANIFEST))  # not read: the end is a reset
                try:
                    assert raw.rest() == b"" and how == "fin" and not after_ms
                except ConnectionError:
                    assert how == "rst" or after_ms
        assert server.counts() == {("put", 200): 3}


def test_stray_bytes(env):
    with S3Server() as server:
        with Raw(server) as raw:
            server.fault(Stray(CHUNK_END))
            raw.send(raw.head("HEAD", "queen/"))
            got = raw.sock.recv(10000)
            while not got.endswith(CHUNK_END):
                got += raw.sock.recv(10000)
            assert got.startswith(b"HTTP/1.1 404 ") and got.endswith(b"\r\n\r\n" + CHUNK_END)
            server.fault(Stray(SECOND_400, after_ms=50))
            raw.send(raw.head("GET", MANIFEST))
            assert raw.answer("GET")[0] == 404 and raw.answer("GET")[0] == 400
            server.fault(Stray(before=CONTINUE + CONTINUE))
            raw.send(raw.head("GET", MANIFEST))
            assert raw.sock.recv(50) == CONTINUE + CONTINUE
            assert raw.answer("GET")[0] == 404
        assert server.counts() == {("head", 404): 1, ("get", 404): 2}


def test_uploads_are_forgotten(env):
    with S3Server() as server:
        client = as_sink(server)
        upload_id = client.create_upload(DATA)
        client.put_part(DATA, upload_id, 1, BODY)
        server.fault(ForgetUpload(), part=2)
        for _ in range(2):
            check(client.request("PUT", DATA, {"partNumber": "2", "uploadId": upload_id}, BODY), 404, "NoSuchUpload")
        assert server.uploads() == [] and server.problems == []


def test_garbage_and_half_an_end(env):
    with S3Server() as server:
        client = as_sink(server)
        server.fault(Garbage())
        fails(lambda: sink_put(client, DATA, BODY), http.client.BadStatusLine)
        assert server.objects() == []
        server.fault(HalfClose(10))
        with Raw(server) as raw:
            raw.send(raw.head("PUT", DATA, (), BODY, {**TYPE, **md5_header(BODY)}) + BODY[:10])
            assert raw.rest() == b""
            raw.send(BODY[10:])
            wait_until(lambda: server.find()[-1].size == 1000)
        wait_until(lambda: server.counts() == {("put", 0): 2})
        assert server.objects() == []


# --- the rest ---


def test_many_at_once_and_fast_enough(env):
    with S3Server() as server:
        def work(number):
            client = as_sink(server)
            for n in range(250):
                sink_put(client, f"{MANIFEST}{number}-{n}", BODY)

        began = time.monotonic()
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        small = time.monotonic() - began
        began = time.monotonic()
        data = bytes(64 << 20)
        sink_put(as_sink(server), DATA, data)
        large = time.monotonic() - began
        print(f"{1000 / small:.0f} requests/s, {len(data) / large / 1e6:.0f} MB/s")
        assert len(server.objects()) == 1001 and server.problems == []
        assert small < 10 and large < 10


def test_the_program(env):
    port = env.free_port()
    program = str(harness.REPO / "tests" / "lib" / "s3_server.py")
    arguments = ["--port", str(port), "--bucket", "b", "--access-key", "k", "--secret-key", "s", "--list-order", "folders"]
    with subprocess.Popen([sys.executable, program, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == f"http://127.0.0.1:{port} bucket=b region=us-east-1\n"
            client = S3Client(port, "b", "k", "s")
            client.put("a", b"1")
            assert client.get("a") == b"1"
            assert "put a 1 bytes: 200" in process.stdout.readline()
        finally:
            process.kill()
