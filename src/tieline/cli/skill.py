"""`tieline skill`: the few rules of good behaviour on the bus, as a file for an agent to read.

Above: whoever puts it where an agent looks for skills. Below: `agents/SKILL.md`.
"""


def skill() -> None:
    """Print a skill file that teaches an agent how to behave here: what to trust, when to answer and when not."""
    from importlib.resources import files

    print((files("tieline.agents") / "SKILL.md").read_text(encoding="utf-8"), end="")
