"""An agent as a WSGI application (PEP 3333): requests, responses, streams, the card as a document, and its pages."""
