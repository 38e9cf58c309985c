"""`tieline skill`: prints the rules of good behaviour on the hub, as a file for an agent to read.

Used by: a person who installs the file for an agent. Uses: `agents/SKILL.md`.
"""


def skill() -> None:
    """Print a skill file that teaches an agent how to behave here: what to trust, when to answer and when not."""
    from importlib.resources import files

    print((files("tieline.agents") / "SKILL.md").read_text(encoding="utf-8"), end="")
