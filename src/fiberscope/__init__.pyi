"""The public names, for type checkers and editors; the table in ``__init__.py`` says the same."""

from . import errors as errors
from . import geometry as geometry
from . import network as network
from . import numerics as numerics
from . import plot as plot
from . import reporting as reporting
from . import studies as studies
from . import testing as testing
from . import training as training
from .errors import FiberscopeError as FiberscopeError
from .errors import InputError as InputError
from .errors import NotGenericError as NotGenericError
from .errors import TooLargeError as TooLargeError
from .errors import UnsupportedModelError as UnsupportedModelError
from .geometry.complex import Complex as Complex
from .geometry.domains import Box as Box
from .geometry.domains import Orthant as Orthant
from .geometry.domains import Plane as Plane
from .geometry.domains import Polytope as Polytope
from .geometry.domains import Space as Space
from .geometry.regions import count_regions as count_regions
from .geometry.regions import regions as regions
from .network.actions import permute as permute
from .network.actions import rescale as rescale
from .network.inspection import Inspection as Inspection
from .network.inspection import inspect as inspect
from .network.io import load as load
from .network.io import save as save
from .network.network import AffineMap as AffineMap
from .network.network import Network as Network
from .network.network import identical as identical
from .network.roles import Roles as Roles
from .network.roles import roles as roles
from .network.roles import structural_roles as structural_roles
from .numerics.signs import CertifiedSigns as CertifiedSigns

__version__: str
