"""How far is it to the next kink? Distances to region boundaries in space, along curves, and on manifolds."""
