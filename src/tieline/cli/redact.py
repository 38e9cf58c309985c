"""`tieline redact`: erases the content of a message for good, and looks if any file still has it.

Used by: the operator of a hub, on its machine. Uses: the SDK for the redaction, and the files of the home and of an
adopted spool to check it.
"""

from typing import Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import local_time, neutral_line, print_json, say, warn
from tieline.cli.session import JsonOption, Link, talks


@talks
async def redact(
    link: Link,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Number of the message, or its id.")],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; everybody who saw the message sees it.")
    ],
    json: JsonOption = False,
) -> None:
    """Erase the content of a message for good, for example a secret that leaked.

    Its text, data and attachments go from the messages, the search index, the files of spools and the activity that
    quotes them. Readers see who redacted it, and why; the audit chain stays intact. Programs and people that have read
    the message keep what they have: change the secret all the same. Only the operator, who has the key of the home, may
    redact. If a crash interrupts it, run it again: the clean-up is then done again.
    """
    from tieline.cli.leaked_text import find_texts, has_lake, remove_backups, wait_until_gone
    from tieline.cli.short_ids import find_message_id

    home = link.folder
    async with await link.open_operator() as operator:
        found = await find_message_id(operator, message_id)
        texts = find_texts(home, found)
        done = await operator.redact(found, reason)
    removed = remove_backups(home)
    # After an earlier redaction, the database has only the note. Its text is where it belongs.
    left = await wait_until_gone(home, () if done.again else texts)
    if json:
        who = {"by": done.by, "at_ms": done.at_ms, "again": done.again}
        print_json({"id": found, **who, "removed": removed, "left": [str(path) for path in left]})
    else:
        if done.again:
            when = local_time(done.at_ms)
            say(neutral_line(f"{message_id} was redacted before, by {done.by}, {when}. The clean-up is done again."))
            say("The hub does not have its text any more, so this command cannot look for the text in files.")
        else:
            say(f"{message_id} is redacted.")
        for backup in removed:
            say(neutral_line(f"Removed {backup}, a backup from before an upgrade, which has it."))
        say("Backups that were made before still have it: remove them, and make a new one.")
        if has_lake(home):
            say("The pipeline's tables may quote it until the next 'tieline pipeline run'.")
    if left:
        for path in left:
            warn(neutral_line(f"  {path}"))
        hint = "another message may quote it: 'tieline search' finds it; other programs may have copied it"
        raise Failure(Exit.FAILED, "it is redacted, but these files still have its text", hint)
