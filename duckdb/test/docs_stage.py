"""Runs the commands of a page where what they name is there.

Decides what stands for a user's machine and accounts: a directory for the paths that pages name,
`penstock serve` on it for S3, the fake Azure, and ports that the kernel chose. A secret is made as
the page has it, and then again with the keys of these.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

import duckdb
from documents import SHELLS, Block, Command, not_told
from harness import BUILD, Fake, connect, pypi_extension

PATHS = "data|dev/ng0n1|etc/penstock|fast/disk/penstock|run/secrets|srv/lake|var/log/penstock"
PATH = re.compile(rf"(?:(?<=://)|(?<![\w/.]))/({PATHS})\b")
PORTS = ("9000", "9001", "9443", "10000")
SERVER = re.compile(r"\S*penstock(?:-fake azure| serve) ")
PROGRAM = re.compile(r"(?:\w+=\S* )*(?:build/)?([\w-]+)")
PROGRAMS = {"curl", "export", "kill", "mkdir", "mv", "openssl", "penstock", "penstock-fake"}
"""What may be called here: nothing that changes the machine (`apt-get`, `systemctl`, `pip`)."""
STRICTLY = ("-euo", "pipefail", "-c")
ACCOUNT = re.compile(r'^account_name = "\w+".*\n(?:account_key_env|provider) = .*$', re.MULTILINE)
STORE_OF = {"s3": "s3", "r2": "s3", "gcs": "s3", "azure": "azure"}
"""What stands for the service of a secret's type."""
FLIGHTS = "(SELECT i % 12 + 1 AS month, 'UA' AS carrier, i FROM range(1000) t(i))"
END = "\0 the block ends\n"
SESSION = f"""
import json, os, sys
import penstock

secrets_of_the_stage, connect = json.loads(os.environ["STAGE_SECRETS"]), penstock.connect

def connect_to_the_stage(*arguments, secrets=None, **options):
    con = connect(*arguments, secrets=secrets, **options)
    for name, secret in (secrets or {{}}).items():
        if "127.0.0.1" not in str(secret):
            here = secrets_of_the_stage[secret["type"]]
            con.execute(f"CREATE OR REPLACE SECRET {{name}} ({{here}})")
    return con

penstock.connect, names = connect_to_the_stage, {{}}
for line in sys.stdin:
    exec(compile(json.loads(line), "the page", "exec"), names)
    print({END!r}, end="", flush=True)
"""


class Server:
    """A server that runs; what it prints is in a file."""

    def __init__(self, script: str, here: Path, environment: dict[str, str]) -> None:
        """Runs a script that ends with a server, and waits for the server."""
        handle, name = tempfile.mkstemp(dir=here)
        self.log = Path(name)
        with os.fdopen(handle, "w") as log:
            self.process = subprocess.Popen(
                ["bash", *STRICTLY, script],
                cwd=here,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + 60
        while " on http" not in self.log.read_text():
            is_late = time.monotonic() > deadline
            assert self.process.poll() is None and not is_late, self.log.read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.wait(30)


class Session:
    """A Python that runs one block after the other."""

    def __init__(self, here: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SESSION],
            cwd=here,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, program: str) -> str:
        """What a block prints."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(program) + "\n")
        self.process.stdin.flush()
        told = ""
        for line in self.process.stdout:
            if line == END:
                return told
            told += line
        raise AssertionError(told)

    def stop(self) -> None:
        """Ends it."""
        self.process.communicate()


class Stage:
    """What a page takes to be there."""

    def __init__(self, here: Path, azure: Fake, *, has_servers: bool) -> None:
        self.here, self.azure = here, azure
        self.ports = {name: free_port() for name in PORTS}
        self.store_port = free_port() if has_servers else int(self.ports["9000"])
        self.secrets = {
            "s3": "TYPE s3, KEY_ID 'lake', SECRET 'change-me', REGION 'us-east-1', "
            f"ENDPOINT '127.0.0.1:{self.store_port}', URL_STYLE 'path', USE_SSL false",
            "azure": azure.secret,
        }
        self.environment = self._environment()
        self.running: dict[str, Server | Session] = {}
        self.output = ""
        self._furnish()
        self._serve(
            "PENSTOCK_ACCESS_KEY=lake PENSTOCK_SECRET_KEY=change-me "
            f"penstock serve --dir data --listen 127.0.0.1:{self.store_port}",
            "store",
        )
        self.con = connect()
        self._fill()

    def __enter__(self) -> Self:
        """It is there already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends what runs."""
        self.con.close()
        for it in self.running.values():
            it.stop()

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS", "AZURE"))}
        return {
            **kept,
            "PATH": f"{self.here}/bin:{os.environ['PATH']}",
            "HOME": str(self.here),
            "AWS_ACCESS_KEY_ID": "lake",
            "AWS_SECRET_ACCESS_KEY": "change-me",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.store_port}",
            "AZURE_STORAGE_CONNECTION_STRING": self.azure.connection_string,
            "PENSTOCK_LISTEN": f"127.0.0.1:{self.ports['9000']}",
            "REPORTS_SECRET": "short",
            "STAGE_SECRETS": json.dumps(self.secrets),
        }

    def _furnish(self) -> None:
        """The files of a user's machine."""
        folders = ["bin", "dev", "run/secrets", "etc/penstock/keys", "var/log/penstock"]
        folders += ["fast/disk", "srv/lake/team"]
        folders += [f"data/{bucket}" for bucket in ("lake", "local", "other", "public")]
        for folder in folders:
            (self.here / folder).mkdir(parents=True)
        (self.here / "build").symlink_to(BUILD)
        for name in ("penstock", "penstock-fake"):
            (self.here / "bin" / name).symlink_to(BUILD / name)
        (self.here / "bin/pidof").write_text('#!/bin/sh\nexec cat "$HOME/server.pid"\n')
        (self.here / "bin/pidof").chmod(0o755)
        for name in ("run/secrets/lake", "secret"):
            (self.here / name).write_text("change-me\n")
        (self.here / "etc/penstock/keys/admin").write_text(f"{'long' * 8}\n")
        (self.here / "etc/penstock/keys/loader").symlink_to("admin")
        (self.here / "big.bin").write_bytes(b"big" * 1000)
        (self.here / "data/lake/p").write_text("hi\n")
        self._run("penstock nvme format dev/ng0n1 --size 64MiB")

    def _fill(self) -> None:
        """The objects and files that pages read."""
        with connect() as con:
            con.execute(f"CREATE SECRET stage ({self.secrets['s3']})")
            names = ("flights/2013", "answer", "t")
            places = [f"s3://lake/{name}.parquet" for name in names]
            for place in [*places, f"{self.here}/flights.parquet"]:
                con.execute(f"COPY {FLIGHTS} TO '{place}'")
            con.execute(f"ATTACH '{self.here}/archive.duckdb' AS archive")
            con.execute(f"CREATE TABLE archive.flights AS {FLIGHTS}")

    def trouble(self, block: Block, wanted: list[Command]) -> str | None:
        """Why the commands of a block do not work, or print something else than the page shows."""
        try:
            self._run_block(block, wanted)
        except (AssertionError, duckdb.Error, subprocess.TimeoutExpired) as error:
            return str(error)
        return None

    def _run_block(self, block: Block, wanted: list[Command]) -> None:
        text = self._here_for(block.text)
        if block.language in SHELLS:
            self._shell([(self._here_for(it.text), it.shown) for it in wanted])
        elif block.language == "sql":
            for command in wanted:
                self._sql(self._here_for(command.text))
        elif block.language == "python":
            if "python" not in self.running:
                self.running["python"] = Session(self.here, self.environment)
            session = self.running["python"]
            assert isinstance(session, Session)
            self.output = session.run(text)
        elif block.language == "toml":
            self._configure(text)
        elif block.language == "json":
            assert set(json.loads(block.text)) <= set(json.loads(self.output)), self.output
        else:
            assert not_told(block.text.splitlines(), self.output) == [], self.output

    def _here_for(self, text: str) -> str:
        """A text of a page, with what stands here for paths, ports, versions and accounts."""
        text = PATH.sub(lambda it: f"{self.here}/{it[1]}", text)
        for name, port in self.ports.items():
            text = re.sub(rf"\b(127\.0\.0\.1|localhost):{name}\b", rf"\1:{port}", text)
        text = ACCOUNT.sub('connection_string_env = "AZURE_STORAGE_CONNECTION_STRING"', text)
        text = text.replace(" -o account_name=lake", "")
        return re.sub(r"duckdb/v[\d.]+/", f"duckdb/v{duckdb.__version__}/", text)

    def _sql(self, statement: str) -> None:
        if found := re.match(r"LOAD (\w+);?$", statement):
            statement = f"LOAD '{pypi_extension(found[1])}'"
        known = self._secrets_of_pages()
        self.con.execute(statement).fetchall()
        for name, kind, scope in self._secrets_of_pages() - known:
            if f"127.0.0.1:{self.ports['9000']}" not in statement:
                options = self.secrets[STORE_OF[kind]].replace("TYPE s3", f"TYPE {kind}")
                self.con.execute(
                    f"CREATE OR REPLACE SECRET {name} ({options}, SCOPE {list(scope)})"
                )

    def _secrets_of_pages(self) -> set[tuple[str, str, tuple[str, ...]]]:
        rows = self.con.execute("SELECT name, type, scope FROM duckdb_secrets()").fetchall()
        return {(name, kind, tuple(scope)) for name, kind, scope in rows if kind in STORE_OF}

    def _shell(self, wanted: list[tuple[str, list[str]]]) -> None:
        """Runs lines that show output one by one, others as one script."""
        for text, _ in wanted:
            program = PROGRAM.match(text)
            known = program is not None and program[1] in PROGRAMS
            assert known, f"{text}: list it in docs-not-run.tsv, or its program in PROGRAMS"
        if any(shown for _, shown in wanted):
            for text, shown in wanted:
                told = self._run(text, "-c")
                assert not_told(shown, told) == [], f"{text} prints\n{told}"
            return
        script = "\n".join(text for text, _ in wanted)
        if SERVER.search(script):
            listens = re.findall(r"--listen 127\.0\.0\.1:(\d+)", script)
            names = {str(port): name for name, port in self.ports.items()}
            self._serve(script, names[listens[0]] if listens else "9000")
        elif script:
            self.output = self._run(script)

    def _serve(self, script: str, name: str) -> None:
        """Starts a server, in place of one that has its port."""
        if name in self.running:
            self.running.pop(name).stop()
        script = SERVER.sub(lambda it: f"exec {it[0]}", script)
        server = self.running[name] = Server(script, self.here, self.environment)
        self.output = self._as_the_page(server.log.read_text())
        (self.here / "server.pid").write_text(str(server.process.pid))

    def _configure(self, text: str) -> None:
        """Writes the gateway's configuration, or tries lines that may go into it."""
        files = [self.here / "gateway.toml", self.here / "etc/penstock/penstock.toml"]
        if "listen = " in text:
            # The page's reader has no variable that says otherwise.
            self.environment.pop("PENSTOCK_LISTEN", None)
            for file in files:
                file.write_text(text)
            return
        whole = files[0].read_text()
        tried = self.here / "tried.toml"
        tried.write_text(f"{whole}\n{text}" if text.startswith("[") else f"{text}\n{whole}")
        self._run(
            f"penstock doctor --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --config {tried}"
        )

    def _run(self, script: str, *options: str) -> str:
        done = subprocess.run(
            ["bash", *(options or STRICTLY), script],
            cwd=self.here,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}"
        return self._as_the_page(done.stdout)

    def _as_the_page(self, output: str) -> str:
        return output.replace(str(self.here), "")


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
