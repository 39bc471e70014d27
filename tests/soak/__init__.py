"""Soak tests, which take minutes: ``make soak``. Not part of the ordinary run; docs/explanation/guarantees.md has the figures."""
