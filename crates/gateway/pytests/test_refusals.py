"""What the gateway does not have is answered so that clients do not send it again.

Each client is real. The gateway counts the requests: how long a client waits between two is its own
business.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from penstock_bench.gateways import Running

from gateway_tests import lanes
from gateway_tests.programs import environment, installed

BIN = Path(sys.executable).parent
PYTHON = sys.executable


def uploads(lane: Running) -> int:
    """PUT and POST requests that the gateway has had."""
    with urllib.request.urlopen(f"{lane.url}/_penstock/stats", timeout=10) as answer:
        methods = json.load(answer)["requests"]["method"]
    return int(methods.get("PUT", 0)) + int(methods.get("POST", 0))


def failing(lane: Running, directory: Path, command: list[str]) -> tuple[int, str]:
    """Runs a command that must fail: the uploads that it sent, and what it said."""
    before = uploads(lane)
    # As many tries as the client makes by itself.
    variables = environment(lane, directory)
    del variables["AWS_MAX_ATTEMPTS"]
    done = subprocess.run(
        command,
        cwd=directory,
        env=variables,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    return uploads(lane) - before, done.stdout + done.stderr


@pytest.fixture
def bucket(lane: Running, tmp_path: Path) -> str:
    (tmp_path / "file").write_bytes(b"bytes")
    name = "refusals-" + tmp_path.name.replace("_", "-")[-20:].strip("-").lower()
    lanes.client(lane).create_bucket(Bucket=name)
    return name


def s3cmd(lane: Running, tmp_path: Path) -> Callable[..., list[str]]:
    host = lane.url.removeprefix("http://")
    config = tmp_path / "s3cfg"
    config.write_text(
        f"[default]\naccess_key = {lane.access_key}\nsecret_key = {lane.secret_key}\n"
        f"host_base = {host}\nhost_bucket = {host}\nuse_https = False\n"
    )
    return lambda *words: [PYTHON, str(BIN / "s3cmd"), "--config", str(config), *words]


def test_s3cmd_sends_an_upload_that_is_refused_once(
    lane: Running, bucket: str, tmp_path: Path
) -> None:
    command = s3cmd(lane, tmp_path)
    for words, said in (
        (("--acl-public",), "AccessControlListNotSupported"),
        (("--add-header=x-amz-website-redirect-location:/x",), "NotImplemented"),
        (("--server-side-encryption-kms-id=k", "--server-side-encryption"), "NotImplemented"),
    ):
        count, text = failing(
            lane, tmp_path, command("put", *words, "file", f"s3://{bucket}/refused")
        )
        assert (count, said in text) == (1, True), text
    count, text = failing(lane, tmp_path, command("setacl", "--acl-public", f"s3://{bucket}"))
    assert count == 1 and "AccessControlListNotSupported" in text, text


def test_s3cmd_does_without_sub_resources(lane: Running, bucket: str, tmp_path: Path) -> None:
    """It asks for lifecycle, policy and lists, and goes on where they are not there."""
    command = s3cmd(lane, tmp_path)
    for words in (
        ("put", "file", f"s3://{bucket}/k"),
        ("cp", f"s3://{bucket}/k", f"s3://{bucket}/l"),
        ("info", f"s3://{bucket}"),
        ("info", f"s3://{bucket}/l"),
        ("del", f"s3://{bucket}/k", f"s3://{bucket}/l"),
    ):
        subprocess.run(command(*words), cwd=tmp_path, check=True, timeout=40, capture_output=True)


@pytest.mark.parametrize("mode", ["legacy", "standard"])
def test_boto3_sends_it_once(lane: Running, bucket: str, mode: str) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=lane.url,
        aws_access_key_id=lane.access_key,
        aws_secret_access_key=lane.secret_key,
        region_name="us-east-1",
        config=Config(retries={"mode": mode, "max_attempts": 4}),
    )
    to = {"Bucket": bucket, "Key": "k", "Body": b"x"}
    website = {"IndexDocument": {"Suffix": "i"}}
    for operation, words, code, status in (
        ("put_object", {**to, "ACL": "public-read"}, "AccessControlListNotSupported", 400),
        ("put_object", {**to, "WebsiteRedirectLocation": "/x"}, "NotImplemented", 400),
        (
            "put_bucket_website",
            {"Bucket": bucket, "WebsiteConfiguration": website},
            "NotImplemented",
            501,
        ),
    ):
        before = uploads(lane)
        with pytest.raises(ClientError) as refused:
            getattr(client, operation)(**words)
        told = refused.value.response
        assert told["Error"]["Code"] == code
        assert told["ResponseMetadata"]["HTTPStatusCode"] == status
        assert uploads(lane) - before == 1


def test_aws_cli_and_s5cmd_send_it_once(lane: Running, bucket: str, tmp_path: Path) -> None:
    target = f"s3://{bucket}/k"
    for command in (
        [PYTHON, str(BIN / "aws"), "s3", "cp", "--acl", "public-read", "file", target],
        [str(BIN / "s5cmd"), "cp", "--acl", "public-read", "file", target],
    ):
        count, text = failing(lane, tmp_path, command)
        assert (count, "AccessControlListNotSupported" in text) == (1, True), text


def test_rclone_sends_it_once_for_each_of_its_tries(
    lane: Running, bucket: str, tmp_path: Path
) -> None:
    config = tmp_path / "rclone.conf"
    config.write_text(
        "[gw]\ntype = s3\nprovider = Other\nregion = us-east-1\nforce_path_style = true\n"
        f"endpoint = {lane.url}\naccess_key_id = {lane.access_key}\n"
        f"secret_access_key = {lane.secret_key}\nacl = public-read\nno_check_bucket = true\n"
    )
    words = ["--config", str(config), "--retries", "1", "copyto", "file", f"gw:{bucket}/k"]
    count, text = failing(lane, tmp_path, [installed("rclone"), *words])
    assert (count, "AccessControlListNotSupported" in text) == (1, True), text
