"""Files of the extension that are not what they should be, and two of them in one process."""

import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import penstock
import pytest
from harness import Fake, pypi_extension

VERSION = duckdb.__version__


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The extension of another installation, which `penstock` takes from now on."""
    built = penstock.extension_path()
    shutil.copytree(built.parent, tmp_path / "duckdb" / f"v{VERSION}")
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    return penstock.extension_path()


def refusal() -> str:
    """What is said of a file that cannot be loaded."""
    with pytest.raises(penstock.LoadError) as caught:
        penstock.connect()
    told = str(caught.value)
    assert "pip install --force-reinstall penstock-*.whl" in told
    return told


@pytest.mark.parametrize("share", [0, 0.5, 0.999])
def test_a_truncated_file_is_named_with_what_to_do(file: Path, share: float) -> None:
    with file.open("r+b") as whole:
        whole.truncate(int(file.stat().st_size * share))
    assert f"DuckDB {VERSION} refused {file}" in refusal()


def test_a_file_for_another_duckdb_is_refused(file: Path) -> None:
    content = file.read_bytes()
    footer = content[-512:].replace(f"v{VERSION}".encode(), b"v1.0.0")
    assert footer != content[-512:]
    file.write_bytes(content[:-512] + footer)
    assert "v1.0.0" in refusal()


def test_another_extension_in_its_place_is_refused(file: Path) -> None:
    shutil.copy(pypi_extension("httpfs"), file)
    assert f"refused {file}" in refusal()


def other_version(file: Path) -> None:
    """Makes it an extension that calls itself 9.9.9."""
    content = file.read_bytes()
    ours = penstock.__version__.encode()
    assert len(ours) == 5
    assert ours in content
    file.write_bytes(content.replace(ours, b"9.9.9"))


def run(program: str, *arguments: str | Path) -> str:
    """What another process prints."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_version_in_a_database_is_said(tmp_path: Path) -> None:
    # In a process of its own: nothing unloads it.
    shutil.copytree(penstock.extension_path().parent, tmp_path / "other")
    other = tmp_path / "other/penstock.duckdb_extension"
    other_version(other)
    program = """
import sys, duckdb, penstock
con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
con.execute(f"LOAD '{sys.argv[1]}'")
try:
    penstock.load(con)
except penstock.LoadError as error:
    print(error)
"""
    told = run(program, other)
    assert f"has Penstock 9.9.9 loaded, and this package is {penstock.__version__}" in told
    assert "in a new process" in told


def test_two_versions_in_one_process_serve_a_database_each(s3: Fake, tmp_path: Path) -> None:
    shutil.copytree(penstock.extension_path().parent, tmp_path / "other")
    other = tmp_path / "other/penstock.duckdb_extension"
    other_version(other)
    program = """
import sys, duckdb, penstock
old = duckdb.connect(config={"allow_unsigned_extensions": "true"})
old.execute(f"LOAD '{sys.argv[1]}'")
new = penstock.connect()
for number, con in enumerate((old, new)):
    con.execute(f"CREATE SECRET s ({sys.argv[2]})")
    con.execute(f"COPY (FROM range(1000)) TO 's3://two/{number}.parquet'")
for con in (old, new):
    print(con.execute("SELECT penstock_version(), count(*) FROM 's3://two/*.parquet'").fetchone())
"""
    told = run(program, other, s3.secret)
    assert told == f"('9.9.9', 2000)\n('{penstock.__version__}', 2000)\n"


def test_the_default_connection_is_one_that_was_set() -> None:
    program = """
import duckdb, penstock
try:
    penstock.load(duckdb.default_connection())
except penstock.LoadError as error:
    print("duckdb.set_default_connection(penstock.connect())" in str(error))
duckdb.set_default_connection(penstock.connect())
penstock.load(duckdb.default_connection())
print(duckdb.sql("SELECT penstock_version()").fetchall()[0])
"""
    assert run(program) == f"True\n('{penstock.__version__}',)\n"
