"""What the S3 server of the tests demands of a request: where it goes, its signature, its digests, and the rules that
only our sink must keep (docs of the client: which requests it makes, with which headers)."""

import base64
import calendar
import hmac
import re
import time

import s3_sigv4
from s3_client import USER_AGENT
from s3_protocol import S3Error, unquote
from s3_store import KEY_MAX, is_data

SKEW_MAX = 15 * 60  # seconds
MUST_BE_SIGNED = {"host", "content-type", "content-md5"}  # when sent; and every x-amz-*
SSE = "x-amz-server-side-encryption"
OF_THE_SINK = {"x-amz-content-sha256", "x-amz-date", SSE, SSE + "-aws-kms-key-id"}
CONDITIONS = {"if-match", "if-none-match", "if-modified-since", "if-unmodified-since"}
# Answers that tell of settings or of the store's state. Any other error answer tells of a fault in the client.
BLAMELESS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthorizationHeaderMalformed", "RequestTimeTooSkewed",
             "PermanentRedirect", "SecondLevelDomainForbidden", "NoSuchBucket", "NoSuchKey", "NoSuchUpload"}

# (method, is there a key, names of parameters) -> op; the first eight are objects.md 10, the others are for tests.
OPS = {
    ("HEAD", True, ""): "head", ("HEAD", False, ""): "head", ("PUT", True, ""): "put", ("GET", True, ""): "get",
    ("POST", True, "uploads"): "multipart_create", ("PUT", True, "partNumber uploadId"): "multipart_part",
    ("POST", True, "uploadId"): "multipart_complete", ("DELETE", True, "uploadId"): "multipart_abort",
    ("GET", False, "uploads"): "list_uploads", ("PUT", False, ""): "create_bucket", ("DELETE", True, ""): "delete",
}
SINK_OPS = {"head", "put", "get", "list", "multipart_create", "multipart_part", "multipart_complete",
            "multipart_abort"}
LIST_PARAMS = {"list-type", "prefix", "start-after", "max-keys", "continuation-token", "encoding-type"}


def op_of(method, bucket, key, params):
    names = sorted(name for name, _ in params)
    if method == "GET" and not key and bucket and dict(params).get("list-type") == "2":
        return "list" if set(names) <= LIST_PARAMS else "other"
    if method == "GET" and bucket == "" and not names:
        return "list_buckets"
    return OPS.get((method, bool(key), " ".join(names)), "other")


def place_of(head, options, buckets):
    """(bucket, key) by the host, the path, and the addressing that the server understands."""
    host = re.sub(r":\d+$", "", head.get("host", ""))
    path = head.path[1:]
    if options.addressing != "path":
        for bucket in buckets:
            if host.startswith(bucket + "."):
                return bucket, unquote(path)
    if options.addressing == "virtual":
        if "." not in host or re.fullmatch(r"[\d.]+|\[.*\]", host):
            raise S3Error("SecondLevelDomainForbidden", "Please use virtual hosted style to access.", expected=True)
        return host.partition(".")[0], unquote(path)
    bucket, _, key = path.partition("/")
    return unquote(bucket), unquote(key)


# --- before the body ---


def check_framing(head):
    """How long the body is."""
    if head.get("transfer-encoding") is not None:
        raise S3Error("NotImplemented", "A header you provided implies functionality that is not implemented.",
                      extra={"Header": "Transfer-Encoding"}, close=True)
    length = head.get("content-length")
    if length is None:
        if head.method in ("PUT", "POST"):
            raise S3Error("MissingContentLength", "You must provide the Content-Length HTTP header.", close=True)
        return 0
    if not re.fullmatch(r"\d{1,10}", length):
        raise S3Error("BadRequest", "Content-Length is not a number, or sent twice.", close=True)
    return int(length)


def parse_authorization(value):
    """access key, scope as a list, signed headers, signature."""
    if value is None:
        raise S3Error("AccessDenied", "Anonymous access is forbidden for this operation")
    match = re.fullmatch(
        r"AWS4-HMAC-SHA256 +Credential=([^,]+),\s*SignedHeaders=([^,]+),\s*Signature=([0-9a-f]{64})", value)
    scope = match.group(1).rsplit("/", 4) if match else []
    if len(scope) != 5:
        raise malformed("The authorization header is malformed.")
    return scope[0], scope[1:], match.group(2).split(";"), match.group(3)


def malformed(message, **extra):
    return S3Error("AuthorizationHeaderMalformed", message, extra=extra)


def check_auth(head, options, now):
    access, (day, region, service, last), signed, given = parse_authorization(head.get("authorization"))
    if not hmac.compare_digest(access, options.access_key):
        raise S3Error("InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.",
                      extra={"AWSAccessKeyId": access})
    date = check_date(head.get("x-amz-date"), now)
    if day != date[:8]:
        raise malformed(f"Invalid credential date {day}. This date is not the same as X-Amz-Date: {date[:8]}.")
    if (service, last) != ("s3", "aws4_request"):
        raise malformed("The credential scope must end in s3/aws4_request.")
    check_region(region, options)
    check_signed(head, signed)
    payload = head.get("x-amz-content-sha256")
    if payload is None:
        raise S3Error("InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
    canonical = s3_sigv4.canonical_request(
        head.method, head.path, canonical_query_of(head), head.headers, signed, payload)
    right = s3_sigv4.signature(options.secret_key, date, region, canonical)
    if not hmac.compare_digest(right, given) or not is_canonical(head):
        raise S3Error("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you "
                      "provided. Check your key and signing method.")


def check_date(date, now):
    if date is None or not re.fullmatch(r"\d{8}T\d{6}Z", date):
        raise S3Error("AccessDenied", "AWS authentication requires a valid Date or x-amz-date header")
    try:
        sent = calendar.timegm(time.strptime(date, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise S3Error("AccessDenied", "AWS authentication requires a valid x-amz-date header") from None
    if abs(sent - now) > SKEW_MAX:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        raise S3Error("RequestTimeTooSkewed", "The difference between the request time and the current time is too "
                      "large.", extra={"RequestTime": date, "ServerTime": stamp})
    return date


def check_region(region, options):
    home = options.redirect_region
    if home:
        if region != home:
            raise S3Error("PermanentRedirect", "The bucket you are attempting to access must be addressed using the "
                          "specified endpoint. Please send all future requests to this endpoint.",
                          extra={"Endpoint": f"{options.bucket}.s3.{home}.example.com", "Bucket": options.bucket},
                          headers={"x-amz-bucket-region": home})
    elif options.region_check and region != options.region:
        raise malformed(f"The authorization header is malformed; the region '{region}' is wrong; expecting "
                        f"'{options.region}'", Region=options.region)


def check_signed(head, signed):
    if signed != sorted(set(signed)):
        raise malformed("SignedHeaders is not sorted.")
    must = {n for n in head.names if n in MUST_BE_SIGNED or n.startswith("x-amz-")} | {"host"}
    if not must <= set(signed) <= head.names:
        raise S3Error("AccessDenied", "There were headers present in the request which were not signed",
                      extra={"HeadersNotSigned": ", ".join(sorted(must - set(signed)))})


def canonical_query_of(head):
    """As sent, sorted, and with a `=` in every parameter."""
    pairs = [pair.partition("=")[::2] for pair in head.query.split("&")] if head.query else []
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def is_canonical(head):
    """Strict stores decode what they received and encode it once more before they sign it: it must stay as it is."""
    path = s3_sigv4.encode(unquote_bytes(head.path), keep="/")
    return path == head.path and canonical_query_of(head) == s3_sigv4.canonical_query(head.params)


def unquote_bytes(text):
    return unquote(text).encode("utf-8", "surrogateescape")


def check_key(key, options):
    raw = key.encode("utf-8", "surrogateescape")
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise S3Error("InvalidURI", "Couldn't parse the specified URI.") from None
    if len(raw) > KEY_MAX:
        raise S3Error("KeyTooLongError", "Your key is too long", extra={"Size": len(raw), "MaxSizeAllowed": KEY_MAX})
    if options.segment_max and any(len(segment) > options.segment_max for segment in raw.split(b"/")):
        raise S3Error("InvalidArgument", "A segment of the key is too long.", expected=True)


def check_features(head, options, op):
    if CONDITIONS & head.names:
        raise S3Error("NotImplemented", "A header you provided implies functionality that is not implemented.")
    kind = head.get(SSE)
    if kind is None:
        return
    if options.sse == "refuse_400":
        raise S3Error("InvalidRequest", "The specified method of server side encryption is not set up.", expected=True)
    if options.sse == "refuse_501":
        raise S3Error("NotImplemented", "Server side encryption is not implemented.", expected=True)
    if kind not in ("AES256", "aws:kms") or op not in ("put", "multipart_create"):
        raise S3Error("InvalidArgument", f"{SSE} is not allowed here, or has another value")


# --- after the body ---


def check_digests(head, body_sha256, body_md5):
    """body_md5: callable, since few requests need it."""
    payload = head.get("x-amz-content-sha256")
    if payload != "UNSIGNED-PAYLOAD" and payload != body_sha256:
        raise S3Error("XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match what was "
                      "computed.", extra={"ClientComputedContentSHA256": payload,
                                          "S3ComputedContentSHA256": body_sha256})
    md5 = head.get("content-md5")
    if md5 is None:
        return
    if not re.fullmatch(r"[0-9A-Za-z+/]{22}==", md5):
        raise S3Error("InvalidDigest", "The Content-MD5 you specified is not valid.")
    if base64.b64decode(md5) != body_md5():
        raise S3Error("BadDigest", "The Content-MD5 you specified did not match what we received.")


# --- the rules of the sink ---


def is_sink(head):
    """Everything but the client of the tests themselves."""
    return head.get("user-agent") != USER_AGENT


def broken_rules(head, op, key, params):
    """What a request does that the sink never does: texts."""
    if op not in SINK_OPS:
        yield "is no request of the sink"
        return
    extra = head.names - MUST_BE_SIGNED - OF_THE_SINK - {"content-length", "authorization"}
    if extra:
        yield f"has headers that the sink does not send: {', '.join(sorted(extra))}"
    if head.get("x-amz-content-sha256") == "UNSIGNED-PAYLOAD":
        yield "has a payload that is not signed"
    if head.query != canonical_query_of(head):
        yield "has a query that was not sent as it is signed"
    yield from _rules_of_op(head, op, key, dict(params))


def _rules_of_op(head, op, key, params):
    has_type, has_md5 = "content-type" in head.names, "content-md5" in head.names
    if op == "head" and key and not key.endswith("/"):
        yield "is a HEAD of an object"
    if op == "get" and is_data(key):
        yield "reads a data object"
    if op == "list":
        prefix = params.get("prefix", "")
        if is_data(prefix + "x") or not prefix.endswith(("/checkpoint/", "/_queen/probe/")):
            yield "lists more than the checkpoints of a queue"
        if set(params) - {"list-type", "prefix", "start-after", "max-keys"} or params.get("max-keys") != "1000":
            yield "has other parameters than a list of the sink"
    if op == "put" and not has_md5:
        yield "has no Content-MD5"
    if has_type != (op in ("put", "multipart_create", "multipart_complete")):
        yield "has a Content-Type" if has_type else "has no Content-Type"
    if has_md5 and op != "put":
        yield "has a Content-MD5"
    if head.get(SSE) is not None and op not in ("put", "multipart_create"):
        yield "asks for encryption"
