"""Tests of the script that makes a bare Debian: the settings that it copies from its host."""

from pathlib import Path

import pytest

from scripts.bare_debian import Source, debian_sources, lent_variables, paths_in

LINES = """\
# deb http://mirror.example/debian bookworm main
deb http://mirror.example/debian bookworm main contrib
deb [arch=amd64 signed-by=/etc/apt/keyrings/own.gpg] http://mirror.example/security bookworm-security main
deb-src http://mirror.example/debian bookworm main
deb http://other.example/debian trixie main
deb https://tools.example/apt tools-bookworm main
"""

STANZAS = """\
Types: deb deb-src
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://tools.example/node
Suites: nodistro
Components: main

Enabled: no
Types: deb
URIs: http://mirror.example/off
Suites: bookworm
Components: main
"""


def test_of_the_hosts_sources_only_debians_own_are_taken_along() -> None:
    assert list(debian_sources(LINES)) == [
        Source("http://mirror.example/debian", "bookworm", "main contrib"),
        Source(
            "http://mirror.example/security",
            "bookworm-security",
            "main",
            "arch=amd64 signed-by=/etc/apt/keyrings/own.gpg",
        ),
    ]


def test_sources_in_stanzas_become_lines() -> None:
    keyring = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
    assert [source.line() for source in debian_sources(STANZAS)] == [
        f"deb {keyring} http://mirror.example/debian bookworm main",
        f"deb {keyring} http://mirror.example/debian bookworm-updates main",
    ]


def test_of_the_hosts_variables_only_the_way_to_registries_is_taken_along() -> None:
    way = {
        "https_proxy": "http://proxy.example",
        "NO_PROXY": "localhost",
        "PIP_INDEX_URL": "https://index.example",
        "npm_config_registry": "https://npm.example",
        "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
    }
    others = {"LANG": "C.UTF-8", "PYTHONPATH": "/x", "TIELINE_HOME": "/x", "MAKEFLAGS": "-j", "VIRTUAL_ENV": "/x"}
    assert lent_variables(way | others) == way


@pytest.mark.parametrize(
    ("setting", "paths"),
    [
        ("find-links = /opt/wheels", ["/opt/wheels"]),
        ("extra-index-url = file:///opt/one/simple file:///opt/two/simple", ["/opt/one", "/opt/two"]),
        ('cafile="/etc/ssl/own.crt"', ["/etc/ssl/own.crt"]),
        ("index-url = https://index.example/root/simple", []),
    ],
)
def test_a_setting_names_the_folders_that_serve_as_a_registry(setting: str, paths: list[str]) -> None:
    assert list(paths_in(setting)) == list(map(Path, paths))
