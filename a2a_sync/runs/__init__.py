"""Runs: one execution of an agent's code for one message (`run`), all of a process (`execution`), and what ends them from
outside: `cancelling`, `watchdog`, `stopping`. `around` is what a host puts around each.

Nothing is loaded here: each name is imported from its own module.
"""
