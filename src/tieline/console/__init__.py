"""The web console: the page that the hub serves, and its login. The source of the page is in `web/`."""
