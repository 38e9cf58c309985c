"""Services of the hub that belong to no protocol: what agents report of themselves, understood."""
