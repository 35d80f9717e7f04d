"""The S3 server of the tests itself: each of its checks refuses what it must, and lets the sink do what it does.

The signatures of both sides are held against what AWS publishes and against the vectors of another implementation,
which the unit tests of the product's own signer use too.
"""

import ast
import hashlib
import re
import time

import harness
import s3_checks
import s3_sigv4
from harness import cases, wait_until
from s3_faults import CONTINUE
from s3_protocol import Head, S3Error
from s3_raw import (BODY, CHECKPOINT, CHECKPOINTS, DATA, MANIFEST, PART, TYPE, Raw, as_sink, check, md5_header,
                    sink_put, sink_upload)
from s3_server import Options, S3Server

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
        for minutes, code in ((16, "RequestTimeTooSkewed"), (-16, "RequestTimeTooSkewed"), (14, "NoSuchKey")):
            server.options.clock_offset_s = minutes * 60
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


def test_headers_are_signed_without_their_extra_blanks(env):
    canonical = s3_sigv4.canonical_request("GET", "/", "", [("X-B", "  two   blanks\t here "), ("x-b", "2"), ("a", "")],
                                           ["a", "x-b"], "p")
    assert canonical == "GET\n/\n\na:\nx-b:two blanks here,2\n\na;x-b\np"


def test_a_request_must_name_the_digest_of_its_body(env):
    with S3Server() as server, Raw(server) as raw:
        sign = s3_sigv4.authorization
        options, date = server.options, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = [("host", "localhost"), ("x-amz-date", date)]
        value = sign(options.access_key, options.secret_key, options.region, date, "GET", "/lake/a", "", headers, EMPTY)
        lines = ["GET /lake/a HTTP/1.1", *(f"{n}: {v}" for n, v in headers), f"authorization: {value}", "", ""]
        raw.send("\r\n".join(lines).encode())
        status, body = raw.answer("GET")
        assert status == 400 and b"InvalidRequest" in body and b"x-amz-content-sha256" in body


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
        for text in (b"hello", b"GET / HTTP/1.0", b"GET / HTTP/1.1\nhost: x", b"GET / HTTP/1.1\r\nbad header: x",
                     b"GET x HTTP/1.1"):
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
    "part with md5": ("PUT", DATA, {"partNumber": "1", "uploadId": "u"}, BODY, md5_header(BODY), 404,
                      "has a Content-MD5"),
    "part with type": ("PUT", DATA, {"partNumber": "1", "uploadId": "u"}, BODY, TYPE, 404, "has a Content-Type"),
    "part 0": ("PUT", DATA, {"partNumber": "0", "uploadId": "u"}, BODY, {}, 400, "InvalidArgument"),
    "part with SSE": ("PUT", DATA, {"partNumber": "1", "uploadId": "u"}, BODY, {s3_checks.SSE: "AES256"}, 400,
                      "encryption"),
    "bad completion": ("POST", DATA, {"uploadId": "u"}, BODY, {"content-type": "application/xml"}, 400,
                       "MalformedXML"),
}


def test_a_query_is_signed_sorted_and_sent_so(env):
    with S3Server() as server, Raw(server) as raw:
        raw.send(raw.head("GET", "", list_query()).replace(b"list-type=2&max-keys=1000", b"max-keys=1000&list-type=2"))
        assert raw.answer("GET")[0] == 200
        assert len(server.problems) == 1 and "not sent as it is signed" in server.problems[0]


def test_a_completion_without_one_of_the_parts_is_a_problem(env):
    with S3Server() as server:
        client = as_sink(server)
        upload_id = client.create_upload(DATA)
        etags = [client.put_part(DATA, upload_id, n, BODY) for n in (1, 2)]
        client.complete(DATA, upload_id, etags[:1])
        assert len(server.problems) == 1 and "names [1] of the parts [1, 2]" in server.problems[0]


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
