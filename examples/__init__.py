"""Agents to start from; each says in its docstring how to run it."""
