"""Services of the hub that belong to no protocol: files, logins, devices, and the activity that agents report.

Used by: protocols and the console, which have the routes. Uses: the interface `contract.hub`, and the stores of the
services.
"""
