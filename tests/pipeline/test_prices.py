"""Tests of prices of models: prices in a lake replace the built-in ones. A file without prices is an error."""

import json
from pathlib import Path

import pytest

from tieline.pipeline.lake import Lake, LakeError
from tieline.pipeline.prices import load_prices
from tieline.wire.prices import PRICES


def test_known_prices_are_exact_in_billionths(tmp_path: Path) -> None:
    prices = load_prices(Lake(tmp_path))
    assert set(prices) == set(PRICES)
    assert prices["claude-opus"] == (5000, 25000, 500, 6250)


def test_a_lake_has_its_own_prices(tmp_path: Path) -> None:
    (tmp_path / "prices.json").write_text(json.dumps({"mine": [0.001, 1, 0, 2.5]}))
    assert load_prices(Lake(tmp_path)) == {"mine": (1, 1000, 0, 2500)}


@pytest.mark.parametrize("text", ["{", "[]", '{"m": 3}', '{"m": [1, 2]}', '{"m": ["a", 1, 1, 1]}', '{"m": null}'])
def test_a_file_without_prices_is_told_of(tmp_path: Path, text: str) -> None:
    (tmp_path / "prices.json").write_text(text)
    with pytest.raises(LakeError, match="four prices"):
        load_prices(Lake(tmp_path))
