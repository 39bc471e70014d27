"""The project: settings, URLs, and its two ways to be served."""
