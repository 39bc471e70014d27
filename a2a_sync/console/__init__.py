"""The console: pages for people beside an agent, to talk to it and to look at its tasks. Off unless ``console=`` switches it on.

Needs the extra ``console``. Only `ConsoleOptions` is public; everything else serves the pages.
"""

from a2a_sync.wsgi.options import ConsoleOptions

__all__ = ["ConsoleOptions"]
