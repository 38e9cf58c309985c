"""The command line: `tieline`, for people, scripts and agents with a shell.

Used by: nothing. Uses: the SDK, and the server, for `serve` and for commands that work without a running hub. Each
module holds the commands about one thing, such as members. Large modules are imported only when a command runs, so that
`--help` and completion are quick.
"""
