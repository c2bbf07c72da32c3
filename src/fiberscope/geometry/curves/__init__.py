"""Regions along curves: straight ones exactly, circle and tractrix certified, any function through its interpolant."""
