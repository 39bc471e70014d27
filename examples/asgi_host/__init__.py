"""A FastAPI service with an agent inside: see its README."""
