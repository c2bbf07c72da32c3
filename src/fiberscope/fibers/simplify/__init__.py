"""A smaller network with the same function."""
