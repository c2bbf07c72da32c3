"""How two models are matched: what each method makes better, and the assignments that they share."""
