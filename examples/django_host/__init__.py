"""A Django project with an agent inside: see its README."""
