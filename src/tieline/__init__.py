"""Tieline: one hub for coding agents, speaking the wire protocols they already use."""

__version__ = "0.2.0"


def commit() -> str:
    """Return the commit of this program: the start of its hash, with `+` if files were changed since.

    A built package has the commit in a file. In a clone, git is asked. Return an empty string if neither is possible.
    """
    import subprocess  # noqa: PLC0415 - few programs ask
    from pathlib import Path  # noqa: PLC0415 - few programs ask

    package = Path(__file__).parent
    baked = package / "commit.txt"
    if baked.exists():
        return baked.read_text(encoding="ascii").strip()
    clone = package.parent.parent
    if package.parent.name != "src" or not (clone / ".git").exists():
        return ""
    command = ["git", "-C", str(clone), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=5)  # noqa: S603 - fixed
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
