"""Regions one after the other, across facets; and estimates of how many there are."""
