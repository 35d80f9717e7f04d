"""The S3 server of the tests itself: what it stores, how it keeps connections, how fast it is. No broker takes part.

What it checks is in test_s3_checks.py, how it misbehaves in test_s3_faults.py.
"""

import hashlib
import socket
import ssl
import subprocess
import sys
import threading
import time

import harness
import s3_checks
from harness import cases
from s3_client import S3Client
from s3_faults import CutAnswer, CutRequest, Garbage, Hang, LostAnswer
from s3_raw import BODY, DATA, MANIFEST, PART, TYPE, Raw, as_sink, check, ends, fails, md5_header, sink_put
from s3_server import S3Server


# --- the store ---


def test_keys_of_any_kind_come_back(env):
    keys = ["a+b=c!d*e'f(g)h", "q=a%2Fb%20c%25", "unicode/è/日本語/😀", "blank and ~tilde", "a//b/./c/../d",
            "&<>\"'", "x" * 1024]
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
        ask = lambda query: client.call("GET", "", query).xml.findall("Contents/Key")
        listed = lambda **more: [key.text for key in ask({"list-type": "2", **more})]
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
        document = "<CompleteMultipartUpload>%s</CompleteMultipartUpload>"
        ask = lambda inner, of=upload_id: client.request(
            "POST", DATA, {"uploadId": of}, (document % inner).encode(), {"content-type": "application/xml"})
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
        plain = hashlib.md5(b"one").hexdigest()
        standard = hashlib.md5(hashlib.md5(b"one").digest()).hexdigest() + "-1"
        wanted = {"standard": f'"{standard}"', "plain": f'"{plain}"', "unquoted": standard, "empty": ""}[style]
        assert first == wanted and again == (standard if style == "empty" else wanted)


def test_both_ways_to_name_the_bucket_or_one(env):
    with S3Server() as server:
        path, virtual = as_sink(server), as_sink(server, addressing="virtual")
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
            client = server.client(ca=cert, addressing=addressing)
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
    arguments = ["--port", str(port), "--bucket", "b", "--access-key", "k", "--secret-key", "s"]
    with subprocess.Popen([sys.executable, program, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == f"http://127.0.0.1:{port} bucket=b region=us-east-1\n"
            client = S3Client(port, "b", "k", "s")
            client.put("a", b"1")
            assert client.get("a") == b"1"
            assert "put a 1 bytes: 200" in process.stdout.readline()
        finally:
            process.kill()
