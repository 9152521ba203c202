"""What ClickHouse users rely on, each as the statements that show it.

A feature is a function from a place (where tables, objects and backups go) to statements. Answers
of the SELECTs are compared with the same feature on a local MergeTree: none is written here.
Pure: nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


class Place(Protocol):
    """Where a feature works."""

    @property
    def policy(self) -> str:
        """Storage policy with the volumes ``hot`` (local) and ``cold`` (disk ``cold``, here)."""

    def disk(self, name: str = "") -> str:
        """The settings of a MergeTree that lives here; names keep tables apart."""

    def cached(self) -> str:
        """The same with a local cache before it."""

    def object(self, key: str, form: str) -> str:
        """The table function over one object, or over many if the key has wildcards."""

    def backup(self, name: str) -> str:
        """Where a backup goes."""

    def plain(self, name: str) -> str:
        """The settings of a MergeTree whose data is backup ``name`` on the disk ``plain``."""

    def plain_object(self, key: str, form: str) -> str:
        """The table function over one object of the disk ``plain``."""


Statements = Sequence[str]
COLUMNS = (
    "(id UInt64, p UInt8, at DateTime('UTC'), value Int64, category LowCardinality(String),"
    " text String, tags Array(String))"
)
ORDER = "PARTITION BY p ORDER BY id"
SUMMARY = (
    "SELECT count(), sum(id), sum(value), min(text), max(text), uniqExact(category),"
    " sum(length(tags)) FROM t"
)
SYNC = "SETTINGS mutations_sync = 2"
UNTIL = "UNTIL "
"""Before a SELECT that is asked again until it answers 1: for what happens in the background."""
UNMERGED = (
    "max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1"
)
"""For a table that is dropped with several parts in a partition: ClickHouse loses sight of the part
that a merge is writing when DROP meets it, and never asks for the deletion of its objects."""


def rows(count: int, begin: int = 0) -> str:
    """Rows that are the same on every run."""
    return (
        f"INSERT INTO t SELECT number + {begin}, number % 4, toDateTime('2020-01-01', 'UTC')"
        " + number, sipHash64(number) % 1000003, concat('c', toString(number % 7)),"
        f" hex(sipHash128(number)), range(number % 3) FROM numbers({count})"
    )


def table(place: Place, more: str = ORDER, settings: str = "", columns: str = COLUMNS) -> str:
    """The table ``t``, with a file for each column."""
    every = ", ".join(filter(None, (place.disk(), "min_bytes_for_wide_part = 0", settings)))
    return f"CREATE TABLE t {columns} ENGINE = MergeTree {more} SETTINGS {every}"


@dataclass(frozen=True)
class Feature:
    """One thing that works or does not."""

    name: str
    title: str
    statements: Callable[[Place], Statements]


FEATURES: dict[str, Feature] = {}


def feature(
    title: str, among: dict[str, Feature] = FEATURES
) -> Callable[[Callable[[Place], Statements]], Callable[[Place], Statements]]:
    """Registers a function under its name."""

    def register(function: Callable[[Place], Statements]) -> Callable[[Place], Statements]:
        among[function.__name__] = Feature(function.__name__, title, function)
        return function

    return register


@feature("INSERT and SELECT")
def insert_select(place: Place) -> Statements:
    """Several partitions, a scan, a key lookup, a range, a group."""
    return [
        table(place),
        rows(100_000),
        SUMMARY,
        "SELECT * FROM t WHERE id = 4711",
        "SELECT count(), sum(value) FROM t WHERE id BETWEEN 5000 AND 5100 AND p = 1",
        "SELECT category, count(), max(text) FROM t GROUP BY category ORDER BY category",
        "SELECT id, text FROM t ORDER BY text LIMIT 5",
    ]


@feature("INSERT of a part above 32 MiB (multipart upload)")
def insert_large(place: Place) -> Statements:
    """Sixteen bytes a row that no codec makes smaller."""
    return [
        table(place, "ORDER BY tuple()", columns="(x FixedString(16))"),
        "INSERT INTO t SELECT sipHash128(number) FROM numbers(3000000)"
        " SETTINGS max_insert_block_size = 3000000, min_insert_block_size_bytes = 100000000",
        "SELECT count(), groupBitXor(reinterpretAsUInt64(x)), max(x) = min(x) FROM t",
        "SELECT sum(bytes_on_disk) > 40000000 FROM system.parts WHERE active AND table = 't'",
    ]


@feature("Merges")
def merges(place: Place) -> Statements:
    """Small parts become one."""
    inserts = [rows(1_000, begin) for begin in range(0, 6_000, 1_000)]
    return [
        table(place, "ORDER BY id"),
        "SYSTEM STOP MERGES t",
        *inserts,
        "SELECT count() FROM system.parts WHERE active AND table = 't'",
        "SYSTEM START MERGES t",
        f"{UNTIL}SELECT count() < 6 FROM system.parts WHERE active AND table = 't'",
        f"{UNTIL}SELECT count() = 0 FROM system.merges WHERE table = 't'",
        SUMMARY,
    ]


@feature("OPTIMIZE FINAL")
def optimize_final(place: Place) -> Statements:
    """One part for each partition."""
    return [
        table(place),
        rows(10_000),
        rows(10_000, 10_000),
        "OPTIMIZE TABLE t FINAL",
        "SELECT count() FROM system.parts WHERE active AND table = 't'",
        SUMMARY,
    ]


@feature("OPTIMIZE FINAL DEDUPLICATE and ReplacingMergeTree")
def deduplicate(place: Place) -> Statements:
    """Rows of one key become one."""
    return [
        table(place).replace("ENGINE = MergeTree", "ENGINE = ReplacingMergeTree"),
        rows(5_000),
        rows(5_000),
        "SELECT count() FROM t FINAL",
        "OPTIMIZE TABLE t FINAL DEDUPLICATE",
        SUMMARY,
    ]


@feature("ALTER DELETE")
def alter_delete(place: Place) -> Statements:
    """A mutation that rewrites parts."""
    return [table(place), rows(20_000), f"ALTER TABLE t DELETE WHERE id % 10 = 3 {SYNC}", SUMMARY]


@feature("ALTER UPDATE")
def alter_update(place: Place) -> Statements:
    """A mutation that rewrites one column and hard-links the others."""
    return [
        table(place),
        rows(20_000),
        f"ALTER TABLE t UPDATE value = value + 1 WHERE id % 10 = 4 {SYNC}",
        SUMMARY,
    ]


@feature("Lightweight DELETE")
def lightweight_delete(place: Place) -> Statements:
    """Rows hidden by a mask."""
    return [
        table(place),
        rows(20_000),
        "DELETE FROM t WHERE id % 10 = 5",
        SUMMARY,
        "OPTIMIZE TABLE t FINAL",
        SUMMARY,
    ]


@feature("Lightweight UPDATE (patch parts)")
def lightweight_update(place: Place) -> Statements:
    """Rows changed by a patch part."""
    block_columns = "enable_block_number_column = 1, enable_block_offset_column = 1"
    return [
        table(place, settings=block_columns),
        rows(20_000),
        "UPDATE t SET value = 7 WHERE id % 10 = 6",
        SUMMARY,
        "OPTIMIZE TABLE t FINAL",
        SUMMARY,
    ]


@feature("ALTER ADD, MODIFY, RENAME and DROP COLUMN")
def alter_columns(place: Place) -> Statements:
    """Columns come, change their type and name, and go."""
    return [
        table(place),
        rows(10_000),
        "ALTER TABLE t ADD COLUMN more UInt32 DEFAULT id % 100",
        f"ALTER TABLE t MATERIALIZE COLUMN more {SYNC}",
        f"ALTER TABLE t MODIFY COLUMN more UInt64 {SYNC}",
        f"ALTER TABLE t RENAME COLUMN more TO less {SYNC}",
        "SELECT sum(less) FROM t",
        f"ALTER TABLE t DROP COLUMN text {SYNC}",
        "SELECT * FROM t ORDER BY id LIMIT 3",
    ]


@feature("Skipping indices")
def skip_index(place: Place) -> Statements:
    """An index added to data that is there."""
    return [
        table(place),
        rows(20_000),
        "ALTER TABLE t ADD INDEX i value TYPE minmax GRANULARITY 1",
        f"ALTER TABLE t MATERIALIZE INDEX i {SYNC}",
        "SELECT count() FROM t WHERE value < 1000 SETTINGS force_data_skipping_indices = 'i'",
    ]


@feature("Projections")
def projections(place: Place) -> Statements:
    """A projection is made, used, and gone."""
    return [
        table(place),
        rows(20_000),
        "ALTER TABLE t ADD PROJECTION by_category (SELECT category, sum(value) GROUP BY category)",
        f"ALTER TABLE t MATERIALIZE PROJECTION by_category {SYNC}",
        "SELECT category, sum(value) FROM t GROUP BY category ORDER BY category"
        " SETTINGS force_optimize_projection = 1",
        rows(10_000, 20_000),
        "OPTIMIZE TABLE t FINAL",
        "SELECT category, sum(value) FROM t GROUP BY category ORDER BY category"
        " SETTINGS force_optimize_projection = 1",
        f"ALTER TABLE t DROP PROJECTION by_category {SYNC}",
        SUMMARY,
    ]


@feature("TTL DELETE")
def ttl_delete(place: Place) -> Statements:
    """Old rows go with a merge."""
    return [
        table(place, f"{ORDER} TTL at + INTERVAL 1 DAY DELETE WHERE id % 2 = 0"),
        rows(10_000),
        "OPTIMIZE TABLE t FINAL",
        SUMMARY,
    ]


def moving(place: Place) -> str:
    """A table whose old parts belong on the volume here."""
    return (
        f"CREATE TABLE t {COLUMNS} ENGINE = MergeTree {ORDER} TTL at + INTERVAL 1 DAY TO DISK"
        f" 'cold' SETTINGS storage_policy = '{place.policy}', min_bytes_for_wide_part = 0"
    )


ALL_MOVED = (
    "SELECT count() = 0 FROM system.parts WHERE active AND table = 't' AND disk_name != 'cold'"
)


@feature("TTL moves between disks")
def ttl_move(place: Place) -> Statements:
    """Old parts come to lie on this volume, not on the local one."""
    return [moving(place), rows(10_000), f"{UNTIL}{ALL_MOVED}", SUMMARY]


@feature("MATERIALIZE TTL with moves")
def materialize_ttl(place: Place) -> Statements:
    """A mutation of parts that belong there."""
    return [
        moving(place),
        rows(10_000),
        f"ALTER TABLE t MATERIALIZE TTL {SYNC}",
        "OPTIMIZE TABLE t FINAL",
        f"{UNTIL}{ALL_MOVED}",
        SUMMARY,
    ]


@feature("MOVE PARTITION TO DISK and back")
def move_partition(place: Place) -> Statements:
    """A partition moves there and back."""
    where = (
        "SELECT partition, disk_name FROM system.parts WHERE active AND table = 't' ORDER BY ALL"
    )
    return [
        f"CREATE TABLE t {COLUMNS} ENGINE = MergeTree {ORDER}"
        f" SETTINGS storage_policy = '{place.policy}', min_bytes_for_wide_part = 0",
        rows(10_000),
        "ALTER TABLE t MOVE PARTITION 1 TO DISK 'cold'",
        "ALTER TABLE t MOVE PARTITION 2 TO VOLUME 'cold'",
        where,
        SUMMARY,
        "ALTER TABLE t MOVE PARTITION 1 TO DISK 'hot'",
        where,
        SUMMARY,
    ]


@feature("DROP PARTITION")
def drop_partition(place: Place) -> Statements:
    """A partition goes."""
    return [table(place), rows(10_000), "ALTER TABLE t DROP PARTITION 1", SUMMARY]


@feature("DETACH and ATTACH PARTITION")
def detach_attach_partition(place: Place) -> Statements:
    """A partition is put aside and comes back; another is dropped from aside."""
    return [
        table(place),
        rows(10_000),
        "ALTER TABLE t DETACH PARTITION 2",
        SUMMARY,
        "ALTER TABLE t ATTACH PARTITION 2",
        SUMMARY,
        "ALTER TABLE t DETACH PARTITION 3",
        "ALTER TABLE t DROP DETACHED PARTITION 3 SETTINGS allow_drop_detached = 1",
        SUMMARY,
    ]


@feature("DETACH and ATTACH TABLE")
def detach_attach_table(place: Place) -> Statements:
    """The table is loaded again from what is stored."""
    return [table(place), rows(10_000), "DETACH TABLE t SYNC", "ATTACH TABLE t", SUMMARY]


@feature("MOVE, REPLACE and ATTACH PARTITION between tables")
def partitions_between_tables(place: Place) -> Statements:
    """Parts are hard-linked into another table."""
    other = table(place).replace("TABLE t", "TABLE t2")
    return [
        table(place),
        other,
        rows(10_000),
        "ALTER TABLE t2 ATTACH PARTITION 0 FROM t",
        "ALTER TABLE t2 REPLACE PARTITION 1 FROM t",
        "ALTER TABLE t MOVE PARTITION 2 TO TABLE t2",
        SUMMARY,
        SUMMARY.replace("FROM t", "FROM t2"),
        "DROP TABLE t2 SYNC",
    ]


@feature("FREEZE and UNFREEZE")
def freeze(place: Place) -> Statements:
    """A snapshot by hard links outlives a mutation."""
    return [
        table(place),
        rows(10_000),
        "ALTER TABLE t FREEZE WITH NAME 'frozen'",
        f"ALTER TABLE t DELETE WHERE id % 2 = 0 {SYNC}",
        SUMMARY,
        "SYSTEM UNFREEZE WITH NAME 'frozen'",
    ]


@feature("RENAME and EXCHANGE TABLES")
def rename(place: Place) -> Statements:
    """Names change, data stays."""
    return [
        table(place),
        rows(10_000),
        "RENAME TABLE t TO t2",
        table(place),
        rows(100),
        "EXCHANGE TABLES t AND t2",
        SUMMARY,
        "DROP TABLE t2 SYNC",
    ]


@feature("BACKUP and RESTORE")
def backup_restore(place: Place) -> Statements:
    """A full one and one on top of it, restored under another name."""
    return [
        table(place, settings=UNMERGED),
        rows(10_000),
        f"BACKUP TABLE t TO {place.backup('full')} FORMAT Null",
        rows(10_000, 10_000),
        f"BACKUP TABLE t TO {place.backup('more')} SETTINGS base_backup ="
        f" {place.backup('full')} FORMAT Null",
        "DROP TABLE t SYNC",
        f"RESTORE TABLE t FROM {place.backup('more')} FORMAT Null",
        SUMMARY,
    ]


@feature("BACKUP of a part above 32 MiB (server-side copy)")
def backup_large(place: Place) -> Statements:
    """Copied part by part on the server."""
    return [
        *insert_large(place),
        f"BACKUP TABLE t TO {place.backup('large')} FORMAT Null",
        "DROP TABLE t SYNC",
        f"RESTORE TABLE t FROM {place.backup('large')} FORMAT Null",
        "SELECT count(), groupBitXor(reinterpretAsUInt64(x)) FROM t",
    ]


@feature("Nested cache disk")
def cache_disk(place: Place) -> Statements:
    """Reads come from a local cache the second time."""
    return [
        f"CREATE TABLE t {COLUMNS} ENGINE = MergeTree {ORDER} SETTINGS {place.cached()}",
        rows(20_000),
        SUMMARY,
        SUMMARY,
    ]


@feature("Asynchronous INSERT")
def async_insert(place: Place) -> Statements:
    """Inserts that the server gathers."""
    insert = "INSERT INTO t (id, p) SETTINGS async_insert = 1, wait_for_async_insert = 1 VALUES"
    return [table(place), f"{insert} (1, 1)", f"{insert} (2, 2)", SUMMARY]


@feature("TRUNCATE")
def truncate(place: Place) -> Statements:
    """Empty, and used again."""
    return [table(place), rows(10_000), "TRUNCATE TABLE t SYNC", SUMMARY, rows(100), SUMMARY]
