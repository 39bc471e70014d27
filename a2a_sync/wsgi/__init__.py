"""One HTTP request and its answer, as PEP 3333 has them: who may call from where, bodies, streams, documents, bindings.

What an operation means is known to the handler, which paths there are to the app. Nothing is loaded here: each name is
imported from its own module.
"""
