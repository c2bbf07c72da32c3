"""Models that need not be in memory: folders of tensors aligned, moved and merged one tensor at a time."""
