"""What the words of options mean, each an environment variable's value or an argument."""

from __future__ import annotations

import argparse

from penstock_bench.config import ConfigError
from penstock_bench.network import PROFILES, Profile


def is_quick(options: argparse.Namespace) -> bool:
    """Whether the quick sizes and runs are meant."""
    return options.quick not in ("", "0")


def numbers(text: str) -> tuple[int, ...]:
    """Integers from a list such as ``5000 50000`` or ``5k,2M``."""
    units = {"k": 1_000, "M": 1_000_000}
    try:
        return tuple(
            int(word[:-1]) * units[word[-1]] if word[-1] in units else int(word)
            for word in text.replace(",", " ").split()
        )
    except ValueError:
        raise ConfigError(f"not a list of whole numbers: {text!r}") from None


def words_of(
    text: str, default: tuple[str, ...], known: tuple[str, ...], what: str
) -> tuple[str, ...]:
    """Names from a list such as ``directory,azurite``."""
    words = tuple(text.replace(",", " ").split()) or default
    unknown = [word for word in words if word not in known]
    if unknown:
        raise ConfigError(f"no {what} {', '.join(unknown)}; there are: {', '.join(known)}")
    return words


def profile_of(options: argparse.Namespace) -> Profile:
    """The network that is asked for."""
    if options.profile not in PROFILES:
        raise ConfigError(f"no profile {options.profile}; there are: {', '.join(PROFILES)}")
    return PROFILES[options.profile]
