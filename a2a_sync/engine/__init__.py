"""Runs and streams of tasks over one store: scheduling, publication, deadlines, leases, retention. Knows no HTTP."""
