"""Deciding whether two networks are one function: a ladder of methods, each with its evidence."""
