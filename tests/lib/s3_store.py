"""The objects of the S3 server of the tests: buckets in memory, uploads in parts, listings in the order of a store."""

import hashlib
import threading
import time

from s3_protocol import S3Error

KEY_MAX = 1024  # bytes


class Stored:
    """A version of an object. data: a list of pieces, as they came."""

    def __init__(self, data, sha256, etag, content_type):
        self.data = data
        self.size = sum(len(piece) for piece in data)
        self.sha256 = sha256
        self.etag = etag  # with its quotes
        self.content_type = content_type
        self.time = time.time()


class Part:
    def __init__(self, data, sha256, md5):
        self.data = data
        self.size = len(data)
        self.sha256 = sha256
        self.md5 = md5
        self.etag = md5.hex()  # what the client was told

    def __repr__(self):
        return f"<{self.size} bytes {self.sha256[:12]}>"


class Upload:
    def __init__(self, upload_id, key, content_type):
        self.id = upload_id
        self.key = key
        self.content_type = content_type
        self.parts = {}  # number -> Part
        self.time = time.time()

    def __repr__(self):
        return f"<upload {self.id} of {self.key}: {self.parts}>"


def is_data(key):
    """Is it a data object, and not a manifest or a checkpoint?"""
    return "_queen" not in key.split("/")[:-1]


class Bucket:
    """Thread-safe. problem: called with a text when something was stored that must not be."""

    def __init__(self, options, problem):
        self.options = options
        self.problem = problem
        self.lock = threading.Lock()
        self.objects = {}
        self.uploads = {}
        self.completed = {}  # upload id -> (key, the list it was completed with, Stored)
        self.writes = {}  # key -> sha256 of every version
        self.ids = 0

    # --- objects ---

    def put(self, key, data, sha256, etag, content_type):
        stored = Stored(data, sha256, etag, content_type)
        with self.lock:
            self._store(key, stored)
        return stored

    def _store(self, key, stored):
        before = self.objects.get(key)
        if before is not None and before.sha256 != stored.sha256 and is_data(key):
            self.problem(f"{key}: a data object was overwritten with other bytes")
        self.objects[key] = stored
        self.writes.setdefault(key, []).append(stored.sha256)

    def find(self, key):
        with self.lock:
            if key not in self.objects:
                raise S3Error("NoSuchKey", "The specified key does not exist.", extra={"Key": key})
            return self.objects[key]

    def delete(self, key):
        with self.lock:
            self.objects.pop(key, None)

    # --- listings ---

    def list(self, prefix, start_after, token, max_keys):
        """[(key, Stored)], is there more. Tokens are the last key of the page before."""
        with self.lock:
            keys = [key for key in self.objects if key.startswith(prefix)]
            order = folder_order if self.options.list_order == "folders" else byte_order
            keys.sort(key=order)
            if token:
                keys = [key for key in keys if order(key) > order(token)]
            elif start_after:
                keys = [key for key in keys if order(key) > order(start_after)]
                # A walk through folders that starts behind `a` does not enter the folder `a` either.
                if self.options.list_order == "folders" and start_after in self.objects:
                    keys = [key for key in keys if not key.startswith(start_after + "/")]
            return [(key, self.objects[key]) for key in keys[:max_keys]], len(keys) > max_keys

    # --- uploads in parts ---

    def create_upload(self, key, content_type):
        with self.lock:
            self.ids += 1
            upload = Upload(f"2~Up+load/{self.ids:06d}=", key, content_type)
            self.uploads[upload.id] = upload
            return upload

    def _upload(self, key, upload_id):
        upload = self.uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise S3Error("NoSuchUpload", "The specified upload does not exist. The upload ID may be invalid, or the "
                          "upload may have been aborted or completed.", extra={"UploadId": upload_id})
        return upload

    def put_part(self, key, upload_id, number, part):
        with self.lock:
            self._upload(key, upload_id).parts[number] = part

    def forget_upload(self, upload_id):
        with self.lock:
            self.uploads.pop(upload_id, None)
            self.completed.pop(upload_id, None)

    def abort_upload(self, key, upload_id):
        with self.lock:
            self._upload(key, upload_id)
            del self.uploads[upload_id]

    def complete_upload(self, key, upload_id, listed):
        """listed: (number, ETag without quotes) pairs. The Stored object, and whether this was done before."""
        with self.lock:
            done = self.completed.get(upload_id)
            if done is not None and self.options.complete_again and done[:2] == (key, listed):
                return done[2], True
            upload = self._upload(key, upload_id)
            parts = self._check_list(upload, listed)
        stored = self._join(parts, upload.content_type)
        with self.lock:
            if self.uploads.pop(upload_id, None) is None:
                raise S3Error("NoSuchUpload", extra={"UploadId": upload_id})
            self._store(key, stored)
            self.completed[upload_id] = (key, listed, stored)
        return stored, False

    def _check_list(self, upload, listed):
        numbers = [number for number, _ in listed]
        if not listed:
            raise S3Error("MalformedXML", "The list of parts is empty.")
        if any(a >= b for a, b in zip(numbers, numbers[1:])):
            raise S3Error("InvalidPartOrder", "The list of parts was not in ascending order.")
        for number, etag in listed:
            if number not in upload.parts or upload.parts[number].etag.strip('"') != etag:
                raise S3Error("InvalidPart", "One or more of the specified parts could not be found, or its ETag did "
                              "not match.", extra={"PartNumber": number, "ETag": etag})
            if number != numbers[-1] and upload.parts[number].size < self.options.part_min:
                raise S3Error("EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size",
                              extra={"PartNumber": number, "ProposedSize": upload.parts[number].size})
        if set(numbers) != set(upload.parts):
            self.problem(f"{upload.key}: the completion names {numbers} of the parts {sorted(upload.parts)}")
        return [upload.parts[number] for number in numbers]

    def _join(self, parts, content_type):
        sha256, md5 = hashlib.sha256(), hashlib.md5()
        for part in parts:
            sha256.update(part.data)
            if self.options.multipart_etag == "plain":
                md5.update(part.data)
            else:
                md5.update(part.md5)
        ending = "" if self.options.multipart_etag == "plain" else f"-{len(parts)}"
        etag = f'"{md5.hexdigest()}{ending}"'
        return Stored([part.data for part in parts], sha256.hexdigest(), etag, content_type)


def byte_order(key):
    return key.encode("utf-8", "surrogateescape")


def folder_order(key):
    return [segment.encode("utf-8", "surrogateescape") for segment in key.split("/")]
