"""Servers in depth: gunicorn and its workers, every host of an agent, nginx in front of them. Run by `make check`."""
