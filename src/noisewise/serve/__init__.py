"""A fitted model as a service: answers over HTTP, and a page to look at them (extra: serve)."""
