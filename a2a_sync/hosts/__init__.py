"""An app inside somebody else's: Flask, Django, ASGI frameworks, any WSGI dispatcher. One module per host.

Hosts speak to the app through three keys of ``environ``, which your own adapter may set as well:

=====================  ==============================================================================================
``a2a_sync.principal`` a `Principal`, or the caller's id as a string: who the host says is calling
``a2a_sync.gone``      a function that says whether the client has left, where the host knows better than the socket
``a2a_sync.stopping``  a function that says whether the host is stopping, so that streams end
=====================  ==============================================================================================
"""
