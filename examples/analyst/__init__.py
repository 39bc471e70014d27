"""An agent that summarises a CSV file: streamed Markdown, JSON and an SVG chart.

Serve it from the root of the repository, and send it the data beside this file::

    a2a-sync serve examples.analyst:app            # or: gunicorn examples.analyst:app --threads 32
    a2a-sync send http://127.0.0.1:8000 --file examples/analyst/penguins.csv --out results "Summarise this"

``app`` keeps its tasks in ``analyst.db`` in the current folder; ``agent`` is the same agent without a store, for
``a2a-sync serve examples.analyst:agent --store URL``.
"""

from .agent import Analyst, agent, app

__all__ = ["Analyst", "agent", "app"]
