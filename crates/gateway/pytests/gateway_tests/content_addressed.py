"""What ClickHouse's content-addressed disks ask of a store before they mount it.

Altinity's build refuses a store that fails one of these steps. No released chdb has such disks, so
the steps are taken by boto3, one by one, as that build's probe takes them. Decides what each store
answers; the page docs/clickhouse.md shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.client import BaseClient
from botocore.exceptions import ClientError

YES = "yes"
KEY = "content-addressed/object"
COPY = "content-addressed/copy"

TITLE = "What content-addressed disks ask of a store"
TEXT = """\
Disks that name objects by their content (Altinity's Antalya 26.6) refuse a store at the mount
unless it takes every step below. No released chdb has them, so the steps are taken by boto3
(`crates/gateway/pytests/test_content_addressed.py`), not by ClickHouse. On Google the condition of
a new object is kept, those of replacing and removing are refused by name.
"""

Step = tuple[str, Callable[["Probe"], None]]


class Probe:
    """One object, step by step; each step begins where the one before ended."""

    def __init__(self, client: BaseClient, bucket: str) -> None:
        self._client, self._bucket = client, bucket
        self._old = self._new = ""

    def _put(self, body: bytes, **condition: str) -> str:
        where = {"Bucket": self._bucket, "Key": KEY}
        return str(self._client.put_object(**where, Body=body, **condition)["ETag"])

    def _read(self) -> bytes:
        return bytes(self._client.get_object(Bucket=self._bucket, Key=KEY)["Body"].read())

    def _listed(self) -> bool:
        page = self._client.list_objects_v2(Bucket=self._bucket, Prefix=KEY)
        return bool(page.get("Contents"))

    def make(self) -> None:
        """A new object, which the second that makes it does not replace."""
        self._old = self._put(b"1", IfNoneMatch="*")
        fails(412, lambda: self._put(b"2", IfNoneMatch="*"))
        same(self._read(), b"1")

    def replace(self) -> None:
        """Replaced by who knows its tag, which then is another."""
        self._new = self._put(b"3", IfMatch=self._old)
        same(self._new != self._old, True)
        fails(412, lambda: self._put(b"4", IfMatch=self._old))
        same(self._read(), b"3")

    def copy(self) -> None:
        """A copy that replaces nothing."""

        def add(params: dict[str, Any], **_: object) -> None:
            params["headers"]["If-None-Match"] = "*"

        def copied() -> None:
            source = {"Bucket": self._bucket, "Key": KEY}
            self._client.copy_object(Bucket=self._bucket, Key=COPY, CopySource=source)

        self._client.meta.events.register("before-call.s3.CopyObject", add)
        try:
            copied()
            fails(412, copied)
        finally:
            self._client.meta.events.unregister("before-call.s3.CopyObject", add)
            self._client.delete_object(Bucket=self._bucket, Key=COPY)

    def listed(self) -> None:
        """There at once in a listing."""
        same(self._listed(), True)

    def keep(self) -> None:
        """Not removed by who knows another tag."""
        fails(412, lambda: self._remove(self._old))
        same(self._read(), b"3")

    def remove(self) -> None:
        """Removed by who knows its tag, and gone at once from a listing."""
        self._remove(self._new)
        same(self._listed(), False)
        fails(404, self._read)

    def _remove(self, tag: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=KEY, IfMatch=tag)


STEPS: tuple[Step, ...] = (
    ("PUT `If-None-Match: *`: the second is 412", Probe.make),
    ("PUT `If-Match`: the tag changes, the old one is 412", Probe.replace),
    ("COPY `If-None-Match: *`: the second is 412", Probe.copy),
    ("listed at once", Probe.listed),
    ("DELETE `If-Match` of another tag: 412, and it stays", Probe.keep),
    ("DELETE `If-Match` of its tag: gone, from listings too", Probe.remove),
)

TOLD = {
    lane: dict.fromkeys((title for title, _ in STEPS), YES)
    for lane in ("directory", "azurite", "azure-fake", "s3-fake", "s3-versitygw")
}
"""What the page says; the test holds every lane to it."""


class OtherwiseError(Exception):
    """A store did something else."""


def same(found: object, wanted: object) -> None:
    """Demands an answer."""
    if found != wanted:
        raise OtherwiseError(f"{found!r}, not {wanted!r}")


def fails(status: int, call: Callable[[], object]) -> None:
    """Demands a refusal."""
    try:
        call()
    except ClientError as error:
        same(error.response["ResponseMetadata"]["HTTPStatusCode"], status)
    else:
        raise OtherwiseError(f"went well, not {status}")


def answers(client: BaseClient, bucket: str) -> dict[str, str]:
    """What a store answers to every step."""
    probe = Probe(client, bucket)
    said = {}
    for title, step in STEPS:
        try:
            step(probe)
            said[title] = YES
        except (ClientError, OtherwiseError) as error:
            said[title] = f"no: {error}"
    return said


def section(titles: dict[str, str]) -> str:
    """The section of the page; `titles` are those of the lanes."""
    rows = [["step", *(titles[lane] for lane in TOLD)], ["---"] * (len(TOLD) + 1)]
    rows += [[step, *(TOLD[lane][step] for lane in TOLD)] for step, _ in STEPS]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"## {TITLE}\n\n{TEXT}\n{table}\n"
