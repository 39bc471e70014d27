"""Property tests give the same verdict at every run; ``--hypothesis-profile=default`` lets them look further."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")
