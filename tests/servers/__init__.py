"""Tests of real servers: gunicorn and its workers, all host frameworks, and nginx as a proxy. Run by `make check`."""
