"""A small S3 client for tests: reads a lake back and cleans up, from any store on this machine. Blocks; one thread.

    lake = S3Client(port=9000, bucket="lake", access_key="k", secret_key="s", region="us-east-1")
    lake.put("a/b", b"bytes"); lake.get("a/b"); lake.list("a/"); lake.delete("a/b")
"""

import base64
import hashlib
import http.client
import re
import socket
import ssl
import time
import urllib.parse
import xml.etree.ElementTree

import s3_sigv4

USER_AGENT = "s3-client-of-the-tests"  # our S3 server does not hold it to the rules of the sink


class S3Failed(Exception):
    """Any answer but 2xx."""

    def __init__(self, what, answer):
        super().__init__(f"{what}: {answer}")
        self.status = answer.status
        self.code = answer.code


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers  # names in lower case
        self.body = body

    @property
    def code(self):
        """<Code> of an error document, or None."""
        match = re.search(rb"<Code>([^<]*)</Code>", self.body)
        return match.group(1).decode() if match else None

    @property
    def xml(self):
        """The document without its namespace."""
        return xml.etree.ElementTree.fromstring(re.sub(rb' xmlns="[^"]*"', b"", self.body))

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


class S3Client:
    """Connects to `address`, whatever `host` (the name in the Host header and in TLS) is. ca: a file; None: http."""

    def __init__(self, port, bucket, access_key, secret_key, region="us-east-1", host=None, addressing="path",
                 ca=None, address="127.0.0.1", timeout=60, user_agent=USER_AGENT):
        self.port, self.bucket, self.region, self.addressing = port, bucket, region, addressing
        self.access_key, self.secret_key = access_key, secret_key
        host = host or ("s3.localhost" if addressing == "virtual" else address)
        self.host = f"{bucket}.{host}" if addressing == "virtual" else host
        self.address, self.timeout, self.user_agent = address, timeout, user_agent
        self.tls = ssl.create_default_context(cafile=ca) if ca else None
        self.clock_offset_s = 0
        self.connection = None

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    # --- requests ---

    def request(self, method, key="", query=(), body=b"", headers=None, sign=None):
        """One request and its Answer. sign: changes the dict of headers after they were signed."""
        query = list(query.items() if isinstance(query, dict) else query)
        path, target_query, sent = self._signed(method, key, query, body, headers or {})
        if sign is not None:
            sign(sent)
        target = path + (f"?{target_query}" if target_query else "")
        return self._exchange(method, target, body, sent)

    def _signed(self, method, key, query, body, headers):
        path = "/" + s3_sigv4.encode(key, keep="/")
        if self.addressing == "path":
            path = f"/{self.bucket}" + (path if key else "")
        sent = {
            "host": f"{self.host}:{self.port}",
            "x-amz-content-sha256": hashlib.sha256(body).hexdigest(),
            "x-amz-date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + self.clock_offset_s)),
            **{name.lower(): value for name, value in headers.items()},
        }
        target_query = s3_sigv4.canonical_query(query)
        sent["authorization"] = s3_sigv4.authorization(
            self.access_key, self.secret_key, self.region, sent["x-amz-date"], method, path, target_query,
            list(sent.items()), sent["x-amz-content-sha256"])
        if self.user_agent:
            sent["user-agent"] = self.user_agent
        return path, target_query, sent

    def _exchange(self, method, target, body, headers):
        while True:
            reused = self.connection is not None
            if not reused:
                self.connection = self._connect()
            try:
                return self._send(method, target, body, headers)
            except (http.client.RemoteDisconnected, ConnectionError):
                self.close()
                if not reused:  # else it was closed between two requests
                    raise
            except Exception:
                self.close()
                raise

    def _connect(self):
        connection = http.client.HTTPConnection(self.address, self.port, timeout=self.timeout)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls:
            connection.sock = self.tls.wrap_socket(connection.sock, server_hostname=self.host)
        return connection

    def _send(self, method, target, body, headers):
        connection = self.connection
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if "content-length" not in headers and (body or method in ("PUT", "POST")):
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body or None)
        response = connection.getresponse()
        answer = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        if response.will_close:
            self.close()
        return answer

    def call(self, method, key="", query=(), body=b"", headers=None):
        """request() that expects 2xx."""
        answer = self.request(method, key, query, body, headers)
        if not 200 <= answer.status < 300:
            raise S3Failed(f"{method} {self.bucket}/{key}", answer)
        return answer

    # --- objects ---

    def put(self, key, data, content_type="application/octet-stream", headers=None):
        md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
        return self.call("PUT", key, (), data, {"content-type": content_type, "content-md5": md5, **(headers or {})})

    def get(self, key):
        return self.call("GET", key).body

    def head(self, key):
        """The headers, or None when there is no such object."""
        answer = self.request("HEAD", key)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise S3Failed(f"HEAD {key}", answer)
        return answer.headers

    def delete(self, key):
        return self.call("DELETE", key)

    def list(self, prefix="", page=1000):
        """All keys, sorted, whatever the order of the store."""
        keys, token = [], None
        while True:
            query = {"list-type": "2", "max-keys": str(page), "prefix": prefix}
            if token:
                query["continuation-token"] = token
            document = self.call("GET", "", query).xml
            keys += [entry.findtext("Key") for entry in document.findall("Contents")]
            token = document.findtext("NextContinuationToken")
            if document.findtext("IsTruncated") != "true":
                return sorted(keys, key=str.encode)

    # --- uploads in parts ---

    def create_upload(self, key, content_type="application/octet-stream"):
        answer = self.call("POST", key, {"uploads": ""}, b"", {"content-type": content_type})
        return answer.xml.findtext("UploadId")

    def put_part(self, key, upload_id, number, data):
        """Its ETag, as sent."""
        query = {"partNumber": str(number), "uploadId": upload_id}
        return self.call("PUT", key, query, data).headers.get("etag", "")

    def complete(self, key, upload_id, etags):
        """etags: of the parts from 1 on. The Answer: a 200 may hold an error."""
        body = "<CompleteMultipartUpload>"
        for number, etag in enumerate(etags, 1):
            bare = etag.strip('"')
            body += f'<Part><PartNumber>{number}</PartNumber><ETag>"{bare}"</ETag></Part>'
        body += "</CompleteMultipartUpload>"
        headers = {"content-type": "application/xml"}
        return self.call("POST", key, {"uploadId": upload_id}, body.encode(), headers)

    def put_in_parts(self, key, parts):
        upload_id = self.create_upload(key)
        return self.complete(key, upload_id, [self.put_part(key, upload_id, n, p) for n, p in enumerate(parts, 1)])

    def list_uploads(self):
        """[(key, upload id)]"""
        document = self.call("GET", "", {"uploads": ""}).xml
        return [(u.findtext("Key"), u.findtext("UploadId")) for u in document.findall("Upload")]

    def abort_upload(self, key, upload_id):
        return self.call("DELETE", key, {"uploadId": upload_id})

    def create_bucket(self):
        return self.call("PUT")


def client_of(endpoint, **options):
    """A client for http[s]://host:port."""
    parts = urllib.parse.urlsplit(endpoint)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return S3Client(port=port, host=parts.hostname, **options)
