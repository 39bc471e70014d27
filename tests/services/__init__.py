"""Tests with real services, as private instances: PostgreSQL and PgBouncer (`servers`), message brokers (`brokers`)."""
