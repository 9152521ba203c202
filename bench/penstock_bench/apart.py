"""The workloads that are no files of bench/workloads: which they are, and how each is run.

Decides what the options mean to each of them; the campaigns decide all else.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from penstock_bench import (
    footprint,
    gateway_campaign,
    gateway_report,
    gateway_requests,
    nvme,
    nvme_report,
    raw,
    raw_report,
    replay,
    report,
    soak,
)
from penstock_bench.config import OUT, ConfigError
from penstock_bench.devices import KINDS as DEVICES
from penstock_bench.devices import OURS
from penstock_bench.gateways import BACK_ENDS, GATEWAYS
from penstock_bench.network import open_network
from penstock_bench.options import is_quick, numbers, profile_of, words_of
from penstock_bench.progress import Progress

Records = list[dict[str, Any]]


@dataclass(frozen=True)
class Apart:
    """A workload: how its records are made, what they say, and whether ours failed in them."""

    measure: Callable[[argparse.Namespace, Progress], Records]
    text: Callable[[Records], str]
    has_failed: Callable[[Records], bool]


def _runs(options: argparse.Namespace, quick: int, full: int) -> int:
    return int(options.runs or (quick if is_quick(options) else full))


def _gateway(options: argparse.Namespace, progress: Progress) -> Records:
    stores = words_of(options.store, gateway_campaign.STORES, BACK_ENDS, "store")
    peers = words_of(options.peers, gateway_campaign.PEERS, GATEWAYS, "peer")
    runs = _runs(options, 1, 3)
    campaign = gateway_campaign.Campaign(stores, peers, runs, is_quick(options), OUT, progress)
    return campaign.run()


def _gateway_requests(options: argparse.Namespace, progress: Progress) -> Records:
    """Counts do not vary, so each gateway is asked once."""
    stores = words_of(options.store, gateway_requests.STORES, gateway_requests.STORES, "store")
    peers = words_of(options.peers, gateway_requests.PEERS, gateway_requests.PEERS, "peer")
    return gateway_requests.Campaign(peers, OUT, progress, stores[0]).run()


def _replay(options: argparse.Namespace, progress: Progress) -> Records:
    default_rows = replay.QUICK_ROWS if is_quick(options) else replay.ROWS
    rows = (numbers(options.rows) or (default_rows,))[0]
    ways = replay.chosen(options.store.split(), options.peers.split())
    profile, runs = profile_of(options), _runs(options, 1, 3)
    with open_network(profile, OUT) as network:
        campaign = replay.Campaign(ways, runs, rows, OUT, progress, profile, network)
        return campaign.run()


def _soak(options: argparse.Namespace, progress: Progress) -> Records:
    """DURATION is in seconds, RATE in requests a second; without MODE all that fit a store."""
    stores = words_of(options.store, soak.STORES, BACK_ENDS, "store")
    modes = words_of(options.mode, (), tuple(soak.MODES), "mode")
    return soak.run(stores, modes, float(options.duration), float(options.rate), OUT, progress)


def _raw(options: argparse.Namespace, progress: Progress) -> Records:
    kinds = words_of(options.store, OURS, DEVICES, "device")
    chosen = words_of(options.mode, raw.MODES, raw.MODES, "mode")
    runs = _runs(options, raw.QUICK_RUNS, raw.RUNS)
    campaign = raw.Campaign(kinds, runs, is_quick(options), chosen, OUT, progress)
    return campaign.run()


def _nvme(options: argparse.Namespace, progress: Progress) -> Records:
    """ROWS are scale factors."""
    kinds = words_of(options.store, OURS, DEVICES, "device")
    chosen = words_of(options.mode, nvme.MODES, nvme.MODES, "mode")
    default_scales = nvme.QUICK_SCALES if is_quick(options) else nvme.SCALES
    scales = numbers(options.rows) or default_scales
    runs = _runs(options, nvme.QUICK_RUNS, nvme.RUNS)
    campaign = nvme.Campaign(kinds, scales, runs, chosen, OUT, progress)
    return campaign.run()


def _footprint(options: argparse.Namespace, progress: Progress) -> Records:
    return footprint.run(_runs(options, footprint.QUICK_RUNS, footprint.RUNS), OUT, progress)


def _operation_of_ours(records: Records) -> bool:
    return gateway_requests.has_failed(records, report.OURS)


def _any_error(records: Records) -> bool:
    return any("error" in record for record in records)


def _error_of_ours(records: Records) -> bool:
    return _any_error([record for record in records if record["peer"] == report.OURS])


def _violation(records: Records) -> bool:
    return any(record["violations"] for record in records)


APART = {
    footprint.NAME: Apart(_footprint, footprint.text, footprint.has_failed),
    gateway_campaign.NAME: Apart(_gateway, gateway_report.text, _error_of_ours),
    gateway_requests.NAME: Apart(_gateway_requests, gateway_requests.text, _operation_of_ours),
    nvme.NAME: Apart(_nvme, nvme_report.text, _any_error),
    raw.NAME: Apart(_raw, raw_report.text, _any_error),
    replay.NAME: Apart(_replay, replay.text, _error_of_ours),
    soak.NAME: Apart(_soak, soak.text, _violation),
}


def run(options: argparse.Namespace) -> int:
    """Runs the workload that the options name; the exit code tells of failed runs of ours."""
    if options.profile != "loopback" and options.workload != replay.NAME:
        raise ConfigError(f"{options.workload} runs on this machine only; leave PROFILE out")
    workload = APART[options.workload]
    OUT.mkdir(parents=True, exist_ok=True)
    with closing(Progress()) as progress:
        records = workload.measure(options, progress)
    if all("absent" in record for record in records):
        raise ConfigError(f"nothing of {options.workload} can be measured on this machine")
    print(f"{workload.text(records)}\nrecords {OUT / records[0]['campaign']}.jsonl")
    return int(workload.has_failed(records))


def told(records: Records) -> str | None:
    """What records of one of these workloads say; None for those of others."""
    workload = APART.get(records[0]["workload"])
    return workload.text(records) if workload else None
