"""One agent for each framework: it streams, and asks before it buys.

Each module has an ``app`` to serve, and runs a dialogue by itself::

    python -m examples.frameworks.langgraph
    a2a-sync serve examples.frameworks.langgraph:app

Without the key of a provider they use a model that only pretends (`pretend`).
"""
