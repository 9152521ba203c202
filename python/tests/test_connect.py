"""Opening DuckDB with Penstock, and the errors of loading and of secrets."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import penstock
import pytest


def test_connect_loads_the_extension() -> None:
    with penstock.connect() as con:
        names = {name for (name,) in con.execute("SELECT name FROM penstock_settings()").fetchall()}
    assert "penstock_part_size_bytes" in names


def test_loading_twice_is_harmless() -> None:
    with penstock.connect() as con:
        penstock.load(con)


def test_what_was_opened_is_free_for_other_work() -> None:
    # DuckDB 2.0 refuses a relation while a result of execute() is unfinished.
    with penstock.connect() as con:
        assert con.sql("SELECT 1").fetchall() == [(1,)]


def test_settings_hold_for_the_whole_instance() -> None:
    with penstock.connect(settings={"penstock_upload_concurrency": 3, "threads": 1}) as con:
        query = "SELECT current_setting('penstock_upload_concurrency'), current_setting('threads')"
        assert [str(value) for value in con.cursor().execute(query).fetchall()[0]] == ["3", "1"]


def test_secrets_are_created() -> None:
    secret: penstock.Secret = {"type": "s3", "key_id": "k", "secret": "x'y", "scope": "s3://lake"}
    with penstock.connect(secrets={"lake": secret}) as con:
        found = con.execute("SELECT name FROM which_secret('s3://lake/a', 's3')").fetchall()
    assert found == [("lake",)]


def test_refused_secret_does_not_tell_its_value() -> None:
    secret: penstock.Secret = {
        "type": "s3",
        "key_id": "k",
        "secret": "hunter2",
        "regoin": "hunter2",
    }
    with pytest.raises(penstock.SecretError, match="regoin") as caught:
        penstock.connect(secrets={"lake": secret})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None


def test_secret_without_type_is_refused() -> None:
    with pytest.raises(penstock.SecretError, match="no type"):
        penstock.connect(secrets={"lake": {"key_id": "k"}})


def test_what_is_no_secret_is_named() -> None:
    unset: Any = {"type": "s3", "key_id": "k", "secret": None}
    with pytest.raises(penstock.SecretError, match="option secret of secret `lake` is None"):
        penstock.connect(secrets={"lake": unset})
    text: Any = "hunter2"
    with pytest.raises(penstock.SecretError, match="secret `lake` is a str") as caught:
        penstock.connect(secrets={"lake": text})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["a b", "x; DROP", ""])
def test_names_cannot_smuggle_sql(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a setting"):
        penstock.connect(settings={name: 1})


def test_connection_without_unsigned_extensions_is_told_so() -> None:
    with duckdb.connect() as con, pytest.raises(penstock.LoadError, match=r"penstock\.connect"):
        penstock.load(con)


def test_other_duckdb_version_is_told_what_is_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "duckdb" / "v1.4.0" / "penstock.duckdb_extension"
    other.parent.mkdir(parents=True)
    other.touch()
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    with pytest.raises(penstock.LoadError, match=r"DuckDB 1\.5\.5: .* ships it for 1\.4\.0"):
        penstock.connect()


def test_damaged_extension_is_a_load_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "duckdb" / "v1.5.5" / "penstock.duckdb_extension"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"not an extension" * 64)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    with pytest.raises(penstock.LoadError, match="refused"):
        penstock.connect()


def test_command_becomes_the_binary(tmp_path: Path) -> None:
    binary = tmp_path / "penstock"
    binary.write_text('#!/bin/sh\necho "got $*"\n')
    binary.chmod(0o755)
    command = [sys.executable, "-c", "from penstock._cli import main; main()", "ls", "--all"]
    done = subprocess.run(
        command,
        env={**os.environ, "PENSTOCK_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "got ls --all\n"
