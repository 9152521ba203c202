"""A disk that is really full: what `test_full_disk.py` runs on a file system of a few megabytes.

usage: small_disk.py SCENARIO DIRECTORY
"""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
from harness import BUILD, connect, start_fake, wait_until

DISK_MIB = 24
# Stands in where no file system can be mounted: no file may grow past this.
FILE_LIMIT_MIB = 12
# 40 MB that do not compress.
LARGE = "SELECT hash(i) AS h FROM range(5000000) t(i)"
FITTING = "SELECT hash(i) AS h FROM range(1000000) t(i)"


def command(directory: Path) -> tuple[list[str], bool]:
    """What makes `directory` a small disk for the command behind it; whether it is one."""
    mount = f'mount -t tmpfs -o size={DISK_MIB}m none "$0"'
    for flags in (["-m"], ["-U", "-r", "-m"]):
        unshare = ["unshare", *flags, "sh", "-c"]
        tried = subprocess.run([*unshare, mount, str(directory)], capture_output=True, check=False)
        if tried.returncode == 0:
            return [*unshare, f'{mount} && exec "$@"', str(directory)], True
    return [], False


def limit_files() -> None:
    """For the child: the limit of a file's size, told as an error and not by a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = FILE_LIMIT_MIB << 20
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def used_bytes(directory: Path) -> int:
    """What the files below it take, hidden ones too."""
    total = 0
    # Unlike pathlib's, this walk goes on where a directory is removed under it.
    for parent, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):  # it is being removed
                status = Path(parent, name).lstat()
                total += status.st_blocks * 512 if stat.S_ISREG(status.st_mode) else 0
    return total


@contextmanager
def gateway(directory: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """`penstock serve` on the small disk, and a connection with a secret for it."""
    (directory / "lake").mkdir()
    env = {**os.environ, "PENSTOCK_ACCESS_KEY": "lake", "PENSTOCK_SECRET_KEY": "hunter2"}
    serve = [f"{BUILD}/penstock", "serve", "--dir", f"{directory}", "--listen", "127.0.0.1:0"]
    # Python ignores SIGXFSZ; so must the server, or it dies of it where files are limited.
    process = subprocess.Popen(serve, stdout=subprocess.PIPE, env=env, restore_signals=False)
    assert process.stdout
    endpoint = process.stdout.readline().decode().split("http://")[1].strip()
    con = connect()
    con.execute(
        f"CREATE SECRET s (TYPE s3, KEY_ID 'lake', SECRET 'hunter2', ENDPOINT '{endpoint}', "
        "URL_STYLE 'path', USE_SSL false, REGION 'us-east-1')"
    )
    try:
        yield con
    finally:
        con.close()
        process.terminate()
        process.wait(30)


def assert_full(error: duckdb.Error, name: str) -> None:
    """The error names the object, the cause and the cure, and no key."""
    text = str(error)
    assert f"s3://lake/{name}" in text, text
    assert "507" in text, text
    assert "full" in text or "files so large" in text, text
    assert "ree space" in text or "files so large" in text, text
    assert "hunter2" not in text, text


def refuse(con: duckdb.DuckDBPyConnection, directory: Path, name: str) -> None:
    """A COPY of more than there is fails, and leaves everything as it was."""
    before = used_bytes(directory)
    names = con.execute("FROM glob('s3://lake/**')").fetchall()
    try:
        con.execute(f"COPY ({LARGE}) TO 's3://lake/{name}' (FORMAT parquet)")
    except duckdb.Error as error:
        assert_full(error, name)
    else:
        raise AssertionError("it cannot have fitted")
    wait_until(lambda: used_bytes(directory) == before, "giving space back")
    con.execute("CALL penstock_clear_cache()")
    assert con.execute("FROM glob('s3://lake/**')").fetchall() == names
    assert con.execute("SELECT count(*), sum(i) FROM 's3://lake/first.parquet'").fetchone() == (
        1000,
        499500,
    )


def copies(directory: Path, *settings: str) -> None:
    """Several large COPYs into a bucket fail one after the other; what fits still goes in."""
    with gateway(directory) as con:
        con.execute("COPY (SELECT i FROM range(1000) t(i)) TO 's3://lake/first.parquet'")
        for setting in settings:
            con.execute(setting)
        for _ in range(2):
            refuse(con, directory, "large.parquet")
        # An overwrite that does not fit keeps the old object.
        refuse(con, directory, "first.parquet")
        con.execute(f"COPY ({FITTING}) TO 's3://lake/fitting.parquet'")
        row = con.execute("SELECT count(*) FROM 's3://lake/fitting.parquet'").fetchone()
        assert row == (1_000_000,)


def multipart(directory: Path) -> None:
    """In parts: the disk is full after some of them."""
    copies(directory)


def single(directory: Path) -> None:
    """In one PUT whose length is told before its body."""
    copies(directory, "SET penstock_part_size_bytes = '64MiB'")


def refuse_file(directory: Path, arguments: list[str], told: str) -> None:
    """A command of the binary that fills the disk fails, and leaves everything as it was."""
    command = [str(BUILD / "penstock"), *arguments]
    zeros = subprocess.Popen(["head", "-c", "40000000", "/dev/zero"], stdout=subprocess.PIPE)
    done = subprocess.run(
        command, stdin=zeros.stdout, capture_output=True, restore_signals=False, check=False
    )
    zeros.kill()
    zeros.communicate()
    error = done.stderr.decode()
    assert done.returncode != 0
    assert told in error, error
    assert any(
        cause in error
        for cause in ("No space left", "File too large", "disk or quota is full", "files so large")
    ), error
    assert "hint: " in error, error
    assert "named local resource" not in error, error
    assert [path.name for path in directory.iterdir()] == ["kept.bin"]
    assert (directory / "kept.bin").read_bytes() == b"kept"


def command_line(directory: Path) -> None:
    """`penstock get` into a file, and `penstock put` to a file URL, on the small disk."""
    fake = start_fake("s3")
    try:
        con = connect()
        con.execute(f"CREATE SECRET s ({fake.secret})")
        con.execute(f"COPY ({LARGE}) TO 's3://lake/large.parquet'")
        (directory / "kept.bin").write_bytes(b"kept")
        options = [f"-oendpoint={fake.address}", "-ourl_style=path", "-ouse_ssl=false"]
        options += ["-okey_id=test", "-osecret=test", "-oregion=us-east-1"]
        for name in ("new.bin", "kept.bin"):
            target = str(directory / name)
            refuse_file(directory, ["get", "s3://lake/large.parquet", target, *options], target)
            refuse_file(directory, ["put", "-", f"file://{target}"], target)
    finally:
        fake.stop()


def disk_cache(directory: Path) -> None:
    """A disk cache that outgrows its disk: reads go on, and so does the cache."""
    fake = start_fake("s3")
    try:
        con = connect()
        con.execute(f"CREATE SECRET s ({fake.secret})")
        con.execute(f"COPY ({LARGE}) TO 's3://lake/large.parquet'")
        con.execute("SET enable_external_file_cache = false")
        con.execute(f"SET penstock_cache_dir = '{directory}'")
        con.execute("SET penstock_cache_disk_bytes = '64MiB'")
        wanted = con.execute(f"SELECT count(*), bit_xor(h) FROM ({LARGE})").fetchone()
        for _ in range(3):
            row = con.execute("SELECT count(*), bit_xor(h) FROM 's3://lake/large.parquet'")
            assert row.fetchone() == wanted
        rows = con.execute("SELECT sum(cached_bytes) FROM penstock_cache()").fetchone()
        assert rows
        assert rows[0] > 4 << 20, rows
        assert used_bytes(directory) <= 64 << 20
    finally:
        fake.stop()


SCENARIOS = {
    "multipart": multipart,
    "single": single,
    "command_line": command_line,
    "disk_cache": disk_cache,
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
