"""Bucket trouble is named: /status and one log line say what is wrong and which setting to change, at once.

Against the server of tests/lib, which can be made to misbehave in each way; what real stores answer is in
test_hints_stores.py. The sentences themselves have their table in tests/unit/sink/bucket_hint_test.c.
"""

import re
import subprocess
import time

from harness import REPO, cases, mark, wait_until
from s3_faults import Status
from s3_server import S3Server

SOON = 10  # seconds from the open port; seen: under one, where no timeout has to pass first
AFTER_A_TIMEOUT = 20  # the connection's is 5 s
TRY = {"QUEEN_S3_MAX_WINDOW_MS": 500, "QUEEN_S3_SAFE_GUARD_MS": 0, "QUEEN_S3_DISCOVERY_INTERVAL_MS": 100,
       "QUEEN_S3_LEASE_TTL_MS": 3000, "QUEEN_S3_START": "earliest"}


def sink_settings(server, **more):
    return {"QUEEN_S3_EMBEDDED": "true", "QUEEN_S3_QUEUES": "*", **TRY, **server.settings(), **more}


def check_named(broker, *says, timeout=SOON):
    """The status, and the first line of the log, hold each pattern."""

    def named():
        nonlocal bucket
        bucket = broker.sink()["bucket"]
        return bucket["reachable"] is False and all(re.search(pattern, bucket["error"] or "") for pattern in says)

    bucket = None
    end = time.monotonic() + timeout
    while not named():
        assert time.monotonic() < end, bucket
        time.sleep(0.05)
    line = broker.wait_log(r"ERROR queen-s3: bucket unreachable", timeout=1)
    for pattern in says:
        assert re.search(pattern, line.fields["error"]), line
    assert len(bucket["error"].encode()) < 2000, bucket
    assert broker.settings["QUEEN_S3_SECRET_KEY"] not in bucket["error"] + line.text
    assert broker.sink()["ok"] is False and broker.sink()["queues"] == []
    return bucket["error"]


def start(env, server, **more):
    """A broker that starts with trouble; pushes are taken all the same."""
    broker = env.broker(sink_settings(server, **more)).start()
    broker.push([{"queue": "orders", "payload": 1}])
    return broker


def wait_shipped(server, queue="orders", count=1):
    server.wait_for(lambda: len([k for k in server.objects() if f"queue={queue}/" in k]) >= count, what="objects")


# --- settings ---


@cases("AuthorizationHeaderMalformed", "PermanentRedirect")
def test_another_region(env, code):
    options = {"region": "eu-central-7"} if code[0] == "A" else {"redirect_region": "eu-central-7"}
    with S3Server(**options) as server:
        broker = start(env, server, QUEEN_S3_REGION="us-east-1")
        error = check_named(broker, r"^the bucket is in the region eu-central-7, not in us-east-1: set "
                            r"QUEEN_S3_REGION=eu-central-7; ")
        assert "s3:PutObject" not in error and "PATH_STYLE" not in error, error
        broker.sigterm()
        broker.start(QUEEN_S3_REGION="eu-central-7")  # as it was told
        wait_shipped(server)


def test_a_redirection_that_names_no_region(env):
    with S3Server() as server:
        server.fault(Status(301, "PermanentRedirect"), times=None)
        check_named(start(env, server), r"^the bucket is in another region .* correct QUEEN_S3_REGION")


def test_path_style_for_a_store_that_wants_the_host(env):
    with S3Server(addressing="virtual") as server:
        broker = start(env, server)
        check_named(broker, r"the store wants the bucket in the host name: set QUEEN_S3_PATH_STYLE=false")
        broker.sigterm()
        broker.start(**server.settings("virtual"))
        wait_shipped(server)


def test_virtual_host_style_for_a_store_that_wants_the_path(env):
    with S3Server(addressing="path") as server:
        check_named(start(env, server, **server.settings("virtual")), r"QUEEN_S3_PATH_STYLE=true")


def test_virtual_host_style_before_an_address(env):
    with S3Server() as server:
        broker = start(env, server, QUEEN_S3_PATH_STYLE="false")
        check_named(broker, r"does not go with an IP address: set QUEEN_S3_PATH_STYLE=true",
                    timeout=AFTER_A_TIMEOUT)
        broker.wait_log(r"WARN queen-s3: virtual-host style .* IP address .* QUEEN_S3_PATH_STYLE=true")
        assert server.requests == []


def test_a_name_that_does_not_resolve(env):
    with S3Server() as server:
        path = start(env, server, QUEEN_S3_ENDPOINT="http://s3.invalid")
        virtual = start(env, server, QUEEN_S3_ENDPOINT="http://s3.invalid", QUEEN_S3_PATH_STYLE="false")
        check_named(path, r"the host s3\.invalid does not resolve: correct QUEEN_S3_ENDPOINT", timeout=AFTER_A_TIMEOUT)
        check_named(virtual, r"the host lake\.s3\.invalid does not resolve: set QUEEN_S3_PATH_STYLE=true",
                    timeout=AFTER_A_TIMEOUT)


@cases("InvalidAccessKeyId", "XAdminUserNotFound", "NotSignedUp")
def test_a_wrong_access_key(env, code):
    with S3Server() as server:
        if code != "InvalidAccessKeyId":  # as other stores call it
            server.fault(Status(404 if code[0] == "X" else 403, code), times=None)
        broker = start(env, server, QUEEN_S3_ACCESS_KEY="AKIAMISSPELT")
        error = check_named(broker, r"^the store does not know the access key.*: correct QUEEN_S3_ACCESS_KEY; ", code)
        assert "AKIAMISSPELT" not in error and "s3:PutObject" not in error, error


def test_a_wrong_secret_key(env):
    with S3Server() as server:
        broker = start(env, server, QUEEN_S3_SECRET_KEY="not-the-one")
        check_named(broker, r"^the secret key does not belong to the access key: correct QUEEN_S3_SECRET_KEY")
        assert len(broker.find_log("bucket unreachable")) == 1  # the HEAD alone was worth no line
        assert [r.op for r in server.find()][:2] == ["head", "list"]


@cases(3600, -3600)
def test_a_clock_that_is_off(env, offset):
    which = "60 min behind" if offset > 0 else "60 min ahead of"
    with S3Server(clock_offset_s=offset) as server:
        check_named(start(env, server), rf"^this machine's clock is (59|6[01]) min {which[7:]} the store's: correct the")


def test_a_bucket_that_is_not_there_is_waited_for(env):
    with S3Server() as server:
        broker = start(env, server, QUEEN_S3_BUCKET="elsewhere")
        check_named(broker, r"^there is no bucket elsewhere at this endpoint: create it, or correct QUEEN_S3_BUCKET")
        server.add_bucket("elsewhere")
        broker.wait_log(r"the bucket answers again", timeout=60)
        bucket = wait_until(lambda: (b := broker.sink()["bucket"])["reachable"] and b, what="the status follows")
        assert bucket["error"] is None, bucket
        wait_until(lambda: server.buckets["elsewhere"].objects, what="the lake")


# --- the way to the store ---


def test_nobody_listens(env):
    with S3Server() as server:
        endpoint = f"http://127.0.0.1:{env.free_port()}"
        check_named(start(env, server, QUEEN_S3_ENDPOINT=endpoint), r"^nobody takes connections at .* QUEEN_S3_ENDPOINT")


def test_https_to_a_plain_port(env):
    with S3Server() as server:
        endpoint = server.endpoint.replace("http://", "https://")
        check_named(start(env, server, QUEEN_S3_ENDPOINT=endpoint), r"does not speak TLS: let QUEEN_S3_ENDPOINT begin",
                    timeout=AFTER_A_TIMEOUT)


def certificate(env, *extra):
    """A folder with ca.pem, server.pem and server.key."""
    folder = env.dir / "tls"
    subprocess.run([REPO / "scripts" / "certificate", folder, *extra], check=True)
    return folder


def tls_server(folder, **options):
    return S3Server(certfile=folder / "server.pem", keyfile=folder / "server.key", **options)


def test_http_to_a_tls_port(env):
    with tls_server(certificate(env)) as server:
        endpoint = server.endpoint.replace("https://", "http://")
        check_named(start(env, server, QUEEN_S3_ENDPOINT=endpoint), r"QUEEN_S3_ENDPOINT has to begin with https://")


def test_an_authority_that_is_not_known(env):
    tls = certificate(env)
    with tls_server(tls) as server:
        broker = start(env, server)
        check_named(broker, r"^the server's certificate is of an authority that is not trusted here.* SSL_CERT_FILE; ")
        broker.sigterm()
        broker.start(SSL_CERT_FILE=tls / "ca.pem")
        wait_shipped(server)


@cases("path", "virtual")
def test_a_lake_over_https(env, addressing):
    tls = certificate(env)
    with tls_server(tls, addressing=addressing) as server:
        broker = start(env, server, SSL_CERT_FILE=tls / "ca.pem", **server.settings(addressing))
        wait_shipped(server)
        assert broker.sink()["bucket"]["reachable"] is True and broker.sigterm() == 0
        assert server.problems == [], server.problems


def test_authorities_in_a_folder(env):
    tls = certificate(env)
    folder = env.dir / "authorities"
    folder.mkdir()
    (folder / "ours.pem").write_bytes((tls / "ca.pem").read_bytes())
    subprocess.run(["openssl", "rehash", folder], check=True)
    with tls_server(tls) as server:
        start(env, server, SSL_CERT_DIR=folder)
        wait_shipped(server)


def test_a_certificate_of_another_host(env):
    tls = certificate(env)
    with tls_server(tls) as server:
        endpoint = f"https://elsewhere.localhost:{server.port}"
        check_named(start(env, server, QUEEN_S3_ENDPOINT=endpoint, SSL_CERT_FILE=tls / "ca.pem"),
                    r"^the server's certificate is not for elsewhere\.localhost:\d+: correct the host in QUEEN_S3_ENDPOINT")


def test_a_certificate_that_has_expired(env):
    tls = certificate(env)
    expire(tls)
    with tls_server(tls) as server:
        check_named(start(env, server, SSL_CERT_FILE=tls / "ca.pem"),
                    r"^the server's certificate has expired or is not valid yet: renew it, or correct this machine's clock")


def expire(tls):
    """Signs server.key anew, for a day long ago."""
    (tls / "index").touch()
    (tls / "ca.conf").write_text("[ca]\ndatabase=index\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\npolicy=any\n"
                                 "x509_extensions=names\n[any]\ncommonName=supplied\n"
                                 "[names]\nsubjectAltName=IP:127.0.0.1\n")
    for command in (
        "req -new -key server.key -subj /CN=localhost -out server.csr",
        "ca -batch -name ca -config ca.conf -cert ca.pem -keyfile ca.key -startdate 20200101000000Z "
        "-enddate 20200102000000Z -in server.csr -out server.pem -notext",
    ):  # fmt: skip
        subprocess.run(["openssl", *command.split()], cwd=tls, check=True, capture_output=True)


def test_a_file_of_authorities_that_is_not_there(env):
    with tls_server(certificate(env)) as server:
        check_named(start(env, server, SSL_CERT_FILE=env.dir / "nowhere.pem"),
                    r"^the certificates to trust cannot be read: correct the path in SSL_CERT_FILE", "nowhere.pem")


# --- permissions ---


def test_a_key_that_may_nothing(env):
    with S3Server() as server:
        server.fault(Status(403, "AccessDenied"), times=None)
        check_named(start(env, server), r"^the access key may not do this: grant it s3:ListBucket on the bucket lake",
                    r"needs s3:PutObject, s3:GetObject, s3:ListBucket and s3:AbortMultipartUpload")


def test_a_key_that_may_list_only(env):
    with S3Server() as server:
        server.fault(Status(403, "AccessDenied"), op="head", times=None)
        check_named(start(env, server), r"^the access key may not do this: grant it s3:GetObject on the bucket lake")


def test_a_key_that_may_not_list_ships_all_the_same(env):
    with S3Server() as server:
        server.fault(Status(403, "AccessDenied"), op="list", times=None)
        broker = start(env, server)
        wait_shipped(server)
        wait_until(lambda: broker.sink()["bucket"]["reachable"] is True, what="a write succeeded")


# --- later ---


class Later:
    """Trouble after a good start: named at the next write, gone with the next success."""

    def __init__(self, env, server, says, breaks, mends):
        self.server, self.says, self.breaks, self.mends = server, says, breaks, mends
        self.broker = start(env, server)

    def goes_well(self):
        wait_shipped(self.server)
        assert self.broker.sink()["bucket"]["reachable"] is True

    def breaks_down(self):
        self.breaks()
        self.broker.push([{"queue": "orders", "payload": 2}])
        bucket = wait_until(
            lambda: (b := self.broker.sink()["bucket"])["reachable"] is False and b, SOON, what="it is noticed"
        )
        row = wait_until(lambda: (q := self.broker.sink_queue("orders"))["lastError"] and q, SOON, what="the queue too")
        line = self.broker.wait_log("ERROR queen-s3: bucket unreachable", SOON)
        for text in (bucket["error"], row["lastError"]["message"], line.fields["error"]):
            assert self.says in text, text

    def recovers(self):
        wait_until(lambda: self.broker.sink()["bucket"]["reachable"] is True, 150, what="it goes on")
        assert self.broker.sink()["bucket"]["error"] is None
        self.broker.wait_log("the bucket answers again")
        wait_shipped(self.server, count=2)


@mark(timeout=300)
def test_trouble_that_comes_later(env):
    """All three at once: a queue that was refused waits a minute."""
    with S3Server() as denying, S3Server() as rotated, S3Server() as emptied:
        key, kept = rotated.options.access_key, {}
        later = [
            Later(env, denying, "the access key may not do this: grant it s3:PutObject on the bucket lake",
                  lambda: denying.fault(Status(403, "AccessDenied"), op="put", times=None), denying.clear_faults),
            Later(env, rotated, "correct QUEEN_S3_ACCESS_KEY",
                  lambda: setattr(rotated.options, "access_key", "another"),
                  lambda: setattr(rotated.options, "access_key", key)),
            Later(env, emptied, "there is no bucket lake at this endpoint",
                  lambda: kept.update(lake=emptied.buckets.pop("lake")), lambda: emptied.buckets.update(kept)),
        ]  # fmt: skip
        for one in later:
            one.goes_well()
        for one in later:
            one.breaks_down()
        for one in later:
            one.mends()
        for one in later:
            one.recovers()


# --- one object ---


@cases("refuse_400", "refuse_501")
def test_encryption_that_is_refused(env, how):
    with S3Server(sse=how) as server:
        broker = start(env, server, QUEEN_S3_SSE="AES256")
        row = wait_until(lambda: (q := broker.sink_queue("orders")) and q["lastError"] and q, SOON, what="it is noticed")
        says = "the store refuses objects with the encryption AES256: set up its keys in the store, or unset QUEEN_S3_SSE"
        assert says in row["lastError"]["message"] and says in broker.sink()["bucket"]["error"], row
        broker.wait_log("unset QUEEN_S3_SSE")


def test_a_name_too_long_for_a_folder(env):
    queue = "q" * 252
    with S3Server(segment_max=255) as server:
        broker = env.broker(sink_settings(server)).start()
        broker.push([{"queue": queue, "payload": 1}])
        row = wait_until(lambda: (q := broker.sink_queue(queue)) and q["lastError"] and q, SOON, what="it is noticed")
        says = "the object's key has a part of 258 bytes between two slashes"
        assert says in row["lastError"]["message"], row
        assert "set QUEEN_S3_KEY_SEGMENT_MAX=255" in row["lastError"]["message"], row
        assert re.match("(get|put) queen/", row["lastError"]["message"]), row


def test_one_key_that_fails_for_ever_is_named(env):
    with S3Server() as server:
        server.fault(Status(503, "SlowDown"), op="put", key="queue=bad/", times=None)
        broker = start(env, server)
        wait_shipped(server)
        broker.push([{"queue": "bad", "payload": 1}])
        row = wait_until(lambda: (q := broker.sink_queue("bad")) and q["lastError"] and q, SOON, what="it is noticed")
        assert re.match(r"put queen/\S*queue=bad/\S+: status 503: .*SlowDown", row["lastError"]["message"]), row
        assert broker.sink()["bucket"]["reachable"] is True
        broker.push([{"queue": "orders", "payload": 2}])
        wait_shipped(server, count=2)
