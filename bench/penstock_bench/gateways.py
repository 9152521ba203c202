"""S3 gateways over back ends: starts a back end and any gateway before it, knows their processes.

Used by the gateway's workload and by the tests with clients that are not ours. Decides which back
ends there are and how each gateway is told of one; measures nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from penstock_bench.config import BUILD, ROOT
from penstock_bench.network import Network
from penstock_bench.processes import end
from penstock_bench.sql import AZURITE_ACCOUNT, AZURITE_KEY, S3_KEY
from penstock_bench.stores import account_sas

BACK_ENDS = ("directory", "azure-fake", "azurite", "s3-fake", "google-fake", "versitygw")
"""A directory of the gateway's own; Azure by our fake or Microsoft's emulator; S3 by our fake or a
server that is not ours; Google by our fake."""
FOREIGN = ("azurite", "versitygw")
"""The back ends that are servers not ours; they refuse what is not signed, which the fakes take."""
GATEWAYS = ("penstock", "s3proxy", "versitygw", "direct", "bare", "relay")
"""``direct`` is the back end itself, where it speaks S3; the limits are ``bare``, a loop of the
kernel's calls that understands PUT and GET and nothing else, and ``relay``, which gives every byte
on to an S3 back end and understands none (`penstock-bare`)."""


class GatewayError(Exception):
    """A back end or gateway that does not exist, does not fit, or does not start."""


@dataclass(frozen=True)
class Running:
    """A server in use, spoken to with S3 and the credentials ``test`` and ``test``."""

    url: str
    pid: int
    directory: Path
    access_key: str = S3_KEY
    secret_key: str = S3_KEY
    metrics: str | None = None
    """The page of Penstock's counters, where its config file has `admin_listen`."""

    @property
    def host(self) -> str:
        """Host and port."""
        return self.url.removeprefix("http://")


def _is_foreign(variable: str) -> bool:
    """Whether a variable is no setting: our binaries refuse those that they do not know."""
    return not variable.startswith("PENSTOCK_")


class _Child:
    """One of our binaries; prints its address in its first line."""

    def __init__(self, prefix: Sequence[str], command: Sequence[str | Path], log: Path) -> None:
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [*prefix, *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={name: value for name, value in os.environ.items() if _is_foreign(name)},
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self._name, self._log_path = Path(str(command[0])).name, log
        self.url = self.address()

    def address(self) -> str:
        """The address in the next line that it prints.

        Raises:
            GatewayError: there is none; it has been ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        found = re.search(r"http://[\d.]+:\d+", line)
        if found is None:
            self.stop()
            tail = self._log_path.read_text(errors="replace").strip()[-500:]
            raise GatewayError(f"{self._name} did not start: {line}{tail}")
        return found.group()

    def stop(self) -> None:
        """Ends it; by force after ten seconds."""
        end(self._process, 10)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


class Lane:
    """A gateway before a back end; a context manager that gives `Running`, leaves nothing behind.

    Args:
        gateway: one of `GATEWAYS`.
        back_end: one of `BACK_ENDS`.
        directory: for data, logs and configuration; removed at the end.
        extra: lines at the top of Penstock's config file.
        backend_extra: lines of its section for the back end.
        fake_flags: options of our fakes.
        build: where our binaries are.
        network: lies between the gateway (or whoever asks the back end directly) and the back end;
            where it has a namespace, all of them run in it.
    """

    def __init__(
        self,
        gateway: str,
        back_end: str,
        directory: Path,
        extra: str = "",
        fake_flags: Sequence[str] = (),
        backend_extra: str = "",
        network: Network | None = None,
        build: Path = BUILD,
    ) -> None:
        if gateway not in GATEWAYS:
            raise GatewayError(f"no gateway {gateway}; there are: {', '.join(GATEWAYS)}")
        if back_end not in BACK_ENDS:
            raise GatewayError(f"no back end {back_end}; there are: {', '.join(BACK_ENDS)}")
        self._gateway, self._back_end, self._directory = gateway, back_end, directory
        self._extra, self._fake_flags = extra, fake_flags
        self._backend_extra = backend_extra
        self._network = network or Network()
        self._build = build
        self._stack = ExitStack()
        self.back_end: Running | None = None
        """The server behind the gateway; None for a directory."""

    def __enter__(self) -> Running:
        """Starts the back end, then the gateway."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._stack.callback(shutil.rmtree, self._directory, ignore_errors=True)
        try:
            if self._back_end != "directory":
                self.back_end = self._distant(self._start_back_end())
            return self._start_gateway()
        except BaseException:
            self._stack.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends both and removes their data."""
        self._stack.close()

    def _start_back_end(self) -> Running:
        if self._back_end in FOREIGN:
            return self._peer(self._back_end, "dir", self._directory / "behind")
        protocol = self._back_end.removesuffix("-fake")
        fake = self._build / "penstock-fake"
        words = ("s3", "--google") if protocol == "google" else (protocol,)
        command: list[str | Path] = [fake, *words, "--quiet", *self._fake_flags]
        return self._running(command, self._directory / "fake.log")

    def _distant(self, back_end: Running) -> Running:
        """The same server at the other end of the network."""
        host, port = back_end.url.rsplit(":", 1)
        return replace(back_end, url=f"{host}:{self._network.expose(int(port))}")

    def _start_gateway(self) -> Running:
        if self._gateway == "direct":
            if self.back_end is None or not self._word().startswith("s3="):
                raise GatewayError(f"{self._back_end} does not speak S3 itself")
            return self.back_end
        if self._gateway in ("bare", "relay"):
            log = self._directory / "bare.log"
            return self._running([self._build / "penstock-bare", *self._bare_options()], log)
        if self._gateway == "penstock":
            has_metrics = "admin_listen" in self._extra
            return self._penstock("penstock", self._penstock_options(), has_metrics=has_metrics)
        return self._peer(self._gateway, self._word(), self._directory / "gateway")

    def _penstock(
        self, name: str, options: list[str | Path], *, has_metrics: bool = False
    ) -> Running:
        child = self._child(
            [self._build / "penstock", "serve", *options], self._directory / f"{name}.log"
        )
        running = Running(child.url, child.pid, self._directory)
        return replace(running, metrics=f"{child.address()}/metrics") if has_metrics else running

    def replica(self) -> Running:
        """One more Penstock over the same back end, with settings of its own: none."""
        if self.back_end is None:
            raise GatewayError("a directory's gateway has no replica here")
        config = self._directory / "replica.toml"
        config.write_text(self._penstock_config(""))
        return self._penstock("replica", ["--config", config])

    def _word(self) -> str:
        """The back end as the peers' scripts are told of it."""
        if self.back_end is None:
            return "dir"
        if self._back_end in ("azurite", "azure-fake"):
            return f"azure={self.back_end.url}/{AZURITE_ACCOUNT}"
        if self._back_end == "google-fake":
            return f"google={self.back_end.url}"
        return f"s3={self.back_end.url}"

    def _bare_options(self) -> list[str | Path]:
        if self._gateway == "relay":
            if not self._word().startswith("s3="):
                raise GatewayError(f"what a relay gives on, {self._back_end} does not understand")
            return ["--relay", self._word().partition("://")[2]]
        if self.back_end is None:
            data = self._directory / "data"
            data.mkdir()
            return ["--dir", data]
        if self._back_end == "versitygw":
            raise GatewayError("bare signs nothing, which versitygw asks for")
        sas = f"?{account_sas()}" if self._back_end == "azurite" else ""
        return ["--to", self._word().partition("://")[2] + sas]

    def _penstock_options(self) -> list[str | Path]:
        if self.back_end is None and not self._extra:
            data = self._directory / "data"
            data.mkdir()
            keys = ["--access-key", S3_KEY, "--secret-key", S3_KEY]
            return ["--dir", data, "--listen", "127.0.0.1:0", *keys]
        config = self._directory / "penstock.toml"
        config.write_text(self._penstock_config(self._extra))
        return ["--config", config]

    def _penstock_config(self, extra: str) -> str:
        protocol, _, url = self._word().partition("=")
        s3 = (
            f'endpoint = "{url}"\nregion = "us-east-1"\nurl_style = "path"\n'
            f'key_id = "{S3_KEY}"\nsecret = "{S3_KEY}"\nuse_ssl = "false"\n'
        )
        section = {
            "dir": f'url = "file://{self._directory}/data"\n',
            "azure": f'url = "az://"\nendpoint = "{url}"\naccount_name = "{AZURITE_ACCOUNT}"\n'
            f'account_key = "{AZURITE_KEY}"\n',
            "s3": f'url = "s3://"\n{s3}',
            "google": f'url = "gs://"\n{s3}',
        }[protocol]
        if protocol == "dir":
            (self._directory / "data").mkdir()
        return (
            f'listen = "127.0.0.1:0"\n{extra}\n'
            f'[[key]]\naccess_key = "{S3_KEY}"\nsecret_key = "{S3_KEY}"\n\n'
            f'[[backend]]\nname = "back"\ndynamic = true\n{self._backend_extra}{section}'
        )

    def _child(self, command: Sequence[str | Path], log: Path) -> _Child:
        child = _Child(self._network.prefix, command, log)
        self._stack.callback(child.stop)
        return child

    def _running(self, command: Sequence[str | Path], log: Path) -> Running:
        child = self._child(command, log)
        return Running(child.url, child.pid, self._directory)

    def _peer(self, name: str, back_end: str, directory: Path) -> Running:
        script = ROOT / f"scripts/peers/{name}.sh"
        started = subprocess.run(
            [*self._network.prefix, script, "start", directory],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PENSTOCK_BACK_END": back_end},
        )
        self._stack.callback(lambda: subprocess.run([script, "stop", directory], check=False))
        if started.returncode:
            raise GatewayError(f"{name} did not start; see above")
        pid = int((directory / f"{name}.pid").read_text())
        return Running(f"http://127.0.0.1:{started.stdout.strip()}", pid, self._directory)
