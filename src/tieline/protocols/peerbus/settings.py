"""The configuration of peerbus: its tokens, its secret, its port."""

from collections.abc import Mapping
from typing import Self

from msgspec.structs import replace

from tieline.protocols.peerbus.canonical import SECRET_BYTES_MIN
from tieline.wire.address import parse_address
from tieline.wire.protocol import Flag, Settings

DEFAULT_PORT = 47821

TOKENS_VARIABLE = "PEERBUS_TOKENS"
SECRET_VARIABLE = "PEERBUS_HMAC_SECRET"
LISTEN_VARIABLE = "TIELINE_PEERBUS"

_TEMPLATE = """\
[peerbus]
enabled = true
# A peer that shows one of these may register a name, which belongs to that token from then on: to share one is to share
# identity. A member's own token opens its name too.
tokens = ["{token}"]
# What peers sign with, at least {secret_bytes_min} bytes, given to them on another way than this hub. It checks
# signatures with it, and signs what other protocols say to peers; without it the latter is refused.
hmac_secret = "{secret}"
# A port for peers alone, beside the HTTP port, for example "127.0.0.1:{port}"; empty for none.
listen = ""
"""


def template() -> str:
    """The section for a new hub, with a new token and a new secret."""
    # The import is slow, and needed only once in the life of a home.
    import secrets

    return _TEMPLATE.format(
        token=secrets.token_urlsafe(24),
        secret=secrets.token_urlsafe(32),
        secret_bytes_min=SECRET_BYTES_MIN,
        port=DEFAULT_PORT,
    )


class PeerbusSettings(Settings, frozen=True):
    """The section `[peerbus]`."""

    tokens: tuple[str, ...] = ()
    hmac_secret: str = ""
    listen: str = ""

    @property
    def signs(self) -> bool:
        """True if the hub has a secret to sign with: peers accept signed messages only."""
        return bool(self.hmac_secret)

    def with_environment(self, environment: Mapping[str, str]) -> Self:
        """Take tokens, secret and port from environment variables, if they are set."""
        tokens = tuple(filter(None, map(str.strip, environment.get(TOKENS_VARIABLE, "").split(","))))
        return replace(
            self,
            tokens=tokens or self.tokens,
            hmac_secret=environment.get(SECRET_VARIABLE) or self.hmac_secret,
            listen=environment.get(LISTEN_VARIABLE) or self.listen,
        )

    def check(self) -> None:
        """Refuse a secret that is short enough to guess. Raises `ValueError`."""
        size = len(self.hmac_secret.encode())
        if 0 < size < SECRET_BYTES_MIN:
            raise ValueError(f"the peerbus secret has {size} bytes, and needs at least {SECRET_BYTES_MIN}")


def _listen(address: str) -> dict[str, str]:
    parse_address(address, DEFAULT_PORT)
    return {"listen": address}


FLAGS = (
    Flag(("--peerbus",), f"A port for peerbus alone, {DEFAULT_PORT} if none is named.", _listen, metavar="HOST[:PORT]"),
    Flag(("--no-peerbus",), "Do not speak peerbus.", lambda _: {"enabled": False}),
)
