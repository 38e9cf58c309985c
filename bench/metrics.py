"""A hub's own figures, as its `/metrics` shows them."""

import urllib.request

BATCHES = "tieline_batches_total"
COMMITS = "tieline_commits_total"


def read_figures(http: str) -> dict[str, float]:
    """Current metrics of the hub at this address, by name with labels; empty for an empty address."""
    if not http:
        return {}
    with urllib.request.urlopen(f"{http}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in pairs}
