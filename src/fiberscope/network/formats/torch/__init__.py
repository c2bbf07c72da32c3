"""Live torch modules, traced and read operation by operation."""
