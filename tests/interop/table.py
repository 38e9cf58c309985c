"""Generator of the tables in docs/interop.md.

`python -m tests.interop.table` writes them, from the fields that each protocol declares.
"""

from pathlib import Path

from tieline.protocols import protocols
from tieline.wire.fidelity import Carriage, Field
from tieline.wire.native.content import CARRIAGE as TIELINE

PAGE = Path(__file__).parents[2] / "docs" / "interop.md"
CARRIAGES = (*(protocol.carriage() for protocol in protocols()), TIELINE)
BY_PROTOCOL = {carriage.protocol: carriage for carriage in CARRIAGES}

OWN, REST, SAME, NOTE, UNSAID = "own", "rest", "as it came", "note", "–"


def cell(field: Field, sender: Carriage, recipient: Carriage) -> str:
    """Return the table cell for a field of a message from one protocol to another."""
    if field not in sender.says:
        return UNSAID
    if sender is recipient:
        return SAME
    if field is Field.OWN:
        return NOTE
    return OWN if field in recipient.carries else REST


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _said() -> str:
    rows = [[f"`{field}`", *(one.says.get(field, UNSAID) for one in CARRIAGES)] for field in Field]
    return _table(["field", *BY_PROTOCOL], rows)


def _given() -> str:
    fields = [field for field in Field if field is not Field.OWN]
    rows = [[f"`{field}`", *(one.carries.get(field, f"in {one.rest}") for one in CARRIAGES)] for field in fields]
    return _table(["field", *BY_PROTOCOL], rows)


def _pairs() -> str:
    rows = [
        [sender.protocol, recipient.protocol, *(cell(field, sender, recipient) for field in Field)]
        for sender in CARRIAGES
        for recipient in CARRIAGES
    ]
    return _table(["from", "to", *(f"`{field}`" for field in Field)], rows)


TABLES = {"said": _said, "given": _given, "pairs": _pairs}


def filled(page: str) -> str:
    """Return the Markdown text `page` with its tables generated anew from the code."""
    for name, draw in TABLES.items():
        before, start, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        assert start, f"the page has no place for the table {name!r}"
        assert end, f"the place of the table {name!r} has no end"
        page = f"{before}{start}{draw()}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
