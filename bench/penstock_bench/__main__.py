"""Command line of the bench: ``run`` a workload, ``report`` on records, show a ``trace``, ``demo``.

Options default to environment variables of the same name in capitals (WORKLOAD, QUICK, ROWS, ...),
which is how `make bench` and `make demo` pass them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock_bench import apart, modes, nvme, page, picture, raw, report, soak, timeline
from penstock_bench.campaign import Campaign, Plan
from penstock_bench.config import OUT, ConfigError, load_workload, narrowed
from penstock_bench.devices import KINDS as DEVICES
from penstock_bench.devices import DeviceError
from penstock_bench.gateways import GatewayError
from penstock_bench.network import PROFILES, NetworkError, Profile, open_network
from penstock_bench.options import is_quick, numbers, profile_of
from penstock_bench.processes import StartError
from penstock_bench.progress import Progress
from penstock_bench.stores import KINDS

MODES = (*modes.MODES, *raw.MODES, *nvme.MODES, *soak.MODES)
DEFAULT_STORES = {"file": "file", "s3": "fake-s3", "azure": "fake-azure"}


def chosen_stores(text: str) -> dict[str, str]:
    """Protocol to kind of store, from a list such as ``azurite,serve``."""
    stores = dict(DEFAULT_STORES)
    for kind in filter(None, text.replace(",", " ").split()):
        if kind not in KINDS:
            raise ConfigError(f"no store {kind}; there are: {', '.join(KINDS)}")
        stores[KINDS[kind]] = kind
    return stores


def plan(options: argparse.Namespace) -> Plan:
    """What to run, from the options."""
    workload = narrowed(load_workload(options.workload), options.protocols, options.steps)
    quick = is_quick(options)
    mode = modes.find(options.mode or modes.DEFAULT) if workload.modes else None
    if mode:
        workload = replace(
            workload, steps=tuple(step for step in workload.steps if step.name in mode.steps)
        )
    peers = {peer.name: peer for peer in mode.peers} if mode else modes.peers_by_name()
    by_default = [name for name, peer in peers.items() if not peer.by_name]
    names = options.peers.replace(",", " ").split() or list(workload.peers) or by_default
    unknown = [name for name in names if name not in peers]
    if unknown:
        raise ConfigError(f"no peer {', '.join(unknown)}; there are: {', '.join(peers)}")
    local = ["local"] if workload.local and not mode else []
    profile = profile_of(options)
    default_sizes = workload.quick_sizes if quick else workload.sizes
    sizes = numbers(options.rows) or default_sizes
    default_runs = workload.quick_runs if quick else workload.runs
    return Plan(
        workload=workload,
        profile=profile,
        stores=chosen_stores(options.store),
        peers=tuple(peers[name] for name in dict.fromkeys([*names, *local])),
        sizes=sizes,
        runs=dict.fromkeys(sizes, int(options.runs or default_runs)),
        threads=numbers(options.threads) or (mode.threads if mode else (0,)),
        traced=not mode,
    )


def failures(records: list[dict[str, Any]]) -> int:
    """1 when a step of ours failed in any run."""
    return int(
        any(
            step.get("error")
            for record in records
            if record["peer"] == report.OURS
            for step in record["steps"]
        )
    )


def show(records: list[dict[str, Any]], path: Path) -> None:
    """Prints the table and writes picture and page beside the records."""
    first = records[0]
    workload = load_workload(first["workload"])
    if workload.modes:
        print(f"{workload.title}, {first['profile']['name']}\n\n{modes.summary(records)}")
        print(f"\n{modes.compare(records)}\nrecords {path}")
        return
    profile = Profile(**first["profile"])
    ceiling = first["ceiling"]
    link = profile.link(ceiling["loopback_bytes_per_s"], ceiling["loopback_rtt_s"])
    found = report.entries(workload, modes.peers_by_name(), records, link)
    print(report.terminal(found, sys.stdout.isatty()))
    print("\nOur cells against their limits, worst first:\n" + report.ranking(found))
    shares = report.link_shares(found, profile.down_mbit, ceiling.get("link_tcp_bytes_per_s"))
    if shares:
        print(f"\n{shares}")
    print("\n" + report.summary(found))
    for error in report.errors(records):
        print(f"failed: {error}")
    print(
        f"raw loopback socket in this campaign: {ceiling['loopback_bytes_per_s'] / 1e9:.2f} GB/s, "
        f"{ceiling['loopback_cpu_s_per_gb']:.3f} CPU s/GB of the receiver"
    )
    image = path.with_suffix(".png")
    stores = ", ".join(sorted({r["store"] for r in records if r["protocol"] != "file"}))
    subtitle = (
        "wall time of the peer / Penstock: above 1 (blue) Penstock is faster, below 1 (red) slower"
        f"\n{profile.name}; stores: {stores}; medians"
    )
    picture.heatmap(found, workload.title, subtitle, image)
    page.write(path.with_suffix(".html"), workload.title, found, records, image)
    print(f"records {path}\npicture {image}\npage    {path.with_suffix('.html')}")


def run(options: argparse.Namespace) -> int:
    """Runs a workload; the exit code tells of failed runs of our own."""
    if options.workload in apart.APART:
        return apart.run(options)
    chosen = plan(options)
    OUT.mkdir(parents=True, exist_ok=True)
    with closing(Progress()) as progress, open_network(chosen.profile, OUT) as network:
        campaign = Campaign(chosen, network, OUT, progress)
        records = campaign.run()
    show(records, campaign.path)
    return failures(records)


def again(options: argparse.Namespace) -> int:
    """Reports on records made earlier."""
    for name in options.files:
        path = Path(name)
        records = [json.loads(line) for line in path.read_text().splitlines()]
        if text := apart.told(records):
            print(text)
            continue
        show(records, path)
    return 0


def summary(options: argparse.Namespace) -> int:
    """One line for each configuration of a mode, or with --compare the gain over plain httpfs."""
    for name in options.files:
        records = [json.loads(line) for line in Path(name).read_text().splitlines()]
        print(modes.compare(records) if options.compare else modes.summary(records))
    return 0


def trace(options: argparse.Namespace) -> int:
    """Shows traces of the recording proxy as text."""
    for name in options.files:
        lines = [json.loads(line) for line in Path(name).read_text().splitlines()]
        print(f"== {Path(name).name}\n{timeline.timeline(lines)}")
    return 0


def demo(options: argparse.Namespace) -> int:
    """The demonstration: real data, answers checked, then the table."""
    from penstock_bench.demo import main as demonstrate

    return demonstrate(numbers(options.rows), chosen_stores(options.store))


def arguments() -> argparse.ArgumentParser:
    """The parser."""
    parser = argparse.ArgumentParser(prog="penstock_bench", description=__doc__)
    verbs = parser.add_subparsers(required=True)
    options: dict[str, tuple[str, str]] = {
        "workload": (
            "six_steps",
            f"name of a file in bench/workloads, or {', '.join(apart.APART)}",
        ),
        "quick": ("", "1 takes the workload's quick sizes and runs"),
        "rows": ("", "sizes, for example '5k 2M'"),
        "runs": ("", "runs of each cell"),
        "threads": ("", "DuckDB's threads, for example '0 1'; 0 is its default"),
        "peers": ("", "peers, all by default"),
        "protocols": ("", "of the workload's protocols these only"),
        "steps": (
            "",
            "of the workload's steps these only; the first read of a file is the cold one",
        ),
        "store": ("", f"kinds of store: {', '.join(KINDS)}; devices: {', '.join(DEVICES)}"),
        "duration": (str(soak.DURATION_S), "seconds of soak on each store, in each mode"),
        "rate": (str(soak.OPERATIONS_PER_S), "requests a second of soak"),
        "profile": ("loopback", f"network: {', '.join(PROFILES)}"),
        "mode": (
            "",
            f"configurations of a workload with modes: {', '.join(MODES)}",
        ),
    }
    for name, verb in (("run", run), ("demo", demo)):
        child = verbs.add_parser(name, help=verb.__doc__)
        child.set_defaults(verb=verb)
        for option, (default, text) in options.items():
            value = os.environ.get(option.upper()) or default
            child.add_argument(f"--{option}", default=value, help=text)
    for name, reader in (("report", again), ("trace", trace), ("summary", summary)):
        child = verbs.add_parser(name, help=reader.__doc__)
        child.set_defaults(verb=reader)
        child.add_argument("files", nargs="+")
        if name == "summary":
            child.add_argument("--compare", action="store_true", help="beside each other")
    return parser


def main() -> int:
    """Entry point."""
    options = arguments().parse_args()
    # Devices and mounts are taken away on the way out.
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    verb: Callable[[argparse.Namespace], int] = options.verb
    try:
        return verb(options)
    except (ConfigError, DeviceError, GatewayError, NetworkError, StartError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
