"""How far are two networks apart on a box? Bounds of the difference, and branch and bound over boxes."""
