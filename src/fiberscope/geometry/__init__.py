"""Where is the network linear? Regions, complexes, facets and their weights, on boxes, planes and all of space."""
