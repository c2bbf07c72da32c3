"""Regions in two dimensions: a mesh of convex polygons, cut by one switch after the other."""
