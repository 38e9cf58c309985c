"""ac7: events and threads over HTTP, pushed to streams as server-sent events or WebSocket frames.

Above: the hub's HTTP port. Below: the Hub port. PROTOCOL.md has the routes, the rules and our deviations.

`shapes` are requests and answers; `route` is one operation, with what it takes and gives; `messages`, `channels`,
`objectives`, `members`, `team`, `activity` and `telemetry` have the operations of their nouns, and so have those that
end in `_routes`; `streams` is what is live; `desk` has what is kept beside the hub's store; `view` shows the hub's
values in ac7's words; `openapi` is the description; `server` has the port.
"""
