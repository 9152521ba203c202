"""The lanes: what the same tests are run on. A lane is a gateway and what stands behind it."""

from __future__ import annotations

import os
from dataclasses import dataclass

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from penstock_bench.gateways import Running


@dataclass(frozen=True)
class LaneKind:
    """How a lane is made, and what a reader calls it."""

    gateway: str
    back_end: str
    title: str


LANES = {
    "s3": LaneKind("direct", "versitygw", "S3 (versitygw), no gateway"),
    "directory": LaneKind("penstock", "directory", "gateway, local directory"),
    "azurite": LaneKind("penstock", "azurite", "gateway, Azurite"),
    "azure-fake": LaneKind("penstock", "azure-fake", "gateway, Azure (our fake)"),
    "s3-fake": LaneKind("penstock", "s3-fake", "gateway, S3 (our fake)"),
    "google-fake": LaneKind("penstock", "google-fake", "gateway, Google (our fake)"),
    "s3-versitygw": LaneKind("penstock", "versitygw", "gateway, S3 (versitygw)"),
}
PARITY_LANES = ("s3", "directory", "azurite", "azure-fake", "s3-fake", "s3-versitygw")
"""Where ClickHouse's features are told of; the first has no gateway."""
CLIENT_LANES = ("directory", "azurite")
"""Where the smokes of clients run."""


def chosen(among: tuple[str, ...]) -> list[str]:
    """The lanes that PENSTOCK_TEST_LANES names; without it, these."""
    words = os.environ.get("PENSTOCK_TEST_LANES", "").replace(",", " ").split()
    unknown = [word for word in words if word not in LANES]
    if unknown:
        raise ValueError(f"no lane {', '.join(unknown)}; there are: {', '.join(LANES)}")
    return words or list(among)


def client(lane: Running, **config: object) -> BaseClient:
    """boto3 on a lane, without retries of its own: what fails shall be seen."""
    return boto3.client(
        "s3",
        endpoint_url=lane.url,
        aws_access_key_id=lane.access_key,
        aws_secret_access_key=lane.secret_key,
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 0}, **config),
    )


def keys(lane: Running, bucket: str, prefix: str = "") -> list[str]:
    """Every key in a bucket."""
    pages = client(lane).get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def uploads(lane: Running, bucket: str) -> list[str]:
    """The key of every upload that is not completed."""
    pages = client(lane).get_paginator("list_multipart_uploads").paginate(Bucket=bucket)
    return [entry["Key"] for page in pages for entry in page.get("Uploads", [])]
