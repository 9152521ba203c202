"""Random statements about files: what is written and read in the same words wherever it lies.

A case is a list of statements that needs no other case; its random numbers are its own, so that it
can be run again alone. `{root}` stands for where its files lie, `{corpus}` for those of `CORPUS`,
`{kind}` for which of the places that is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

COLUMNS = ("i", "p", "k", "s", "n", "d", "c")
TABLE = (
    "CREATE TABLE t AS SELECT i, i % 5 AS p, i * 7919 % 1000 AS k, 'text ' || (i * 31) % 97 AS s, "
    "CASE WHEN i % 3 = 0 THEN NULL ELSE i % 11 END AS n, DATE '2024-01-01' + (i % 400)::INT AS d, "
    "(i * 1.25)::DECIMAL(12, 2) AS c FROM range(2500) t(i)"
)
"""What all rows are of. No floating point: its sums hang on the order of rows."""
CORPUS = (
    "COPY t TO '{corpus}/all.parquet' (ROW_GROUP_SIZE 2048)",
    "COPY (SELECT i, k AS k2, s FROM t WHERE i % 2 = 0) TO '{corpus}/half.csv'",
    "COPY (SELECT i, {{'a': k, 'b': [s]}} AS nested FROM t WHERE i < 900) TO '{corpus}/some.json'",
    "COPY t TO '{corpus}/hive' (FORMAT parquet, PARTITION_BY (p))",
    "COPY (SELECT content FROM read_blob('{made}')) TO '{corpus}/made.duckdb' (FORMAT blob)",
)
"""`{made}` is a database file that holds `t`."""


@dataclass(frozen=True)
class Statement:
    """One statement, and whether its rows come in an order of their own."""

    sql: str
    is_ordered: bool = False


class Case:
    """Writes something and reads it in several ways, or reads what is in the corpus."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.statements: list[Statement] = []
        # The same in all files of a case: which of them comes first hangs on names that are random.
        self.columns = [it for it in COLUMNS if it in {"i", "p"} or self.chance(0.7)]
        source = self.written() if self.chance(0.6) else self.known()
        for _ in range(self.random.randint(3, 6)):
            self.statements.append(self.read(source))
        if self.chance(0.25):
            self.statements += self.elsewhere()

    def chance(self, share: float) -> bool:
        """Whether something happens that happens so often."""
        return self.random.random() < share

    def add(self, sql: str) -> None:
        """One of which nobody asks for rows."""
        self.statements.append(Statement(sql))

    def written(self) -> str:
        """Writes files once or twice; how they are read."""
        kind = self.random.choice(["parquet", "parquet", "csv", "json"])
        is_apart = self.chance(0.45)
        target = "{root}/out" if is_apart else f"{{root}}/out.{kind}"
        options = [f"FORMAT {kind}", *self.format_options(kind)]
        if is_apart:
            columns = self.random.choice(["p", "p, n", "d"]) if self.chance(0.1) else "p"
            options.append(f"PARTITION_BY ({columns})")
        self.add(f"COPY ({self.rows()}) TO '{target}' ({', '.join(options)})")
        if self.chance(0.4):
            modes = ["OVERWRITE", "OVERWRITE_OR_IGNORE", "OVERWRITE false"]
            # Types of text are those of the first file, whose name is then random.
            modes += ["APPEND"] if kind == "parquet" else []
            again = [*options, self.random.choice(modes)] if is_apart else options
            self.add(f"COPY ({self.rows()}) TO '{target}' ({', '.join(again)})")
        path = f"{target}/**/*.{kind}" if is_apart else target
        return self.reader(kind, path, options, is_apart=is_apart)

    def format_options(self, kind: str) -> list[str]:
        """How a file is written."""
        if kind == "parquet":
            codec = self.random.choice(["snappy", "zstd", "gzip", "uncompressed", "lz4_raw"])
            groups = self.random.choice([2048, 4096, 122880])
            return [f"COMPRESSION {codec}", f"ROW_GROUP_SIZE {groups}"]
        packed = [f"COMPRESSION {self.random.choice(['none', 'none', 'gzip', 'zstd'])}"]
        if kind == "csv":
            delimiter = self.random.choice([",", ";", "|"])
            return [*packed, f"DELIMITER '{delimiter}'", f"HEADER {self.chance(0.8)}"]
        return [*packed, f"ARRAY {self.chance(0.3)}"]

    def rows(self) -> str:
        """Some rows of the table."""
        begin = self.random.randrange(2500)
        end = begin + self.random.choice([0, 1, 40, 700, 2500])
        order = self.random.choice(["", " ORDER BY i", " ORDER BY k, i"])
        return f"SELECT {', '.join(self.columns)} FROM t WHERE i BETWEEN {begin} AND {end}{order}"

    def reader(self, kind: str, path: str, options: list[str], *, is_apart: bool) -> str:
        """The function that reads such files, with what it cannot find out."""
        named = []
        packed = next((it.split()[1] for it in options if it.startswith("COMPRESSION")), "none")
        if kind != "parquet" and packed in {"gzip", "zstd"}:
            named.append(f"compression = '{packed}'")
        if is_apart:
            named.append(f"hive_partitioning = {self.chance(0.8)}")
        if self.chance(0.3):
            named.append("union_by_name = true")
        if self.chance(0.3):
            named.append("filename = true")
        if kind == "csv" and self.chance(0.2):
            named.append("all_varchar = true")
        listed = f"['{path}']" if self.chance(0.2) else f"'{path}'"
        return f"read_{kind}({', '.join([listed, *named])})"

    def known(self) -> str:
        """What of the corpus is read."""
        return self.random.choice(
            [
                "'{corpus}/all.parquet'",
                "'{corpus}/half.csv'",
                "'{corpus}/some.json'",
                "read_parquet('{corpus}/hive/*/*.parquet')",
                "read_parquet('{corpus}/hive/p=[12]/*.parquet', filename = true)",
                "read_parquet(['{corpus}/all.parquet', '{corpus}/hive/p=3/data_0.parquet'])",
                "read_csv(['{corpus}/half.csv', '{corpus}/half.csv'], filename = true)",
                "read_parquet('{corpus}/*.parquet', union_by_name = true)",
                "'{corpus}/missing.parquet'",
            ]
        )

    def read(self, source: str) -> Statement:
        """A query. It may name a column that is not there: then it fails everywhere."""
        number = self.random.randrange(2500)
        one = self.random.choice(["i", "i", "k", "p", "s", "n"])
        few = self.random.choice([0, 1, 7, 100])
        where = self.random.choice(
            ["", f" WHERE i < {number}", f" WHERE p = {number % 6}", f" WHERE i = {number}"]
        )
        joined = "JOIN '{corpus}/all.parquet' b ON a.i = b.i"
        return self.random.choice(
            [
                Statement(f"SELECT count(*) FROM {source}{where}"),
                Statement(f"SELECT * FROM {source}{where}"),
                Statement(f"SELECT count(*), sum(i), min({one}), max({one}) FROM {source}{where}"),
                Statement(f"SELECT i, {one} FROM {source}{where} ORDER BY i LIMIT {few}", True),
                Statement(f"SELECT i FROM {source} ORDER BY {one} DESC, i LIMIT {few}", True),
                Statement(f"SELECT {one}, count(*), sum(i) FROM {source}{where} GROUP BY ALL"),
                Statement(f"SELECT count(*), sum(b.k) FROM {source} a {joined}"),
                Statement(f"SELECT count(*) FROM (FROM {source} LIMIT {few} OFFSET {few})"),
                Statement(f"SELECT count(DISTINCT {one}) FROM {source}{where}"),
                Statement(f"DESCRIBE FROM {source}"),
            ]
        )

    def elsewhere(self) -> list[Statement]:
        """What is no scan of rows."""
        attached = "ATTACH '{corpus}/made.duckdb' AS made_{kind} (READ_ONLY)"
        return self.random.choice(
            [
                [Statement("SELECT file FROM glob('{root}/**')")],
                [Statement("SELECT file FROM glob('{corpus}/hive/*/*.parquet')")],
                [Statement("SELECT size, md5(content) FROM read_text('{corpus}/half.csv')")],
                [Statement("SELECT filename, size, md5(content) FROM read_blob('{corpus}/*.*')")],
                [
                    Statement(
                        "SELECT num_rows, num_row_groups FROM "
                        "parquet_file_metadata('{corpus}/all.parquet')"
                    )
                ],
                [
                    Statement(attached),
                    Statement("SELECT count(*), sum(i), max(s) FROM made_{kind}.t WHERE k > 500"),
                    Statement("INSERT INTO made_{kind}.t FROM t"),
                    Statement("DETACH made_{kind}"),
                ],
            ]
        )
