"""Where the function itself bends: fold-sets, their layers and dependencies, and what a theorem assumes of them."""
