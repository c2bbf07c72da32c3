"""Data sets, training of many seeds at once, and trackers of what happens during training."""
