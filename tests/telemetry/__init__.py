"""Logs, traces and incident ids."""
