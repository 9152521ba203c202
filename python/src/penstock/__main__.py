"""``python -m penstock``: the shipped binary."""

from penstock._cli import main

main()
