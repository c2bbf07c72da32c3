"""Decisions that stand: certified signs, exact ranks, safe linear programs. The only home of tolerances."""
