"""What the S3 server of the tests does for each operation: an Exchange whose request was found good, to an Answer."""

import re
import secrets
import time

from s3_checks import SSE
from s3_protocol import Answer, S3Error, Xml, document, elements
from s3_sigv4 import encode
from s3_store import Part

PART_NUMBER_MAX = 10000
LIST_MAX = 1000


def run(x):
    if x.record.op not in TABLE:
        raise S3Error("NotImplemented", "The operation is not implemented.")
    return TABLE[x.record.op](x)


def answer_with_etag(make):
    """make(etag) -> Answer. The answer can be made again with another ETag, which a fault wants."""

    def of(etag):
        answer = make(etag)
        answer.etag = etag
        answer.with_etag = of
        return answer

    return of


def etag_header(etag):
    return {} if etag is None else {"ETag": etag}


# --- objects ---


def put(x):
    etag = f'"{x.md5.hexdigest()}"'
    encryption = encryption_headers(x)
    if encryption.get(SSE) == "aws:kms":
        etag = f'"{secrets.token_hex(16)}"'  # no digest of what the client sent
    x.bucket.put(x.record.key, [x.body], x.record.sha256, etag, x.head.get("content-type", ""))
    return answer_with_etag(lambda e: Answer(200, headers={**etag_header(e), **encryption}))(etag)


def encryption_headers(x):
    if x.options.sse != "accept":
        return {}
    return {name: x.head.get(name) for name in (SSE, SSE + "-aws-kms-key-id") if x.head.get(name) is not None}


def object_headers(stored):
    return {"Last-Modified": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(stored.time))}


def get(x):
    stored = x.bucket.find(x.record.key)
    body = stored.data[0] if len(stored.data) == 1 else b"".join(stored.data)
    return answer_with_etag(lambda e: Answer(
        200, bytes(body), {**etag_header(e), **object_headers(stored)}, len(body), stored.content_type))(stored.etag)


def head(x):
    if not x.record.key:
        return Answer(200)
    stored = x.bucket.find(x.record.key)
    return answer_with_etag(lambda e: Answer(
        200, b"", {**etag_header(e), **object_headers(stored)}, stored.size, stored.content_type))(stored.etag)


def delete(x):
    x.bucket.delete(x.record.key)
    return Answer(204)


# --- buckets ---


def create_bucket(x):
    if x.bucket is not None:
        raise S3Error("BucketAlreadyOwnedByYou", "The bucket is there already.")
    x.server.add_bucket(x.record.bucket)
    return Answer(200)


def list_buckets(x):
    inner = elements(Buckets=[Xml(elements(Bucket=Xml(elements(Name=name)))) for name in sorted(x.server.buckets)])
    return Answer(200, document("ListAllMyBucketsResult", inner))


def list_objects(x):
    params = x.record.query
    max_keys = params.get("max-keys", str(LIST_MAX))
    if not re.fullmatch(r"\d{1,9}", max_keys):
        raise S3Error("InvalidArgument", "Provided max-keys not an integer or within integer range")
    token = params.get("continuation-token")
    try:
        after = bytes.fromhex(token).decode("utf-8", "surrogateescape") if token else None
    except ValueError:
        raise S3Error("InvalidArgument", "The continuation token provided is incorrect") from None
    size = min(int(max_keys), LIST_MAX)
    rows, more = x.bucket.list(params.get("prefix", ""), params.get("start-after", ""), after, size)
    return Answer(200, list_document(x, rows, more and size > 0, size))


def list_document(x, rows, more, size):
    params = x.record.query
    encoded = params.get("encoding-type") == "url" and not x.options.encoding_type_ignored
    show = (lambda key: encode(key, keep="/")) if encoded else str
    contents = [elements(Key=show(key), LastModified=iso(stored.time), ETag=stored.etag, Size=stored.size,
                         StorageClass="STANDARD") for key, stored in rows]
    token = rows[-1][0].encode("utf-8", "surrogateescape").hex() if more else None
    return document("ListBucketResult", elements(
        Name=x.record.bucket, Prefix=show(params.get("prefix", "")), StartAfter=params.get("start-after"),
        EncodingType="url" if encoded else None, KeyCount=len(rows), MaxKeys=size,
        IsTruncated="true" if more else "false", NextContinuationToken=token, Contents=contents))


def iso(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


# --- uploads in parts ---


def multipart_create(x):
    upload = x.bucket.create_upload(x.record.key, x.head.get("content-type", ""))
    inner = elements(Bucket=x.record.bucket, Key=upload.key, UploadId=upload.id)
    return Answer(200, document("InitiateMultipartUploadResult", inner), encryption_headers(x))


def multipart_part(x):
    if x.record.part is None or not 1 <= x.record.part <= PART_NUMBER_MAX:
        raise S3Error("InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
    part = Part(x.body, x.record.sha256, x.md5.digest())
    x.bucket.put_part(x.record.key, x.record.upload, x.record.part, part)

    def make(etag):
        part.etag = etag or ""
        return Answer(200, headers=etag_header(etag))

    return answer_with_etag(make)(f'"{part.md5.hex()}"')


def multipart_complete(x):
    stored, again = x.bucket.complete_upload(x.record.key, x.record.upload, parse_completion(bytes(x.body)))
    style = x.options.multipart_etag
    etag = "" if style == "empty" and not again else stored.etag
    if style in ("unquoted", "empty"):
        etag = etag.strip('"')

    def make(value):
        inner = elements(Location=x.head.path, Bucket=x.record.bucket, Key=x.record.key, ETag=value or "")
        return Answer(200, document("CompleteMultipartUploadResult", inner))

    return answer_with_etag(make)(etag)


def parse_completion(body):
    """(number, ETag without quotes) pairs of the document, which must be as AWS describes it."""
    text = body.decode("utf-8", "replace")
    part = r"<Part><PartNumber>(\d{1,5})</PartNumber><ETag>([^<]*)</ETag></Part>"
    start = r'(?:<\?xml [^>]*\?>\s*)?<CompleteMultipartUpload(?: xmlns="[^"]*")?>'
    match = re.fullmatch(rf"{start}((?:{part})*)</CompleteMultipartUpload>\s*", text)
    if match is None:
        raise S3Error("MalformedXML", "The XML you provided was not well-formed")
    return [(int(number), unescape(etag).strip('"')) for number, etag in re.findall(part, match.group(1))]


def unescape(text):
    for name, char in (("&quot;", '"'), ("&#34;", '"'), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(name, char)
    return text


def multipart_abort(x):
    x.bucket.abort_upload(x.record.key, x.record.upload)
    return Answer(204)


def list_uploads(x):
    with x.bucket.lock:
        uploads = [(u.key, u.id) for u in x.bucket.uploads.values()]
    rows = [elements(Key=key, UploadId=upload_id) for key, upload_id in uploads]
    return Answer(200, document("ListMultipartUploadsResult", elements(
        Bucket=x.record.bucket, IsTruncated="false", Upload=rows)))


TABLE = {
    "head": head, "put": put, "get": get, "list": list_objects, "multipart_create": multipart_create,
    "multipart_part": multipart_part, "multipart_complete": multipart_complete, "multipart_abort": multipart_abort,
    "delete": delete, "create_bucket": create_bucket, "list_buckets": list_buckets, "list_uploads": list_uploads,
}
