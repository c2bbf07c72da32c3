"""Numbers on which no answer depends, only how soon it is found or how an approximation is described.

A proof never rests on these: what they let through is checked, and what they keep back is decided in another way.
"""

from __future__ import annotations

ROUGH = 2.0**-20
"""Crossings of an edge: a place in pairs of floats that is known worse, in parts of the edge, is found in integers."""

PIVOT = 1e-10
"""Simplex proposals: coefficients below this part of their row are no pivots."""

STRICT = 1e-9
"""Simplex proposals: one row is crossed before another if their steps differ by more than this."""

NOISE = 1e-13
"""Simplex proposals: a step shorter than this part of the domain's size is taken for rounding."""

COORDINATE_ERROR = 2.0**-20
"""Vertices with a larger relative error bound get new coordinates, exactly; signs never depend on that."""

MEANINGLESS = 1e-2
"""Numerical ranks: a cut-off above this part of the largest singular value says little about the rank, and a warning
says so. The rule ``max(m, n) * eps`` gets there in float32 at 84,000 rows or columns."""

LANCZOS = 1e-14
"""Part of the largest value that rounding leaves in a Lanczos recurrence: below it, a remainder is a zero."""

SYMMETRY = (1e-4, 1e-5)
"""Relative and absolute (to the largest entry) difference of the two halves of a matrix that is called symmetric;
wide enough for kernels that were computed in float32."""

SAME_ROWS = 1e-9
"""Paths: rows of two members of a fiber with largest entry 1 that differ by less are tried as one hyperplane. Members
were walked to in floats and carry errors of about 1e-12; the ends of the path are compared afterwards."""

CONDITION = 1e4
"""Walks over factorisations turn back where a factor is worse conditioned: each step may lose that much of 1e-16."""

ORTHONORMAL = 1e-6
"""How far the products of two vectors may be off for them to be called orthonormal; wide enough for float32."""

PROJECTION = 1e-9
"""Projections onto polyhedra, relative to the size of the numbers: rows this close to a point are taken to hold there;
which regions lie around it is certified by signs."""

GRADIENT = 1e-5
"""Minimisation of many problems: one is called finished where its gradient is this small beside max(1, its value). With
curvatures up to 1e4 the rounding of values hides gradients below 1e-6; with curvatures above 1 this costs 1e-10."""

CURVATURE = 1e-12
"""Quasi-Newton steps: pairs whose cosine is smaller tell nothing about the curvature and are left out."""

SERIES_TAIL = 2e-15
"""Interpolants: the last coefficients of a converged Chebyshev series are below this part of the largest."""

JUMP = 1e-9
"""Interpolants: larger differences, relative to the size of the curve and well above the noise of its values, are no
rounding but a jump."""

ATTAINED = 1e-9
"""Bounds that can be attained: a measurement may exceed one by this part; sums of many rounded numbers explain it."""

MOMENTS = 16.0
"""Eigenvalues of second moments: the sums of products behind them are rounded too, so what is called rounding is so
many times larger than for a matrix that is given."""

REACHED = 1e-12
"""Assumptions of the form ``a < b`` between numbers that were computed: met only where ``b - a`` is above this part of
``b``. Equality is common, as for singular matrices, and rounding would turn it into either."""

TAME = (1e-100, 1e100)
"""Norms between these can be squared, divided and multiplied a few times without leaving the floats; what lies outside
takes the way that looks after its scale."""

NOISY = 0.02
"""Interpolants: values with more noise than this part of the curve's size are no values of a curve; half precision has
a tenth of that."""

SHORTEST = 1e-11
"""Isolation of zeros of an interpolant on [-1, 1]: shorter pieces are not halved again, and belong to an enclosure."""

NOT_ZERO = 1e-300
"""A divisor in place of zero, where everything that is divided is zero too."""

PROGRESS = 4.0
"""Descents over permutations: a sum of products that rises by less than so many units of the precision of its terms has
not risen. Without it two equally good orders could follow each other for ever."""

STALLED = 1e-6
"""Descents over scales and soft choices: a round that gains less than this part of the objective is the last one."""

ORACLE_NOISE = 2.0**-50
"""Recovery: the least relative error that values of a function are taken to have; a few roundings."""

ORACLE_WORST = 1e-5
"""Recovery: second differences on tiny steps above this part of the values are no rounding of float32."""

ORACLE_CLEAR = 8.0
"""Recovery: values of a line that differ by so many times the noise are told apart."""

SHORTEST_PIECE = 1e-7
"""Recovery: intervals below this part of a segment are not searched for further kinks."""

SPAN = 1e-7
"""Recovery: vectors whose part outside a span is below this share are taken to lie inside."""

SIGN_OFF = 0.02
"""Recovery: solutions of a linear system for signs may be off by this; wrong systems give anything."""

TOLD = 0.1
"""Recovery: parameters that are known worse than this, rows being of norm one, are not recovered."""

WELL_KNOWN = 1e-4
"""Recovery: how well parameters should be known from noisy values, hidden rows being of norm one."""

CHOSEN = 1e-3
"""Recovery: rows whose least singular value is below this part of the largest are no coordinates of inputs."""

SHARP_KINK = 1e-5
"""Recovery: kinks whose places are known to this part of the domain's size make a hyperplane; others lie on any."""

ONE_SIDED = 2e-3
"""Recovery: behind a neuron that is off values change by at most this part of what they change by where it is on."""

SIGNS_ALIKE = 1e3
"""Recovery: a choice of signs that is off by more than so many times the best one is not counted beside it."""

PART_OFF = 1e-4
"""Recovery: equations for parts of neurons are solved by a choice of signs if they are off by no more, relatively."""

RECOVERED = 2.0**13
"""Recovery: a network whose values differ by more than so many times the noise is not called recovered."""

FITTED = 1e-6
"""Recovery: differences below this part of the values are those of neurons that are known but not polished yet."""

PROVEN = 1e-9
"""Recovery: a network that was asked is compared with the one that was found up to this part of its values."""

CRUDE = 1e-12
"""Recovery: values with more noise are measured on longer segments."""

RIDGE = 1e-14
"""Recovery: added to normal equations of normalised columns; rescalings of neurons, which change nothing, stay put."""

SAME = 1e-4
"""Recovery: two measurements of one neuron differ by less than this part; two neurons by more."""

SAME_CRUDE = 5e-3
"""The same where values are noisy."""

VALUES_MET = 1e-4
"""Recovery: noisy values are explained by a fit that leaves this part of them; the layers before are that wrong."""

FLAT = 30.0
"""Recovery: how far, in roots of the noise, a surface may be from where it should be: others come near by accident."""

NEARLY_FLAT = 1e3
"""Recovery: a surface farther from where it should be than so many times what is allowed is not looked at again."""

OUTSIDE = 100.0
"""Recovery: how far, in the same measure, a normal may lie outside of the span of the neurons before it."""

NEAR_LINES = 3.0
"""Recovery: zeros of a measured neuron are at most so many tolerances of a line away from its kink."""

GRAZING = 1e-9
"""Recovery: a surface that leaves a fold at a smaller sine than this is not followed."""

SAME_NORMAL = 1e-6
"""Recovery: the cosine between two measurements of one normal is above one minus this."""

PROBED = 1e-6
"""Recovery: part of a place that is stepped to see how strongly a known network bends."""

LEAST = 1e3
"""Recovery: robust regressions do not tell differences of fewer than so many times the noise apart."""

REGRESSION = 1e-12
"""Recovery: singular values of normalised features below this part of the largest are taken for zero."""

REMAINDER = 100.0
"""Recovery: singular values above so many times SPAN make a remainder more than one neuron."""

GRAM_STRETCH = 2.0**-24
"""Distances: a Gram factor that may change lengths by a larger part is given up, and another way is taken."""

VAGUE_VERTEX = 2.0**-10
"""Spheres: vertices whose coordinates are known worse than this are computed in fractions."""

VAGUE_END = 2.0**-36
"""Proven sizes on spheres and cylinders: ends of arcs that are known worse than this are computed in fractions."""

DISAGREE = 1.1
"""Chains of draws: above this ratio of deviations between and within chains they have not met yet."""

LATE = 0.2
"""Chains of draws: below this share of accepted moves a chain hardly moves."""

ACCEPTED = 0.574
"""Langevin's method: share of accepted moves that is best in many dimensions (G. O. Roberts, J. S. Rosenthal, 1998)."""

PLACE = 2.0**-28
"""Planes: vertices known no better than this, against the largest coordinate, are made anew from exact numbers."""

NARROW = 1e-14
"""Populations of points: their variances, in widths of a box, are not taken below this. It decides nothing: what they
find is confirmed."""

TOO_MUCH_ANGLE = 1e-7
"""Shortest ways on surfaces: vertices with less excess of angle, in radians, are passed as if they were flat. A way
that is bent there is longer by a factor of the square of this at most."""

NEARER = 1 - 1e-12
"""Shortest ways on surfaces: a way must be shorter by this factor to make another one superfluous; ties are kept."""

SLIM = 2.0**-46
"""Shortest ways on surfaces: bundles of ways that are narrower than this part of an edge are left out. A way
through the gap is bent at its end, which makes it longer by less than rounding does."""

ON_SURFACE = 1e-12
"""Points beside a surface: triangles that are farther by less than this part of its extent are as near."""

UPRIGHT = 1e-12
"""Cylinders: the cosine between lines and ends below which they are taken for orthogonal; distances
are off by as much."""

MET = 2.0**-50
"""Ways on ellipsoids, whose longest half-axis is one: nearer than this to the plane of a boundary they have met it."""

ARRIVED = 2.0**-44
"""Ways between points of ellipsoids: of directions whose ways may be shorter by less than this part no others are
looked for."""

AS_SHORT = 2.0**-12
"""The same of ways to boundaries, which take more directions."""

KNOWN = 0.99
"""Ways on ellipsoids: where no way is proven to be shorter by less than this part, there is no answer."""

COLLAPSED = 1e-12
"""Surfaces through generators: pieces whose area shrinks by more than this, beside others, are taken for flattened."""
