"""The same agent of each framework, served by this library (`ours`) and by the framework's own A2A server (`theirs`).

A module has ``ours(kind)``, which returns the bridge, and ``theirs(kind)``, which returns the ASGI application; `kind` is ``"shop"``,
``"prices"`` (an agent with a declared output) or ``"known"`` (callers have names, which a tool reads). Both have the features that
the documentation of the framework offers, as far as they take configuration and no code against its interfaces.
"""
