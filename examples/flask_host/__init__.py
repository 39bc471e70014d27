"""A Flask site with an agent inside: see its README."""
