"""The page for what needs computing: a small server on this machine alone, and what it answers."""
