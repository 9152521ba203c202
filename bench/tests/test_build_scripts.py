"""The scripts that build, on machines that lack something, and after a build that was cut off.

A machine is a directory of tools: shell scripts that write what the real ones would, and note how
they were called. What else this machine has is there, but for what installs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HIDDEN = ("apt-get", "c++", "cargo", "clang++", "g++", "java", "mvn", "npm", "rustc", "rustup")
"""What is on this machine and not on the fake one."""
BEGIN = """#!/bin/bash
echo "NAME $*" >> "$CALLS"
# Ends all that the script has started, and the script.
kill_in() { [ "$KILLED_IN" != "$1" ] || kill -9 0; }"""
COMPILER = """
[ "$1" = --version ] && { echo "g++ 99"; exit; }
case "$*" in *" -c "*) kill_in g++ ;; esac
[ -z "$OLD_COMPILER" ] || { echo "unrecognized option -std=c++17" >&2; exit 1; }
while [ $# -gt 0 ]; do [ "$1" != -o ] || echo "code" > "$2"; shift; done
"""
PACKAGE = """
[ -z "$NO_NETWORK" ] || { echo "npm error network" >&2; exit 1; }
mkdir package && echo library > package/libduckdb.so && tar -czf lib.tgz package
kill_in npm
"""
PYTHON = """
case "$*" in
"-m venv "*)
  for folder in "$@"; do :; done
  mkdir -p "$folder/bin" && cp "$0" "$folder/bin/python"
  kill_in venv
  touch "$folder/pip"
  ;;
"-m pip "*) [ -f "$(dirname "$0")/../pip" ] || { echo "No module named pip" >&2; exit 1; } ;;&
"-m pip download "*)
  [ -z "$NO_NETWORK" ] || { echo "ERROR: no index" >&2; exit 1; }
  while [ "$1" != --dest ]; do shift; done
  name=duckdb-${3#duckdb==}
  mkdir -p "$2/$name/external/duckdb/src/include"
  touch "$2/$name/external/duckdb/src/include/duckdb.hpp"
  tar -czf "$2/$name.tar.gz" -C "$2" "$name"
  ;;
"-m pip install "*)
  [ -z "$NO_NETWORK" ] || { echo "ERROR: no index" >&2; exit 1; }
  kill_in pip
  ;;
"-m pip "*) ;;
*) exec REAL_PYTHON "$@" ;;
esac
"""
CARGO = """
mkdir -p target/release
for name in penstock penstock-fake penstock-bare libpenstock_ffi.a; do
  echo "$name" > "target/release/$name"
  kill_in cargo
done
printf '%s' "$CARGO_ENCODED_RUSTFLAGS" | tr '\\037' '\\n' > target/flags
"""
NINJA = """
case "$*" in
*"-t inputs"*) printf 'a.o\\nb.o\\n' ;;
*)
  [ -z "$FULL_DISK" ] || { printf 'FAILED: b.o\nas: No space left on device\n'; exit 1; }
  cd "$2" && touch a.o
  kill_in ninja
  [ -f b.o ] || echo "compiled b.o"
  touch b.o
  ;;
esac
"""
TOOLS = {
    "ar": 'touch "$2" && echo "$*" >> "$2"',
    "c++": COMPILER,
    "cargo": CARGO,
    "cmake": 'while [ "$1" != -B ]; do shift; done; mkdir -p "$2"',
    "g++": COMPILER,
    "ninja": NINJA,
    "npm": PACKAGE,
    "python3": PYTHON,
    "rustc": "echo 'rustc 0.0.1 (none)'",
    "strip": 'kill_in strip; cp "$4" "$3"',
}


def other_programs(folder: Path) -> Path:
    """Fills a directory with this machine's programs, but for those that are fakes or hidden."""
    for source in os.get_exec_path():
        for program in Path(source).glob("*") if Path(source).is_dir() else ():
            link = folder / program.name
            is_wanted = program.name not in (*HIDDEN, *TOOLS) and os.access(program, os.X_OK)
            if is_wanted and not link.is_symlink():
                link.symlink_to(program)
    return folder


class Machine:
    """A checkout in a directory with blanks in its name, and tools that note their calls."""

    def __init__(self, here: Path, programs: Path, without: str | None = None) -> None:
        self.root = here / "a check out"
        self.cache = here / "the cache"
        self._calls = here / "calls"
        self._tools = here / "bin"
        self._tools.mkdir()
        self._path = f"{self._tools}:{programs}"
        for name, does in TOOLS.items():
            if name != without:
                self.furnish(name, does)
        for folder in ("scripts", "duckdb/src", "duckdb/ffi/include", "python"):
            ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "tests")
            shutil.copytree(ROOT / folder, self.root / folder, ignore=ignore)
        shutil.copy(ROOT / "Cargo.toml", self.root)
        (self.root / "crates/cli").mkdir(parents=True)
        (self.root / "crates/cli/rustc-0.0.1.profdata").write_text("profile")

    def furnish(self, name: str, does: str) -> None:
        """Gives the machine a tool."""
        script = f"{BEGIN.replace('NAME', name)}\n{does}"
        path = self._tools / name
        path.write_text(script.replace("REAL_PYTHON", f'"{sys.executable}"'))
        path.chmod(0o755)

    def run(self, script: str, *arguments: str, **environment: str) -> tuple[int, str]:
        """The exit code of a script of the checkout, and all that it prints."""
        kept = {k: v for k, v in os.environ.items() if k in ("LANG", "USER")}
        kept |= {"PATH": self._path, "HOME": str(self.root.parent), "CALLS": str(self._calls)}
        kept |= {"PENSTOCK_CACHE": str(self.cache), **environment}
        # Into a file: what a killed script has left running holds its end of a pipe.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [f"scripts/{script}", *arguments],
                cwd=self.root,
                env=kept,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                check=False,
                timeout=60,
            )
            output.seek(0)
            return done.returncode, output.read()

    def calls(self, begin: str) -> list[str]:
        """The calls that begin so since this was asked last."""
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.write_text("")
        return [line for line in lines if line.startswith(begin)]


BUILT = (
    "penstock",
    "penstock-fake",
    "penstock-bare",
    "duckdb/v1.5.5/libduckdb.so",
    "duckdb/v1.5.5/penstock.duckdb_extension",
    "venv/bin/python",
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return other_programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture
def machine(tmp_path: Path, programs: Path) -> Machine:
    return Machine(tmp_path, programs)


def check_built(machine: Machine) -> None:
    code, output = machine.run("build.sh")
    assert code == 0, output
    assert [name for name in BUILT if not (machine.root / "build" / name).is_file()] == []


def test_a_checkout_with_blanks_in_its_name_is_built(machine: Machine) -> None:
    check_built(machine)
    assert machine.calls("ninja") == [], "no core of DuckDB is compiled"
    flags = (machine.root / "target/flags").read_text().splitlines()
    assert any(flag.startswith(f"-Cprofile-use={machine.cache}/profile-") for flag in flags)


def test_a_second_build_compiles_and_fetches_nothing(machine: Machine) -> None:
    check_built(machine)
    assert machine.calls("npm ") != []
    (profile,) = machine.cache.glob("profile-*")
    before = profile.stat()
    # A checkout gives its files a new time.
    os.utime(machine.root / "crates/cli/rustc-0.0.1.profdata")
    check_built(machine)
    calls = machine.calls("")
    after = profile.stat()
    # Each crate depends on it: a new time compiles all of them anew.
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    # Cargo finds out by itself; of the compiler there is a look at it, and the link.
    compiled = [it for it in calls if it.startswith(("g++", "c++")) and " -c " in it]
    fetched = [it for it in calls if it.startswith(("npm", "python3 -m"))]
    assert compiled + fetched == []
    assert any(it.startswith("cargo build") for it in calls)


@pytest.mark.parametrize(
    ("without", "says"),
    [
        ("cargo", "or later is missing: install it with rustup and run again"),
        ("c++", "install the package g++ and run again"),
        ("g++", "install the package g++ and run again"),
        ("npm", "install the package npm and run again"),
        ("python3", "install the package python3 and run again"),
    ],
)
def test_a_machine_without_a_tool_is_told_before_the_long_build(
    tmp_path: Path, programs: Path, without: str, says: str
) -> None:
    machine = Machine(tmp_path, programs, without)
    code, output = machine.run("build.sh")
    assert code == 1
    assert says in output.splitlines()[-1]
    assert machine.calls("cargo") == []


def test_a_compiler_that_is_too_old_is_named(machine: Machine) -> None:
    code, output = machine.run("build.sh", OLD_COMPILER="1")
    assert code == 1
    assert "g++ (g++ 99) does not compile C++17: install g++ 8 or later" in output
    assert machine.calls("cargo") == []


def test_a_compiler_that_is_not_here_is_named(machine: Machine) -> None:
    code, output = machine.run("build.sh", CXX="clang++-99")
    assert code == 1
    assert output.splitlines()[-1] == "error: CXX names the compiler clang++-99, which is not here"


@pytest.mark.parametrize(
    "script", ["build-extension", "check-headers", "core", "sources", "test-other", "wheel"]
)
def test_a_duckdb_that_is_not_listed_is_refused_with_those_that_are(
    machine: Machine, script: str
) -> None:
    name = "wheel.sh" if script == "wheel" else f"duckdb-{script}.sh"
    code, output = machine.run(name, *(["tree"] if script == "sources" else []), "9.9.9")
    assert code == 1
    assert "error: DuckDB 9.9.9 is not in scripts/duckdb-versions.tsv, which has: 2.0.1 " in output


def test_a_cache_that_cannot_be_written_is_named(machine: Machine) -> None:
    # As root too: no process makes a directory there.
    code, output = machine.run("build.sh", PENSTOCK_CACHE="/proc/penstock")
    assert code == 1
    assert "error: /proc/penstock, where builds are kept, cannot be written" in output
    assert "name another directory in PENSTOCK_CACHE" in output
    assert machine.calls("cargo") == []


@pytest.mark.parametrize(
    ("library", "failed"),
    [("headers", "CMake and Ninja"), ("library", "library of DuckDB 1.5.5")],
)
def test_a_fetch_without_a_network_is_told_and_goes_on_later(
    machine: Machine, library: str, failed: str
) -> None:
    code, output = machine.run("duckdb-sources.sh", library, "1.5.5", NO_NETWORK="1")
    assert code != 0
    assert output.endswith(f"{failed}: failed, exit code 1\n")
    code, output = machine.run("duckdb-sources.sh", library, "1.5.5")
    assert code == 0, output


def test_a_failure_names_the_disks_that_are_full(machine: Machine) -> None:
    machine.furnish("df", "printf 'Avail\\n12345\\n'")
    _, output = machine.run("duckdb-sources.sh", "headers", "1.5.5", NO_NETWORK="1")
    told = f"CMake and Ninja: failed, exit code 1; the disk of {machine.cache} has 12 MB free; "
    assert told in output


def test_a_build_without_a_network_says_what_could_not_be_fetched(machine: Machine) -> None:
    code, output = machine.run("build.sh", NO_NETWORK="1")
    assert code == 1
    assert "error: DuckDB's headers or library could not be fetched" in output
    check_built(machine)


@pytest.mark.parametrize("tool", ["cargo", "g++", "npm", "pip", "strip", "venv"])
def test_a_build_that_was_killed_goes_on(machine: Machine, tool: str) -> None:
    code, _ = machine.run("build.sh", KILLED_IN=tool)
    assert code == -9
    check_built(machine)


def test_an_extension_that_was_killed_is_compiled_when_the_source_is_as_before(
    machine: Machine,
) -> None:
    check_built(machine)
    source = machine.root / "duckdb/src/new.cpp"
    source.write_text("int x;\n")
    arguments = ("duckdb-build-extension.sh", "1.5.5")
    code, _ = machine.run(*arguments, KILLED_IN="g++", LINK="shared")
    assert code == -9
    source.unlink()
    machine.calls("")
    code, output = machine.run(*arguments, LINK="shared")
    assert code == 0, output
    assert any(" -c " in it for it in machine.calls("g++"))


def test_a_core_that_was_killed_goes_on_where_it_was(machine: Machine) -> None:
    code, _ = machine.run("duckdb-core.sh", "2.0.1", KILLED_IN="ninja")
    assert code == -9
    (core,) = (machine.cache / "duckdb/v2.0.1").glob("core-*")
    assert (core / "build/a.o").is_file()
    # What a killed `ar` leaves.
    (core / "libduckdb_core.a").write_text("half\n")
    code, output = machine.run("duckdb-core.sh", "2.0.1")
    assert code == 0, output
    assert output.splitlines()[-1] == str(core)
    assert (core / "ninja.log").read_text() == "compiled b.o\n"
    assert "half" not in (core / "libduckdb_core.a").read_text()
    assert not (core / "build").exists()


def test_a_core_that_fails_tells_why_and_the_free_room(machine: Machine) -> None:
    code, output = machine.run("duckdb-core.sh", "2.0.1", FULL_DISK="1")
    assert code == 1
    (core,) = (machine.cache / "duckdb/v2.0.1").glob("core-*")
    why = f"does not compile: as: No space left on device; see {core}/ninja.log; its disk has "
    assert why in output.splitlines()[-1]
    assert re.search(r" its disk has [\d.]+[KMGT]? free$", output.splitlines()[-1])


def test_a_core_that_was_killed_when_it_was_tidied_up_is_whole(machine: Machine) -> None:
    machine.run("duckdb-core.sh", "2.0.1")
    (core,) = (machine.cache / "duckdb/v2.0.1").glob("core-*")
    (core / "build").mkdir()
    machine.calls("")
    code, output = machine.run("duckdb-core.sh", "2.0.1")
    assert code == 0, output
    assert machine.calls("ninja") == []
    assert not (core / "build").exists()
