"""Prints the licences and notices of all that is compiled into the binary and the extension.

usage: notices.py DUCKDB_VERSION... > THIRD-PARTY.txt

Each text stands once, under the names of those that it came with.
"""

from __future__ import annotations

import sys

from shipped import Part, everything, texts_of

HEAD = """Penstock is under the Apache License 2.0 (LICENSE). Its binary and its extension contain
the software named here, each under the terms that stand below its name.
"""
LINE = "=" * 80


def page(parts: list[Part]) -> str:
    """The page."""
    found = texts_of(parts).items()
    blocks = [f"{LINE}\n{', '.join(names)}\n{LINE}\n\n{text}\n" for text, names in found]
    return "\n".join([HEAD, *blocks])


if __name__ == "__main__":
    sys.stdout.write(page(everything(sys.argv[1:])))
