"""Who sends requests in the workload `soak`: workers with keys of their own, and onlookers.

Decides what is sent about a key, and compares each answer with what the key may hold
(`soak_model`). Who writes by one gateway and reads by another may find what the latter remembers.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from penstock_bench import load
from penstock_bench.gateways import Running
from penstock_bench.soak_model import KIB, MIB, Model, Version

BUCKET = "soak"
KEYS = 10
"""Of each worker."""
WEIGHTS = {
    "put_small": 20,
    "put_large": 6,
    "upload": 2,
    "get": 30,
    "range": 20,
    "ranges": 4,
    "head": 8,
    "list": 4,
    "delete": 4,
    "delete_many": 1,
    "copy": 4,
    "vanish_putting": 3,
    "vanish_getting": 2,
    "abort": 1,
}
UNHEARD = "vanish_putting"
"""After it the gateway remembers nothing of the key for five minutes."""
_FAILURES = (ClientError, BotoCoreError, OSError)


def client(server: Running, attempts: int = 3) -> Any:  # noqa: ANN401 - boto3 has no types
    """A client as applications have it, which tries so often."""
    return boto3.client(
        "s3",
        endpoint_url=server.url,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        region_name="us-east-1",
        config=Config(
            retries={"total_max_attempts": attempts, "mode": "standard"},
            connect_timeout=10,
            read_timeout=30,
        ),
    )


def code_of(error: Exception) -> str:
    """What a failure says, in a word."""
    if isinstance(error, ClientError):
        return str(error.response["Error"]["Code"])
    return type(error).__name__


def read(reader: Any, key: str, **more: str) -> bytes | None:  # noqa: ANN401 - boto3 has no types
    """The bytes of a key; None where there is no object."""
    try:
        body = reader.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read()
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchKey":
            return None
        raise
    return bytes(body)


class Tally:
    """What somebody met who sends one request in each `pause_s`."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        """What failures said."""
        self.slowest_s: dict[str, float] = {}
        self.bytes = 0
        self.violations: list[str] = []

    def attempt(self, name: str, act: Callable[[], None], whose: str = "") -> None:
        """Does one thing, takes note of how it ended, and lets the pause pass."""
        begin = time.monotonic()
        try:
            act()
            self.done[name] += 1
        except _FAILURES as error:
            self.failed[name] += 1
            self.told[f"{name}{whose}: {code_of(error)}"] += 1
        took_s = time.monotonic() - begin
        self.slowest_s[name] = max(self.slowest_s.get(name, 0.0), took_s)
        # The pace of the traffic, not a wait for anything.
        time.sleep(max(0.0, self._pause_s - took_s))


class Worker(Tally):
    """Sends one request after the other about its own keys."""

    def __init__(
        self,
        server: Running,
        number: int,
        deadline: float,
        pause_s: float,
        weights: Mapping[str, int],
        writes_by: Running | None = None,
        stale_s: float = 0.0,
    ) -> None:
        """`writes_by` is another gateway, of whose writes this one learns `stale_s` later."""
        self.thread = threading.Thread(target=self.run, name=f"soak-{number}", daemon=True)
        self._server, self._prefix = server, f"w{number}/"
        self._deadline, self._weights = deadline, weights
        self._chance = random.Random(number)  # noqa: S311 - the same on every run
        # Half of them see each failure, and what it leaves.
        attempts = 1 + 2 * (number % 2)
        self._client = client(server, attempts)
        self._writer = client(writes_by, attempts) if writes_by else self._client
        self._whose = ", replaced elsewhere" if writes_by else ""
        self._seed = number << 40
        may_be: dict[str, set[Version | None]]
        may_be = {f"{self._prefix}k{n}": {None} for n in range(KEYS)}
        self.model = Model(may_be, stale_s)
        super().__init__(pause_s)

    def run(self) -> None:
        """Until the deadline, then reads everything once more."""
        names, weights = list(self._weights), list(self._weights.values())
        try:
            while time.monotonic() < self._deadline:
                name = self._chance.choices(names, weights)[0]
                key = self._chance.choice(list(self.model.may_be))
                self.attempt(name, partial(getattr(self, f"_{name}"), key), self._whose)
        except Exception as error:  # told of as a violation
            self.violations.append(f"{self._prefix}: {type(error).__name__}: {error}")

    def check_all(self) -> None:
        """Every key holds what it may; the back end behaves again.

        What another gateway replaced may come from the cache in part: such an answer breaks off,
        and the next one is of what is there now.
        """
        for key in self.model.may_be:
            try:
                self._get(key)
            except _FAILURES:
                if not self.model.stale_s:
                    raise
                self._get(key)
        self._list("")

    def check_by(self, server: Running) -> None:
        """Every key holds that by another gateway, too, which remembers nothing."""
        self._client, self.model.stale_s = client(server), 0.0
        self.check_all()

    def _violation(self, key: str, what: str) -> None:
        held = sorted(str(version) for version in self.model.of(key))
        self.violations.append(f"{key}: {what}; it may hold {', '.join(held)}")

    def _version(self, size: int) -> Version:
        self._seed += 1
        return Version(self._seed, size)

    def _write(self, key: str, version: Version | None, send: Callable[[], object]) -> None:
        granted = False
        self.model.begins(key, version)
        try:
            send()
            granted = True
        finally:
            self.model.wrote(key, version, granted)

    def _put(self, key: str, size: int) -> None:
        version = self._version(size)
        body = version.content()
        self.bytes += size
        meta = {"seed": str(version.seed)}
        self._write(
            key,
            version,
            lambda: self._writer.put_object(Bucket=BUCKET, Key=key, Body=body, Metadata=meta),
        )

    def _put_small(self, key: str) -> None:
        self._put(key, self._chance.randrange(100 * KIB))

    def _put_large(self, key: str) -> None:
        self._put(key, self._chance.randrange(100 * KIB, 4 * MIB))

    def _upload(self, key: str) -> None:
        version = self._version(self._chance.randrange(10 * MIB, 16 * MIB))
        body, at = version.content(), {"Bucket": BUCKET, "Key": key}
        self.bytes += version.size
        meta = {"seed": str(version.seed)}
        upload = self._writer.create_multipart_upload(**at, Metadata=meta)["UploadId"]
        parts = []
        for number, begin in enumerate(range(0, version.size, 5 * MIB), 1):
            piece = body[begin : begin + 5 * MIB]
            sent = self._writer.upload_part(**at, UploadId=upload, PartNumber=number, Body=piece)
            parts.append({"PartNumber": number, "ETag": sent["ETag"]})
        self._write(
            key,
            version,
            lambda: self._writer.complete_multipart_upload(
                **at, UploadId=upload, MultipartUpload={"Parts": parts}
            ),
        )

    def _abort(self, key: str) -> None:
        at = {"Bucket": BUCKET, "Key": key}
        upload = self._writer.create_multipart_upload(**at)["UploadId"]
        self._writer.upload_part(**at, UploadId=upload, PartNumber=1, Body=bytes(MIB))
        self._writer.abort_multipart_upload(**at, UploadId=upload)

    def _delete(self, key: str) -> None:
        self._write(key, None, lambda: self._writer.delete_object(Bucket=BUCKET, Key=key))

    def _delete_many(self, key: str) -> None:
        keys = {key, self._chance.choice(list(self.model.may_be))}
        gone: set[str] = set()
        for one in keys:
            self.model.begins(one, None)
        try:
            objects = [{"Key": one} for one in sorted(keys)]
            answer = self._writer.delete_objects(Bucket=BUCKET, Delete={"Objects": objects})
            gone = {row["Key"] for row in answer.get("Deleted", [])}
        finally:
            for one in keys:
                self.model.wrote(one, None, one in gone)

    def _copy(self, key: str) -> None:
        known = self.model.of(key)
        if len(known) > 1 or known == {None}:
            return
        (version,) = known
        target = self._chance.choice([other for other in self.model.may_be if other != key])
        source = {"Bucket": BUCKET, "Key": key}
        self._write(
            target,
            version,
            lambda: self._writer.copy_object(Bucket=BUCKET, Key=target, CopySource=source),
        )

    def _read(self, key: str, **more: str) -> bytes | None:
        body = read(self._client, key, **more)
        self.bytes += len(body or b"")
        return body

    def _get(self, key: str) -> None:
        begun_s = time.monotonic()
        body = self._read(key)

        def fits(version: Version | None) -> bool:
            return body == (None if version is None else version.content())

        if not self.model.saw(key, fits, begun_s):
            got = "no object" if body is None else f"{len(body)} bytes, {body[:16]!r}"
            self._violation(key, f"a read found {got}")

    def _least(self, key: str) -> int:
        """So many bytes the key has, whatever it holds, if it is there."""
        sizes = [version.size for version in self.model.of(key) if version is not None]
        return min(sizes, default=0)

    def _range(self, key: str) -> None:
        if size := self._least(key):
            begin = self._chance.randrange(size)
            self._part(key, begin, begin + self._chance.randrange(1, 256 * KIB))

    def _ranges(self, key: str) -> None:
        """One range after the other: what follows may be fetched ahead."""
        size, step = self._least(key), self._chance.randrange(32 * KIB, 512 * KIB)
        for begin in range(0, size, step)[:8]:
            self._part(key, begin, begin + step)

    def _part(self, key: str, begin: int, end: int) -> None:
        begun_s = time.monotonic()
        body = self._read(key, Range=f"bytes={begin}-{end - 1}")

        def fits(version: Version | None) -> bool:
            return body == (None if version is None else version.content()[begin:end])

        if not self.model.saw(key, fits, begun_s):
            got = "no object" if body is None else f"{len(body)} bytes"
            self._violation(key, f"a read of bytes {begin} to {end} found {got}")

    def _head(self, key: str) -> None:
        begun_s = time.monotonic()
        try:
            found = self._client.head_object(Bucket=BUCKET, Key=key)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                raise
            found = None

        def fits(version: Version | None) -> bool:
            if version is None or found is None:
                return version is found
            told = (found["Metadata"].get("seed"), found["ContentLength"])
            return told == (str(version.seed), version.size)

        if not self.model.saw(key, fits, begun_s):
            self._violation(key, f"HEAD told {found and found['ContentLength']}")

    def _list(self, _key: str) -> None:
        answer = self._client.list_objects_v2(Bucket=BUCKET, Prefix=self._prefix)
        names = {entry["Key"] for entry in answer.get("Contents", [])}
        if not self.model.listed(names):
            self.violations.append(f"{self._prefix}: a list told {sorted(names)}")

    def _vanish(self, request: load.Prepared, sent: int, received: int) -> None:
        host, port = self._server.host.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(request.head)
            connection.sendall(request.body[:sent])
            if received:
                connection.recv(received)

    def _vanish_putting(self, key: str) -> None:
        body = memoryview(self._version(self._chance.randrange(2, 2 * MIB)).content())
        request = load.prepared(self._server, "PUT", f"/{BUCKET}/{key}", body)
        # A body without its end: the object stays what it was.
        self._vanish(request, self._chance.randrange(1, len(body)), 0)

    def _vanish_getting(self, key: str) -> None:
        request = load.prepared(self._server, "GET", f"/{BUCKET}/{key}")
        self._vanish(request, 0, self._chance.randrange(1, 64 * KIB))


class Onlooker(Tally):
    """Reads the keys of others while those write: never what was replaced before it asked."""

    def __init__(
        self,
        server: Running,
        number: int,
        deadline: float,
        pause_s: float,
        workers: Sequence[Worker],
    ) -> None:
        self.thread = threading.Thread(target=self.run, name=f"look-{number}", daemon=True)
        self._client = client(server)
        self._deadline, self._workers = deadline, workers
        self._chance = random.Random(1000 + number)  # noqa: S311 - the same on every run
        super().__init__(pause_s)

    def run(self) -> None:
        """Until the deadline."""
        try:
            while time.monotonic() < self._deadline:
                model = self._chance.choice(self._workers).model
                key = self._chance.choice(list(model.may_be))
                self.attempt("look", partial(self._look, model, key))
        except Exception as error:  # told of as a violation
            self.violations.append(f"{self.thread.name}: {type(error).__name__}: {error}")

    def _look(self, model: Model, key: str) -> None:
        with model.looking(key) as seen:
            body = read(self._client, key)
            may_be = set(seen)
        self.bytes += len(body or b"")
        if all(body != (None if it is None else it.content()) for it in may_be):
            got = "no object" if body is None else f"{len(body)} bytes, {body[:16]!r}"
            held = ", ".join(sorted(map(str, may_be)))
            self.violations.append(f"{key}: another's read found {got}; it may hold {held}")
