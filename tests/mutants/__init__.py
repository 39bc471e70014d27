"""The rows of docs/reference/parity.md over a library with one defect each: every row must fail.

`broken` has the defects, by the row that has to notice. `test_parity` runs the tests of the row in a process of their own,
``python -m tests.mutants NAME``, in which the defect is put into the library before anything uses it.
"""
