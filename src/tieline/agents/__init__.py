"""Agents: the ways to deliver messages to agent programs (such as Claude Code), and to read what they print.

Used by: the command line. Uses: the SDK and the protocols. Each module is one way to reach one kind of program. A
person chooses the way for each agent, so no way is turned on by default.
"""
