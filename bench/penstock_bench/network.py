"""Network profiles: what lies between client and store.

``loopback`` adds nothing. ``wan-fake`` asks our fakes to be slow (latency and bandwidth of their
own). ``wan`` puts everything into a network namespace: toxiproxy adds the latency, HTB shapes the
proxy's port to the link's rates, shared by all connections; it needs root and works for any store.
``rtt100-fake`` and ``rtt100`` do the same with a round trip of 100 ms and no limit of bandwidth,
``gbit30-fake`` and ``gbit30`` with 30 ms and 1 Gbit/s.
Neither emulation delays the opening of a TCP connection.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock_bench.config import ROOT
from penstock_bench.figures import Link
from penstock_bench.processes import Server, free_port


@dataclass(frozen=True)
class Profile:
    """What a network is meant to be; rates of 0 mean unlimited."""

    name: str
    rtt_ms: int = 0
    up_mbit: int = 0
    down_mbit: int = 0
    namespace: bool = False

    @property
    def is_fakes(self) -> bool:
        """Whether our fakes are slow themselves."""
        return self.name.endswith("-fake")

    @property
    def fake_flags(self) -> tuple[str, ...]:
        """Options that make one of our fakes as slow as this network."""
        if not self.is_fakes:
            return ()
        flags = ["--latency-ms", str(self.rtt_ms)]
        if self.down_mbit:
            flags += ["--bandwidth-mbit", str(self.down_mbit)]
        if self.up_mbit:
            flags += ["--bandwidth-up-mbit", str(self.up_mbit)]
        return tuple(flags)

    def link(self, loopback_bytes_per_s: float, loopback_rtt_s: float) -> Link:
        """The link in seconds and bytes; unlimited parts get the measured loopback figures."""
        return Link(
            self.rtt_ms / 1000 or loopback_rtt_s,
            self.up_mbit * 125_000 or loopback_bytes_per_s,
            self.down_mbit * 125_000 or loopback_bytes_per_s,
        )


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("loopback"),
        Profile("wan-fake", 30, 37, 150),
        Profile("rtt100-fake", 100),
        Profile("rtt100", 100, namespace=True),
        Profile("gbit30-fake", 30, 1000, 1000),
        Profile("gbit30", 30, 1000, 1000, namespace=True),
        Profile("wan", 30, 37, 150, namespace=True),
    )
}


class NetworkError(Exception):
    """A network cannot be emulated here; the message says what is missing."""


def _sh(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkError(f"{' '.join(words)}: {done.stderr.strip()}")


class Network:
    """A network in use; a context manager. The plain form runs commands where we are."""

    prefix: tuple[str, ...] = ()
    proxy_pid: int | None = None
    """The process that adds the latency, where one does."""

    def __enter__(self) -> Network:
        """Sets it up."""
        return self

    def __exit__(self, *_: object) -> None:
        """Takes it down."""

    def expose(self, port: int) -> int:
        """The port by which clients reach a server that listens on ``port``."""
        return port

    def ceiling(self) -> dict[str, float]:
        """What a bare TCP stream brings over the link now, where there is a link with a rate."""
        return {}


class WanNamespace(Network):
    """Toxiproxy and HTB in a network namespace of our own."""

    def __init__(self, profile: Profile, logs: Path) -> None:
        if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
            raise NetworkError(
                "the profile `wan` needs root and the commands ip and tc (package iproute2); "
                "`wan-fake` works without"
            )
        self._profile = profile
        self._logs = logs
        self._name = f"penstock-{os.getpid()}"
        self.prefix = ("ip", "netns", "exec", self._name)
        self._proxy: Server | None = None
        self._exposed = 0

    def __enter__(self) -> Network:
        """Makes the namespace, its classes and the proxy."""
        _sh("ip", "netns", "add", self._name)
        try:
            self._tc("qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb", "default", "20")
            up, down = (
                f"{rate}mbit" if rate else "40gbit"
                for rate in (self._profile.up_mbit, self._profile.down_mbit)
            )
            for number, rate, burst in (
                ("10", up, "64k"),
                ("11", down, "64k"),
                ("20", "40gbit", "10mb"),
            ):
                self._tc(
                    "class",
                    "add",
                    "dev",
                    "lo",
                    "parent",
                    "1:",
                    "classid",
                    f"1:{number}",
                    "htb",
                    "rate",
                    rate,
                    "burst",
                    burst,
                    "quantum",
                    "60000",
                )
            _sh(*self.prefix, "ip", "link", "set", "lo", "up")
            install: list[str | Path] = [ROOT / "scripts/peers/toxiproxy.sh", "install"]
            binary = subprocess.run(install, stdout=subprocess.PIPE, text=True, check=True).stdout
            port = free_port()
            command = [*self.prefix, binary.strip(), "-host", "127.0.0.1", "-port", str(port)]
            self._proxy = Server(command, port, self._logs / "toxiproxy.log")
            self.proxy_pid = self._proxy.pid
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the proxy and removes the namespace."""
        if self._proxy:
            self._proxy.stop()
        subprocess.run(["ip", "netns", "del", self._name], check=False, capture_output=True)

    def _tc(self, *words: str) -> None:
        _sh(*self.prefix, "tc", *words)

    def expose(self, port: int) -> int:
        """A shaped and delayed port in front of ``port``."""
        shaped = free_port()
        for side, number in (("dport", "10"), ("sport", "11")):
            self._tc(
                "filter",
                "add",
                "dev",
                "lo",
                "parent",
                "1:",
                "protocol",
                "ip",
                "u32",
                "match",
                "ip",
                side,
                str(shaped),
                "0xffff",
                "flowid",
                f"1:{number}",
            )
        self._exposed += 1
        name = f"p{self._exposed}"
        self._api(
            "proxies",
            {"name": name, "listen": f"127.0.0.1:{shaped}", "upstream": f"127.0.0.1:{port}"},
        )
        for stream in ("upstream", "downstream"):
            self._api(
                f"proxies/{name}/toxics",
                {
                    "type": "latency",
                    "stream": stream,
                    "attributes": {"latency": self._profile.rtt_ms // 2},
                },
            )
        return shaped

    def ceiling(self) -> dict[str, float]:
        """A second of the link's rate as one stream, through proxy and shaping."""
        if not self._profile.down_mbit:
            return {}
        port = free_port()
        loop = [*self.prefix, sys.executable, "-m", "penstock_bench.bare_link"]
        env = {**os.environ, "PYTHONPATH": str(ROOT / "bench")}
        sent = str(self._profile.down_mbit * 125_000)
        sender = Server([*loop, "send", str(port), sent], port, self._logs / "bare.log", env)
        try:
            receive = [*loop, "receive", str(self.expose(port))]
            done = subprocess.run(receive, capture_output=True, text=True, check=False, env=env)
        finally:
            sender.stop()
        if done.returncode:
            raise NetworkError(f"no bare stream over the link: {done.stderr.strip()[-400:]}")
        return {"link_tcp_bytes_per_s": float(done.stdout)}

    def _api(self, path: str, body: dict[str, object]) -> None:
        assert self._proxy is not None, "the proxy runs while the network is set up"
        # The API listens inside the namespace, so a process inside must call it.
        code = (
            "import sys, urllib.request as u; u.urlopen(sys.argv[1], sys.argv[2].encode()).read()"
        )
        url = f"http://127.0.0.1:{self._proxy.port}/{path}"
        _sh(*self.prefix, sys.executable, "-c", code, url, json.dumps(body))


def open_network(profile: Profile, logs: Path) -> Network:
    """The network of a profile, not yet set up."""
    return WanNamespace(profile, logs) if profile.namespace else Network()
