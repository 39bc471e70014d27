"""The protocol's operations below any transport: checks, then work. Knows no HTTP."""
