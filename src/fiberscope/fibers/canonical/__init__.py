"""One representative of every orbit, and how two parameters are matched."""
