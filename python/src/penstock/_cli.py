"""The console command ``penstock``: becomes the shipped binary."""

from __future__ import annotations

import os
import sys

from penstock._errors import NotShippedError
from penstock._files import binary_path


def main() -> None:
    """Replaces this process by the ``penstock`` binary with the same arguments."""
    try:
        path = binary_path()
    except NotShippedError as error:
        sys.exit(f"penstock: {error}")
    os.execv(path, [str(path), *sys.argv[1:]])  # noqa: S606 - no shell is meant
