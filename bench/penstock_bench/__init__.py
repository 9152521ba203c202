"""The measuring bench: workloads against peers, one JSON line per run."""
