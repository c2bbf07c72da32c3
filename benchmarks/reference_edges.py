"""Edge subdivision in plain NumPy: vertices, edges and sign vectors of a network in general position on [-1, 1]^n.

The reference for the n-dimensional engines. Every edge that a neuron crosses is split at its zero; two new vertices are
joined if they lie in a common two-dimensional face, found by sorting sign vectors (A. Berzins, *Polyhedral Complex
Extraction from ReLU Networks using Edge Subdivision*, ICML 2023). Floats decide everything here; nothing is certified.
"""

from __future__ import annotations

import itertools

import numpy as np

from fiberscope.network.network import Network

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def edge_subdivision(net: Network) -> Arrays:
    """Vertices ``(V, n)``, edges ``(E, 2)`` and signs ``(V, 2n + neurons)``, the sides of the cube first."""
    n = net.in_size
    vertices = np.array(list(itertools.product([-1.0, 1.0], repeat=n)))
    # sides x_i >= -1 and x_i <= 1: zero on them, positive inside
    signs = np.concatenate([np.sign(vertices + 1), np.sign(1 - vertices)], axis=1).astype(np.int8)
    edges = np.array(
        [(a, b) for a, b in itertools.combinations(range(len(vertices)), 2) if (vertices[a] != vertices[b]).sum() == 1]
    )
    values = vertices
    for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
        z = values @ weight.T + bias
        for neuron in range(len(bias)):
            vertices, edges, signs, z = _split(vertices, edges, signs, z, neuron)
        values = np.maximum(z, 0.0)
    return vertices, edges, signs


def _split(
    vertices: np.ndarray, edges: np.ndarray, signs: np.ndarray, z: np.ndarray, neuron: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    here = z[:, neuron]
    a, b = edges.T
    crossed = np.flatnonzero(here[a] * here[b] < 0)
    column = np.sign(here).astype(np.int8)[:, None]
    if not len(crossed):
        return vertices, edges, np.concatenate([signs, column], axis=1), z
    a, b = edges[crossed].T
    t = (here[a] / (here[a] - here[b]))[:, None]
    new = len(vertices) + np.arange(len(crossed))
    on_edge = _on_edge(signs[a], signs[b])
    fresh_z = (1 - t) * z[a] + t * z[b]
    fresh_z[:, neuron] = 0.0
    kept = np.delete(edges, crossed, axis=0)
    halves = np.concatenate([np.stack([a, new], axis=1), np.stack([new, b], axis=1)])
    joined = new[_pairs(on_edge, vertices.shape[1])]
    vertices = np.concatenate([vertices, (1 - t) * vertices[a] + t * vertices[b]])
    column = np.concatenate([column, np.zeros((len(crossed), 1), dtype=np.int8)])
    signs = np.concatenate([np.concatenate([signs, on_edge]), column], axis=1)
    return vertices, np.concatenate([kept, halves, joined]), signs, np.concatenate([z, fresh_z])


def _on_edge(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Signs inside an edge: those of an end, where the other is not zero only."""
    return np.where(one != 0, one, two)


def _pairs(on_edge: np.ndarray, dimension: int) -> np.ndarray:
    """Pairs of crossed edges in a common two-dimensional face: the same signs once one zero is moved off."""
    if dimension == 1:
        return np.zeros((0, 2), dtype=np.int64)
    row, zero = np.nonzero(on_edge == 0)
    rows, labels = [], []
    for side in (1, -1):
        label = on_edge[row].copy()
        label[np.arange(len(row)), zero] = side
        rows.append(row)
        labels.append(label)
    row, label = np.concatenate(rows), np.concatenate(labels)
    packed = np.packbits(np.concatenate([label > 0, label < 0], axis=1), axis=1)
    keys = packed.view([("", packed.dtype)] * packed.shape[1]).ravel()
    order = np.argsort(keys)
    same = keys[order[1:]] == keys[order[:-1]]
    return np.stack([row[order[:-1]][same], row[order[1:]][same]], axis=1)
