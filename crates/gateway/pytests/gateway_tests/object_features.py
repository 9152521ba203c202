"""What ClickHouse users rely on besides tables: the table function `s3`, and plain disks.

As in `features`, nothing is run here.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway_tests.features import (
    COLUMNS,
    ORDER,
    SUMMARY,
    Feature,
    Place,
    Statements,
    feature,
    rows,
)

OBJECT_FEATURES: dict[str, Feature] = {}
"""Of the table function `s3`."""
PLAIN_FEATURES: dict[str, Feature] = {}
"""Of a disk of type `s3_plain`, which ClickHouse writes backups to and otherwise only reads."""


def objects(title: str) -> Callable[[Callable[[Place], Statements]], Callable[[Place], Statements]]:
    """A feature of the table function."""
    return feature(title, OBJECT_FEATURES)


NUMBERS = "SELECT number AS id, hex(sipHash64(number)) AS text FROM numbers"
CHECK = "SELECT count(), sum(id), min(text), max(text) FROM"


@objects("Write and read Parquet, CSV, JSON, Native")
def formats(place: Place) -> Statements:
    """Each with its schema inferred."""
    done: list[str] = []
    for form, ending in (
        ("Parquet", "parquet"),
        ("CSVWithNames", "csv.gz"),
        ("JSONEachRow", "json.zst"),
        ("Native", "native"),
    ):
        one = place.object(f"formats/one.{ending}", form)
        done += [f"INSERT INTO FUNCTION {one} {NUMBERS}(10000)", f"{CHECK} {one}"]
    return done


@objects("Objects above 32 MiB (multipart upload)")
def large_object(place: Place) -> Statements:
    """Sixty megabytes that no codec makes smaller."""
    one = place.object("large/one.native", "Native")
    return [
        f"INSERT INTO FUNCTION {one} SELECT sipHash128(number) AS x FROM numbers(4000000)",
        f"SELECT count(), groupBitXor(reinterpretAsUInt64(x)) FROM {one}",
    ]


@objects("Wildcards")
def wildcards(place: Place) -> Statements:
    """Stars, lists and ranges; names with spaces and other alphabets."""
    names = ["a1", "a2", "b1", "b-d", "z=1"]
    write = [
        f"INSERT INTO FUNCTION {place.object(f'many/{name}.csv', 'CSVWithNames')}"
        f" {NUMBERS}({count})"
        for count, name in enumerate(names, 1)
    ]
    every = place.object("many/*.csv", "CSVWithNames")
    return [
        *write,
        f"{CHECK} {every}",
        f"SELECT _file, count() FROM {every} GROUP BY ALL ORDER BY ALL",
        f"{CHECK} {place.object('many/{a1,b1}.csv', 'CSVWithNames')}",
        f"{CHECK} {place.object('many/a{1..2}.csv', 'CSVWithNames')}",
        f"{CHECK} {place.object('many/b?d.csv', 'CSVWithNames')}",
    ]


@objects("PARTITION BY writes and reads through `**`")
def partitioned(place: Place) -> Statements:
    """One object for each value."""
    write = place.object("parts/p={_partition_id}/one.parquet", "Parquet")
    return [
        f"INSERT INTO FUNCTION {write} PARTITION BY id % 5 {NUMBERS}(1000)",
        f"{CHECK} {place.object('parts/**/one.parquet', 'Parquet')}",
        f"{CHECK} {place.object('parts/p=3/*.parquet', 'Parquet')}",
    ]


@objects("Overwrite")
def overwrite(place: Place) -> Statements:
    """Refused without the setting, done with it."""
    one = place.object("again/one.parquet", "Parquet")
    truncating = "s3_truncate_on_insert = 1, engine_file_truncate_on_insert = 1"
    return [
        f"INSERT INTO FUNCTION {one} {NUMBERS}(10)",
        f"INSERT INTO FUNCTION {one} {NUMBERS}(20) SETTINGS {truncating}",
        f"{CHECK} {one}",
    ]


def plain(title: str) -> Callable[[Callable[[Place], Statements]], Callable[[Place], Statements]]:
    """A feature of a plain disk."""
    return feature(title, PLAIN_FEATURES)


@plain("BACKUP TO Disk and RESTORE")
def plain_backup(place: Place) -> Statements:
    """One object for each file of the table."""
    return [
        f"CREATE TABLE t {COLUMNS} ENGINE = MergeTree {ORDER} SETTINGS disk = 'default'",
        rows(10_000),
        "BACKUP TABLE t TO Disk('plain', 'one') FORMAT Null",
        "DROP TABLE t SYNC",
        "RESTORE TABLE t FROM Disk('plain', 'one') FORMAT Null",
        SUMMARY,
    ]


@plain("Read-only MergeTree")
def plain_table(place: Place) -> Statements:
    """A backup of a table in a database of the old kind lies as the table itself does."""
    create = f"CREATE TABLE old.t {COLUMNS} ENGINE = MergeTree {ORDER} SETTINGS"
    return [
        "CREATE DATABASE old ENGINE = Ordinary",
        f"{create} disk = 'default', min_bytes_for_wide_part = 0",
        rows(10_000).replace("INTO t", "INTO old.t"),
        "BACKUP TABLE old.t TO Disk('plain', 'two') FORMAT Null",
        "DROP TABLE old.t SYNC",
        # A backup lacks the one file that belongs to the table and to no part.
        f"INSERT INTO FUNCTION {place.plain_object('two/data/old/t/format_version.txt', 'RawBLOB')}"
        " SELECT '1'",
        f"{create.replace('CREATE', 'ATTACH')} {place.plain('two')}",
        SUMMARY.replace("FROM t", "FROM old.t"),
        "SELECT * FROM old.t WHERE id = 4711",
        "DETACH TABLE old.t",
    ]
