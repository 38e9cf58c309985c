"""The web console: the page that the hub serves, and how a person gets in. Its source is in `web/`."""
