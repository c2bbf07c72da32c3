"""Compiled bounds of the difference of two dense chains on boxes: forms of ``a`` and of ``a - b`` in common generators.

A *form* is ``centre + sum_g coefficient_g eps_g`` with every ``eps_g`` in [-1, 1], plus a radius for all that rounding
lost. Forms of ``a`` use the inputs and one generator for every neuron of ``a`` whose sign is open; forms of the
difference use these (the *common* ones) and one *own* generator for every pair of neurons whose difference had to be
enclosed. With corresponding neurons ``d = z_a - z_b`` goes through an affine layer as ``W_b d + (W_a - W_b) h_a``, so
what both networks do alike is never bounded twice. Signs that are open are asked again by linear bounds that go back to
the input, which are incomparable with the forms.

Arrays. A layer ``l`` of ``rows[l]`` neurons reads ``cols[l]`` values; its matrices stand in the flat arrays ``wa``,
``wb``, ``dw`` from ``starts[l]`` on, row by row, its offsets in ``ba``, ``db`` and its slopes in ``slopes`` from
``places[l]`` on. ``bends[l]`` says whether an activation follows, ``alike[l]`` whether the two layers are the same.
Matrices of forms have a row for every neuron that is not exactly zero, ``index`` says which; column 0 is the centre,
then come the inputs, then the generators in the order in which they were made.

Rounding. An entry of a product of ``n`` terms is off by at most ``gamma(n)`` times the sum of the absolute terms, so
the coefficients of a neuron together are off by ``gamma(n) |W| size``, where ``size`` of a form is the sum of its
absolute coefficients (``fa``, ``fd``), which may be more than the largest value (``sa``). This goes into the radius.
Numbers that overflow give bounds that are not finite and prove nothing.
"""
# mypy: disable-error-code="no-untyped-def, type-arg"

from __future__ import annotations

import numpy as np

from fiberscope.equality.bounding.class_bounds import worst_classes
from fiberscope.equality.bounding.form_kernels import (
    add_product,
    chord,
    clear,
    columns,
    counted,
    enclosed,
    ends,
    mixed,
    reach_of,
    reach_of_other,
    shared,
    times_abs,
    uncertain,
    untouched,
)
from fiberscope.equality.bounding.going_back import back_bound
from fiberscope.numerics.compiling.kernels import inner, kernel
from fiberscope.numerics.floats import EPS, TINY

VALUES, CLASSES = 0, 1
"""What is bounded: the largest difference of an output; or how far a class of ``a`` may be beaten in ``b``."""


@inner
def one_box(  # noqa: PLR0915 -- cut up, one pass through both networks would hand a dozen arrays around
    low, high, wa, wb, dw, ba, db, slopes, rows, cols, starts, places, bends, alike, scaled, back, kind, margin, point
):
    """The bound on one box, the coordinate to split, and in ``point`` the corner where the difference seems largest."""
    n0, layers = low.size, rows.size
    ga, gd = 1 + n0, 0
    neurons = places[-1] + rows[-1]
    lows, highs, sizes = np.empty(neurons), np.empty(neurons), np.empty(neurons)
    share_a, share_d = np.zeros((neurons, n0)), np.zeros((neurons, n0))
    num_a, num_d = 0, 0
    ha = np.zeros((n0, ga))
    ra, sa, fa = np.zeros(n0), np.zeros(n0), np.zeros(n0)
    ia, id_ = counted(n0), counted(0)
    for t in range(n0):
        centre = 0.5 * low[t] + 0.5 * high[t]
        r = max(high[t] - centre, centre - low[t])
        r = r * (1.0 + EPS) + TINY if r > 0.0 else 0.0
        ha[t, 0], ha[t, 1 + t], sa[t] = centre, r, (abs(centre) + r) * (1.0 + EPS)
        fa[t] = sa[t]
    hc, ho, rd, fd = np.zeros((0, ga)), np.zeros((0, gd)), np.zeros(0), np.zeros(0)
    nothing = np.zeros((1, 0))
    za, zc, zo = ha, hc, ho
    era, erd = ra, rd
    sound = True
    for layer in range(layers):
        m, n, place = rows[layer], cols[layer], places[layer]
        na, nd = ia.size, id_.size
        unit = (2 * n + 24) * EPS
        w = columns(wa, starts[layer], m, n, ia)
        v = columns(wb, starts[layer], m, n, id_)
        za, zc, zo = np.zeros((m, ga)), np.zeros((m, ga)), np.zeros((m, gd))
        add_product(w, ha, za)
        add_product(v, hc, zc)
        add_product(v, ho, zo)
        same = alike[layer]
        delta = w
        if not same:
            delta = columns(dw, starts[layer], m, n, ia)
            add_product(delta, ha, zc)
        ta, td = uncertain(ra, unit, fa), uncertain(rd, unit, fd)
        era, erd = np.empty(m), np.zeros(m)
        la, ua, lb, ub, dl, du = np.empty(m), np.empty(m), np.empty(m), np.empty(m), np.zeros(m), np.zeros(m)
        more = 1.0 + unit
        for i in range(m):
            bias = ba[place + i]
            za[i, 0] += bias
            era[i] = (times_abs(w, i, ta) + unit * abs(bias)) * more + TINY
            sizes[place + i] = (times_abs(w, i, sa) + abs(bias)) * more + TINY
            la[i], ua[i] = ends(za[i, 0], reach_of(za, nothing, i, era[i]))
            if untouched(w, i):  # whatever overflowed before
                clear(za, i)
                za[i, 0], era[i], la[i], ua[i] = bias, 0.0, bias, bias
            if nd or not same:
                e = times_abs(v, i, td)
                if not same:
                    zc[i, 0] += db[place + i]
                    e += times_abs(delta, i, ta) + unit * abs(db[place + i])
                    e += scaled * (times_abs(w, i, fa) + abs(bias))
                erd[i] = e * more + TINY
                dl[i], du[i] = ends(zc[i, 0], reach_of(zc, zo, i, erd[i]))
                other = reach_of_other(za, zc, zo, i, era[i] + erd[i])
                lb[i], ub[i] = ends(za[i, 0] - zc[i, 0], other)
                lb[i], ub[i] = lb[i] - EPS * abs(za[i, 0]), ub[i] + EPS * abs(za[i, 0])
                if untouched(v, i) and (same or (db[place + i] == 0.0 and untouched(delta, i))):
                    clear(zc, i)
                    clear(zo, i)
                    erd[i], dl[i], du[i], lb[i], ub[i] = 0.0, 0.0, 0.0, la[i], ua[i]
            else:
                lb[i], ub[i] = la[i], ua[i]
        for i in range(m):  # what overflowed proves nothing, whatever is compared with it later
            if not abs(la[i]) + abs(ua[i]) + abs(lb[i]) + abs(ub[i]) + abs(dl[i]) + abs(du[i]) < np.inf:
                sound = False
        if layer == layers - 1:
            break
        whole_a, whole_d = np.empty(m), np.empty(m)
        for i in range(m):
            whole_a[i], whole_d[i] = max(abs(la[i]), abs(ua[i])), max(abs(dl[i]), abs(du[i]))
        if back and layer > 0 and bends[layer]:
            for i in range(m):
                s = slopes[place + i]
                if s < 1.0 and la[i] < 0.0 < ua[i] and sizes[place + i] < 1e300:
                    for sign in (1.0, -1.0):
                        if la[i] < 0.0:
                            end = back_bound(
                                i, layer, sign, low, high, wa, ba, slopes, rows, cols, starts, places, bends, lows,
                                highs, sizes,
                            )  # fmt: skip
                            if sign > 0.0 and end > la[i]:  # what is not a number is no bound
                                la[i] = end
                            elif sign < 0.0 and -end < ua[i]:
                                ua[i] = -end
                    la[i] = min(la[i], ua[i])
        for i in range(m):
            lows[place + i], highs[place + i] = la[i], ua[i]
            # what is known of z_a and d bounds z_b, and the other way round
            slack = EPS * (abs(la[i]) + abs(ua[i]) + abs(dl[i]) + abs(du[i])) + TINY
            if nd or not same:
                lb[i] = max(lb[i], la[i] - du[i] - slack)
                ub[i] = min(ub[i], ua[i] - dl[i] + slack)
            else:
                lb[i], ub[i] = la[i], ua[i]
        if not bends[layer]:
            ha, hc, ho, ra, rd = za, zc, zo, era, erd
            sa, fa, fd, ia = whole_a, whole_a, whole_d, counted(m)
            id_ = ia
            if not (nd or not same):
                hc, ho, rd, fd, id_ = np.zeros((0, ga)), np.zeros((0, gd)), np.zeros(0), np.zeros(0), counted(0)
            continue
        # -- the activation ----------------------------------------------------------------------------------------
        open_a, keep_a, keep_d, own_d = 0, 0, 0, 0
        state = np.empty(m, dtype=np.int64)
        apart = nd > 0 or not same
        for i in range(m):
            s = slopes[place + i]
            on_a, off_a = la[i] >= 0.0 or s == 1.0, ua[i] <= 0.0
            on_b, off_b = lb[i] >= 0.0 or s == 1.0, ub[i] <= 0.0
            a = 0 if on_a else (1 if off_a else 2)
            b = 0 if on_b else (1 if off_b else 2)
            if a == 1 and off_b:
                b = 1
            if not apart:
                b = a
            state[i] = 3 * a + b
            open_a += a == 2
            keep_a += not (a == 1 and s == 0.0)
            if apart and not (state[i] == 4 and s == 0.0):
                keep_d += 1
                own_d += b == 2
        na, nd = keep_a, keep_d
        new_a, new_d = ga + open_a, gd + own_d
        ha, ra, ia = np.zeros((na, new_a)), np.zeros(na), np.empty(na, dtype=np.int64)
        sa, fa = np.zeros(na), np.zeros(na)
        hc, ho = np.zeros((nd, new_a)), np.zeros((nd, new_d))
        rd, fd, id_ = np.zeros(nd), np.zeros(nd), np.empty(nd, dtype=np.int64)
        ka, kd, next_a, next_d = 0, 0, ga, gd
        for i in range(m):
            s = slopes[place + i]
            a, b = state[i] // 3, state[i] % 3
            size_a, size_d = max(abs(la[i]), abs(ua[i])), max(abs(dl[i]), abs(du[i]))
            factor, middle, half = 1.0, 0.0, 0.0
            column = -1
            if a == 1:
                factor = s
            elif a == 2:
                factor = chord(la[i], ua[i], s)
                down, up = enclosed(la[i], ua[i], s, factor)
                middle, half = 0.5 * down + 0.5 * up, (0.5 * up - 0.5 * down) * (1.0 + EPS) + TINY
                column = next_a
                next_a += 1
                shared(za, i, share_a, share_a, num_a)
                num_a += 1
            if not (a == 1 and s == 0.0):
                for g in range(ga):
                    ha[ka, g] = factor * za[i, g]
                ha[ka, 0] += middle
                if column >= 0:
                    ha[ka, column] = half
                ra[ka] = abs(factor) * era[i] * (1.0 + EPS)
                if factor != 1.0 or a == 2:
                    ra[ka] += EPS * (abs(factor) * whole_a[i] + abs(middle) + half) + TINY
                fa[ka] = (abs(factor) * whole_a[i] + abs(middle) + half) * (1.0 + EPS)
                sa[ka] = size_a if abs(s) <= 1.0 else size_a * abs(s) * (1.0 + EPS)
                ia[ka] = i
                ka += 1
            if not apart or (state[i] == 4 and s == 0.0):
                continue
            # d behind the activation = p z_a + q d + e h_a + [down, up]
            p, q, e, down, up = 0.0, 1.0, 0.0, 0.0, 0.0
            if b == 2:
                bound = chord(lb[i], ub[i], s)
                one, two = enclosed(lb[i], ub[i], s, bound)
                if a == 0:
                    p, q, down, up = 1.0 - bound, bound, -two, -one
                elif a == 1:
                    p, q, down, up = s - bound, bound, -two, -one
                else:
                    weight = ua[i] / (ua[i] - la[i])
                    part, three, four = mixed(dl[i], du[i], weight)
                    q, rest = s + (1.0 - s) * part, 1.0 - s
                    down, up = min(rest * three, rest * four), max(rest * three, rest * four)
                    slack = EPS * (abs(s) + abs(rest)) * (size_d + abs(down) + abs(up)) + TINY
                    down, up = down - slack, up + slack
                    if not (up - down <= two - one + 2.0 * half):
                        p, q, e, down, up = -bound, bound, 1.0, -two, -one
            elif a == 0 and b == 1:
                p, q = 1.0 - s, s
            elif a == 1 and b == 0:
                p = s - 1.0
            elif a == 1 and b == 1:
                q = s
            elif a == 2 and b == 0:
                p, e = -1.0, 1.0
            elif a == 2 and b == 1:
                p, q, e = -s, s, 1.0
            for g in range(ga):
                hc[kd, g] = p * za[i, g] + q * zc[i, g]
            if e != 0.0:
                for g in range(ga):
                    hc[kd, g] += factor * za[i, g]
                hc[kd, 0] += middle
                if column >= 0:
                    hc[kd, column] = half
            for g in range(gd):
                ho[kd, g] = q * zo[i, g]
            rd[kd] = ((abs(p) + abs(e * factor)) * era[i] + abs(q) * erd[i]) * (1.0 + EPS)
            size = (abs(p) + abs(e * factor)) * whole_a[i] + abs(e) * (abs(middle) + half)
            size += abs(q) * whole_d[i] + abs(up) + abs(down)
            fd[kd] = size * (1.0 + 2.0 * EPS)
            if state[i] != 0:
                rd[kd] += 4.0 * EPS * size + TINY
            if b == 2:
                hc[kd, 0] += 0.5 * down + 0.5 * up
                ho[kd, next_d] = (0.5 * up - 0.5 * down) * (1.0 + EPS) + TINY
                next_d += 1
                shared(za, i, share_a, share_d, num_d)
                num_d += 1
            id_[kd] = i
            kd += 1
        ga, gd = new_a, new_d
    # -- the outputs -----------------------------------------------------------------------------------------------
    m = rows[-1]
    best, first, second, mode = -np.inf, 0, 0, 0
    if kind == VALUES:
        for i in range(m):
            size = max(abs(dl[i]), abs(du[i]))
            if not size <= best:
                best, first = size, i
    else:
        best, first, second, mode = worst_classes(za, zc, zo, era, erd, margin)
    sign, of_a, of_d = 1.0, 0.0, 1.0  # what is bounded: of_a (a_i - a_j) + of_d (d_i - d_j)
    if kind == VALUES:
        sign = 1.0 if abs(du[first]) >= abs(dl[first]) else -1.0
    elif mode == 0:
        of_a, of_d = 1.0, 0.0
    elif mode == 2:
        of_a = -1.0
    form, own = np.empty(ga), np.empty(gd)
    other = 1.0 if kind == CLASSES else 0.0
    for g in range(ga):
        form[g] = of_d * (zc[first, g] - other * zc[second, g]) + of_a * (za[first, g] - other * za[second, g])
    for g in range(gd):
        own[g] = of_d * (zo[first, g] - other * zo[second, g])
    score = np.zeros(n0)
    for g in range(num_a):
        for t in range(n0):
            score[t] += abs(form[1 + n0 + g]) * share_a[g, t]
    for g in range(num_d):
        for t in range(n0):
            score[t] += abs(own[g]) * share_d[g, t]
    dimension, most = -1, -1.0
    for t in range(n0):
        point[t] = high[t] if sign * form[1 + t] >= 0.0 else low[t]
        value = score[t] + abs(form[1 + t])
        middle = 0.5 * low[t] + 0.5 * high[t]
        if low[t] < middle < high[t] and not value <= most:
            dimension, most = t, value
    if not (sound and best < np.inf):
        best = np.inf
    return best, dimension, num_a + num_d


@kernel
def bound_boxes(
    low, high, wa, wb, dw, ba, db, slopes, rows, cols, starts, places, bends, alike, scaled, back, kind, margin
):
    """For boxes ``(count, n)``: bounds, coordinates to split, numbers of generators, and corners to look at."""
    count = len(low)
    bounds, dimensions, opened = np.empty(count), np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    points = np.empty_like(low)
    for k in range(count):
        bounds[k], dimensions[k], opened[k] = one_box(
            low[k], high[k], wa, wb, dw, ba, db, slopes, rows, cols, starts, places, bends, alike, scaled, back, kind,
            margin, points[k],
        )  # fmt: skip
    return bounds, dimensions, opened, points
