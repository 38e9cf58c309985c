"""The configuration of peerbus: its tokens, its secret for signatures, and its separate port."""

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
# Tokens for peers. A peer with one of them may register a new name, which then belongs to that token: peers that share
# a token share their names. A member's own token also opens its name.
tokens = ["{token}"]
# Shared signing secret, at least {secret_bytes_min} bytes. Hand it to peers outside of this hub. The hub checks
# signatures with it, and signs messages of other protocols for peers. Without it, those messages are refused.
hmac_secret = "{secret}"
# Extra port for peers only, in addition to the HTTP port, for example "127.0.0.1:{port}"; empty for none.
listen = ""
"""


def template() -> str:
    """Return the text of the configuration section for a new hub, with a new token and a new secret."""
    # The import is slow, and needed only once in the life of a home.
    import secrets

    return _TEMPLATE.format(
        token=secrets.token_urlsafe(24),
        secret=secrets.token_urlsafe(32),
        secret_bytes_min=SECRET_BYTES_MIN,
        port=DEFAULT_PORT,
    )


class PeerbusSettings(Settings, frozen=True):
    """The section `[peerbus]` of `tieline.toml`: tokens, the secret for signatures, and a separate port."""

    tokens: tuple[str, ...] = ()
    hmac_secret: str = ""
    listen: str = ""

    @property
    def signs(self) -> bool:
        """True if the hub has a secret, so that it can sign messages. Peers accept only signed messages."""
        return bool(self.hmac_secret)

    @property
    def shared_tokens(self) -> tuple[str, ...]:
        """The tokens that several names may share. A peer with one of these tokens may register any new name."""
        return tuple(filter(None, self.tokens))

    def with_environment(self, environment: Mapping[str, str]) -> Self:
        """Return a copy in which the environment variables that are set replace the tokens, the secret and the port."""
        tokens = tuple(filter(None, map(str.strip, environment.get(TOKENS_VARIABLE, "").split(","))))
        return replace(
            self,
            tokens=tokens or self.tokens,
            hmac_secret=environment.get(SECRET_VARIABLE) or self.hmac_secret,
            listen=environment.get(LISTEN_VARIABLE) or self.listen,
        )

    def check(self) -> None:
        """Raise `ValueError` if the secret has too few bytes to be safe."""
        size = len(self.hmac_secret.encode())
        if 0 < size < SECRET_BYTES_MIN:
            raise ValueError(f"the peerbus secret has {size} bytes, and needs at least {SECRET_BYTES_MIN}")


def _listen(address: str) -> dict[str, str]:
    parse_address(address, DEFAULT_PORT)
    return {"listen": address}


FLAGS = (
    Flag(("--peerbus",), f"Extra port for peerbus only. Default port: {DEFAULT_PORT}.", _listen, metavar="HOST[:PORT]"),
    Flag(("--no-peerbus",), "Do not speak peerbus.", lambda _: {"enabled": False}),
)
