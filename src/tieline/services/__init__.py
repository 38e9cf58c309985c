"""Services of the hub that belong to no protocol: files, logins, devices, and the activity that agents report.

Above: protocols and the console, which have the routes. Below: the Hub port, and the stores of the services.
"""
