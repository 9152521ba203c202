"""Runs the tests of DuckDB's httpfs and azure with Penstock alone in their place.

usage: scripts/judges/duckdb-clients.sh HTTPFS AZURE DUCKDB [--with penstock|theirs]
       [--s3 serve|versitygw] [--fast] [--table FILE] [--update] [PATTERN...]

HTTPFS, AZURE and DUCKDB are clones. Each file is a process of its own, with servers of its own but
for Azurite. judges/clients.tsv lists a verdict for every file on each DuckDB: `pass`, `differs` or
`cannot` (it cannot run here), with the reason. A verdict that is not listed is a failure of the
run, and so is one that is better. `--with theirs` runs httpfs and azure themselves (DuckDB 1.5.5),
which shows whether a failure is Penstock's; `--table` writes the first failure of each file;
`--update` writes verdicts into the list, to which reasons are added by hand.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler
from multiprocessing.connection import Connection
from pathlib import Path

import client_place
import client_servers
import client_web
import duckdb
from client_run import ClientRun, verdict_of
from harness import HttpServer, connect, load_penstock

HERE = Path(__file__).resolve().parent
LIST = HERE / "judges" / "clients.tsv"
VERSIONS = ("1.5.5", "2.0.1")
"""The columns of the list."""
TIMEOUT_S = 600
FORK = multiprocessing.get_context("fork")
WORDS = {"ok": "pass", "failed": "differs", "skipped": "cannot"}
KEPT = ("PATH", "PYTHONPATH", "LANG", "XDG_CACHE_HOME", "PENSTOCK_CACHE", "PENSTOCK_FAKE")
"""Environment variables that are passed on to a test: none names a store or a setting."""


@dataclass(frozen=True)
class Clones:
    """Where the tests and their data are."""

    httpfs: Path
    azure: Path
    duckdb: Path

    def tests(self) -> dict[str, Path]:
        """Every test file, by a name that begins with its repository's."""
        return {
            f"{root.name}/{path.relative_to(top / 'test')}": path
            for root, top in ((Path("httpfs"), self.httpfs), (Path("azure"), self.azure))
            for kind in ("*.test", "*.test_slow")
            for path in sorted((top / "test").rglob(kind))
        }


@dataclass
class Row:
    """What becomes of a file on each DuckDB, and why."""

    verdicts: dict[str, str] = field(default_factory=dict)
    reason: str = ""


def read_list(text: str) -> dict[str, Row]:
    """The list: a name, a verdict on each DuckDB, a reason."""
    rows = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, *verdicts, reason = line.split("\t")
            rows[name] = Row(dict(zip(VERSIONS, verdicts, strict=True)), reason)
    return rows


def write_list(rows: dict[str, Row], head: str) -> str:
    """The list as it is kept."""
    lines = [
        "\t".join([name, *(row.verdicts.get(it, "-") for it in VERSIONS), row.reason])
        for name, row in sorted(rows.items())
    ]
    return head + "\n".join(lines) + "\n"


def word_of(verdict: str, listed: str) -> str:
    """The list's word for a verdict. What cannot run here may also show it by a failure."""
    word = WORDS[verdict.split(":")[0]]
    return "cannot" if (word, listed) == ("differs", "cannot") else word


def surprises(found: dict[str, str], rows: dict[str, Row], version: str) -> list[str]:
    """Verdicts that the list does not tell, and rows without the reason that they need."""
    odd = []
    for name, verdict in found.items():
        row = rows.get(name, Row())
        listed = row.verdicts.get(version, "-")
        word = word_of(verdict, listed)
        if word == "pass" != listed:
            odd.append(f"{name}: passes, and is listed as `{listed}`")
        elif word != listed:
            odd.append(f"{name}: {verdict}")
        elif word != "pass" and not row.reason:
            odd.append(f"{name}: the list has no reason")
    return odd


def run_one(name: str, clones: Clones, asked: dict[str, str], directory: Path) -> str:
    """The verdict on one file, with its servers around it."""
    path = clones.tests()[name]
    test = path.read_text()
    inside, work, home = directory / "test", directory / "work", directory / "home"
    for made in (inside, work, home):
        made.mkdir()
    certificate = Path(asked["certificate"])
    # What is in the environment when an extension is loaded is what counts.
    os.environ |= {"HOME": str(home), "PENSTOCK_CA_FILE": str(certificate / "ca.pem")}
    with ExitStack() as stack:
        if name.startswith("azure/"):
            (work / "data").symlink_to(asked["azure_data"])
            os.environ |= json.loads(asked["azure_variables"])
            if "PERSISTENT_SECRET_AVAILABLE" in test:
                keep_azure_secret(theirs=asked["with"] == "theirs")
        else:
            set_httpfs_up(stack, test, clones, asked, directory)
        if "HTTP_PROXY_" in test:
            stack.enter_context(client_servers.proxies())
        os.chdir(work)
        theirs, ca = asked["with"] == "theirs", certificate / "ca.pem"
        return verdict_of(ClientRun(path, work, inside, theirs=theirs, ca=ca))


def keep_azure_secret(*, theirs: bool) -> None:
    """A secret on the disk, as the workflow of duckdb-azure makes one."""
    con = connect(load=False)
    if theirs:
        ClientRun(Path(), Path(), Path(), theirs=True, ca=Path("/dev/null")).load_client(con)
    else:
        load_penstock(con)
    connection = os.environ["AZURE_STORAGE_CONNECTION_STRING"]
    con.execute(f"CREATE PERSISTENT SECRET az (TYPE azure, CONNECTION_STRING '{connection}')")
    con.close()


def set_httpfs_up(
    stack: ExitStack, test: str, clones: Clones, asked: dict[str, str], directory: Path
) -> None:
    """S3, the web, a server of Python's; the directory that a test of httpfs is run in."""
    made = Path(asked["certificate"])
    web = client_web.Web(clones.duckdb, clones.tests().values(), made)
    client_place.name_hosts(client_servers.S3_HOSTS | web.hosts(test))
    work, served = directory / "work", directory / "served"
    served.mkdir()
    (work / "duckdb").symlink_to(clones.duckdb)
    (work / "README.md").symlink_to(clones.httpfs / "README.md")
    shutil.copytree(clones.httpfs / "data", work / "data")
    for secret in (work / "data").rglob("*.duckdb_secret"):
        secret.chmod(0o600)
    os.environ |= client_servers.S3_VARIABLES | {"PYTHON_HTTP_SERVER_DIR": str(served)}
    stack.enter_context(client_web.served(web, Path(asked["certificate"])))
    if "PYTHON_HTTP_SERVER" in test:
        quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
        port = client_servers.PYTHON_PORT
        server = HttpServer(("127.0.0.1", port), lambda *it: quiet(*it, directory=str(served)))
        stack.enter_context(client_web.in_background(server))
    client = stack.enter_context(client_servers.s3(asked["s3"], directory))
    os.environ |= client_servers.presigned(client, clones.duckdb, directory, test)


def judge(name: str, clones: Clones, asked: dict[str, str]) -> str:
    """As run_one, in a process of its own: a copy of this one, which has all it needs in memory."""
    with tempfile.TemporaryDirectory() as directory:
        receiver, sender = FORK.Pipe(duplex=False)
        words = (name, clones, asked, Path(directory), sender)
        process = FORK.Process(target=run_child, args=words)
        process.start()
        sender.close()
        try:
            if receiver.poll(TIMEOUT_S):
                return str(receiver.recv())
            process.kill()
            return f"failed: not done after {TIMEOUT_S} s"
        except EOFError:
            process.join()
            stderr = (Path(directory) / "stderr").read_text()[-600:]
            return f"failed: exit code {process.exitcode}: {stderr}"
        finally:
            process.join()


def run_child(
    name: str, clones: Clones, asked: dict[str, str], directory: Path, verdict: Connection
) -> None:
    """The process of one file. What it prints is of interest only if it dies."""
    with (directory / "stderr").open("wb") as told:
        os.dup2(told.fileno(), 2)
    for variable in os.environ.keys() - set(KEPT):
        del os.environ[variable]
    verdict.send(run_one(name, clones, asked, directory))


def judge_all(names: list[str], clones: Clones, options: argparse.Namespace) -> dict[str, str]:
    """The verdicts, one after the other: they share ports and names of hosts."""
    found = {}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        client_place.enter(directory)
        tests = clones.tests().values()
        web = client_web.Web(clones.duckdb, tests, directory)
        hosts = set().union(*(web.hosts(path.read_text()) for path in tests))
        client_web.make_certificate(directory, hosts)
        asked = {"certificate": str(directory), "with": options.with_, "s3": options.s3}
        azure = None
        for name in names:
            if name.startswith("azure/"):
                if azure is None:
                    data = client_servers.azure_data(clones.azure, directory)
                    azure = stack.enter_context(client_servers.azurite(directory, data))
                    asked["azure_data"] = str(data)
                asked["azure_variables"] = json.dumps(azure.variables(name))
            begin = time.monotonic()
            found[name] = judge(name, clones, asked)
            first = found[name].split("\n")[0][:80]
            print(f"{time.monotonic() - begin:6.1f} s  {name}  {first}", flush=True)
    return found


def parsed(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    for name in ("httpfs", "azure", "duckdb"):
        parser.add_argument(name, type=Path)
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--with", choices=["penstock", "theirs"], default="penstock", dest="with_")
    parser.add_argument("--s3", choices=["serve", "versitygw"], default="serve")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--update", action="store_true")
    return parser.parse_intermixed_args(words)


def update(found: dict[str, str], version: str) -> None:
    """Writes verdicts into the list."""
    text = LIST.read_text()
    rows = read_list(text)
    for name, verdict in found.items():
        verdicts = rows.setdefault(name, Row()).verdicts
        verdicts[version] = word_of(verdict, verdicts.get(version, "-"))
    head = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("#"))
    LIST.write_text(write_list(rows, head))


def main() -> int:
    """Runs the tests and compares with the list; the number of surprises."""
    options = parsed(sys.argv[1:])
    roots = [path.resolve() for path in (options.httpfs, options.azure, options.duckdb)]
    clones, version = Clones(*roots), duckdb.__version__
    names = [
        name
        for name in clones.tests()
        if any(fnmatch.fnmatch(name, it) for it in options.patterns)
        and not (options.fast and name.endswith("_slow"))
    ]
    begin = time.monotonic()
    found = judge_all(names, clones, options)
    if options.table:
        options.table.write_text("".join(f"{it}\t{found[it]!r}\n" for it in names))
    is_ours = options.with_ == "penstock"
    if options.update and is_ours:
        update(found, version)
    rows = read_list(LIST.read_text())
    odd = surprises(found, rows, version) if is_ours else []
    print(*odd, sep="\n", end="\n" if odd else "")
    words = [word_of(found[it], rows.get(it, Row()).verdicts.get(version, "-")) for it in names]
    told = ", ".join(f"{words.count(word)} {word}" for word in WORDS.values())
    seconds = time.monotonic() - begin
    print(f"DuckDB {version}: {told} of {len(found)}; {len(odd)} surprises, {seconds:.0f} s")
    return len(odd) + (not found)


if __name__ == "__main__":
    sys.exit(min(main(), 1))
