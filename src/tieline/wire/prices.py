"""Prices of models: US dollars for a million tokens, by prefix of the model's name.

Used by: the pipeline, for its tables, and the hub's console, for the cost of the present day. List prices change, and
contracts differ. So a file `prices.json` in the lake, in the same format as `PRICES`, replaces `PRICES`. The calls of a
model without a price cost nothing, and are counted as unpriced.
"""

import json

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

Tokens = tuple[int, int, int, int]
"""Numbers of tokens, or their prices: input, output, read from the cache, written to the cache."""
Prices = dict[str, Tokens]
"""Prices of one token by prefix of the model's name, in billionths of a dollar, so that sums are exact."""


def read_prices(stored: bytes | None) -> Prices:
    """Return the prices in the content of a file `prices.json`, or `PRICES` if there is no such file.

    Raise `ValueError`, `TypeError` or `AttributeError` if the content is not valid.
    """
    given = PRICES if stored is None else json.loads(stored)
    return {str(model): _nano(*prices) for model, prices in given.items()}


def cost_of(model: str, tokens: Tokens, prices: Prices) -> int | None:
    """Return the cost of a model call in billionths of a dollar; `None` if the model has no price.

    The price is that of the longest known prefix of the model's name.
    """
    prefix = max((one for one in prices if model.startswith(one)), key=len, default=None)
    if prefix is None:
        return None
    return sum(count * price for count, price in zip(tokens, prices[prefix], strict=True))


def _nano(asked: float, told: float, read: float, written: float) -> Tokens:
    return round(asked * 1000), round(told * 1000), round(read * 1000), round(written * 1000)
