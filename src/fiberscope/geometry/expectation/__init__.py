"""How many boundaries are to be expected? Theorem 1 by Monte Carlo, and the bounds beside exact counts."""
