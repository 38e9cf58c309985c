"""Assembly, lifecycle and configuration: the only place that sees both towers."""
