"""How loops are compiled, and when."""
