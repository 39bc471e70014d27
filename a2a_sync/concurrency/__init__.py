"""Threads, pools, forks, gevent and clocks: what the engine, the server and the client run on."""
