"""One hidden layer: its hyperplanes, and all the ways to realise them."""
