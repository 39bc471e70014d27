"""The other processes of one store: `hints` tells them that a task has something new, `leases` which of them are alive and
whose runs they have left behind, `joined` puts both together for an engine.

Nothing is loaded here: each name is imported from its own module.
"""
