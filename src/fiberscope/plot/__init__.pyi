"""The pictures, for type checkers and editors; the table in ``__init__.py`` says the same."""

from .barriers import barrier as barrier
from .complexes import regions as regions
from .curves import curve_bars as curve_bars
from .curves import under_curve as under_curve
from .differences import difference as difference
from .distances import boundary_distance as boundary_distance
from .distances import distance_histogram as distance_histogram
from .distances import projected_gradients as projected_gradients
from .explorers import explore as explore
from .fibers import fiber as fiber
from .fibers import fiber_movie as fiber_movie
from .fold_sets import dependency_graph as dependency_graph
from .fold_sets import fold_set as fold_set
from .functions import function as function
from .matchings import matching_objectives as matching_objectives
from .neurons import swap_costs as swap_costs
from .neurons import swap_terms as swap_terms
from .recoveries import recovered as recovered
from .spectra import spectrum as spectrum
from .studies import study_figure as study_figure
from .style import MOSAIC as MOSAIC
from .style import house_style as house_style
from .style import save_figure as save_figure
from .style import save_movie as save_movie
from .surfaces import surface as surface
from .thumbnails import images_at as images_at
