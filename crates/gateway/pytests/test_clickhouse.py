"""ClickHouse on every lane, and the page that tells of it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import chdb
import pytest

from gateway_tests.clickhouse import REFUSED, WORKS, every_cell
from gateway_tests.lanes import PARITY_LANES, chosen
from gateway_tests.parity import GROUPS, PAGE, Cells, render, told
from gateway_tests.places import DISK_TYPES, S3Place, configuration

RUN = [lane for lane in chosen(PARITY_LANES) if lane in PARITY_LANES]
EVERY = [
    pytest.param(lane, group.name, feature, id=f"{lane}-{group.name}-{feature}")
    for lane in RUN
    for group in GROUPS
    for feature in group.features
]


@pytest.fixture(scope="module")
def cells(scratch: Path) -> Cells:
    return every_cell(RUN, scratch / "clickhouse")


@pytest.mark.parametrize(("lane_name", "group", "feature"), EVERY)
def test_feature(cells: Cells, lane_name: str, group: str, feature: str) -> None:
    cell = cells[group, lane_name][feature]
    # The whole of a wrong answer is worth reading.
    if cell not in (WORKS, REFUSED):
        pytest.fail(cell)
    assert cell == told()[group, lane_name][feature]


def test_the_page_is_as_it_is_printed() -> None:
    said = told()
    assert render(said, chdb.engine_version) == PAGE.read_text()
    assert {lane for _, lane in said} == set(PARITY_LANES)


def test_what_clickhouse_refuses_it_refuses_without_a_gateway_too() -> None:
    said = told()
    for group in GROUPS:
        for lane in PARITY_LANES:
            assert said[group.name, lane] == said[group.name, "s3"], (group.name, lane)


@pytest.mark.parametrize("disk_type", DISK_TYPES)
def test_tables_move_to_a_disk_of_the_kind_that_is_told_of(disk_type: str) -> None:
    place = S3Place("http://nowhere", "key", "secret", "bucket", "/tmp", disk_type)
    policy = ET.fromstring(configuration(place, "/tmp"))
    assert policy.findtext("storage_configuration/disks/cold/type") == disk_type
