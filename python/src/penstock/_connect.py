"""Opens DuckDB with Penstock loaded; decides nothing about storage, passes settings and secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import duckdb

from penstock._errors import LoadError, NotShippedError, SecretError
from penstock._files import extension_path
from penstock._interrupt import watch
from penstock._secrets import Secret

_VERSION = metadata.version("penstock")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def connect(
    database: str | Path = ":memory:",
    *,
    read_only: bool = False,
    config: Mapping[str, object] | None = None,
    secrets: Mapping[str, Secret] | None = None,
    settings: Mapping[str, str | bool | int | float] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Opens a DuckDB database with Penstock loaded.

    Args:
        database: path of the database file, or ``":memory:"``.
        read_only: as in ``duckdb.connect``.
        config: as in ``duckdb.connect``; unsigned extensions are allowed unless it says otherwise.
        secrets: name to options; each becomes a temporary secret of this database instance, for
            example
            ``{"lake": {"type": "s3", "key_id": "...", "secret": "...", "scope": "s3://lake"}}``.
        settings: name to value, set for the whole database instance (``SET GLOBAL``), for example
            ``{"penstock_part_size_bytes": "16MiB"}``.

    Raises:
        LoadError: the extension could not be loaded.
        SecretError: a secret was refused.
        duckdb.Error: the database could not be opened, or a setting was refused.
    """
    options: dict[str, object] = {"allow_unsigned_extensions": "true", **(config or {})}
    con = duckdb.connect(
        str(database),
        read_only=read_only,
        config=options,  # type: ignore[arg-type]
    )
    try:
        load(con)
        for name, value in (settings or {}).items():
            con.execute(f"SET GLOBAL {_identifier(name, 'setting')} = {_literal(value)}")
        for name, secret in (secrets or {}).items():
            _create_secret(con, name, secret)
    except BaseException:
        con.close()
        raise
    return con


def load(con: duckdb.DuckDBPyConnection) -> None:
    """Loads Penstock into a connection; loading it twice is harmless.

    From then on Ctrl-C ends the connection's statements too, where SIGINT raises KeyboardInterrupt,
    this was called on the main thread and no event loop listens for signals.

    Raises:
        LoadError: the connection was opened without ``allow_unsigned_extensions``, or this
            installation ships no extension for the connection's DuckDB version, or DuckDB refused
            the file, or the database has another version of Penstock loaded.
    """
    # All rows: DuckDB 2.0 refuses other work on a connection that has an unfinished result.
    ((library, unsigned_allowed),) = con.execute(
        "SELECT library_version, current_setting('allow_unsigned_extensions') FROM pragma_version()"
    ).fetchall()
    version = str(library).removeprefix("v")
    try:
        path = extension_path(version)
    except NotShippedError as error:
        raise LoadError(f"cannot load Penstock: {error}") from None
    if not unsigned_allowed:
        raise LoadError(
            "cannot load Penstock: this connection was opened without allow_unsigned_extensions, "
            "which DuckDB only takes when it opens a database. Open it with penstock.connect(...), "
            "or with duckdb.connect(..., config={'allow_unsigned_extensions': 'true'}). For the "
            "default connection: duckdb.set_default_connection(penstock.connect())."
        )
    try:
        con.execute(f"LOAD {_literal(str(path))}")
    except duckdb.Error as error:
        raise LoadError(
            f"DuckDB {version} refused {path}: {error}. The file is damaged, or another program's: "
            "reinstall the package `penstock` (`pip install --force-reinstall penstock-*.whl`), or "
            f"build the file anew in a checkout (`make extension VERSION={version}`)."
        ) from error
    _check_version(con, path)
    watch(con)


def _check_version(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raises LoadError when what is loaded is not of this package's version.

    DuckDB keeps what a database has loaded first, whatever file is named afterwards.
    """
    ((loaded,),) = con.execute("SELECT penstock_version()").fetchall()
    if loaded != _VERSION:
        raise LoadError(
            f"this database has Penstock {loaded} loaded, and this package is {_VERSION}: either a "
            f"LOAD of another file came first, or {path} is not this package's. DuckDB cannot "
            "unload it: open the database in a new process. If that does not help, reinstall the "
            "package `penstock` (`pip install --force-reinstall penstock-*.whl`)."
        )


def _create_secret(con: duckdb.DuckDBPyConnection, name: str, secret: Secret) -> None:
    if not isinstance(secret, Mapping):
        kind = type(secret).__name__
        raise SecretError(f"secret `{name}` is a {kind}; give a mapping of options to values")
    options = {key.lower(): value for key, value in secret.items()}
    missing = [key for key, value in options.items() if value is None]
    if missing:
        raise SecretError(
            f"option {', '.join(missing)} of secret `{name}` is None: give a value (an environment "
            "variable may not be set) or leave the option out"
        )
    if "type" not in options:
        raise SecretError(f"secret `{name}` has no type; give one, for example 's3' or 'azure'")
    mappings = [key for key, value in options.items() if isinstance(value, Mapping)]
    if wrong := [key for key in mappings if key != "extra_http_headers"]:
        raise SecretError(f"option {', '.join(wrong)} of secret `{name}` is a mapping: give a text")
    parts = []
    for key, value in options.items():
        # TYPE and PROVIDER are words in DuckDB's grammar, everything else is a literal.
        bare = key in ("type", "provider")
        text = _identifier(str(value), key) if bare else _literal(value)
        parts.append(f"{_identifier(key, 'secret option').upper()} {text}")
    failure = None
    try:
        con.execute(f"CREATE OR REPLACE SECRET {_identifier(name, 'secret')} ({', '.join(parts)})")
    except duckdb.Error as error:
        failure = _without_values(str(error), secret)
    if failure is not None:
        # Raised outside the handler: DuckDB's error may quote the statement, values included.
        raise SecretError(f"secret `{name}` was refused: {failure}")


def _without_values(message: str, secret: Secret) -> str:
    first = message.split("\nLINE ", 1)[0]
    for key, value in secret.items():
        if key.lower() not in ("type", "provider"):
            for text in _texts(value):
                first = first.replace(text, "***")
    return first


def _texts(value: object) -> list[str]:
    """The texts in the value of an option, the longest first."""
    if isinstance(value, Mapping):
        value = list(value.values())
    texts = value if isinstance(value, list) else [value]
    return sorted((text for text in texts if isinstance(text, str) and text), key=len, reverse=True)


def _identifier(text: str, what: str) -> str:
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError(f"not the name of a {what}: {text!r}")
    return text


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_literal(item) for item in value)}]"
    if isinstance(value, Mapping):
        pairs = (f"{_literal(key)}: {_literal(item)}" for key, item in value.items())
        return f"MAP {{{', '.join(pairs)}}}"
    if not isinstance(value, str):
        raise TypeError(f"not a value that SQL takes: a {type(value).__name__}")
    return "'" + value.replace("'", "''") + "'"
