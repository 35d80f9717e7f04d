"""The S3 server of the tests itself: each of its faults does what it says, and hits what it is meant for."""

import hashlib
import http.client
import time

from harness import cases, wait_until
from s3_client import S3Failed
from s3_faults import (CHUNK_END, CONTINUE, SECOND_400, CloseAfter, CutAnswer, CutRequest, Etag, ForgetUpload, Garbage,
                       HalfClose, Hang, LostAnswer, OkWithError, RefuseEarly, Slow, Spaces, Status, Stray)
from s3_raw import BODY, DATA, MANIFEST, TYPE, Raw, as_sink, check, ends, fails, md5_header, sink_put, sink_upload
from s3_server import S3Server


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


def test_a_refused_body_may_be_read_slowly(env):
    with S3Server() as server, Raw(server) as raw:
        server.fault(RefuseEarly(503, then="read", rate=2000))
        raw.put(DATA, BODY)
        assert raw.answer()[0] == 503 and server.find()[0].size < 1000
        began = time.monotonic()
        raw.send(raw.head("GET", MANIFEST))
        assert raw.answer("GET")[0] == 404 and 0.2 < time.monotonic() - began < 10


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
            sizes = {"before_head": [], "before_body": [0], "in_body": [10]}
            assert [r.size for r in server.requests] == sizes.get(where, [1000])
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
        for fault, done in ((OkWithError("SlowDown"), False), (OkWithError(spaces=5, seconds=0.1), False),
                            (OkWithError(done=True), True)):
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
