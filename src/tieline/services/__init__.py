"""Services of the hub that belong to no protocol: files, logins, devices, and what agents report of themselves.

Above: protocols and the console, which have the routes. Below: the Hub port, and the ports of what they keep.
"""
