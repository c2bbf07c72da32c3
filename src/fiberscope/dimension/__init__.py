"""What can the parameters do? Jacobian, tangent kernel, functional dimension with its ranks, symmetries and bounds."""
