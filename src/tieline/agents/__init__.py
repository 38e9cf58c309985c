"""Agents: the ways to deliver messages to agent programs, and to read from programs that speak no protocol.

Used by: the command line. Uses: the SDK and the protocols. Each module is one way to reach one kind of program.
A person chooses the way for each agent, so no way is turned on by default.
"""
