"""A bare Debian 12 in a folder: the system of a person who starts with the README.

Used by: `fresh`, which runs the README in it, and `image`, which builds an image on it. Uses: debootstrap, mount,
chroot. It refuses to know Tieline.

Only `PACKAGES` are added to the smallest system that debootstrap makes. The host lends its access to package
registries: apt's sources and proxies, the configuration of pip and npm, certificates, and folders that serve as a
registry. None of it is written anywhere else. This module needs only the standard library, because it runs before
anything is installed.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SUITE = "bookworm"
HOME = "/root"
PACKAGES = ("python3", "python3-venv", "git", "make", "ca-certificates")

# Variables that say how to reach a registry. The bare Debian gets only these and PATH, HOME and TERM.
_LENT_VARIABLE = re.compile(
    r"(?i:(?:https?|ftp|all|no)_proxy)|(?:PIP|UV|npm_config|NPM_CONFIG)_\w+"
    r"|SSL_CERT_(?:FILE|DIR)|(?:REQUESTS|CURL)_CA_BUNDLE|NODE_EXTRA_CA_CERTS|GIT_SSL_CAINFO"
)
_PIP_FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf")
# The system's files come first, so that the user's own settings come last and win.
_NPM_FILES = ("/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc", "~/.npmrc")
_HOST_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt", "/etc/apt/auth.conf")
_HOST_FOLDERS = (
    "/etc/apt/auth.conf.d",
    "/etc/apt/keyrings",
    "/etc/apt/trusted.gpg.d",
    "/usr/local/share/ca-certificates",
)

# A path of the host in a setting: in a file: address, or alone.
_FILE_URL = re.compile(r"file://(/[^\s,;\"']+)")
_PATH = re.compile(r"(?:^|[\s=\"',])(/[^\s,;\"']+)")

# Devices that programs expect in /dev: name, major, minor.
_DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))


@dataclass(frozen=True)
class Source:
    """One line of apt's sources."""

    uri: str
    suite: str
    components: str
    options: str = ""

    def line(self) -> str:
        options = f"[{self.options}] " if self.options else ""
        return f"deb {options}{self.uri} {self.suite} {self.components}"


def debian_sources(text: str) -> Iterator[Source]:
    """Debian 12's own sources in one of apt's source files, in either of the two formats."""
    for line in text.splitlines():
        found = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.+)", line)
        if found and _is_own(found[3]):
            yield Source(found[2], found[3], found[4].strip(), (found[1] or "").strip())
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*)$", stanza, re.MULTILINE))
        if "deb" not in fields.get("Types", "").split() or fields.get("Enabled", "yes").strip() == "no":
            continue
        keyring = fields.get("Signed-By", "").strip()
        options = f"signed-by={keyring}" if keyring.startswith("/") else ""
        for uri in fields.get("URIs", "").split():
            for suite in filter(_is_own, fields.get("Suites", "").split()):
                yield Source(uri, suite, fields.get("Components", "").strip(), options)


def _is_own(suite: str) -> bool:
    return suite.partition("/")[0] in (SUITE, f"{SUITE}-updates", f"{SUITE}-security")


def lent_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the host that say how to reach a registry."""
    return {name: value for name, value in environment.items() if _LENT_VARIABLE.fullmatch(name)}


def paths_in(setting: str) -> Iterator[Path]:
    """Paths that a setting names. A file: address gives its parent folder, because an index's files are beside it."""
    for url in _FILE_URL.findall(setting):
        yield Path(url).parent
    yield from map(Path, _PATH.findall(_FILE_URL.sub("", setting)))


class BareDebian:
    """One bare Debian in a folder. Its processes and mounts live in the namespace of the caller of `mount`."""

    def __init__(self, folder: Path) -> None:
        # Every user of the bare Debian may enter its root. No other user of the host may enter the folder around it.
        self.root = folder / "root"
        self.environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": HOME,
            "TERM": os.environ.get("TERM", "dumb"),
            **lent_variables(os.environ),
        }

    def install(self, base: Path | None, packages: Sequence[str] = PACKAGES) -> None:
        """Make the system, or copy it from `base`, which is made first if it does not exist."""
        self.root.mkdir(mode=0o755)
        made = base or self.root
        if not (made / "etc/debian_version").exists():
            _need_debootstrap()
            mirror = next((source.uri for source in _host_sources() if source.suite == SUITE), None)
            included = ",".join(packages)
            run(
                "debootstrap",
                "--variant=minbase",
                f"--include={included}",
                SUITE,
                str(made),
                *([mirror] if mirror else []),
            )
        if base is not None:
            run("cp", "--archive", "--reflink=auto", f"{base}/.", str(self.root))

    def lend_configuration(self) -> None:
        """Copy the host's settings for the registries."""
        self._lend_apt()
        for name in (*_HOST_FILES, *self._certificates()):
            self._copy(Path(name), Path(name))
        for folder in map(Path, _HOST_FOLDERS):
            for path in folder.glob("*"):
                self._copy(path, path)
        for name in _PIP_FILES:
            self._copy(Path(name).expanduser(), Path(name.replace("~", HOME)))
        npm = [path.read_text() for path in _files(_NPM_FILES)]
        if npm:
            self.inside(f"{HOME}/.npmrc").write_text("\n".join(npm))

    def mount(self) -> None:
        """Mount the kernel's folders and, read-only, the host's folders that serve as a registry."""
        device = self.inside("/dev")
        run("mount", "-t", "proc", "proc", str(self.inside("/proc")))
        run("mount", "-t", "sysfs", "-o", "ro", "sysfs", str(self.inside("/sys")))
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(device))
        for name, major, minor in _DEVICES:
            run("mknod", "-m", "666", str(device / name), "c", str(major), str(minor))
        for name, target in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1")):
            (device / name).symlink_to(target)
        (device / "stderr").symlink_to("/proc/self/fd/2")
        (device / "ptmx").symlink_to("pts/ptmx")
        for name in ("pts", "shm"):
            (device / name).mkdir()
        run("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=0620,gid=5", "devpts", str(device / "pts"))
        run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(device / "shm"))
        for folder in self.registries():
            self.inside(folder).mkdir(parents=True, exist_ok=True)
            run("mount", "--bind", "-o", "ro", str(folder), str(self.inside(folder)))

    def inside(self, path: str | Path) -> Path:
        """The path on the host of a path in the system."""
        return self.root / str(path).lstrip("/")

    def command(self, *arguments: str, folder: str = HOME) -> list[str]:
        """A command as the host starts it in the system."""
        return ["chroot", str(self.root), "env", "--chdir", folder, *arguments]

    def _lend_apt(self) -> None:
        sources = list(dict.fromkeys(_host_sources()))
        if sources:
            self.inside("/etc/apt/sources.list").write_text("".join(f"{source.line()}\n" for source in sources))
        for keyring in re.findall(r"signed-by=(\S+)", " ".join(source.options for source in sources)):
            self._copy(Path(keyring), Path(keyring))
        if shutil.which("apt-config"):
            dump = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True).stdout
            ways = re.findall(r'^Acquire::(?!IndexTargets)\S+ "[^"]+";$', dump, re.MULTILINE)
            self.inside("/etc/apt/apt.conf.d/90host").write_text("".join(f"{way}\n" for way in ways))

    def _certificates(self) -> Iterator[str]:
        for setting in self._settings():
            yield from (str(path) for path in paths_in(setting) if path.is_file() and path.suffix in (".crt", ".pem"))

    def registries(self) -> list[Path]:
        """Return the host's folders that serve as a registry."""
        folders = {path for setting in self._settings() for path in paths_in(setting) if path.is_dir()}
        return sorted(folder for folder in folders if not folder.is_relative_to("/etc"))

    def _settings(self) -> Iterator[str]:
        yield from lent_variables(os.environ).values()
        for path in _files((*_PIP_FILES, *_NPM_FILES)):
            # Settings for npm's header files and caches are only for the host.
            yield from (line for line in path.read_text().splitlines() if not line.startswith(("nodedir", "cache")))

    def _copy(self, source: Path, target: Path) -> None:
        if source.is_file():
            inside = self.inside(target)
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.unlink(missing_ok=True)
            shutil.copyfile(source, inside)


def _host_sources() -> Iterator[Source]:
    folder = Path("/etc/apt")
    for path in (folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))):
        if path.is_file():
            yield from debian_sources(path.read_text())


def _files(names: Iterable[str]) -> list[Path]:
    return [path for name in names if (path := Path(name).expanduser()).is_file()]


def _need_debootstrap() -> None:
    if not shutil.which("debootstrap"):
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "debootstrap")


def run(*arguments: str) -> None:
    """Run a command of the host. Raises `subprocess.CalledProcessError`."""
    subprocess.run(arguments, check=True)
