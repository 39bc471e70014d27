"""What there is under gevent only. Run by `tests.gevent_suite`."""
