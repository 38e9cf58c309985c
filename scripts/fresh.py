"""`make fresh`: runs the steps of the README and of docs/operating.md on a bare Debian 12, and prints their results.

Used by: a person, or CI, as root. Uses: `bare_debian`.

The program runs twice. The outer program makes a folder, starts the inner program in its own namespaces for mounts and
processes, and removes the folder. When the inner program ends for any reason, the kernel removes its mounts and ends
its processes. So nothing is left over, and the folder has no mounts when it is removed. The network is the host's.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.bare_debian import HOME, BareDebian, run

ROOT = Path(__file__).resolve().parent.parent
CHECKOUT = f"{HOME}/tieline"
TIELINE = f"{CHECKOUT}/.venv/bin/tieline"
INSTALLED = f"{HOME}/tieline-env/bin"
"""Folder of commands of the environment that docs/operating.md makes."""
UNIT = f"{HOME}/.config/systemd/user/tieline.service"
SYSTEM_UNIT = "/etc/systemd/system/tieline.service"
RUN_FILE = f"{HOME}/.local/state/tieline/run.json"

# The hub takes any free port, because the network is the host's.
ANY_PORT = "ARGS=--http 127.0.0.1:0"
SECONDS_MAX = 3600
"""Timeout of one command; the slowest, `make test`, should take a third of it."""
COMMAND_SECONDS_MAX = 120
STOP_SECONDS_MAX = 30


class StepFailed(Exception):
    """A step of the README did not do what the README says."""


@dataclass(frozen=True)
class Outcome:
    """The result of one step; `seconds` is `None` if the step was not reached."""

    step: str
    seconds: float | None
    failure: str = ""

    @property
    def result(self) -> str:
        if self.seconds is None:
            return "not run"
        return f"FAILED: {self.failure}" if self.failure else "passed"


def table(outcomes: Sequence[Outcome]) -> str:
    """A table of the steps, one line each: step, time and result."""
    rows = [("step", "time", "result")]
    for outcome in outcomes:
        minutes, seconds = divmod(round(outcome.seconds or 0), 60)
        rows.append((outcome.step, "-" if outcome.seconds is None else f"{minutes}:{seconds:02}", outcome.result))
    step, clock = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"{row[0]:{step}}  {row[1]:>{clock}}  {row[2]}" for row in rows)


# Steps


def start_and_stop(debian: BareDebian) -> None:
    """Run `make run` until the hub answers, then press Ctrl-C."""
    with hub(debian) as address, urllib.request.urlopen(f"{address}/healthz", timeout=10) as answer:
        say(f"{address}/healthz answers {answer.status}")


def first_message(debian: BareDebian) -> None:
    """The README's first message: one member waits until another has handled it."""
    with hub(debian):
        for name in ("alice", "bob"):
            output_of(debian, TIELINE, "member", "add", name)
        sending = start(debian, TIELINE, "send", "@bob", "hello", "--as", "alice", "--wait-for", "acked", piped=True)
        assert sending.stdout is not None
        accepted = sending.stdout.readline()
        say(accepted.rstrip())
        expect("hello", output_of(debian, TIELINE, "drain", "--as", "bob"))
        waited, _ = sending.communicate(timeout=STOP_SECONDS_MAX)
        say(waited.rstrip())
        expect("acked", waited)
        expect("acked", output_of(debian, TIELINE, "receipts", accepted.split()[0], "--as", "alice"))


def installed(debian: BareDebian) -> None:
    """Build the wheel, install it by the commands of the docs, start a hub, and look at its console in a browser."""
    make("dist")(debian)
    shell(debian, *documented("install"))
    apt_install(debian, "chromium-headless-shell")
    with hub(debian, "tieline", "serve", "--http", "127.0.0.1:0", log="first-start") as address:
        output_of(debian, "tieline", "status")
        start_text = debian.inside(f"{HOME}/first-start").read_text()
        link = re.search(rf"{re.escape(address)}/#/enter/\S+", start_text)
        if link is None:
            raise StepFailed("the first start printed no link to the console")
        look_at_console(debian, link[0], address)
        with urllib.request.urlopen(f"{address}/docs/start/", timeout=10) as answer:
            expect("Quick start", answer.read().decode())
        say(f"{address}/docs/ has the documentation")
        expect("the hub started", output_of(debian, "tieline", "logs"))
        expect("flag", output_of(debian, "tieline", "config", "show", "--origin", quiet=True))
        output_of(debian, "tieline", "doctor")
    expect("claims hold", output_of(debian, "tieline", "demo", quiet=True))
    say("the demo's claims hold")
    apt_install(debian, "pipx")
    # pipx does not replace the link that the documented commands made.
    shell(debian, "rm ~/.local/bin/tieline", "pipx install dist/tieline-*.whl", "~/.local/bin/tieline --version")
    build_from_sources(debian)


def build_from_sources(debian: BareDebian) -> None:
    """Build wheels as installers do, of an sdist and of a git URL. The builds make console and documentation."""
    sources = f"{HOME}/sdist"
    shell(
        debian,
        f"mkdir {sources}",
        f"tar -xzf dist/tieline-*.tar.gz -C {sources} --strip-components=1",
        f"rm -r {sources}/src/tieline/console/static {sources}/src/tieline/console/docs",
    )
    for name, source in (("from-sdist", sources), ("from-git", f"git+file://{CHECKOUT}")):
        shell(debian, f"{INSTALLED}/pip wheel --quiet --no-deps --wheel-dir {HOME}/{name} {source}")
        (wheel,) = debian.inside(f"{HOME}/{name}").glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            names = "\n".join(packed.namelist())
        for file in ("console/static/index.html", "console/docs/index.html", "commit.txt"):
            expect(f"tieline/{file}", names)
        say(f"{source} builds a whole wheel")


def look_at_console(debian: BareDebian, link: str, address: str) -> None:
    """Log in by a link, and load the page until it shows that it is connected: a load ends before a WebSocket opens."""
    browser = (
        "chromium-headless-shell",
        "--no-sandbox",
        f"--user-data-dir={HOME}/browser",
        "--virtual-time-budget=2000",
    )
    page = output_of(debian, *browser, "--dump-dom", link, quiet=True)
    deadline = time.monotonic() + COMMAND_SECONDS_MAX
    while "Connected" not in page and time.monotonic() < deadline:
        page = output_of(debian, *browser, "--dump-dom", address, quiet=True)
    for word in ("Connected", "Conversations", "Objectives", "Sign out"):
        expect(word, page)
    say("the browser shows the console, logged in and connected")


def service(debian: BareDebian) -> None:
    """Install both services by the commands of the docs. systemd verifies the units; in a chroot it does not run."""
    apt_install(debian, "systemd", "sudo")
    install, status = documented("service")
    shell(debian, install, f"{status} | grep 'systemd does not run here'")
    program = "/opt/tieline/bin"
    shell(
        debian,
        "python3 -m venv /opt/tieline",
        f"{program}/pip install --quiet dist/tieline-*.whl --constraint dist/constraints.txt",
        *documented("system"),
    )
    for scope, unit in (("--user", UNIT), ("--system", SYSTEM_UNIT)):
        shell(debian, f"XDG_RUNTIME_DIR=/tmp systemd-analyze {scope} verify --recursive-errors=no {unit}")
        say(f"{unit} is verified")
    expect("was removed", output_of(debian, "tieline", "service", "uninstall"))
    expect("was removed", output_of(debian, f"{program}/tieline", "service", "uninstall", "--system"))


def documented(part: str) -> list[str]:
    """The commands of the block in docs/operating.md that is marked for this script."""
    text = (ROOT / "docs/operating.md").read_text(encoding="utf-8")
    block = text.partition(f"<!-- fresh: {part} -->\n```sh\n")[2].partition("```")[0]
    return block.splitlines()


def apt_install(debian: BareDebian, *packages: str) -> None:
    shell(
        debian,
        "apt-get update -qq",
        f"DEBIAN_FRONTEND=noninteractive apt-get install -y -qq {' '.join(packages)} >/dev/null",
    )


def shell(debian: BareDebian, *commands: str) -> None:
    """Run commands in one shell, as a person types them."""
    code = start(debian, "sh", "-ec", "\n".join(commands)).wait(SECONDS_MAX)
    if code:
        raise StepFailed(f"exit code {code} of: {'; '.join(commands)}")


def make(*arguments: str) -> Callable[[BareDebian], None]:
    def step(debian: BareDebian) -> None:
        code = start(debian, "make", *arguments).wait(SECONDS_MAX)
        if code:
            raise StepFailed(f"exit code {code}")

    return step


STEPS: dict[str, Callable[[BareDebian], None]] = {
    "run": start_and_stop,
    "message": first_message,
    "demo": make("demo"),
    "install": installed,
    "service": service,
    "pipeline": make("pipeline"),
    "ready": make("ready"),
    "test": make("test"),
}


def chosen_steps(names: str) -> list[str]:
    """The steps of a comma list, in the README's order. Raises `argparse.ArgumentTypeError`."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in STEPS]
    if unknown or not wanted:
        raise argparse.ArgumentTypeError(
            f"no such step: {', '.join(unknown) or '(none)'}; there are {', '.join(STEPS)}"
        )
    return [name for name in STEPS if name in wanted]


@contextmanager
def hub(debian: BareDebian, *command: str, log: str = "") -> Iterator[str]:
    """Start a hub, by `make run` if no command is named; yields its address.

    Ends with Ctrl-C, after which no `run.json` may be left. With `log`, the hub starts on an empty home, and its output
    goes into the file of this name.
    """
    command = command or ("make", "run", ANY_PORT)
    if log:
        shutil.rmtree(debian.inside(RUN_FILE).parent, ignore_errors=True)
        command = ("sh", "-c", f'exec "$@" > {HOME}/{log}', "sh", *command)
    run_file = debian.inside(RUN_FILE)
    process = start(debian, *command)
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while not run_file.exists():
            if process.poll() is not None:
                raise StepFailed(f"{' '.join(command)} ended with exit code {process.returncode}")
            if time.monotonic() > deadline:
                raise StepFailed(f"{' '.join(command)} does not answer")
            time.sleep(0.2)
        yield str(json.loads(run_file.read_text())["http"])
    finally:
        if process.poll() is None:
            # Like a terminal, send the signal to everything that make started.
            os.killpg(process.pid, signal.SIGINT)
            process.wait(STOP_SECONDS_MAX)
    if run_file.exists():
        raise StepFailed("the hub did not stop cleanly: its run.json is left")


def start(debian: BareDebian, *command: str, piped: bool = False) -> "subprocess.Popen[str]":
    say(f"$ {' '.join(command)}")
    return subprocess.Popen(
        debian.command(*command, folder=CHECKOUT),
        env={**debian.environment, "PATH": f"{INSTALLED}:{debian.environment['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if piped else None,
        text=True,
        start_new_session=True,
    )


def output_of(debian: BareDebian, *command: str, quiet: bool = False) -> str:
    """The output of a command, which is also printed unless `quiet`."""
    process = start(debian, *command, piped=True)
    output, _ = process.communicate(timeout=COMMAND_SECONDS_MAX)
    if not quiet:
        say(output.rstrip())
    if process.returncode:
        raise StepFailed(f"{' '.join(command)}: exit code {process.returncode}")
    return output


def expect(word: str, output: str) -> None:
    if word not in output:
        raise StepFailed(f"expected {word!r} in {output!r}")


def say(text: str) -> None:
    print(text, flush=True)


# The two programs


def prepare(debian: BareDebian, base: Path | None) -> None:
    debian.install(base)
    debian.lend_configuration()
    debian.mount()
    run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(debian.inside(CHECKOUT)))
    beside = ROOT.parent / "shared"
    if beside.is_dir():
        shutil.copytree(beside, debian.inside(CHECKOUT).parent / "shared", symlinks=True)


def timed(step: str, work: Callable[[], None]) -> Outcome:
    say(f"\n== {step}")
    began = time.monotonic()
    failure = ""
    try:
        work()
    except StepFailed as error:
        failure = str(error)
    except (OSError, subprocess.SubprocessError) as error:
        traceback.print_exc()
        failure = repr(error)
    return Outcome(step, time.monotonic() - began, failure)


def inner(folder: Path, steps: list[str], base: Path | None) -> int:
    """Prepare the system and run the steps, in this process's own namespaces."""
    debian = BareDebian(folder)
    outcomes = [timed("debian", lambda: prepare(debian, base))]
    try:
        for step in steps:
            if outcomes[0].failure:
                outcomes.append(Outcome(step, None))
            else:
                outcomes.append(timed(step, lambda step=step: STEPS[step](debian)))  # type: ignore[misc]
    except KeyboardInterrupt:
        say("\nstopped")
    finally:
        reached = {outcome.step for outcome in outcomes}
        outcomes += [Outcome(step, None) for step in steps if step not in reached]
        say(f"\n{table(outcomes)}")
    return 1 if any(outcome.failure or outcome.seconds is None for outcome in outcomes) else 0


def outer(folder: Path, arguments: Sequence[str], *, keep: bool) -> int:
    """Start the inner program in its namespaces, wait for it, and remove the folder."""
    # The shell is the first process of its namespace: like an init, it reaps orphans that have ended.
    shell = [
        "sh",
        "-c",
        '"$@"; exit $?',
        "sh",
        sys.executable,
        "-m",
        "scripts.fresh",
        *arguments,
        "--inner",
        str(folder),
    ]
    process = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", *shell], cwd=ROOT)
    try:
        return process.wait()
    except KeyboardInterrupt:
        # The terminal sent the signal to the inner program too, and that program prints its results so far.
        process.wait(STOP_SECONDS_MAX)
        return 130
    finally:
        process.kill()
        process.wait()
        if keep:
            say(f"kept: {folder}")
        else:
            remove(folder)


def remove(folder: Path) -> None:
    """Remove the folder. Processes killed a moment ago may still be ending, with files open in the folder."""
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fresh", description="Prove the README on a bare Debian 12. Needs root.")
    every = ",".join(STEPS)
    parser.add_argument("--steps", type=chosen_steps, default=every, metavar="LIST", help=f"some of {every}")
    parser.add_argument(
        "--base", type=Path, metavar="DIR", help="keep the bare system there, and use it if it is there"
    )
    parser.add_argument("--keep", action="store_true", help="leave the folder as it is at the end")
    parser.add_argument("--inner", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("a system in a folder needs root: debootstrap, mount and chroot")
    base = options.base.resolve() if options.base else None
    if options.inner:
        return inner(options.inner, options.steps, base)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="tieline-fresh-"))
    return outer(folder, sys.argv[1:], keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
