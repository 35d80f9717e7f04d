"""The bucket of a test: a folder, or a bucket of its own in an S3 store. run.py --store says which.

What holds for each, so that one test means the same everywhere:

    settings()     the sink's settings for it
    listing()      {key: version}; the version changes whenever the object is written
    get(key)       its bytes
    tree()         a folder that holds what is in the bucket: the bucket itself, or a mirror made now
    down(how), up()   an outage. refused: nothing takes requests; cut: they are taken and go nowhere; hang: they
                      are taken and stay unanswered (S3 only)
    close()        raises when something is left that must not be
"""

import secrets
import shutil

import s3_client
import tcp_proxy
from harness import Skip

REGION = "us-east-1"
# name: (service, addressing, scheme, host)
S3_STORES = {
    "scripted": ("", "path", "http", "127.0.0.1"),
    "rgw": ("radosgw", "path", "http", "127.0.0.1"),
    "rgw-virtual": ("radosgw", "virtual", "http", "s3.localhost"),
    "rgw-https": ("radosgw", "path", "https", "s3.localhost"),
    "seaweedfs": ("seaweedfs", "path", "http", "127.0.0.1"),
    "versitygw": ("versitygw", "path", "http", "127.0.0.1"),
}
NAMES = ("file", *S3_STORES)


def service_of(name):
    """What run.py has to start for a store."""
    return S3_STORES[name][0] if name in S3_STORES else ""


def make(env):
    if env.store_name == "file":
        return FileStore(env.dir / "s3")
    if env.store_name == "scripted":
        return ScriptedStore(env)
    return S3Store(env, env.service)


class FileStore:
    """A bucket in a local folder."""

    is_s3 = False
    name = "lake"
    region = None
    addressing = "file"

    def __init__(self, parent):
        self.path = parent / self.name
        self.endpoint = f"file://{parent}"
        self.kept = parent / "kept"

    def settings(self):
        self.path.mkdir(parents=True, exist_ok=True)
        return {"QUEEN_S3_ENDPOINT": self.endpoint, "QUEEN_S3_BUCKET": self.name}

    def listing(self):
        """Unfinished uploads are not objects."""
        files = (p for p in self.path.rglob("*") if p.is_file() and ".queen-tmp" not in p.parts)
        return {str(p.relative_to(self.path)): p.stat().st_ino for p in files}

    def get(self, key):
        return (self.path / key).read_bytes()

    def tree(self):
        return self.path

    def down(self, how="refused"):
        if how == "hang":
            raise Skip("a folder does not hang")
        self.path.rename(self.kept)
        if how == "refused":
            self.path.write_text("not a folder")

    def up(self):
        if self.path.is_file():
            self.path.unlink()
        elif self.path.exists():
            shutil.rmtree(self.path)
        self.kept.rename(self.path)

    def close(self):
        pass


class S3Store:
    """A bucket of its own in a running store. The broker reaches it through a proxy, which makes the outages; the test
    reads it directly."""

    is_s3 = True
    region = REGION

    def __init__(self, env, service):
        _, self.addressing_style, scheme, host = S3_STORES[env.store_name]
        self.addressing = {"path": "path-style", "virtual": "virtual-host"}[self.addressing_style]
        self.name = self._bucket_name()
        self.mirror = env.dir / "mirror"
        self.mirrored = {}
        self.uploads_may_stay = False
        self.ca = service.get("ca") if scheme == "https" else None
        self.keys = {name: service[name] for name in ("access_key", "secret_key")}
        port = service[scheme]
        self.proxy = tcp_proxy.TcpProxy(port, listen=env.free_port())
        self.endpoint = f"{scheme}://{host}:{self.proxy.port}"
        self.client = s3_client.S3Client(
            port=port, bucket=self.name, region=REGION, host=host, addressing=self.addressing_style, ca=self.ca,
            **self.keys
        )
        self._make_bucket()

    def _bucket_name(self):
        return f"lake-{secrets.token_hex(8)}"

    def _make_bucket(self):
        self.client.create_bucket()

    def settings(self):
        tls = {"SSL_CERT_FILE": self.ca} if self.ca else {}
        return {
            "QUEEN_S3_ENDPOINT": self.endpoint,
            "QUEEN_S3_BUCKET": self.name,
            "QUEEN_S3_REGION": REGION,
            "QUEEN_S3_ACCESS_KEY": self.keys["access_key"],
            "QUEEN_S3_SECRET_KEY": self.keys["secret_key"],
            "QUEEN_S3_PATH_STYLE": str(self.addressing_style == "path").lower(),
            "QUEEN_S3_KEY_SEGMENT_MAX": 255,  # some stores, and the mirror, keep keys as folders
            **tls,
        }

    def listing(self):
        found, token = {}, None
        while True:
            query = {"list-type": "2", "max-keys": "1000", **({"continuation-token": token} if token else {})}
            document = self.client.call("GET", "", query).xml
            for entry in document.findall("Contents"):
                found[entry.findtext("Key")] = (entry.findtext("LastModified"), entry.findtext("ETag"))
            token = document.findtext("NextContinuationToken")
            if document.findtext("IsTruncated") != "true":
                return found

    def get(self, key):
        return self.client.get(key)

    def tree(self):
        """Reads what is new since the last time only."""
        now = self.listing()
        self.mirror.mkdir(exist_ok=True)
        for key in set(self.mirrored) - set(now):
            (self.mirror / key).unlink()
        for key, version in now.items():
            if self.mirrored.get(key) != version:
                path = self.mirror / key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.get(key))
        self.mirrored = now
        return self.mirror

    def down(self, how="refused"):
        {"refused": self.proxy.refuse, "cut": self.proxy.cut, "hang": self.proxy.hang}[how]()

    def up(self):
        self.proxy.pass_on()

    def close(self):
        self.proxy.close()
        left = [] if self.uploads_may_stay else self.client.list_uploads()
        self.client.close()
        assert not left, f"open multipart uploads: {left}"


class ScriptedStore(S3Store):
    """The server of tests/lib, one for each test: it checks what the sink sends, and `server` scripts its faults."""

    def __init__(self, env):
        import s3_server

        service = {"access_key": "AKIASCRIPTED", "secret_key": "secret-key-of-the-scripted-server"}
        self.server = s3_server.S3Server(bucket=self._bucket_name(), region=REGION, **service)
        self.server.start()
        super().__init__(env, {**service, "http": self.server.port})

    def _bucket_name(self):
        return "lake"

    def _make_bucket(self):
        pass

    def close(self):
        try:
            super().close()
        finally:
            self.server.stop()
        assert self.server.problems == [], "the sink sent what it never sends:\n" + "\n".join(self.server.problems)
