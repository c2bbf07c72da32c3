"""What the rung about three-layer bottlenecks stands on."""
