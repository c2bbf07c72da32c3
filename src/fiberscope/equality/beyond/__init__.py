"""Models that are no continuous piecewise linear functions: live modules of any kind, quantised graphs."""
