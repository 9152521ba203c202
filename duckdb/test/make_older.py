"""Makes the files of duckdb/test/older, which test_upgrade.py opens with the present Penstock.

usage: make_older.py PENSTOCK PENSTOCK_FAKE

Both programs are those of the release, or of the commit, whose formats are to be kept readable
(`cargo build --bin penstock --bin penstock-fake` there). Run it once for each release that changed
a format, and add a row to `OLDER` of test_upgrade.py for what it made.
"""

from __future__ import annotations

import http.client
import lzma
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

OUT = Path(__file__).resolve().parent / "older"
PORT = 20871
"""Where the cached object was served: a cache knows an object by its address. The
kernel gives it to nobody."""
ROWS = 3000


def text() -> bytes:
    """The object that the caches hold, and that lies in the bucket."""
    lines = (f"row {row} of what an older Penstock wrote\n" for row in range(ROWS))
    return "".join(lines).encode()


def run(*command: str | Path, cwd: Path) -> None:
    """Runs a program that has to succeed."""
    subprocess.run([str(part) for part in command], check=True, cwd=cwd, stdout=subprocess.DEVNULL)


def pack(path: Path, name: str) -> None:
    """Keeps a file, which has few bytes that are not zero."""
    (OUT / f"{name}.xz").write_bytes(lzma.compress(path.read_bytes(), preset=9))


def volume(penstock: str, at: Path) -> None:
    """A volume with a database."""
    with duckdb.connect(str(at / "main.db")) as con:
        con.execute("CREATE TABLE t AS SELECT i, 'row ' || i AS name FROM range(1000) r(i)")
    run(penstock, "nvme", "format", "volume", "--size", "8MiB", cwd=at)
    run(penstock, "nvme", "import", "--db", "main_db", "volume", "main.db", cwd=at)
    pack(at / "volume", "volume")


def caches(penstock: str, fake: str, at: Path) -> None:
    """A cache in a directory, and one on a device."""
    command = [fake, "s3", "--listen", f"127.0.0.1:{PORT}", "--anonymous", "--quiet"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert server.stdout
    server.stdout.readline()
    (at / "object").write_bytes(text())
    store = ["-o", f"endpoint=127.0.0.1:{PORT}", "-o", "use_ssl=false", "--anonymous"]
    run(penstock, "put", "object", "s3://lake/older.txt", *store, cwd=at)
    run(penstock, "nvme", "format", "--cache", "cache", "--size", "17MiB", cwd=at)
    for cache in (str(at / "directory"), f"nvme://{at}/cache"):
        run(penstock, "cat", "s3://lake/older.txt", *store, "--cache-dir", cache, cwd=at)
    server.terminate()
    server.wait()
    pack(at / "cache", "cache-device")
    pack(next((at / "directory").glob("*.blocks")), "cache-directory")


def request(address: str, method: str, path: str, body: bytes, headers: dict[str, str]) -> None:
    """An unsigned request that has to succeed."""
    connection = http.client.HTTPConnection(address)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def bucket(penstock: str, at: Path) -> None:
    """A served directory: metadata, tags, and two versions of an object."""
    (at / "lake" / "kept").mkdir(parents=True)
    address = f"127.0.0.1:{PORT + 1}"
    serve = [penstock, "serve", "--dir", str(at / "lake"), "--anonymous", "--listen", address]
    server = subprocess.Popen(serve, stdout=subprocess.PIPE)
    assert server.stdout
    server.stdout.readline()
    state = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    request(address, "PUT", "/kept?versioning", state, {})
    request(address, "PUT", "/kept/a/older.txt", b"the first version", {})
    headers = {"content-type": "text/x-older", "x-amz-meta-by": "hand"}
    headers["x-amz-tagging"] = "kept=yes"
    request(address, "PUT", "/kept/a/older.txt", text(), headers)
    server.terminate()
    server.wait()
    tar = ["tar", "--xattrs", "--format=posix", "--sort=name", "--numeric-owner", "-cJf"]
    run(*tar, OUT / "bucket.tar.xz", "-C", at / "lake", "kept", cwd=at)


def main() -> int:
    """Makes them all."""
    penstock, fake = (str(Path(argument).resolve()) for argument in sys.argv[1:])
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        volume(penstock, at)
        caches(penstock, fake, at)
        bucket(penstock, at)
    return 0


if __name__ == "__main__":
    sys.exit(main())
