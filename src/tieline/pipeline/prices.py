"""Prices of models for the pipeline's tables: the prices in a file of the lake, or else those in `wire.prices`."""

from tieline.pipeline.lake import Lake, LakeError
from tieline.wire.prices import PRICES_FILE, Prices, read_prices


def load_prices(lake: Lake) -> Prices:
    """Return the prices from the file `prices.json` in a lake, or `PRICES` if there is no such file.

    Raise `LakeError` if the file is not valid.
    """
    try:
        return read_prices(lake.storage.read(PRICES_FILE))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise LakeError(
            f"{lake.storage.url(PRICES_FILE)} must map the beginning of a model's name to four prices: {error}"
        ) from error
