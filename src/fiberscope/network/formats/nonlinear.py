"""Operations that are known not to be piecewise linear, by the names that ONNX and torch give them.

A model that is refused shall say which of two facts it is: the operation is outside of what this library is about, or
it has not been built yet.
"""

from __future__ import annotations

from fiberscope.errors import UnsupportedModelError

_CURVED = """
    softmax logsoftmax softmax2d softmin sigmoid logsigmoid expit tanh tanhshrink gelu fastgelu biasgelu quickgelu silu
    swish mish elu selu celu softplus softsign hardswish glu gluimpl swiglu exp exp2 expm1 log log2 log10 log1p logit
    sqrt rsqrt square pow power ipow reciprocal erf erfc erfinv sin cos tan asin acos atan atan2 sinh cosh asinh acosh
    atanh sinc lgamma digamma layernorm layernormalization skiplayernormalization simplifiedlayernormalization
    rmsnorm rmsnormalization groupnorm groupnormalization instancenorm instancenorm1d instancenorm2d instancenorm3d
    instancenormalization localresponsenorm lrn crossmaplrn2d meanvariancenormalization lpnormalization normalize norm
    vectornorm cosinesimilarity pairwisedistance cdist lppool globallppool lppool1d lppool2d lppool3d
    reducel2 reducelogsum reducelogsumexp reduceprod reducesumsquare logsumexp prod cumprod var std varmean stdmean
    multiheadattention attention scaleddotproductattention transformer transformerencoder transformerencoderlayer
    transformerdecoder transformerdecoderlayer lstm lstmcell gru grucell rnn rnncell bilinear dist
    softmaxcrossentropyloss negativeloglikelihoodloss det
"""
_JUMPING = """
    sign heaviside step floor ceil round trunc frac fmod mod remainder hardmax argmax argmin topk onehot greater less
    greaterorequal lessorequal equal not and or xor gt ge lt le eq ne quantizelinear dynamicquantizelinear
    dequantizelinear fakequantize bernoulli randomnormal randomuniform multinomial hardshrink threshold nonzero
    floordivide floordiv
"""


def plain_name(name: str) -> str:
    """A name without capitals and underscores.

    >>> plain_name("log_softmax") == plain_name("LogSoftmax")
    True
    """
    return name.replace("_", "").lower()


_CURVES = frozenset(_CURVED.split())
_JUMPS = frozenset(_JUMPING.split())
NOT_PIECEWISE_LINEAR = _CURVES | _JUMPS
"""Plain names; those that are piecewise linear but jump count as well, since a network here is continuous."""


class NotPiecewiseLinearError(UnsupportedModelError):
    """An operation that is known not to be piecewise linear and continuous."""


def refusal(name: str) -> UnsupportedModelError:
    """The error for an operation that is not read: which of the two facts it is.

    >>> print(refusal("LogSoftmax"))
    it is not piecewise linear
    >>> print(refusal("ScatterND"))
    it is not supported yet
    """
    plain = plain_name(name)
    if plain in _CURVES:
        return NotPiecewiseLinearError("it is not piecewise linear")
    if plain in _JUMPS:
        return NotPiecewiseLinearError("it is not a continuous piecewise linear function: its values jump")
    return UnsupportedModelError("it is not supported yet")
