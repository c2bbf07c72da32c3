"""All parameters that are the same function: fibers, identifiability, and what is known beyond the theorems."""
