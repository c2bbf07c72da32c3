"""A small generator of images: a variational auto-encoder, trained from a seed.

The encoder turns an image into the mean and the logarithmic variance of a latent normal distribution, the decoder turns
a latent point into an image; the loss is the squared error of the image plus ``beta`` times the divergence from the
standard normal distribution (D. P. Kingma, M. Welling, Auto-Encoding Variational Bayes, 2014). The decoder is either
piecewise linear, so that regions on the image manifold are exact, or smooth, as most generators are.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fiberscope.errors import InputError, TooLargeError
from fiberscope.files import check_archive, write_atomically
from fiberscope.network.border import as_network
from fiberscope.network.network import Network
from fiberscope.numerics.arrays import real_array
from fiberscope.numerics.floats import FloatArray
from fiberscope.results import Result, hidden
from fiberscope.run import STOPPED, Progress, Run

FORMAT = "fiberscope-generator-1"


@dataclass(frozen=True, eq=False)
class TrainedGenerator(Result):
    """A decoder with how it was trained; made by :func:`train_generator`.

    ``losses`` are the mean loss per image of every epoch; ``settings`` all that is needed to train it again.
    """

    decoder: nn.Sequential = field(repr=False, metadata=hidden())
    encoder: nn.Sequential = field(repr=False, metadata=hidden())
    losses: FloatArray = field(repr=False)
    settings: dict[str, Any]

    @property
    def latent(self) -> int:
        """Dimension of the latent space."""
        return int(self.settings["latent"])

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Shape of one image; the decoder's outputs are flat."""
        return tuple(self.settings["image_shape"])

    def __call__(self, Z: Any) -> FloatArray:
        """Images ``(count, pixels)`` from latent points ``(count, latent)``."""
        return _evaluate(self.decoder, real_array(Z, "Z", ndim=2), self.latent)

    def encode(self, X: Any) -> FloatArray:
        """The latent means ``(count, latent)`` of images ``(count, ...)``."""
        flat = real_array(X, "X")
        flat = flat.reshape(len(flat), -1)
        return _evaluate(self.encoder, flat, int(np.prod(self.image_shape)))[:, : self.latent]

    def network(self) -> Network:
        """The decoder as a :class:`Network`; a smooth one is refused."""
        return as_network(self.decoder)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a ``.pt`` file with settings, losses and state dicts; :func:`load_generator` reads it."""
        target = Path(os.fspath(path))
        if target.suffix != ".pt":
            raise InputError(f"{target}: expected a name that ends in .pt")
        state = {"decoder": self.decoder.state_dict(), "encoder": self.encoder.state_dict()}
        text = json.dumps({"format": FORMAT, "settings": self.settings, "losses": self.losses.tolist()})
        buffer = io.BytesIO()
        torch.save({"about": text, **state}, buffer)
        try:
            write_atomically(target, buffer.getvalue())
        except OSError as error:
            raise InputError(f"{target}: cannot be written ({error.strerror})") from error

    def __repr__(self) -> str:
        kind = "smooth" if self.settings["smooth"] else "piecewise linear"
        shape = " x ".join(map(str, self.image_shape))
        last = f"{self.losses[-1]:.4g}" if len(self.losses) else "none"
        return f"TrainedGenerator({kind}, R^{self.latent} to {shape} pixels, last loss {last})"


def train_generator(
    data: Any,
    *,
    latent: int = 4,
    widths: Sequence[int] = (32, 64),
    channels: Sequence[int] | None = None,
    smooth: bool = False,
    epochs: int = 30,
    batch_size: int = 64,
    lr: float = 2e-3,
    beta: float = 0.1,
    seed: int = 0,
    progress: Progress | None = None,
    time_limit: float | None = None,
) -> TrainedGenerator:
    """Train a variational auto-encoder on images.

    On one machine with the same number of threads, the same seed gives the same bits. No global random state is read
    or changed.

    Parameters
    ----------
    data
        A :class:`Dataset` or an array ``(images, ...)`` with pixels from 0 to 1.
    latent
        Dimension of the latent space.
    widths
        Hidden layers of the decoder; the encoder has them in reverse.
    channels
        A convolutional decoder instead, for images ``(images, colours, height, width)``: one affine layer to
        ``channels[0]`` small images, then transposed convolutions (4 x 4, stride 2) that double the size each time,
        ``channels[1], ...`` and the colours at the end; the encoder is its mirror. Height and width must be divisible
        by ``2 ** len(channels)``; ``widths`` are not used then.
    smooth
        Tanh layers and a sigmoid at the end; ReLU layers and an affine end otherwise.
    epochs, batch_size, lr
        Of Adam.
    beta
        Weight of the divergence; the squared error is the sum over pixels.
    seed
        Of initialisation, shuffles and noise.
    progress
        Called as ``progress(done, total, text)`` after every epoch. Ctrl-C, or the end of ``time_limit`` seconds, ends
        the training with what there is by then.

    Examples
    --------
    >>> from fiberscope.training.datasets.loading import load_dataset
    >>> made = train_generator(load_dataset("digits"), epochs=1, latent=2)
    >>> made.network().widths, made(np.zeros((1, 2))).shape
    ((2, 32, 64, 64), (1, 64))
    >>> train_generator(load_dataset("digits"), epochs=1, latent=2, channels=(4, 4)).network().num_hidden
    80
    """
    images = _images(data)
    for name, value in (("latent", latent), ("epochs", epochs), ("batch_size", batch_size)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name}: expected a positive integer, got {value!r}")
    for name, sizes in (("widths", widths), ("channels", channels or ())):
        if not all(isinstance(n, int | np.integer) and n >= 1 for n in sizes):
            raise InputError(f"{name}: expected positive integers, got {tuple(sizes)}")
    if channels is not None:
        _check_shape(images.shape, len(channels))
    if not (0 < lr < np.inf and 0 <= beta < np.inf):
        raise InputError(f"lr, beta: expected a positive and a non-negative number, got {lr} and {beta}")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed: expected a non-negative integer, got {seed!r}")
    settings = {
        "data": getattr(data, "name", "array"), "sha256": getattr(data, "sha256", None), "latent": int(latent),
        "widths": [int(n) for n in widths], "smooth": bool(smooth), "epochs": int(epochs),
        "batch_size": int(batch_size), "lr": float(lr), "beta": float(beta), "seed": int(seed),
        "image_shape": list(images.shape[1:]),
    }  # fmt: skip
    if channels is not None:
        settings["channels"] = [int(n) for n in channels]
    rng = torch.Generator().manual_seed(int(seed))
    decoder, encoder = _models(settings)
    for layer in (*encoder, *decoder):
        _initialise(layer, rng)
    if channels is not None:
        _quieten([layer for layer in decoder if _has_weights(layer)][-1])
    pixels = torch.from_numpy(images.reshape(len(images), -1).astype(np.float32))
    losses = _fit(encoder, decoder, pixels, settings, rng, Run.begin(progress, time_limit))
    return TrainedGenerator(decoder.eval(), encoder.eval(), np.array(losses), settings)


def load_generator(path: str | os.PathLike[str]) -> TrainedGenerator:
    """A generator from a file that :meth:`TrainedGenerator.save` wrote; no code in the file is run.

    Examples
    --------
    >>> import tempfile
    >>> made = train_generator(np.eye(4), epochs=1, latent=2, widths=(3,))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made.save(f"{folder}/made.pt")
    ...     again = load_generator(f"{folder}/made.pt")
    >>> again.network().widths, bool((again(np.ones((1, 2))) == made(np.ones((1, 2)))).all())
    ((2, 3, 4), True)
    """
    source = Path(os.fspath(path))
    try:
        check_archive(source)
        found = torch.load(source, weights_only=True)
        about = json.loads(found["about"])
        if about["format"] != FORMAT:
            raise InputError(f"{source}: expected a file of format {FORMAT}, got {about['format']!r}")
        settings = about["settings"]
        decoder, encoder = _models(settings)
        decoder.load_state_dict(found["decoder"])
        encoder.load_state_dict(found["encoder"])
    except InputError:
        raise
    except TooLargeError as error:
        raise TooLargeError(f"{source}: {error}") from error
    except OSError as error:
        raise InputError(f"{source}: cannot be read ({error.strerror or 'no such file'})") from error
    except Exception as error:  # torch raises whatever its reader meets in a damaged file
        raise InputError(f"{source}: expected a generator file, got something else or a damaged file") from error
    return TrainedGenerator(decoder.eval(), encoder.eval(), np.array(about["losses"]), settings)


def _images(data: Any) -> FloatArray:
    inputs = getattr(data, "inputs", data)
    array = real_array(inputs, "data")
    if array.ndim < 2 or len(array) < 2 or array.size == 0:
        raise InputError(f"data: expected at least two images (images, ...), got shape {array.shape}")
    if array.min() < 0 or array.max() > 1:
        raise InputError(f"data: expected pixels from 0 to 1, got {array.min():g} to {array.max():g}")
    return array


def _check_shape(shape: tuple[int, ...], times: int) -> None:
    if len(shape) != 4 or times < 1 or any(n % 2**times for n in shape[2:]):
        raise InputError(
            f"channels: expected images (images, colours, height, width) whose sides can be halved {max(times, 1)} "
            f"times, got shape {shape}"
        )


def _models(settings: dict[str, Any]) -> tuple[nn.Sequential, nn.Sequential]:
    """Decoder and encoder, not initialised; the encoder's outputs are means and logarithmic variances."""
    smooth = bool(settings["smooth"])
    with torch.device("meta"):  # meta tensors draw no random numbers from torch's global state
        decoder, encoder = _dense_layers(settings) if "channels" not in settings else _image_layers(settings)
    return _bent(decoder, smooth, nn.Sigmoid() if smooth else nn.Identity()), _bent(encoder, smooth, nn.Identity())


def _bent(layers: list[nn.Module], smooth: bool, end: nn.Module) -> nn.Sequential:
    """The layers with an activation behind everyone that has weights, and ``end`` behind the last of these."""
    found: list[nn.Module] = []
    left = sum(map(_has_weights, layers))
    for layer in layers:
        found.append(layer)
        if _has_weights(layer):
            left -= 1
            found.append(end if not left else nn.Tanh() if smooth else nn.ReLU())
    return nn.Sequential(*(x for x in found if not isinstance(x, nn.Identity))).to_empty(device="cpu")


def _has_weights(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d)


def _dense_layers(settings: dict[str, Any]) -> tuple[list[nn.Module], list[nn.Module]]:
    up = [settings["latent"], *settings["widths"], int(np.prod(settings["image_shape"]))]
    down = [*reversed(up[1:]), 2 * settings["latent"]]
    decoder, encoder = ([nn.Linear(m, n) for m, n in pairwise(widths)] for widths in (up, down))
    return list(decoder), list(encoder)


def _image_layers(settings: dict[str, Any]) -> tuple[list[nn.Module], list[nn.Module]]:
    """Affine to small images, then doubled again and again; flat at both ends."""
    latent, (colours, *sides) = settings["latent"], settings["image_shape"]
    sizes = [*settings["channels"], colours]
    small = (sizes[0], *(n // 2 ** len(settings["channels"]) for n in sides))
    area = int(np.prod(small))
    decoder: list[nn.Module] = [nn.Linear(latent, area), nn.Unflatten(1, small)]
    decoder += [nn.ConvTranspose2d(m, n, 4, 2, 1) for m, n in pairwise(sizes)]
    encoder: list[nn.Module] = [nn.Unflatten(1, (colours, *sides))]
    encoder += [nn.Conv2d(m, n, 4, 2, 1) for m, n in pairwise(reversed(sizes))]
    return [*decoder, nn.Flatten()], [*encoder, nn.Flatten(), nn.Linear(area, 2 * latent)]


def _initialise(layer: nn.Module, rng: torch.Generator) -> None:
    """He-normal weights, zero biases; a neuron of a transposed convolution reads a quarter of its kernel."""
    match layer:
        case nn.Linear():
            reads = layer.in_features
        case nn.Conv2d():
            reads = layer.in_channels * 16
        case nn.ConvTranspose2d():
            reads = layer.in_channels * 4
        case _:
            return
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=rng) * (2 / reads) ** 0.5)
        assert layer.bias is not None
        layer.bias.zero_()


def _quieten(layer: nn.Module) -> None:
    """A small last convolution: thousands of pixels far from every image would cost many epochs to call in."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(0.1)


def _fit(
    encoder: nn.Sequential,
    decoder: nn.Sequential,
    pixels: Tensor,
    settings: dict[str, Any],
    rng: torch.Generator,
    run: Run,
) -> list[float]:
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=settings["lr"])
    losses: list[float] = []
    epochs, size = settings["epochs"], settings["batch_size"]
    try:
        for epoch in range(epochs):
            total = 0.0
            order = torch.randperm(len(pixels), generator=rng)
            for rows in torch.split(order, size):
                loss = _loss(encoder, decoder, pixels[rows], settings, rng)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += float(loss.detach()) * len(rows)
            losses.append(total / len(pixels))
            if not np.isfinite(losses[-1]):
                raise InputError(f"training: expected finite losses, got {losses[-1]} in epoch {epoch}; lower lr")
            run.step(epoch + 1, epochs, f"loss {losses[-1]:.3f}")
    except STOPPED:
        pass  # the decoder as it is by now, and the losses so far
    return losses


def _loss(
    encoder: nn.Sequential, decoder: nn.Sequential, batch: Tensor, settings: dict[str, Any], rng: torch.Generator
) -> Tensor:
    mean, log_variance = encoder(batch).chunk(2, dim=1)
    noise = torch.randn(mean.shape, generator=rng)
    image = decoder(mean + torch.exp(log_variance / 2) * noise)
    error = ((image - batch) ** 2).sum(dim=1)
    divergence = (mean**2 + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2
    found: Tensor = (error + settings["beta"] * divergence).mean()
    return found


def _evaluate(model: nn.Sequential, X: FloatArray, width: int) -> FloatArray:
    if X.ndim != 2 or X.shape[1] != width:
        raise InputError(f"points: expected shape (count, {width}), got {X.shape}")
    with torch.no_grad():
        return np.asarray(model(torch.from_numpy(X.astype(np.float32))).double().numpy())
