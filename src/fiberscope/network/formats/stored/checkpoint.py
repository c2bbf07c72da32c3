"""State dicts inside of checkpoints: training scripts put them beside optimizers, epochs and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fiberscope.errors import InputError

State = Mapping[str, Any]


def state_of(content: Any, key: str | None) -> State:
    """The state dict that ``key`` names, or the only one there is.

    ``key`` is the way through the nested mappings, with dots between them (``"ema.state_dict"``), and may end in a
    prefix of names, which is taken off (``"state_dict.model"`` for ``model.0.weight``).

    >>> import numpy as np
    >>> weights = {"net.0.weight": np.ones((1, 2))}
    >>> state_of({"epoch": 3, "model": weights}, None) is weights
    True
    >>> list(state_of({"epoch": 3, "model": weights}, "model.net"))
    ['0.weight']
    """
    if not isinstance(content, Mapping):
        raise InputError(f"expected a state dict of tensors, got a {type(content).__name__}")
    if key is not None:
        content = _chosen(content, key)
    found = dict(_states(content))
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise InputError(f"expected a state dict of tensors, got {_strange(content)}")
    names = ", ".join(repr(name) for name in found)
    raise InputError(f"expected one state dict, got {len(found)}: {names}; choose one by key= (--key)")


def under(state: State, prefix: str) -> dict[str, Any]:
    """The entries whose names begin with a prefix and a dot, without them."""
    return {name[len(prefix) + 1 :]: value for name, value in state.items() if str(name).startswith(f"{prefix}.")}


def is_tensor(value: Any) -> bool:
    """An array or tensor, of whatever library; numbers and texts are none."""
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _states(content: State) -> Iterator[tuple[str, State]]:
    """The outermost mappings of tensors with a matrix among them, by the way to them; the content itself if it is."""
    if content and all(is_tensor(value) for value in content.values()):
        yield "", content
        return
    # Mappings may hold each other in a circle, and be nested deeper than calls can.
    queue: list[tuple[str, State]] = [("", content)]
    seen: set[int] = set()
    while queue:
        path, place = queue.pop(0)
        for name, part in place.items():
            if not isinstance(part, Mapping) or not isinstance(name, str) or id(part) in seen:
                continue  # optimizers number their parameters; a state dict has names
            seen.add(id(part))
            way = f"{path}.{name}" if path else name
            if not _is_state(part):
                queue.append((way, part))
            elif any(len(value.shape) > 1 for value in part.values()):
                yield way, part


def _is_state(part: State) -> bool:
    return bool(part) and all(isinstance(name, str) and is_tensor(value) for name, value in part.items())


def _chosen(content: State, key: str) -> State:
    place, rest = content, key
    while rest:
        parts = rest.split(".")
        ways = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
        way = next((way for way in ways if isinstance(place.get(way), Mapping)), None)
        if way is None:
            inside = under(place, rest)
            if not inside:
                raise InputError(f"key: expected one of {_choices(content)}, got {key!r}")
            return inside
        place, rest = place[way], rest[len(way) + 1 :]
    return place


def _choices(content: State) -> str:
    found = [way for way, _ in _states(content) if way]
    if not found:  # a plain state dict: the first parts of its names
        found = list(dict.fromkeys(str(name).partition(".")[0] for name in content if "." in str(name)))
    return ", ".join(map(repr, found[:12])) or "no key, since nothing is nested"


def _strange(content: State) -> str:
    name, value = next(((n, v) for n, v in content.items() if not is_tensor(v)), (None, None))
    return "nothing" if not content else f"a {type(value).__name__} under {name!r}"
