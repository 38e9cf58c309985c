"""Ids of channels by name. ac7 shows a channel by its id, but messages of other protocols have only its name.

Used by: the code that shows messages. Uses: the interface `contract.hub`. `ChannelIds` lists the channels once, then
applies the hub's notices of new and removed channels. A message that is sent at the moment its channel is created may
show the channel's name instead of its id.
"""

from collections.abc import Callable, Sequence

from tieline.contract import command as c
from tieline.contract.hub import ChannelAppeared, ChannelVanished, Hub, Interest, Notice
from tieline.contract.member import Unnamed
from tieline.contract.reply import Attached, Channels, Reply


class ChannelIds:
    """Map from channel names to channel ids, updated at each notice that a channel appeared or vanished."""

    def __init__(self, hub: Hub, protocol: str) -> None:
        self._hub = hub
        self._protocol = protocol
        self.ids: dict[str, str] = {}
        self._asking = self._stale = False
        self.close: Callable[[], None] = hub.watch(Interest(channels=True), self._changed)
        self._ask()

    def _changed(self, change: Notice) -> None:
        """Update the map, because the hub reports that a channel appeared or vanished."""
        assert isinstance(change, ChannelAppeared | ChannelVanished), "asked for"
        # A pending list of channels may be older than this notice, so list the channels again.
        self._stale = self._asking
        if isinstance(change, ChannelAppeared):
            self.ids[change.name] = change.id
        else:
            self.ids.pop(change.name, None)

    def _ask(self) -> None:
        if self._asking:
            return
        self._asking, self._stale = True, False
        attach = c.Attach(protocol=self._protocol, credential=Unnamed("channels", "ac7"))
        self._hub.submit((attach,), self._attached)

    def _attached(self, replies: Sequence[Reply]) -> None:
        (reply,) = replies
        if isinstance(reply, Attached):
            self._hub.submit((c.ListChannels(reply.session), c.Detach(reply.session)), self._listed)
        else:
            self._asking = False

    def _listed(self, replies: Sequence[Reply]) -> None:
        self._asking = False
        listed = replies[0]
        if isinstance(listed, Channels):
            self.ids = {channel.name: channel.id for channel in listed.channels}
        if self._stale:
            self._ask()
