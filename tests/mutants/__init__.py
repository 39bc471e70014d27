"""Mutation tests of docs/reference/feature-comparison.md: with one defect in the library, the tests of the affected row must fail.

`broken` defines the defects, each with its row. `test_parity` runs the tests of the row in a subprocess,
``python -m tests.mutants NAME``, which applies the defect before the library is used.
"""
