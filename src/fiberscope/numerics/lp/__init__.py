"""Linear programs with verdicts that are proven."""
