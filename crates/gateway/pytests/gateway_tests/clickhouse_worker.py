"""A process that holds one embedded ClickHouse and runs the features that stdin names.

Each line of stdin is a feature's name; the answer is one line of JSON. A process of its own because
ClickHouse cannot be interrupted: whoever started it ends it when it takes too long.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from chdb import session

from gateway_tests import places
from gateway_tests.features import UNTIL, Feature
from gateway_tests.parity import GROUPS

UNTIL_S = 30


class Worker:
    """The session and where it works."""

    def __init__(self, job: dict[str, Any]) -> None:
        directory = job["place"]["directory"]
        if "url" in job["place"]:
            self._place: places.LocalPlace | places.S3Place = places.S3Place(**job["place"])
        else:
            self._place = places.LocalPlace(**job["place"])
        for name in ("hot", "cold", "files", "backups"):
            Path(directory, name).mkdir(parents=True, exist_ok=True)
        config = Path(directory, "config.xml")
        config.write_text(places.configuration(self._place, directory))
        # The package is not typed.
        open_session: Any = session.Session
        self._session: Any = open_session(f"{directory}/db?config-file={config}")
        for statement in (
            "CREATE DATABASE IF NOT EXISTS features ENGINE = Atomic",
            "USE features",
            "SET use_hive_partitioning = 0",
            "SET allow_deprecated_database_ordinary = 1",
            "SET enable_lightweight_update = 1",
            "SET engine_file_truncate_on_insert = 1, engine_file_empty_if_not_exists = 0",
        ):
            self._session.query(statement)

    def run(self, feature: Feature) -> dict[str, Any]:
        """Every statement; then nothing is left."""
        answers: list[str] = []
        begin = time.monotonic()
        statement, error = "", None
        try:
            for statement in feature.statements(self._place):
                got = self._answer(statement)
                if statement.startswith("SELECT"):
                    answers.append(got)
        except Exception as failure:
            error = f"{statement.split(' SETTINGS ')[0][:60]}: {first_line(failure)}"
        dropped = self._drop()
        return {
            "feature": feature.name,
            "answers": answers,
            "error": error or dropped,
            "seconds": round(time.monotonic() - begin, 3),
        }

    def _answer(self, statement: str) -> str:
        if not statement.startswith(UNTIL):
            return str(self._session.query(statement).bytes().decode())
        deadline = time.monotonic() + UNTIL_S
        while self._answer(statement.removeprefix(UNTIL)) != "1\n":
            if time.monotonic() > deadline:
                raise TimeoutError(f"no 1 within {UNTIL_S} s")
            time.sleep(0.02)
        return ""

    def _drop(self) -> str | None:
        try:
            for name in ("t", "t2"):
                self._session.query(f"DROP TABLE IF EXISTS {name} SYNC")
        except Exception as failure:
            return f"DROP TABLE: {first_line(failure)}"
        return None


def first_line(failure: Exception) -> str:
    """What ClickHouse said, short."""
    return str(failure).strip().split("\n", 1)[0][:600]


def main() -> None:
    """Entry point: the job is the first line."""
    worker = Worker(json.loads(sys.stdin.readline()))
    print(json.dumps({"ready": True}), flush=True)
    every = {name: feature for group in GROUPS for name, feature in group.features.items()}
    for line in sys.stdin:
        print(json.dumps(worker.run(every[line.strip()])), flush=True)


if __name__ == "__main__":
    main()
