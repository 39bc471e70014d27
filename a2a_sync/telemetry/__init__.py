"""Logs, traces and incident ids: what operators and authors see of a running library."""
