"""The Debian package that scripts/deb.sh makes: its fields, its files, and that they work."""

import configparser
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
UNIT = "lib/systemd/system/penstock.service"


def told(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def build(**environment: str) -> bytes:
    """The bytes of the package, built anew."""
    dist = ROOT / "build/dist"
    for old in dist.glob("penstock_*.deb"):
        old.unlink()
    told(ROOT / "scripts/deb.sh", **environment)
    (package,) = dist.glob("penstock_*.deb")
    assert package.name == f"penstock_{VERSION}_{told('dpkg', '--print-architecture').strip()}.deb"
    return package.read_bytes()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deb") / "penstock.deb"
    path.write_bytes(build())
    return path


@pytest.fixture(scope="module")
def root(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is in it, unpacked."""
    into = tmp_path_factory.mktemp("root")
    told("dpkg", "-x", package, into)
    return into


def test_the_same_commit_gives_the_same_bytes(package: Path) -> None:
    assert build(TZ="Pacific/Auckland", LC_ALL="C") == package.read_bytes()


def test_its_fields_are_true(package: Path, root: Path) -> None:
    fields = {
        name: told("dpkg-deb", "--field", package, name).strip()
        for name in ("Package", "Version", "Depends", "Recommends")
    }
    symbols = told("readelf", "-V", root / "usr/bin/penstock")
    versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", symbols)
    glibc = max((int(major), int(minor)) for major, minor in versions)
    libc = re.search(r"\blibc6 \(>= (\d+)\.(\d+)\)", fields.pop("Depends"))
    assert libc and (int(libc[1]), int(libc[2])) >= glibc, f"the binary needs glibc {glibc}"
    named = {"Package": "penstock", "Version": VERSION, "Recommends": "ca-certificates"}
    assert fields == named


def test_it_holds_a_page_for_each_verb_and_owns_nothing_else(package: Path, root: Path) -> None:
    binary = root / "usr/bin/penstock"
    helped = told(binary, "help").split("Commands:\n")[1].split("\n\n")[0]
    verbs = set(re.findall(r"^  (\w+)", helped, re.MULTILINE)) - {"help"}
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    pages = {name for name in files if name.startswith("usr/share/man/")}
    assert {f"usr/share/man/man1/penstock-{verb}.1.gz" for verb in verbs} <= pages
    assert files - pages == {
        "etc/penstock/penstock.toml",
        "usr/bin/penstock",
        UNIT,
        "usr/share/bash-completion/completions/penstock",
        "usr/share/doc/penstock/LICENSE-THIRD-PARTY.gz",
        "usr/share/doc/penstock/copyright",
        "usr/share/fish/vendor_completions.d/penstock.fish",
        "usr/share/zsh/vendor-completions/_penstock",
    }
    listed = told("dpkg-deb", "--contents", package).splitlines()
    assert {line.split()[1] for line in listed} == {"root/root"}
    assert not [line for line in listed if re.match(r".{5}w|.{8}w", line)], "only root writes"
    # What the operator changes stays at an upgrade.
    assert told("dpkg-deb", "--info", package, "conffiles") == "/etc/penstock/penstock.toml\n"
    sums = told("dpkg-deb", "--info", package, "md5sums")
    assert {line.split(maxsplit=1)[1] for line in sums.splitlines()} == files


def test_the_binary_runs_from_where_it_is_unpacked(root: Path) -> None:
    assert told(root / "usr/bin/penstock", "--version") == f"penstock {VERSION}\n"
    assert ".debug_info" not in told("readelf", "-S", "-W", root / "usr/bin/penstock")


def test_the_server_runs_as_nobody_in_particular_and_reads_secrets_from_a_file(root: Path) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(root / UNIT)
    service = unit["Service"]
    command = service["ExecStart"].split()
    assert command == ["/usr/bin/penstock", "serve", "--config", "/etc/penstock/penstock.toml"]
    assert all((root / path[1:]).is_file() for path in (command[0], command[3]))
    assert service["DynamicUser"] == "yes" and "User" not in service
    assert service["CapabilityBoundingSet"] == ""
    assert service["EnvironmentFile"] == "-/etc/penstock/secrets.env"
    # Of its config the secret is a name; the directory that it serves is its own.
    config = tomllib.loads((root / "etc/penstock/penstock.toml").read_text())
    assert [key.keys() for key in config["key"]] == [{"access_key", "secret_key_env"}]
    assert config["backend"][0]["url"] == "file:///var/lib/" + service["StateDirectory"]


def test_systemd_knows_every_word_of_the_unit(root: Path, tmp_path: Path) -> None:
    targets = list(Path("/lib/systemd/system").glob("*.target"))
    if not (shutil.which("systemd-analyze") and targets):
        return  # A machine without it; the test above reads what matters most.
    machine = tmp_path / "machine"
    shutil.copytree(root, machine)
    for target in targets:
        shutil.copy(target, machine / UNIT.rpartition("/")[0])
    analyze = ("systemd-analyze", f"--root={machine}")
    verified = told(*analyze, "verify", "--man=no", Path(UNIT).name)
    assert "penstock.service" not in verified, verified
    # From 0 to 10; below 2 is what it calls OK.
    judged = told(*analyze, "security", "--offline=true", "--threshold=20", Path(UNIT).name)
    assert "Overall exposure level" in judged


def test_the_manual_renders_and_the_shell_completes(root: Path) -> None:
    for page in sorted((root / "usr/share/man/man1").iterdir()):
        if shutil.which("man"):
            shown = told("man", "--warnings", "-E", "UTF-8", "-l", page, MANWIDTH="80")
            assert "warning:" not in shown and "NAME" in shown, shown
    script = root / "usr/share/bash-completion/completions/penstock"
    typed = f". {script}; COMP_WORDS=(penstock se); COMP_CWORD=1; _penstock penstock se penstock"
    assert told("bash", "-c", f"{typed}; echo ${{COMPREPLY[@]}}") == "serve\n"
