"""Prices of models: US dollars for a million tokens, by prefix of the model's name.

List prices change, and contracts differ. So a file `prices.json` in the lake, in the same format as `PRICES`, replaces
the prices here. A model without a price costs nothing here, and its calls are counted as unpriced.
"""

import json

from tieline.pipeline.lake import Lake, LakeError

PRICES: dict[str, tuple[float, float, float, float]] = {
    # Input, output, read from the cache, written to the cache.
    "claude-opus": (5.0, 25.0, 0.5, 6.25),
    "claude-sonnet": (3.0, 15.0, 0.3, 3.75),
    "claude-haiku": (1.0, 5.0, 0.1, 1.25),
    "gpt-5": (1.75, 14.0, 0.175, 1.75),
    "gpt-5-mini": (0.25, 2.0, 0.025, 0.25),
    "gemini-3-pro": (2.0, 12.0, 0.2, 2.0),
}
PRICES_FILE = "prices.json"

Prices = dict[str, tuple[int, int, int, int]]
"""Prices of one token by prefix of the model's name, in billionths of a dollar, so that sums are exact.

The four prices are: input, output, read from the cache, written to the cache.
"""


def load_prices(lake: Lake) -> Prices:
    """Return the prices from the file `prices.json` in a lake, or `PRICES` if there is no such file.

    Raise `LakeError` if the file is not valid.
    """
    try:
        stored = lake.storage.read(PRICES_FILE)
        given = PRICES if stored is None else json.loads(stored)
        return {str(model): _nano(*prices) for model, prices in given.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise LakeError(
            f"{lake.storage.url(PRICES_FILE)} must map the beginning of a model's name to four prices: {error}"
        ) from error


def _nano(asked: float, told: float, read: float, written: float) -> tuple[int, int, int, int]:
    return round(asked * 1000), round(told * 1000), round(read * 1000), round(written * 1000)
