"""Assembly, lifecycle and configuration of a hub.

The only place that connects the hub's decision logic (broker) with the protocols.
"""
