"""The empirical tangent kernel: its entries, its products with vectors, its spectrum."""
