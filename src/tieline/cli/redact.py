"""`tieline redact`: erases the content of a message for good, and checks that no file has it any more.

Used by: the operator of a hub, on its machine. Uses: the SDK for the redaction, and the files of the home and of an
adopted spool to check it.
"""

from typing import Annotated

import typer

from tieline.cli.completion import complete_message
from tieline.cli.failure import Exit, Failure
from tieline.cli.output import local_time, neutral_line, print_json, say, warn
from tieline.cli.session import JsonOption, Link, talks


@talks
async def redact(
    link: Link,
    message_id: Annotated[
        str, typer.Argument(metavar="ID", help="Number of the message, or its id.", autocompletion=complete_message)
    ],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; everybody who saw the message sees it.")
    ],
    remove_backups: Annotated[
        bool, typer.Option("--remove-backups", help="Also remove the hub's backups, which may have it.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Erase the content of a message for good, for example a secret that leaked.

    Its text, data and attachments go from the messages, the search index, the files of spools and the activity that
    quotes them. Readers see who redacted it, and why; the audit chain stays intact. Programs and people that have read
    the message keep what they have: change the secret all the same. Only the operator, who has the key of the home, may
    redact. If a crash interrupts it, run it again: the clean-up is then done again.
    """
    from tieline.cli.leaked_text import (
        Leak,
        find_leak,
        has_lake,
        known_backups,
        paths_with,
        remove_known,
        remove_upgrade_backups,
        wait_until_gone,
    )
    from tieline.cli.short_ids import find_message_id
    from tieline.server.config_origin import database_of

    home = link.folder
    async with await link.open_operator() as operator:
        found = await find_message_id(operator, message_id)
        leak = find_leak(home, found)
        done = await operator.redact(found, reason)
    removed, backups = remove_upgrade_backups(home), known_backups(home)
    if remove_backups:
        remove_known(home, backups)
        removed, backups = [*removed, *map(str, backups)], []
    # After an earlier redaction, the database has only the note. Its text is where it belongs.
    left = await wait_until_gone(home, Leak() if done.again else leak)
    if json:
        from tieline.cli.documents import Erased

        print_json(Erased(found, done.by, done.at_ms, done.again, removed, [str(path) for path in (*left, *backups)]))
    else:
        if done.again:
            when = local_time(done.at_ms)
            say(neutral_line(f"{message_id} was redacted before, by {done.by}, {when}. The clean-up is done again."))
            say("The hub does not have its content any more, so this command cannot look for it in files.")
        else:
            say(f"{message_id} is redacted.")
        for backup in removed:
            say(neutral_line(f"Removed {backup}, a backup, which may have it."))
        if backups:
            say("These backups may have it. Remove them and make a new one, or run it again with --remove-backups:")
        for path in backups:
            say(neutral_line(f"  {path}"))
        say("Other copies of backups may have it too.")
        if place := database_of(home):
            say(f"This command cannot look into {place}, which keeps old versions of its rows until they are vacuumed:")
            say("VACUUM FULL tieline.message, tieline.said; see docs/postgres.md.")
        if has_lake(home):
            say("The pipeline's tables may quote it until the next 'tieline pipeline run'.")
    if left:
        for path in left:
            shared = "".join(f", the content of {one}" for one in paths_with(path))
            warn(neutral_line(f"  {path}{shared}"))
        hint = (
            "another message may quote it: 'tieline search' finds it; a file with the same content is removed by its "
            "owner, or with the message or objective that it is attached to; other programs may have copied it"
        )
        raise Failure(Exit.FAILED, "it is redacted, but these files still have its content", hint)
