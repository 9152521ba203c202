"""How the release binary is laid out and compiled: by `called.txt` and by a profile."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from penstock_bench.called import Function, functions, plain
from penstock_bench.config import BUILD, ROOT

HINT = "print crates/cli/called.txt anew, as CONTRIBUTING.md tells"
RUST_NAME = re.compile(rb"_ZN[\w.$]+?17h[0-9a-f]{16}E")


def addresses() -> list[tuple[int, Function]]:
    """The functions of the binary in the order in which they lie, with where they begin."""
    listing = ["readelf", "--symbols", "--wide", str(BUILD / "penstock")]
    lines = subprocess.run(listing, stdout=subprocess.PIPE, text=True, check=True).stdout
    told = (line for line in lines.splitlines() if re.match(r"\s*\d+: .* (FUNC|FILE) ", line))
    at = {line.split()[7]: int(line.split()[1], 16) for line in told}
    return sorted(
        ((at[one.symbol], one) for one in functions(lines.splitlines())), key=lambda pair: pair[0]
    )


def test_what_a_gateway_calls_lies_together() -> None:
    listed = {
        tuple(line.split()) for line in (ROOT / "crates/cli/called.txt").read_text().splitlines()
    }
    found = addresses()
    size = sum(one.size for _, one in found)
    names = {(name,) for name, *_ in listed}
    ours = [
        (at, one)
        for at, one in found
        if (name := plain(one.symbol)) and ((name,) in listed or (name, one.crate) in listed)
    ]
    met = {(plain(one.symbol),) for _, one in ours}
    assert len(met) > 0.8 * len(names), f"{len(met)} of {len(names)} names are in it: {HINT}"
    begin = found[0][0]
    reach = sorted(at + one.size - begin for at, one in ours)
    # Nearly all: those whose crates the binary does not tell may be others of the same name.
    assert reach[int(0.95 * len(reach))] < 0.4 * size, f"they are scattered: {HINT}"


def test_the_profile_knows_the_functions_of_the_binary() -> None:
    # A name hangs on the compiler, on a crate's version and features: of other ones the compiler
    # would find nothing in the profile, and not say so.
    version = subprocess.run(["rustc", "--version"], stdout=subprocess.PIPE, text=True, check=True)
    profile = ROOT / f"crates/cli/rustc-{version.stdout.split()[1]}.profdata"
    if not profile.exists():
        return  # Another compiler builds without, and says so (below).
    known = {name.decode() for name in RUST_NAME.findall(profile.read_bytes())}
    assert known, f"{profile.name} has its names compressed: run scripts/profile.sh"
    listing = ["readelf", "--symbols", "--wide", str(BUILD / "penstock")]
    lines = subprocess.run(listing, stdout=subprocess.PIPE, text=True, check=True).stdout
    there = {one.symbol.partition(".llvm.")[0] for one in functions(lines.splitlines())}
    # Those that are not were compiled into others, all of them.
    met = len(known & there)
    assert met > 0.5 * len(known), f"{met} of {len(known)} are in it: run scripts/profile.sh"


def test_a_compiler_without_a_profile_is_told_so_and_builds_without(tmp_path: Path) -> None:
    for name, says in (
        ("rustc", "echo 'rustc 0.0.1 (none)'"),
        ("cargo", 'echo "flags=$CARGO_ENCODED_RUSTFLAGS"'),
    ):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{says}\n")
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "RUSTFLAGS": ""}
    done = subprocess.run(
        [ROOT / "scripts/release.sh"], env=environment, capture_output=True, text=True, check=True
    )
    assert "there is no crates/cli/rustc-0.0.1.profdata" in done.stderr + done.stdout
    assert "scripts/profile.sh" in done.stderr + done.stdout
    flags = re.search("flags=(.*)\n", done.stdout)
    assert flags, done.stdout
    assert "-Cprofile-use" not in flags.group(1), "no profile is named to the compiler"
    assert f"--remap-path-prefix={ROOT}=penstock" in flags.group(1).split("\x1f")
