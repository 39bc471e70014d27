"""What takes minutes: ``make soak``. Not part of the ordinary run; its figures are noted in docs/explanation/guarantees.md."""
