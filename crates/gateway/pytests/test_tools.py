"""Command line tools: aws, s5cmd, rclone. Up, down, compared, listed, moved, removed."""

from __future__ import annotations

import random
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from penstock_bench.gateways import Lane, Running

from gateway_tests import lanes
from gateway_tests.programs import installed, run

Program = Callable[..., str]
BIN = Path(sys.executable).parent
SIZES = {"small.txt": 10, "sub/middle.bin": 300_000, "sub/large one.bin": 20 << 20, "empty": 0}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files to send: several levels, a space, an empty one, one of several parts."""
    root = tmp_path / "tree"
    for name, size in SIZES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(name).randbytes(size))
    return root


def same(one: Path, other: Path) -> bool:
    """Whether two directories hold the same files."""
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in SIZES)


def test_aws_cli(lane: Running, tree: Path, tmp_path: Path) -> None:
    def aws(*words: str | Path) -> str:
        return run(lane, tmp_path, [sys.executable, BIN / "aws", *words])

    aws("s3", "mb", "s3://with-aws")
    aws("s3", "sync", "--only-show-errors", tree, "s3://with-aws/tree")
    assert "20971520 tree/sub/large one.bin" in aws("s3", "ls", "--recursive", "s3://with-aws")
    aws("s3", "sync", "--only-show-errors", "s3://with-aws/tree", tmp_path / "back")
    assert same(tree, tmp_path / "back")
    aws("s3", "mv", "--only-show-errors", "s3://with-aws/tree/small.txt", "s3://with-aws/moved")
    found = aws("s3api", "head-object", "--bucket", "with-aws", "--key", "moved")
    assert '"ContentLength": 10' in found
    url = aws("s3", "presign", "s3://with-aws/moved").strip()
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert len(answer.read()) == 10
    aws("s3", "rb", "--force", "s3://with-aws")
    assert "with-aws" not in aws("s3", "ls")


def test_aws_cli_lists_buckets_that_the_configuration_names(scratch: Path, tmp_path: Path) -> None:
    extra = (
        '[[backend]]\nname = "memory"\nurl = "mem://"\n'
        '[[bucket]]\nname = "named"\nbackend = "memory"\naliases = ["also-named"]\n'
    )
    with Lane("penstock", "directory", scratch / "named", extra=extra) as lane:
        listed = lanes.client(lane).list_buckets()["Buckets"]
        assert {one["Name"] for one in listed if one["CreationDate"]} == {"named", "also-named"}
        lines = run(lane, tmp_path, [sys.executable, BIN / "aws", "s3", "ls"]).splitlines()
        assert [line.split()[-1] for line in lines] == ["also-named", "named"]


def test_s5cmd(lane: Running, tree: Path, tmp_path: Path) -> None:
    def s5cmd(*words: str | Path) -> str:
        return run(lane, tmp_path, [BIN / "s5cmd", *words])

    s5cmd("mb", "s3://with-s5cmd")
    s5cmd("cp", "--part-size", "5", f"{tree}/", "s3://with-s5cmd/tree/")
    assert sorted(lanes.keys(lane, "with-s5cmd")) == sorted(f"tree/{name}" for name in SIZES)
    s5cmd("sync", "s3://with-s5cmd/tree/*", f"{tmp_path}/back/")
    assert same(tree, tmp_path / "back")
    s5cmd("mv", "s3://with-s5cmd/tree/small.txt", "s3://with-s5cmd/moved")
    assert lanes.keys(lane, "with-s5cmd", "moved") == ["moved"]
    assert "large one.bin" in s5cmd("ls", "s3://with-s5cmd/tree/sub/")
    s5cmd("rm", "s3://with-s5cmd/*")
    s5cmd("rb", "s3://with-s5cmd")


def test_rclone(lane: Running, tree: Path, tmp_path: Path) -> None:
    program = installed("rclone")
    config = tmp_path / "rclone.conf"
    config.write_text(
        "[gw]\ntype = s3\nprovider = Other\nregion = us-east-1\nforce_path_style = true\n"
        f"endpoint = {lane.url}\naccess_key_id = {lane.access_key}\n"
        f"secret_access_key = {lane.secret_key}\nupload_cutoff = 6M\nchunk_size = 5M\n"
    )

    def rclone(*words: str | Path) -> str:
        return run(lane, tmp_path, [program, "--config", config, "--retries", "1", *words])

    rclone("mkdir", "gw:with-rclone")
    rclone("copy", tree, "gw:with-rclone/tree")
    rclone("check", "--download", tree, "gw:with-rclone/tree")
    # Times are kept in metadata: nothing is sent a second time.
    again = rclone("copy", "-v", tree, "gw:with-rclone/tree")
    assert "There was nothing to transfer" in again and "Copied (" not in again, again
    rclone("moveto", "gw:with-rclone/tree/small.txt", "gw:with-rclone/moved")
    assert rclone("lsf", "gw:with-rclone") == "moved\ntree/\n"
    rclone("sync", "gw:with-rclone/tree/sub", tmp_path / "back")
    assert (tmp_path / "back/middle.bin").read_bytes() == (tree / "sub/middle.bin").read_bytes()
    rclone("purge", "gw:with-rclone")
    assert "with-rclone" not in rclone("lsd", "gw:")
