"""Programs as switches and the affine maps between them, compared entry by entry and channel by channel."""
