"""Tests with real services: PostgreSQL and PgBouncer. `make test-services` runs them; `servers` starts private instances."""
