"""One layer after the other: hyperplanes, surfaces that are followed, and what is found beside them."""
