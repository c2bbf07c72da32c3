"""What a method of equality gives with its answer: evidence that can be written down, read again and checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from fiberscope.errors import InputError
from fiberscope.numerics.floats import FloatArray, IntArray
from fiberscope.results import Result

if TYPE_CHECKING:
    from pathlib import Path

    from fiberscope.equality.question import Question


class Check(NamedTuple):
    """Whether evidence proves what is asked, and in words how, or why not.

    ``bound`` is the largest difference that is proven, ``residual`` how far the evidence is from exact agreement.
    """

    ok: bool
    text: str
    bound: float | None = None
    residual: float | None = None


class Evidence(Result, ABC):
    """Why two networks are equal, or different; a frozen dataclass beside the search that finds it.

    Its fields are what is written down. ``kind`` names it in certificates, ``equal`` is what it proves. Where neurons
    of ``a`` are matched with those of ``b``, the four properties say how.
    """

    kind: ClassVar[str]
    equal: ClassVar[bool] = True

    @abstractmethod
    def check(self, question: Question) -> Check:
        """Whether it answers a question; the search is not done again. What does not fit raises InputError."""

    @classmethod
    @abstractmethod
    def from_dict(cls, found: dict[str, Any]) -> Self:
        """From plain data that nobody has looked at; what is missing or of a wrong kind raises."""

    def write(self, path: Path | str, verdict: Any) -> None:
        """A certificate of its own, of what is not about networks."""
        raise InputError("certificate: expected a verdict with its networks")

    @property
    def permutations(self) -> tuple[IntArray, ...]:
        """Neuron ``i`` of ``b`` is neuron ``permutations[l][i]`` of ``a``, for every hidden layer that is matched."""
        return ()

    @property
    def scales(self) -> tuple[FloatArray, ...]:
        """What the neurons of ``a`` are multiplied by; as the permutations."""
        return ()

    @property
    def flips(self) -> tuple[int, ...]:
        """First-layer neurons of ``a`` that are reflected."""
        return ()

    @property
    def translation(self) -> float:
        """How far the hidden hyperplane of ``a`` is moved."""
        return 0.0


def integers(found: Any, name: str) -> tuple[int, ...]:
    """A list of integers out of JSON.

    >>> integers([2, 0], "neurons")
    (2, 0)
    """
    if not isinstance(found, list) or any(isinstance(k, bool) or not isinstance(k, int) for k in found):
        raise InputError(f"certificate: expected {name} as a list of integers")
    return tuple(found)


def number(found: Any, name: str) -> float:
    """A number out of JSON."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise InputError(f"certificate: expected a number for {name}, got {type(found).__name__}")
    try:
        return float(found)
    except OverflowError as error:
        raise InputError(f"certificate: expected a number for {name}, got an integer beyond the floats") from error
