"""AWS Signature Version 4 for service s3, as both sides of a test need it: to sign, and to check. Pure functions."""

import functools
import hashlib
import hmac
import urllib.parse

ALGORITHM = "AWS4-HMAC-SHA256"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def encode(raw, keep=""):
    """Percent-encodes text or bytes once; A-Z a-z 0-9 - . _ ~ and what is in `keep` stay."""
    return urllib.parse.quote(raw, safe="-._~" + keep)


def canonical_query(pairs):
    """pairs: decoded (name, value). Sorted by what is sent."""
    return "&".join(f"{n}={v}" for n, v in sorted((encode(n), encode(v)) for n, v in pairs))


def canonical_request(method, path, query, headers, signed, payload):
    """path and query are encoded; headers: (name, value) pairs as sent; signed: lowercase names, in order."""
    values = {}
    for name, value in headers:
        values.setdefault(name.lower(), []).append(" ".join(value.split()))
    lines = [f"{name}:{','.join(values.get(name, []))}\n" for name in signed]
    return "\n".join([method, path, query, "".join(lines), ";".join(signed), payload])


@functools.lru_cache(maxsize=256)
def signing_key(secret, day, region, service="s3"):
    key = b"AWS4" + secret.encode()
    for word in (day, region, service, "aws4_request"):
        key = hmac.digest(key, word.encode(), "sha256")
    return key


def signature(secret, date, region, canonical):
    """Hex. date: YYYYMMDDTHHMMSSZ."""
    scope = f"{date[:8]}/{region}/s3/aws4_request"
    text = "\n".join([ALGORITHM, date, scope, hashlib.sha256(canonical.encode("utf-8", "surrogateescape")).hexdigest()])
    return hmac.digest(signing_key(secret, date[:8], region), text.encode(), "sha256").hex()


def authorization(access, secret, region, date, method, path, query, headers, payload):
    """Value of the Authorization header that signs exactly these headers."""
    signed = sorted({name.lower() for name, _ in headers})
    canonical = canonical_request(method, path, query, headers, signed, payload)
    return (
        f"{ALGORITHM} Credential={access}/{date[:8]}/{region}/s3/aws4_request, "
        f"SignedHeaders={';'.join(signed)}, Signature={signature(secret, date, region, canonical)}"
    )
