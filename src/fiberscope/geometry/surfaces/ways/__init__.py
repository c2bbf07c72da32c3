"""Shortest ways on spheres, ellipsoids and cylinders."""
