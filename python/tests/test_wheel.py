"""The wheel that scripts/wheel.sh made: its size, its tag, and a first query with nothing else."""

import os
import re
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest
from harness import Fake

ROOT = Path(__file__).resolve().parents[2]
FIRST_ROWS_S = 10
# The first glibc whose manylinux tag has a version of libstdc++'s symbols (PEP 600's policies).
GLIBC_OF_GLIBCXX = {(3, 4, 28): (2, 31), (3, 4, 29): (2, 34), (3, 4, 30): (2, 35)}

Version = tuple[int, ...]


@pytest.fixture(scope="module")
def wheel() -> Path:
    found = list((ROOT / "build/dist").glob("penstock-*.whl"))
    assert len(found) == 1, f"build/dist holds {found}: run scripts/wheel.sh"
    return found[0]


@pytest.fixture(scope="module")
def native(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of machine code in the wheel."""
    into = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into)
    return [path for path in (into / "penstock/_native").rglob("*") if path.is_file()]


def test_it_holds_the_binary_and_self_contained_extensions(native: list[Path]) -> None:
    names = sorted(path.name for path in native)
    assert names == ["penstock"] + ["penstock.duckdb_extension"] * (len(names) - 1)
    assert len(names) > 1
    for path in native:
        needed = subprocess.check_output(["readelf", "-d", path], text=True)
        assert "libduckdb" not in needed, path


def test_it_has_at_most_60_mb(wheel: Path) -> None:
    assert wheel.stat().st_size <= 60_000_000


def test_it_has_the_terms_of_all_that_is_compiled_in(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        texts = {
            name.rpartition("/")[2]: archive.read(name).decode()
            for name in archive.namelist()
            if ".dist-info/licenses/" in name
        }
    assert texts["LICENSE"] == (ROOT / "LICENSE").read_text()
    for name in ("tokio", "rust-std", "duckdb", "duckdb-re2"):
        assert re.search(rf"^(.*, )?{name} \d", texts["LICENSE-THIRD-PARTY.txt"], re.M), name


def test_its_files_have_one_time_and_may_be_read_by_all(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = archive.infolist()
    assert len({file.date_time for file in files}) == 1, "a second build would differ"
    assert {(file.external_attr >> 16) & 0o777 for file in files} <= {0o644, 0o664, 0o755}


def highest(symbols: str, files: list[Path]) -> Version:
    """The highest version of a library's symbols that the files need."""
    told = "".join(subprocess.check_output(["readelf", "-V", file], text=True) for file in files)
    found = re.findall(rf"\b{symbols}_(\d+(?:\.\d+)+)", told)
    return max(tuple(int(part) for part in version.split(".")) for version in found)


def test_its_tag_names_the_glibc_that_its_code_needs(wheel: Path, native: list[Path]) -> None:
    glibc, glibcxx = highest("GLIBC", native), highest("GLIBCXX", native)
    assert glibc <= (2, 34), "the code runs on glibc 2.34 and later"
    needed = max(glibc, *(of for cxx, of in GLIBC_OF_GLIBCXX.items() if cxx <= glibcxx))
    assert glibcxx in GLIBC_OF_GLIBCXX or glibcxx < max(GLIBC_OF_GLIBCXX), "add it to the table"
    assert wheel.name.endswith("-py3-none-manylinux_{}_{}_x86_64.whl".format(*needed))


class Environment:
    """A fresh environment with nothing but what is put into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)

    @property
    def python(self) -> Path:
        return self.path / "bin/python"

    def install(self, *what: str | Path) -> None:
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", self.python]
        subprocess.run([*pip, "install", "-q", "--no-compile", *what], check=True)

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PENSTOCK"))}
        return subprocess.run(
            [self.python, *arguments],
            cwd=self.path,
            env={**kept, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def told(self, program: str, *arguments: str) -> str:
        """What a program prints that ends well."""
        done = self.run("-c", textwrap.dedent(program), *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel beside the newest `duckdb` of the index that it allows."""
    environment = Environment(tmp_path_factory.mktemp("clean") / "a path with blanks")
    environment.install(wheel)
    return environment


def test_the_newest_duckdb_reads_first_rows_soon(clean: Environment, s3: Fake) -> None:
    program = """
        import os, sys
        import duckdb, penstock
        con = penstock.connect(secrets={"lake": {"type": "s3", "key_id": "test", "secret": "test",
            "region": "us-east-1", "endpoint": sys.argv[1], "url_style": "path",
            "use_ssl": False}})
        con.execute("COPY (FROM range(1000) t(i)) TO 's3://clean/rows.parquet'")
        print(con.execute("SELECT count(*), sum(i) FROM 's3://clean/rows.parquet'").fetchone())
        maps = open("/proc/self/maps").read()
        print(f"v{duckdb.__version__}/penstock.duckdb_extension" in maps, "libduckdb" in maps)
        print(os.path.commonpath([penstock.__file__, sys.prefix]) == sys.prefix)
    """
    begun = time.monotonic()
    assert clean.told(program, s3.address) == "(1000, 499500)\nTrue False\nTrue\n"
    assert time.monotonic() - begun < FIRST_ROWS_S


def test_what_was_opened_is_free_for_other_work(clean: Environment) -> None:
    program = "import penstock; print(penstock.connect().sql('SELECT 1').fetchall())"
    assert clean.told(program) == "[(1,)]\n"


def test_the_module_and_the_command_run_the_binary(clean: Environment) -> None:
    version = clean.told("import penstock; print('penstock', penstock.__version__)")
    assert clean.run("-m", "penstock", "--version").stdout == version
    command = clean.path / "bin/penstock"
    assert subprocess.check_output([command, "--version"], text=True) == version


def test_the_types_of_secrets_are_there_for_a_checker(clean: Environment) -> None:
    program = clean.path / "program.py"
    program.write_text(
        "import penstock\n"
        "from penstock import AzureSecret, S3Secret\n"
        "lake: S3Secret = {'type': 's3', 'key_id': 'k', 'secret': 's'}\n"
        "secrets: dict[str, penstock.Secret] = {'lake': lake}\n"
        "penstock.connect(secrets=secrets)\n"
    )

    def checked() -> str:
        mypy: list[str | Path] = [sys.executable, "-m", "mypy", "--strict", "--config-file="]
        mypy += ["--python-executable", clean.python, "--cache-dir=/dev/null", program]
        kept = {k: v for k, v in os.environ.items() if k != "MYPYPATH"}
        done = subprocess.run(
            mypy, cwd=clean.path, env=kept, stdout=subprocess.PIPE, text=True, check=False
        )
        return done.stdout

    assert checked().startswith("Success")
    program.write_text(program.read_text().replace("'key_id'", "'keyid'"))
    assert 'Extra key "keyid"' in checked()


def test_an_older_wheel_over_a_newer_one_leaves_nothing_of_it(
    wheel: Path, clean: Environment, tmp_path: Path
) -> None:
    newer = tmp_path / "penstock-99.0.0-py3-none-any.whl"
    with zipfile.ZipFile(newer, "w") as archive:
        files = {
            "penstock/__init__.py": "raise SystemExit('the newer one')\n",
            "penstock/_native/duckdb/v9.9.9/penstock.duckdb_extension": "",
            "penstock-99.0.0.dist-info/METADATA": (
                "Metadata-Version: 2.1\nName: penstock\nVersion: 99.0.0\n"
            ),
            "penstock-99.0.0.dist-info/WHEEL": (
                "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n"
            ),
        }
        record = "penstock-99.0.0.dist-info/RECORD"
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(record, "".join(f"{name},,\n" for name in [*files, record]))
    other = Environment(tmp_path / "venv")
    other.install("--no-deps", newer)
    assert "the newer one" in other.run("-c", "import penstock").stderr
    other.install("--no-deps", wheel)
    # Its duckdb is the other environment's: one download is enough.
    site = next((clean.path / "lib").glob("python*/site-packages"))
    program = "import penstock; print(penstock.__version__, penstock.shipped_versions())"
    seen = other.run("-c", f"import sys; sys.path.append({str(site)!r}); {program}").stdout
    assert seen == clean.told(program)
    assert "9.9.9" not in seen


def test_the_readme_begins_with_the_install_and_names_the_glibc(wheel: Path) -> None:
    page = (ROOT / "README.md").read_text()
    assert re.findall(r"^```\w*\n(.*?)^```", page, re.M | re.S)[0] == "pip install penstock-*.whl\n"
    glibc = re.findall(r"manylinux_(\d+)_(\d+)_", wheel.name)[0]
    assert "glibc {}.{} or later".format(*glibc) in page
