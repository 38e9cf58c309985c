"""The client of a relay (the HTTP server of backchannel): a spool's operations over HTTP, for commands.

Used by: the command line. Uses: the standard library's HTTP client. This client blocks, so `RelayArrivals` reads its
stream on a separate thread. The token tells the relay who the sender is, so a request does not name the sender.
"""

import asyncio
import contextlib
import http.client
import ssl
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from tieline.contract.limits import DEFAULT_LIMITS
from tieline.protocols.backchannel.codec import BadMessage, SpoolMessage, decode
from tieline.protocols.backchannel.record import AgentRecord, BadRecord, decode_record
from tieline.protocols.backchannel.settings import ROOM_HEADER
from tieline.wire.address import BadPin, split_pin
from tieline.wire.backoff import Backoff
from tieline.wire.tls import open_http, untrusted

_ANSWER_SECONDS = 20.0
_SILENCE_SECONDS = 60.0
"""Timeout of a stream on which no data comes. A relay sends something every 25 s."""
_RETURNING = Backoff(initial_ms=2000, wait_ms_max=2000, attempts_max=None)
_ANSWER_BYTES_MAX = 64 * 1024 * 1024
_LINE_BYTES_MAX = 2 * DEFAULT_LIMITS.message_bytes_max
_QUEUE_MAX = 64
_SEEN_MAX = 10_000
"""Largest number of message ids that are remembered, so that no message is shown twice.

If there are more, the oldest ids are forgotten. Messages with these ids may be shown again after a reconnection.
"""
_OK = 200
_UNAUTHORIZED = 401
_CLIENT_ERRORS = range(400, 500)


class RelayError(Exception):
    """Base class of the errors of a request to a relay (backchannel's HTTP server)."""


class RelayUnreachable(RelayError):
    """Exception: the relay (backchannel's HTTP server) cannot be reached, or no working relay is at the address."""


class RelayRefused(RelayError):
    """Exception: a relay (backchannel's HTTP server) refused the request. The error has the relay's text."""


class RelayUnauthorized(RelayRefused):
    """Exception: a relay (backchannel's HTTP server) does not know the token, or not any more."""


class RelayClient:
    """Client for one relay (backchannel's HTTP server), with the token of one agent. Its methods block."""

    def __init__(self, url: str, token: str | None = None, room: str | None = None) -> None:
        # The address with the fingerprint of the relay's certificate, if it has one.
        self._pinned = url
        try:
            self.url = split_pin(url)[0].rstrip("/")
        except BadPin as error:
            raise RelayUnreachable(str(error)) from error
        self.token = token
        # Room of the relay; without it, the common room.
        self.room = room
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RelayUnreachable(f"{url!r} is no address of a relay: write http://HOST:PORT")
        self._path = parts.path

    # The verbs.

    def register(self, name: str) -> tuple[AgentRecord, str | None]:
        """Register the agent `name`, or update the time when a known agent was last seen.

        Return the agent's record and its token. The relay gives the token only once, when the agent is new. For a known
        agent, the token is `None`.
        """
        document = self._object(self._ask("POST", "/v1/register", {"name": name}))
        token = document.pop("token", None)
        return _record(document), token if isinstance(token, str) else None

    def agents(self) -> list[AgentRecord]:
        """Return the records of all agents that the relay (HTTP server) knows."""
        return [_record(self._object(document)) for document in self._list(self._ask("GET", "/v1/agents"))]

    def channels(self) -> list[str]:
        """Return the names of all channels, with their `#`."""
        return [name for name in self._list(self._ask("GET", "/v1/channels")) if isinstance(name, str)]

    def subscribe(self, agent: str, channel: str) -> None:
        """Let the agent join a channel."""
        self._ask("POST", "/v1/subscribe", {"agent": agent, "channel": channel})

    def unsubscribe(self, agent: str, channel: str) -> None:
        """Let the agent leave a channel."""
        self._ask("POST", "/v1/unsubscribe", {"agent": agent, "channel": channel})

    def send(self, form: dict[str, Any]) -> SpoolMessage:
        """Send a message, and return it as the relay (HTTP server) accepted it.

        `form` is the JSON object of the request: `to`, `body` and any optional keys.
        """
        said = {key: value for key, value in form.items() if value}
        return _message(self._ask("POST", "/v1/send", said))

    def inbox(self, agent: str) -> list[SpoolMessage]:
        """Return an agent's unread messages, oldest first, without claiming them."""
        return [_message(document) for document in self._list(self._ask("GET", f"/v1/inbox/{quote(agent, safe='')}"))]

    def take(self, agent: str, message_id: str, *, keep: bool = False) -> SpoolMessage | None:
        """Claim one message and return it. Return `None` if another reader was first.

        If `keep` is true, ask the relay to keep the message's file.
        """
        form = {"agent": agent, "id": message_id, "keep": keep}
        document = self._object(self._ask("POST", "/v1/take", form)).get("message")
        return None if document is None else _message(document)

    def events(self, agent: str) -> Generator[SpoolMessage, None, None]:
        """Yield an agent's messages as the relay streams them, until the connection ends.

        The unread messages come first, and then each new message.
        """
        with self._connection(_SILENCE_SECONDS) as connection:
            response = self._request(connection, "GET", f"/v1/events/{quote(agent, safe='')}", None)
            if response.status != _OK:
                self._answer(response)
            said = b""
            while line := response.readline(_LINE_BYTES_MAX):
                text = line.rstrip(b"\r\n")
                if text.startswith(b"data: ") and len(said) < _LINE_BYTES_MAX:
                    said += text.removeprefix(b"data: ") + b"\n"
                elif not text and said:
                    with contextlib.suppress(BadMessage):
                        yield decode(said)
                    said = b""

    # HTTP.

    @contextlib.contextmanager
    def _connection(self, seconds: float) -> Iterator[http.client.HTTPConnection]:
        connection = open_http(self._pinned, seconds)
        try:
            yield connection
        except ssl.SSLCertVerificationError as error:
            raise RelayUnreachable(f"the relay at {self.url} cannot be trusted: {untrusted(error)}") from error
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise RelayUnreachable(f"no relay answers at {self.url}: {why}") from error
        finally:
            connection.close()

    def _request(
        self, connection: http.client.HTTPConnection, method: str, path: str, form: dict[str, Any] | None
    ) -> http.client.HTTPResponse:
        headers = {"content-type": "application/json"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        if self.room:
            headers[ROOM_HEADER.decode()] = self.room
        try:
            body = None if form is None else msgspec.json.encode(form)
            connection.request(method, self._path + path, body=body, headers=headers)
        except OSError:
            # A certificate that is not trusted is an error of both kinds.
            raise
        except ValueError as error:
            raise RelayRefused(f"this cannot be said over HTTP: {error}") from error
        return connection.getresponse()

    def _ask(self, method: str, path: str, form: dict[str, Any] | None = None) -> Any:
        with self._connection(_ANSWER_SECONDS) as connection:
            return self._answer(self._request(connection, method, path, form))

    def _answer(self, response: http.client.HTTPResponse) -> Any:
        data = response.read(_ANSWER_BYTES_MAX)
        try:
            document = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            message = f"what answers at {self.url} is no relay (status {response.status}, and no JSON)"
            raise RelayUnreachable(message) from error
        if response.status == _OK:
            return document
        why = document.get("error") if isinstance(document, dict) else None
        text = why if isinstance(why, str) else f"the relay answered with status {response.status}"
        if response.status in _CLIENT_ERRORS:
            raise RelayUnauthorized(text) if response.status == _UNAUTHORIZED else RelayRefused(text)
        raise RelayUnreachable(text)

    def _object(self, document: Any) -> dict[str, Any]:
        if not isinstance(document, dict):
            raise RelayUnreachable(f"what answers at {self.url} is no relay: it answered with no object")
        return document

    def _list(self, document: Any) -> list[Any]:
        if not isinstance(document, list):
            raise RelayUnreachable(f"what answers at {self.url} is no relay: it answered with no list")
        return document


def _message(document: Any) -> SpoolMessage:
    try:
        return decode(msgspec.json.encode(document))
    except BadMessage as error:
        raise RelayUnreachable(f"the relay gave what is no message: {error}") from error


def _record(document: dict[str, Any]) -> AgentRecord:
    try:
        return decode_record(str(document.get("name", "")), msgspec.json.encode(document))
    except BadRecord as error:
        raise RelayUnreachable(f"the relay gave what is no agent: {error}") from error


class RelayClaims:
    """Messages that one reader claims through a relay (backchannel's HTTP server).

    A relay cannot make a claimed message unread again. So with `late`, a message is claimed only when its reader has
    finished with it, as the protocol demands for readers of a stream. If the reader fails, the message stays unread,
    but two readers may handle the same message. Without `late`, a message is claimed at once.
    """

    def __init__(self, client: RelayClient, agent: str, *, late: bool, keep: bool) -> None:
        self._client = client
        self._agent = agent
        self._late = late
        self._keep = keep

    def __enter__(self) -> "RelayClaims":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def claim(self, message_id: str) -> SpoolMessage | None:
        """Claim a message and return it. Return `None` if the message is gone.

        With `late`, only check that the message is still unread. `finish` then claims it.
        """
        if not self._late:
            return self._client.take(self._agent, message_id, keep=self._keep)
        return next((message for message in self._client.inbox(self._agent) if message.id == message_id), None)

    def sync(self) -> None:
        """Do nothing, because a claim is already durable when the relay (HTTP server) answers."""

    def finish(self, message_id: str, *, keep: bool = False) -> None:
        """Mark a message as handled. With `late`, this claims the message.

        Without `late`, this does nothing, because `claim` has claimed the message.
        """
        if self._late:
            self._client.take(self._agent, message_id, keep=keep)

    def release(self, message_id: str) -> None:
        """Do nothing, because a relay (HTTP server) cannot undo a claim.

        With `late`, the message is still unread. Without `late`, the message stays claimed.
        """


class RelayArrivals:
    """Iterator over the unread messages of an agent, each once, as a relay (backchannel's HTTP server) streams them.

    It reconnects when the stream ends.
    """

    def __init__(self, client: RelayClient, agent: str) -> None:
        self._client = client
        self._agent = agent
        self._queue: asyncio.Queue[SpoolMessage | RelayRefused] = asyncio.Queue(_QUEUE_MAX)
        self._stopped = threading.Event()
        # Ids that came before, oldest first: each new stream begins with all unread messages.
        self._seen: dict[str, None] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def again(self, message_id: str, after_seconds: float) -> None:
        """Yield this message once more after a delay, if it is still unread then."""

        async def ask() -> None:
            await asyncio.sleep(after_seconds)
            with contextlib.suppress(RelayError):
                for message in await asyncio.to_thread(self._client.inbox, self._agent):
                    if message.id == message_id:
                        await self._queue.put(message)

        task = asyncio.ensure_future(ask())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def __aiter__(self) -> AsyncIterator[SpoolMessage]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[SpoolMessage]:
        threading.Thread(target=self._read, daemon=True).start()
        try:
            while True:
                found = await self._queue.get()
                if isinstance(found, RelayRefused):
                    raise found
                yield found
        finally:
            self._stopped.set()
            for task in self._asking:
                task.cancel()

    def _read(self) -> None:
        while not self._stopped.is_set():
            try:
                for message in self._client.events(self._agent):
                    if message.id not in self._seen:
                        self._remember(message.id)
                        self._put(message)
            except RelayRefused as error:
                self._put(error)
                return
            except RelayUnreachable:
                pass
            self._stopped.wait(_RETURNING.wait_seconds(0))

    def _remember(self, message_id: str) -> None:
        self._seen[message_id] = None
        if len(self._seen) > _SEEN_MAX:
            del self._seen[next(iter(self._seen))]

    def _put(self, found: SpoolMessage | RelayRefused) -> None:
        # The wait ends when the event loop ends, so this thread ends too.
        with contextlib.suppress(RuntimeError, asyncio.CancelledError):
            asyncio.run_coroutine_threadsafe(self._queue.put(found), self._loop).result()
