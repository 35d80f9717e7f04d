#!/usr/bin/env python3
"""Prints sigv4_vectors.inc: requests as botocore, an independent implementation, encodes and signs them.

    tests/unit/s3/sigv4_vectors.py >tests/unit/s3/sigv4_vectors.inc     (needs python3-botocore; the tests do not)
"""

import datetime
import hashlib
from unittest import mock

from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.utils import percent_encode, percent_encode_sequence

WHEN = datetime.datetime(2026, 10, 3, 6, 37, 37, 501942, tzinfo=datetime.timezone.utc)
ACCESS, SECRET, REGION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-central-1"
BODY = b"x" * 1000
SHA256 = hashlib.sha256(BODY).hexdigest()
MD5 = "CZ21Bdkd9JZfUjPMQU4KQg=="  # any value: it is only signed

KEYS = [
    "queen/tenant=00000000-0000-0000-0000-000000000001/queue=orders/dt=2026-10-03/hour=06/"
    "w-0000000001-1791007200000000-1791009458377855.jsonl.zst",
    "a+b=c!d*e'f(g)h", "q=a%2Fb%20c%25", "unicode/è/日本語/😀", "blank and ~tilde", "a//b/./c/../d", "semi;colon&amp?#[]@$,:",
    "quote\"back\\slash", "\x01\x1f\x7f",
]


class Clock(datetime.datetime):
    @classmethod
    def utcnow(cls):
        return WHEN.replace(tzinfo=None)

    @classmethod
    def now(cls, tz=None):
        return WHEN


def sign(method, host, path, params, headers, payload):
    query = percent_encode_sequence(sorted(params))
    url = f"http://{host}{path}" + (f"?{query}" if query else "")
    request = AWSRequest(method=method, url=url, headers=headers, data=payload)
    request.context["payload_signing_enabled"] = True
    with mock.patch.object(auth, "datetime", mock.Mock(datetime=Clock), create=True), \
            mock.patch.object(auth, "get_current_datetime", lambda remove_tzinfo=True: WHEN, create=True):
        auth.S3SigV4Auth(Credentials(ACCESS, SECRET), "s3", REGION).add_auth(request)
    return path + (f"?{query}" if query else ""), request.headers["Authorization"]


def c_text(text):
    out = ""
    for byte in text.encode():
        if byte in b'"\\?' or not 32 <= byte < 127:
            out += f"\\{byte:03o}"
        else:
            out += chr(byte)
    return f'"{out}"'


def row(call, path_style, sse, key, other, method, params, headers, payload):
    host = "s3.example.com:9000" if path_style else "lake.s3.example.com:9000"
    base = "/lake" if path_style else ""
    path = (base or "/") if call == "S3_LIST" else base + "/" + percent_encode(key, safe="/~")
    target, authorization = sign(method, host, path, params, headers, payload)
    print(f"    {{{call}, {str(path_style).lower()}, {sse},\n     {c_text(key)}, {c_text(other)},\n     {c_text(target)},\n"
          f"     {c_text(authorization)}}},")


def main():
    print("/* Written by sigv4_vectors.py. */")
    for path_style in (True, False):
        for key in KEYS:
            row("S3_GET", path_style, "S3_SSE_OFF", key, "", "GET", [], {}, b"")
            put = {"Content-Type": "application/json", "Content-MD5": MD5}
            row("S3_PUT", path_style, "S3_SSE_OFF", key, "", "PUT", [], put, BODY)
            params = [("list-type", "2"), ("max-keys", "1000"), ("prefix", key)]
            row("S3_LIST", path_style, "S3_SSE_OFF", key, "", "GET", params, {}, b"")
            row("S3_LIST", path_style, "S3_SSE_OFF", key, key + "~z", "GET", params + [("start-after", key + "~z")], {}, b"")
    key = KEYS[0]
    sse = {"x-amz-server-side-encryption": "aws:kms", "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:x:1:key/a b"}
    row("S3_HEAD", True, "S3_SSE_OFF", "queen/", "", "HEAD", [], {}, b"")
    create = {"Content-Type": "application/json"}
    row("S3_MULTIPART_CREATE", True, "S3_SSE_OFF", key, "", "POST", [("uploads", "")], create, b"")
    row("S3_MULTIPART_CREATE", True, "S3_SSE_KMS", key, "", "POST", [("uploads", "")], create | sse, b"")
    row("S3_PUT", True, "S3_SSE_AES256", key, "", "PUT", [],
        {"Content-Type": "application/json", "Content-MD5": MD5, "x-amz-server-side-encryption": "AES256"}, BODY)
    upload = "2~Ab+/=%.x y_è"
    row("S3_MULTIPART_PART", True, "S3_SSE_KMS", key, upload, "PUT", [("partNumber", "12"), ("uploadId", upload)], {}, BODY)
    row("S3_MULTIPART_COMPLETE", False, "S3_SSE_OFF", key, upload, "POST", [("uploadId", upload)],
        {"Content-Type": "application/xml"}, BODY)
    row("S3_MULTIPART_ABORT", False, "S3_SSE_OFF", key, upload, "DELETE", [("uploadId", upload)], {}, b"")


main()
