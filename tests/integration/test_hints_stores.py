"""Bucket trouble is named, as real stores answer it: test_hints.py over the store of the run.

Stores differ in what they look at first, so each case demands the setting to change, and the reason where every store
gives one.
"""

from harness import mark, wait_until
from test_hints import AFTER_A_TIMEOUT, check_named

ON_EVERY_STORE = True


def start(env, **settings):
    broker = env.broker(env.lake("orders", **settings)).start()
    broker.push([{"queue": "orders", "payload": 1}])
    return broker


@mark(store="s3")
def test_a_wrong_access_key(env):
    error = check_named(start(env, QUEEN_S3_ACCESS_KEY="AKIAMISSPELT"), r"^the store does not know .* QUEEN_S3_ACCESS_KEY")
    assert "AKIAMISSPELT" not in error and "s3:PutObject" not in error, error


@mark(store="s3")
def test_a_wrong_secret_key(env):
    check_named(start(env, QUEEN_S3_SECRET_KEY="not-the-one"),
                r"^the secret key does not belong to the access key: correct QUEEN_S3_SECRET_KEY", "SignatureDoesNotMatch")


@mark(store="s3")
def test_a_bucket_that_is_not_there(env):
    check_named(start(env, QUEEN_S3_BUCKET="no-such-bucket"),
                r"^there is no bucket no-such-bucket at this endpoint: create it, or correct QUEEN_S3_BUCKET")


@mark(store="s3")
def test_an_outage_before_the_start_ends_by_itself(env):
    env.store.down("refused")
    broker = start(env)
    check_named(broker, r"^nobody takes connections at \S+: start the store, correct host and port in QUEEN_S3_ENDPOINT")
    env.store.up()
    wait_until(lambda: (q := broker.sink_queue("orders")) and q["windowsCommitted"] == 1, 90, what="it goes on")
    assert broker.sink()["bucket"]["reachable"] is True and broker.sink()["bucket"]["error"] is None


@mark(store="versitygw")
def test_another_region(env):
    check_named(start(env, QUEEN_S3_REGION="eu-central-7"), r"^the bucket is in the region us-east-1, not in eu-central-7: "
                "set QUEEN_S3_REGION=us-east-1")


@mark(store="rgw")
def test_virtual_host_style_before_an_address(env):
    check_named(start(env, QUEEN_S3_PATH_STYLE="false"), r"IP address: set QUEEN_S3_PATH_STYLE=true",
                timeout=AFTER_A_TIMEOUT)


@mark(store="rgw")
def test_virtual_host_style_under_a_name_the_store_does_not_know(env):
    endpoint = env.store.endpoint.replace("127.0.0.1", "elsewhere.localhost")
    check_named(start(env, QUEEN_S3_ENDPOINT=endpoint, QUEEN_S3_PATH_STYLE="false"),
                rf"^the store took {env.store.name}\.elsewhere\.localhost for the bucket, not {env.store.name}: "
                "set QUEEN_S3_PATH_STYLE=true")


@mark(store="rgw")
def test_https_to_a_plain_port(env):
    endpoint = env.store.endpoint.replace("http://", "https://")
    check_named(start(env, QUEEN_S3_ENDPOINT=endpoint), r"does not speak TLS: let QUEEN_S3_ENDPOINT begin with http://",
                timeout=AFTER_A_TIMEOUT)


@mark(store="rgw")
def test_encryption_without_keys(env):
    broker = start(env, QUEEN_S3_SSE="AES256")
    row = wait_until(lambda: (q := broker.sink_queue("orders")) and q["lastError"] and q, 20, what="it is noticed")
    assert "the store refuses objects with the encryption AES256" in row["lastError"]["message"], row


@mark(store="rgw-https")
def test_an_authority_that_is_not_known(env):
    check_named(start(env, SSL_CERT_FILE=None), r"^the server's certificate is of an authority .* SSL_CERT_FILE; ")


@mark(store="rgw-https")
def test_a_certificate_of_another_host(env):
    endpoint = env.store.endpoint.replace("s3.localhost", "elsewhere.localhost")
    check_named(start(env, QUEEN_S3_ENDPOINT=endpoint), r"^the server's certificate is not for elsewhere\.localhost:\d+: ")


@mark(store="rgw-https")
def test_http_to_a_tls_port(env):
    endpoint = env.store.endpoint.replace("https://", "http://")
    check_named(start(env, QUEEN_S3_ENDPOINT=endpoint), r"QUEEN_S3_ENDPOINT has to begin with https://")
