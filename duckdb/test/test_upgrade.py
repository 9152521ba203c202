"""What an older Penstock left opens with this one, and what a newer one left is told apart.

`make_older.py` makes the files. Their formats are promised in docs/semantics.md.
"""

from __future__ import annotations

import lzma
import os
import re
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from harness import BUILD, connect
from make_older import PORT, text

OLDER = Path(__file__).resolve().parent / "older"
STORE = ["-o", f"endpoint=127.0.0.1:{PORT}", "-o", "use_ssl=false", "--anonymous"]
VOLUME_COPIES = (0, 1 << 20, 7 << 20)
"""Where the copies of the table lie on a volume of 8 MiB."""


def unpack(name: str, to: Path) -> Path:
    to.parent.mkdir(exist_ok=True)
    to.write_bytes(lzma.decompress((OLDER / f"{name}.xz").read_bytes()))
    to.chmod(0o600)
    return to


def penstock(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [str(BUILD / "penstock"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60)


def change(path: Path, at: int, to: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(to.to_bytes(4, "little"))


def test_a_database_on_an_older_volume_is_read_and_written(tmp_path: Path) -> None:
    volume = unpack("volume", tmp_path / "volume")
    for written in (0, 1):
        con = connect()
        con.execute(f"ATTACH 'nvme://{volume}?db=main_db' AS d")
        rows = con.execute("SELECT count(*), sum(i), max(name) FROM d.t").fetchone()
        assert rows == (1000 + written, 499_500 + 5000 * written, "row 999")
        con.execute("INSERT INTO d.t VALUES (5000, 'new')" if not written else "SELECT 1")
        con.close()
    checked = penstock("nvme", "check", volume)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count(b"sound") == len(VOLUME_COPIES), checked.stdout


def test_a_volume_of_a_newer_format_is_refused_by_name_and_left_alone(tmp_path: Path) -> None:
    volume = unpack("volume", tmp_path / "volume")
    for at in VOLUME_COPIES:
        change(volume, at + 8, 2)
    before = volume.read_bytes()
    told = penstock("nvme", "ls", volume)
    assert told.returncode != 0
    assert b"the volume has format 2, known is 1" in told.stderr
    assert b"Use a newer Penstock" in told.stderr
    assert volume.read_bytes() == before


@pytest.fixture(params=["directory", "device"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """What `cache_dir` is set to, and the file in which blocks lie."""
    if request.param == "device":
        path = unpack("cache-device", tmp_path / "cache")
        return f"nvme://{path}", path
    directory = tmp_path / "cache"
    return str(directory), unpack("cache-directory", directory / "0000000000000000.blocks")


def cat(cache: str) -> subprocess.CompletedProcess[bytes]:
    """Reads the object without a store behind it."""
    once = ["--cache-validation", "never", "--request-deadline-ms", "1000"]
    return penstock("cat", "s3://lake/older.txt", *STORE, "--cache-dir", cache, *once)


def test_blocks_of_an_older_cache_are_used(cache: tuple[str, Path]) -> None:
    done = cat(cache[0])
    assert done.returncode == 0, done.stderr
    assert done.stdout == text()


def test_blocks_of_another_format_are_not_used(cache: tuple[str, Path]) -> None:
    setting, path = cache
    change(path, 8, 2)
    # Its checksum tells a cache of another format from a damaged one.
    begin = bytearray(path.read_bytes()[:64])
    if setting.startswith("nvme://"):
        begin[12:16] = bytes(4)
        change(path, 12, zlib.crc32(begin))
        change(path, path.stat().st_size - 4096 + 8, 2)
        change(path, path.stat().st_size - 4096 + 12, zlib.crc32(begin))
    else:
        change(path, 12, zlib.crc32(begin[:12]))
    done = cat(setting)
    assert done.returncode != 0
    assert done.stdout == b""
    assert f"127.0.0.1:{PORT}" in done.stderr.decode(), "the store is asked, and is not there"


@contextmanager
def served(root: Path, config: str) -> Iterator[str]:
    """The gateway with a config file; yields its address."""
    (root / "penstock.toml").write_text(config.replace("ROOT", str(root)))
    (root / "admin").write_text("secret-of-admin\n")
    (root / "admin").chmod(0o600)
    command = [str(BUILD / "penstock"), "serve", "--config", str(root / "penstock.toml")]
    environment = {**os.environ, "REPORTS_SECRET": "secret-of-reports"}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout
    try:
        told = re.search(r"http://[\d.:]+", server.stdout.readline())
        assert told, "it does not start with this config"
        yield told.group()
    finally:
        server.terminate()
        server.wait()


def test_an_older_config_serves_an_older_directory(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    archive = str(OLDER / "bucket.tar.xz")
    tar = ["tar", "--xattrs", "--no-same-owner", "-xJf", archive, "-C", str(tmp_path / "lake")]
    subprocess.run(tar, check=True)
    with served(tmp_path, (OLDER / "penstock.toml").read_text()) as address:
        s3 = boto3.client(
            "s3",
            endpoint_url=address,
            region_name="us-east-1",
            aws_access_key_id="admin",
            aws_secret_access_key="secret-of-admin",
            config=Config(s3={"addressing_style": "path"}),
        )
        found = s3.get_object(Bucket="kept", Key="a/older.txt")
        assert found["Body"].read() == text()
        assert found["ContentType"] == "text/x-older"
        assert found["Metadata"] == {"by": "hand"}
        tags = s3.get_object_tagging(Bucket="kept", Key="a/older.txt")["TagSet"]
        assert tags == [{"Key": "kept", "Value": "yes"}]
        versions = s3.list_object_versions(Bucket="kept")["Versions"]
        sizes = [version["Size"] for version in versions]
        assert sizes == [len(text()), len(b"the first version")]
        first = s3.get_object(Bucket="kept", Key="a/older.txt", VersionId=versions[1]["VersionId"])
        assert first["Body"].read() == b"the first version"
        names = {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}
        assert names == {"kept", "events"}


def test_a_key_of_a_newer_config_is_refused_by_name(tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text("anonymous = true\nsetting_of_tomorrow = 1\n")
    told = penstock("serve", "--config", config)
    assert told.returncode != 0
    assert b"setting_of_tomorrow" in told.stderr
    assert b"line 2" in told.stderr
