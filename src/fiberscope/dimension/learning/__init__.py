"""How fast the loss grows around a parameter: the local learning coefficient."""
