"""Surfaces made of triangles, and the regions of a network on them."""
