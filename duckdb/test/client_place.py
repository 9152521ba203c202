"""The network that tests of DuckDB's clients run in: a loopback, and the hosts that a test names.

Decides nothing about what is served there. scripts/judges/duckdb-clients.sh makes it by `unshare
--user --map-root-user --mount --net`: nothing of it is seen outside, and nothing gets out.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 1
_NAMES = Path("/etc/hosts")
_LOCAL = "127.0.0.1 localhost"


def enter(directory: Path) -> None:
    """Brings the loopback up, and has names of hosts come from a file of ours and nowhere else."""
    _loopback_up()
    for place, text in ((_NAMES, f"{_LOCAL}\n"), (Path("/etc/nsswitch.conf"), "hosts: files\n")):
        ours = directory / place.name
        ours.write_text(text)
        subprocess.run(["mount", "--bind", str(ours), str(place)], check=True)


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def name_hosts(names: Iterable[str]) -> None:
    """What hosts there are, all on the loopback; a name that is not among them is of no host."""
    # The file itself is what is bound: to replace it would leave the old one in place.
    _NAMES.write_text(
        "\n".join([_LOCAL, *(f"127.0.0.1 {name}" for name in sorted(set(names)))]) + "\n"
    )
