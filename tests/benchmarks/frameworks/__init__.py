"""Each bridge beside its framework's own A2A server: what works, and the speed of streamed sends (``make bench-frameworks``)."""
