"""Programs without their affine parts: the maps between switches, composed, compared and numbered by channels."""
