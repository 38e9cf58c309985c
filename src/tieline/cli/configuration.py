"""`tieline config`: shows the settings of a hub and where each value comes from.

Used by: a person who wonders why a hub behaves as it does. Uses: the settings that a running hub wrote down, or else
`tieline.toml` and the environment of this command.
"""

from pathlib import Path
from typing import Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import print_json, print_table, warn
from tieline.cli.session import HomeOption, JsonOption, ended_by

config_app = typer.Typer(help="Show the settings of the hub.", no_args_is_help=True)


@config_app.callback()
def _config() -> None:
    """Show the settings of the hub."""


@config_app.command("show")
def show(
    origin: Annotated[
        bool,
        typer.Option("--origin", help="Also show where each value comes from: default, file, environment or flag."),
    ] = False,
    home: HomeOption = None,
    json: JsonOption = False,
) -> None:
    """Show every setting: of the running hub, else those of the next start. Secrets are not shown."""
    from tieline.wire.home import find_home

    ended_by(lambda: _show(find_home(home), origin=origin, json=json), json=json)


def _show(home: Path, *, origin: bool, json: bool) -> None:
    import msgspec

    from tieline.server.config import ConfigError
    from tieline.server.config_origin import recorded, settings_of
    from tieline.wire.home import CONFIG_FILE, read_running

    path = home / CONFIG_FILE
    if not path.exists():
        raise Failure(Exit.FAILED, f"there is no {path}", f"the first start makes it: tieline serve --home {home}")
    found = recorded(home) if read_running(home) is not None else None
    runs = found is not None
    try:
        found = found or settings_of(home)
    except ConfigError as error:
        raise Failure(Exit.FAILED, str(error), f"correct {path}") from error
    if json:
        from tieline.cli.documents import ShownSettings

        print_json(ShownSettings(runs, str(path), found.settings))
    else:
        rows = [(one.name, msgspec.json.encode(one.value).decode(), one.origin) for one in found.settings]
        columns = ("setting", "value", "origin") if origin else ("setting", "value")
        print_table(columns, [row[: len(columns)] for row in rows], empty="")
    if runs and path.stat().st_mtime_ns != found.file_changed_at_ns:
        warn(f"{path} was changed after the hub started; the hub uses these settings until it is started again.")
