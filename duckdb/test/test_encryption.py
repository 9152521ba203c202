"""Encrypted Parquet files, databases and spilled buffers with Penstock alone, and beside httpfs.

Each side reads what the other wrote: Penstock's ciphers, mbedtls (DuckDB's own, which it calls
unsafe to write with) and OpenSSL (httpfs).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from harness import IS_DUCKDB_2, Fake, connect, load_penstock, load_pypi, scanner
from nvme import format_volume, penstock, url, value

KEY = "a-key-of-32-bytes-nobody-shows-1"
ROWS = (
    "SELECT i, hash(i) AS h, CASE WHEN i % 7 > 0 THEN 'text ' || i END AS text, "
    "[i, i + 1] AS list FROM range(60000) t(i)"
)
DIGEST = "SELECT count(*), sum(i), bit_xor(hash(h, text, list)) FROM {}"
OTHERS = ["mbedtls", "httpfs"]


def side(name: str) -> duckdb.DuckDBPyConnection:
    """A new database that encrypts by the ciphers of one side, and asks for no extension."""
    con = connect(load=False)
    con.execute("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false")
    if name == "mbedtls":
        con.execute("SET force_mbedtls_unsafe = 'true'")
    else:
        load(con, name)
    return con


def load(con: duckdb.DuckDBPyConnection, name: str) -> None:
    if name == "penstock":
        load_penstock(con)
    else:
        load_pypi(con, name)


def digest(con: duckdb.DuckDBPyConnection, source: str) -> tuple[object, ...]:
    row = con.execute(DIGEST.format(source)).fetchone()
    assert row
    return row


def right() -> tuple[object, ...]:
    with duckdb.connect() as con:
        return digest(con, f"({ROWS})")


def config(key: str = KEY) -> str:
    return f"{{footer_key_value: '{key}'}}"


def write(
    con: duckdb.DuckDBPyConnection, file: str | Path, rows: str = ROWS, more: str = ""
) -> None:
    options = f"FORMAT parquet, ROW_GROUP_SIZE 20000, ENCRYPTION_CONFIG {config()}{more}"
    con.execute(f"COPY ({rows}) TO '{file}' ({options})")


def parquet(file: str | Path, key: str = KEY) -> str:
    return f"read_parquet('{file}', encryption_config = {config(key)})"


@pytest.fixture
def mine() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with Penstock alone."""
    with side("penstock") as con:
        yield con


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("key_bytes", [16, 24, 32])
def test_files_of_either_side_are_read_by_the_other(
    other: str, key_bytes: int, mine: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    with side(other) as theirs:
        for writer, reader, file in ((mine, theirs, "mine"), (theirs, mine, "theirs")):
            path = tmp_path / f"{file}.parquet"
            for con in (writer, reader):
                con.execute(f"PRAGMA add_parquet_key('k', '{KEY[:key_bytes]}')")
            options = "FORMAT parquet, ROW_GROUP_SIZE 20000, ENCRYPTION_CONFIG {footer_key: 'k'}"
            writer.execute(f"COPY ({ROWS}) TO '{path}' ({options})")
            assert path.read_bytes()[:4] == path.read_bytes()[-4:] == b"PARE"
            read = f"read_parquet('{path}', encryption_config = {{footer_key: 'k'}})"
            assert digest(reader, read) == digest(writer, read) == right()


CIPHERS = {
    "gcm": "ENCRYPTION_CIPHER 'GCM'",
    "ctr": "ENCRYPTION_CIPHER 'CTR'",
    "gcm-v0": "ENCRYPTION_CIPHER 'GCM', debug_encryption_version 'v0'",
    "ctr-v0": "ENCRYPTION_CIPHER 'CTR', debug_encryption_version 'v0'",
}
"""Those that DuckDB offers (it refuses CBC); version 0 has nonces of 16 bytes."""


def change(con: duckdb.DuckDBPyConnection, path: Path, options: str, add: int) -> int:
    """Adds rows, of which some stay in the log; the number of all."""
    con.execute(f"ATTACH '{path}' AS d (ENCRYPTION_KEY '{KEY}'{options})")
    con.execute("PRAGMA disable_checkpoint_on_shutdown")
    con.execute("CREATE TABLE IF NOT EXISTS d.t (i BIGINT PRIMARY KEY, text VARCHAR)")
    begin = int(str(value(con, "SELECT count(*) FROM d.t")))
    for at in (begin, begin + add):
        con.execute(
            f"INSERT INTO d.t SELECT i, repeat('x', i % 90) FROM range({at}, {at + add}) r(i)"
        )
        if at == begin:
            con.execute("CHECKPOINT d")
    # Longer than a block.
    con.execute(f"INSERT INTO d.t VALUES (-{begin} - 1, repeat('long', 200000))")
    assert value(con, f"SELECT length(text) FROM d.t WHERE i = {begin} + 89") == (begin + 89) % 90
    row = con.execute("SELECT count(*), sum(length(text)) FROM d.t WHERE i < 0").fetchone()
    assert row and row[1] == 800_000 * row[0]
    return int(str(value(con, "SELECT count(*) FROM d.t")))


@pytest.mark.parametrize("cipher", list(CIPHERS))
@pytest.mark.parametrize("other", OTHERS)
def test_databases_of_either_side_are_attached_by_the_other(
    other: str, cipher: str, tmp_path: Path
) -> None:
    for number, order in enumerate((["penstock", other], [other, "penstock"])):
        path, options = tmp_path / f"{number}.db", f", {CIPHERS[cipher]}"
        rows = 0
        for name in order * 2:
            with side(name) as con:
                found = change(con, path, options, 4000)
                assert found == rows + 8001, f"{name} sees what was written before"
                rows = found
                con.execute("DETACH d")
        assert b"longlonglong" not in path.read_bytes()
        with side("penstock") as con:
            con.execute(f"ATTACH '{path}' AS d (ENCRYPTION_KEY '{KEY}'{options}, READ_ONLY)")
            assert value(con, "SELECT count(*) FROM d.t") == rows


def test_nothing_else_is_loaded_for_it(mine: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """Also where DuckDB may load what it thinks it lacks."""
    mine.execute("SET autoload_known_extensions = true")
    mine.execute(f"SET extension_directory = '{tmp_path}/none'")
    write(mine, tmp_path / "x.parquet")
    assert digest(mine, parquet(tmp_path / "x.parquet")) == right()
    mine.execute(f"ATTACH '{tmp_path}/x.db' AS d (ENCRYPTION_KEY '{KEY}')")
    mine.execute(f"CREATE TABLE d.t AS {ROWS}")
    assert not (tmp_path / "none").exists()
    loaded = "SELECT count(*) FROM duckdb_extensions() WHERE loaded AND extension_name = 'httpfs'"
    assert value(mine, loaded) == 0


def test_leaving_mbedtls_asks_for_httpfs_and_happens(
    mine: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    mine.execute("SET force_mbedtls_unsafe = true")
    mine.execute(
        f"ATTACH '{tmp_path}/x.db' AS d (ENCRYPTION_KEY '{KEY}'); CREATE TABLE d.t (i INT)"
    )
    with pytest.raises(duckdb.Error, match="HTTPFS"):
        mine.execute("SET force_mbedtls_unsafe = false")
    assert value(mine, "SELECT current_setting('force_mbedtls_unsafe')") is False
    mine.execute("INSERT INTO d.t VALUES (1); CHECKPOINT d")
    assert value(mine, "SELECT count(*) FROM d.t") == 1


def test_stores_hold_what_was_encrypted(con: duckdb.DuckDBPyConnection, store: Fake) -> None:
    place = store.url("encrypted/")
    write(con, f"{place}x.parquet")
    write(con, f"{place}parts", f"SELECT *, i % 5 AS p FROM ({ROWS})", ", PARTITION_BY (p)")
    reader = scanner(store)
    assert digest(reader, parquet(f"{place}x.parquet")) == right()
    assert digest(reader, parquet(f"{place}parts/*/*.parquet")) == right()
    held = reader.execute(f"SELECT content FROM read_blob('{place}**')").fetchall()
    assert len(held) >= 6
    for (content,) in held:
        assert content[:4] == b"PARE" and b"text 1" not in content
    with pytest.raises(duckdb.InvalidInputException, match="encrypted"):
        reader.execute(f"FROM '{place}x.parquet'")
    reader.close()


@pytest.mark.parametrize("cipher", ["gcm", "ctr"])
def test_an_encrypted_database_behind_a_url_is_attached(
    cipher: str, con: duckdb.DuckDBPyConnection, store: Fake, tmp_path: Path
) -> None:
    local, far = tmp_path / "local.db", store.url(f"encrypted/{cipher}.db")
    con.execute(f"ATTACH '{local}' AS l (ENCRYPTION_KEY '{KEY}', {CIPHERS[cipher]})")
    con.execute(f"CREATE TABLE l.t AS {ROWS}; DETACH l")
    con.execute(f"COPY (SELECT content FROM read_blob('{local}')) TO '{far}' (FORMAT blob)")
    reader = scanner(store)
    with pytest.raises(duckdb.Error, match=r"(?i)wrong encryption key"):
        reader.execute(f"ATTACH '{far}' AS r (ENCRYPTION_KEY 'another', {CIPHERS[cipher]})")
    reader.execute(f"ATTACH '{far}' AS r (ENCRYPTION_KEY '{KEY}', {CIPHERS[cipher]}, READ_ONLY)")
    assert digest(reader, "r.t") == right()
    reader.close()


@pytest.mark.parametrize("cipher", ["gcm", "ctr"])
def test_a_volume_holds_an_encrypted_database(cipher: str, tmp_path: Path) -> None:
    volume = format_volume(tmp_path / "disk.img")
    options = f"(ENCRYPTION_KEY '{KEY}', {CIPHERS[cipher]})"
    with side("penstock") as con:
        con.execute(f"ATTACH '{url(volume)}' AS d {options}")
        con.execute("PRAGMA disable_checkpoint_on_shutdown")
        con.execute(f"CREATE TABLE d.t AS {ROWS}; CHECKPOINT d; INSERT INTO d.t {ROWS}")
    with side("penstock") as con:
        with pytest.raises(duckdb.Error, match=r"(?i)wrong encryption key"):
            con.execute(f"ATTACH '{url(volume)}' AS d {options.replace(KEY, 'another')}")
        con.execute(f"ATTACH '{url(volume)}' AS d {options}")
        assert value(con, "SELECT count(*) FROM d.t") == 120_000
    assert b"text 123" not in volume.read_bytes()
    penstock("check", volume)


@pytest.mark.parametrize("place", ["directory", "volume"])
def test_spilled_buffers_are_encrypted_and_read_again(place: str, tmp_path: Path) -> None:
    directory = f"{tmp_path}/spilled"
    if place == "volume":
        directory = f"nvme://{format_volume(tmp_path / 'disk.img', '1GiB')}?temp"
    with side("penstock") as con:
        con.execute("SET threads = 2; SET enable_progress_bar = false")
        con.execute("SET temp_file_encryption = true; SET memory_limit = '100MB'")
        con.execute(f"SET temp_directory = '{directory}'")
        con.execute(
            "CREATE TABLE t AS SELECT i, hash(i) AS h, repeat('spilled', 7) || i AS text "
            "FROM range(2000000) r(i) ORDER BY h"
        )
        assert value(con, "SELECT count(*) FROM duckdb_temporary_files()") != 0
        if place == "directory":
            held = [path.read_bytes() for path in Path(directory).iterdir()]
            assert any(held) and not any(b"spilledspilled" in content for content in held)
        assert value(con, "SELECT count(*) FROM t JOIN t u USING (h)") == 2_000_000
        text = "SELECT count(*) FROM t WHERE text = repeat('spilled', 7) || i"
        assert value(con, text) == 2_000_000


def test_a_wrong_key_is_told_and_shown_nowhere(
    mine: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    file, database = tmp_path / "x.parquet", tmp_path / "x.db"
    write(mine, file)
    mine.execute(f"ATTACH '{database}' AS d (ENCRYPTION_KEY '{KEY}'); CREATE TABLE d.t AS SELECT 1")
    mine.execute("DETACH d")
    wrong = KEY[::-1]
    with pytest.raises(duckdb.InvalidInputException, match="are you using the right key") as told:
        mine.execute(f"FROM {parquet(file, wrong)}")
    texts = [str(told.value)]
    with pytest.raises(duckdb.Error, match=r"(?i)wrong encryption key") as refused:
        mine.execute(f"ATTACH '{database}' AS d (ENCRYPTION_KEY '{wrong}')")
    texts.append(str(refused.value))
    for bytes_of_key in (0, 5, 33):
        with pytest.raises(duckdb.InvalidInputException, match="no key of") as refused:
            mine.execute(
                f"COPY (SELECT 1) TO '{tmp_path}/y.parquet' "
                f"(ENCRYPTION_CONFIG {config('k' * bytes_of_key)})"
            )
        assert f"no key of {bytes_of_key} bytes" in str(refused.value)
    for text in texts:
        assert wrong not in text and KEY not in text
    assert digest(mine, parquet(file)) == right(), "the database goes on"


def outcome(read: Callable[[], object]) -> object:
    """What came of it: the answer, or the error, which must be one that a database survives."""
    try:
        return read()
    except duckdb.FatalException:
        raise
    except duckdb.Error as error:
        return error


def test_a_damaged_file_is_an_error_or_read_right(
    mine: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    whole, broken = tmp_path / "whole.parquet", tmp_path / "broken.parquet"
    write(mine, whole)
    content = whole.read_bytes()
    answer = right()
    mine.execute("SET enable_external_file_cache = false")
    damaged = [content[:size] for size in range(0, len(content), len(content) // 12)]
    for at in range(11, len(content), len(content) // 40):
        damaged.append(content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :])
    told = []
    for number, bytes_of_file in enumerate(damaged):
        broken.write_bytes(bytes_of_file)
        what = outcome(lambda: digest(mine, parquet(broken)))
        assert isinstance(what, duckdb.Error) or what == answer, f"case {number}: {what}"
        told.append(str(what))
    assert sum("are you using the right key" in text for text in told) > 20, told
    assert digest(mine, parquet(whole)) == answer


def test_a_damaged_database_is_an_error_or_read_right(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole.db", tmp_path / "broken.db"
    with side("penstock") as con:
        con.execute(f"ATTACH '{whole}' AS d (ENCRYPTION_KEY '{KEY}'); CREATE TABLE d.t AS {ROWS}")
    content = whole.read_bytes()
    answer = right()
    damaged = [content[:size] for size in range(0, len(content), len(content) // 6)]
    for at in range(13000, len(content), len(content) // 12):
        damaged.append(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    errors = 0
    for bytes_of_file in damaged[1:]:
        broken.write_bytes(bytes_of_file)

        def read() -> object:
            with side("penstock") as con:
                con.execute(f"ATTACH '{broken}' AS d (ENCRYPTION_KEY '{KEY}', READ_ONLY)")
                return digest(con, "d.t")

        what = outcome(read)
        assert isinstance(what, duckdb.Error) or what == answer
        errors += isinstance(what, duckdb.Error)
    assert errors > 8


@pytest.mark.parametrize("kind", ["directory", "device"])
def test_a_cache_that_was_made_without_holds_only_what_is_encrypted(
    kind: str, con: duckdb.DuckDBPyConnection, store: Fake, tmp_path: Path
) -> None:
    name, cache = store.url("encrypted/cached.parquet"), f"{tmp_path}/cache"
    if kind == "device":
        image = tmp_path / "cache.img"
        penstock("format", "--cache", image, "--size", "64MiB")
        cache = f"nvme://{image}"

    def reader() -> duckdb.DuckDBPyConnection:
        again = scanner(store)
        again.execute(f"SET GLOBAL penstock_cache_dir = '{cache}'")
        return again

    con.execute(f"COPY (SELECT *, 'plain' AS mark FROM ({ROWS})) TO '{name}' (FORMAT parquet)")
    with reader() as first:
        assert digest(first, f"'{name}'") == right()
    write(con, name, f"SELECT *, 'secret-' || i AS mark FROM ({ROWS})")
    for _ in range(2):
        with reader() as again:
            assert digest(again, parquet(name)) == right()
            with pytest.raises(duckdb.InvalidInputException, match="encrypted"):
                again.execute(f"FROM '{name}'")
            with pytest.raises(duckdb.InvalidInputException, match="right key"):
                again.execute(f"FROM {parquet(name, KEY[::-1])}").fetchall()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not any(b"secret-1" in path.read_bytes() for path in files)


@pytest.mark.parametrize("first", ["penstock", "httpfs"])
def test_the_order_of_loading_and_an_open_database_do_not_matter(
    first: str, tmp_path: Path
) -> None:
    """The second is loaded in the middle of a transaction."""
    con = connect(load=False)
    load(con, first)
    file, database = tmp_path / "x.parquet", tmp_path / "x.db"
    con.execute(f"ATTACH '{database}' AS d (ENCRYPTION_KEY '{KEY}'); CREATE TABLE d.t AS {ROWS}")
    write(con, file)
    con.execute("BEGIN")
    con.execute(f"INSERT INTO d.t {ROWS}")
    load(con, "httpfs" if first == "penstock" else "penstock")
    assert digest(con, parquet(file)) == right()
    write(con, tmp_path / "y.parquet")
    con.execute(f"INSERT INTO d.t {ROWS}")
    con.execute("COMMIT; CHECKPOINT d")
    assert digest(con, parquet(tmp_path / "*.parquet"))[0] == 120_000
    con.close()
    for name in ("penstock", "mbedtls"):
        with side(name) as reader:
            reader.execute(f"ATTACH '{database}' AS d (ENCRYPTION_KEY '{KEY}', READ_ONLY)")
            assert value(reader, "SELECT count(*) FROM d.t") == 180_000
            assert digest(reader, parquet(file)) == digest(reader, parquet(tmp_path / "y.parquet"))


def test_a_lake_encrypts_its_files(
    con: duckdb.DuckDBPyConnection, store: Fake, tmp_path: Path
) -> None:
    load_pypi(con, "ducklake")
    data = store.url(f"lake/{tmp_path.name.replace('_', '-')}/")
    con.execute(f"ATTACH 'ducklake:{tmp_path}/x.ducklake' AS lake (DATA_PATH '{data}', ENCRYPTED)")
    con.execute(f"CREATE TABLE lake.t AS {ROWS}")
    con.execute("UPDATE lake.t SET text = 'changed' WHERE i % 100 = 0")
    con.execute("DELETE FROM lake.t WHERE i % 100 = 1")
    assert value(con, "SELECT count(*) FROM lake.t") == 59_400
    assert value(con, "SELECT count(*) FROM lake.t WHERE text = 'changed'") == 600
    held = con.execute(f"SELECT content FROM read_blob('{data}**')").fetchall()
    assert len(held) >= 3 and all(content[:4] == b"PARE" for (content,) in held)


def nonces(content: bytes) -> Iterator[bytes]:
    """Of the modules of an encrypted file that can be told: they lie behind each other."""
    at = 4
    while at + 16 < len(content):
        (length,) = struct.unpack_from("<I", content, at)
        if not 28 < length < len(content) - at:
            return
        yield content[at + 4 : at + 16]
        at += 4 + length


def test_no_nonce_comes_twice(mine: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    mine.execute("SET threads = 4")
    write(mine, tmp_path / "parts", f"SELECT *, i % 20 AS p FROM ({ROWS})", ", PARTITION_BY (p)")
    write(mine, tmp_path / "parts" / "x.parquet")
    found = [it for path in tmp_path.rglob("*.parquet") for it in nonces(path.read_bytes())]
    assert len(found) > 100 and len(set(found)) == len(found)


def test_digests_are_those_of_others(mine: duckdb.DuckDBPyConnection) -> None:
    """DuckDB 2.0 asks whoever gave it ciphers for SHA-256."""
    for text in ("", "abc", "x" * 100_000):
        row = mine.execute("SELECT sha256($1), sha1($1), md5($1)", [text]).fetchone()
        known = [
            getattr(hashlib, it)(text.encode()).hexdigest() for it in ("sha256", "sha1", "md5")
        ]
        assert row == tuple(known), f"on DuckDB 2: {IS_DUCKDB_2}"
    assert value(mine, "SELECT sha256(NULL)") is None
