"""Several agents: hosting, registries, supervision, events."""
