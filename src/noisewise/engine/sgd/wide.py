"""Sixteen floats at a time inside numba's loops: one cache line, one register of the widest CPUs.

Left to itself, the compiler chooses half that width, and does what does not fill four registers one
float at a time. Here a loop says what it wants: ``load``, ``+ - *`` among vectors and floats,
``positive``, ``inverse_root``, ``store``, and ``total`` in the end. A CPU of narrower registers
takes two or four for each vector.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-subclassing-any
# as numba infers the types

import operator

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

LANES = STEP = 16
_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_FLOATS, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)
_NEWTON_A, _NEWTON_B = np.float32(2.3892446), np.float32(0.70395225)
_ZEROS = ir.Constant(_FLOATS, [0.0] * LANES)


class _Vector(types.Type):
    def __init__(self):
        super().__init__("Vector")


_VECTOR = _Vector()
_OPERANDS = [(_VECTOR, _VECTOR), (_VECTOR, types.float32), (types.float32, _VECTOR)]


@register_model(_Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _FLOATS)


def _define(operation, instruction):
    """Let numba know an operator; a float stands for a vector of it."""

    @type_callable(operation)
    def type_operation(_):
        return lambda a, b: _VECTOR if (a, b) in _OPERANDS else None

    def lower(_, builder, signature, args):
        a, b = (
            x if kind == _VECTOR else _spread(builder, x)
            for x, kind in zip(args, signature.args, strict=True)
        )
        return getattr(builder, instruction)(a, b)

    for kinds in _OPERANDS:
        lower_builtin(operation, *kinds)(lower)


def _spread(builder, x):
    first = builder.insert_element(_ZEROS, x, _INT(0))
    return builder.shuffle_vector(first, _ZEROS, ir.Constant(_INTS, [0] * LANES))


_define(operator.add, "fadd")
_define(operator.iadd, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")


@intrinsic
def zeros(_):
    """Return a vector of zeros."""
    return _VECTOR(), lambda *_: _ZEROS


@intrinsic
def load(_, matrix, row, column):
    """Return what stands in a row of a matrix from a column on; the matrix is in C order."""

    def build(context, builder, signature, args):
        return builder.load(_place(context, builder, signature, args), align=4)

    return _VECTOR(matrix, types.uintp, types.uintp), build


@intrinsic
def store(_, matrix, row, column, x):
    """Put a vector into a row of a matrix from a column on."""

    def build(context, builder, signature, args):
        builder.store(args[3], _place(context, builder, signature, args), align=4)
        return context.get_dummy_value()

    return types.none(matrix, types.uintp, types.uintp, _VECTOR), build


def _place(context, builder, signature, args):
    matrix = context.make_array(signature.args[0])(context, builder, args[0])
    width = builder.extract_value(matrix.shape, 1)
    offset = builder.add(builder.mul(args[1], width), args[2])
    return builder.bitcast(builder.gep(matrix.data, [offset]), _FLOATS.as_pointer())


@intrinsic
def total(_, x):
    """Return the sum over a vector, as a float."""

    def build(_context, builder, _signature, args):
        kind = ir.FunctionType(_FLOAT, [_FLOAT, _FLOATS])
        reduce = builder.module.declare_intrinsic(f"llvm.vector.reduce.fadd.v{LANES}f32", (), kind)
        return builder.call(reduce, [_FLOAT(-0.0), args[0]], fastmath=("fast",))

    return types.float32(_VECTOR), build


@intrinsic
def positive(_, x):
    """Return a vector with zeros for what is negative."""

    def build(_context, builder, _signature, args):
        return builder.select(builder.fcmp_ordered(">", args[0], _ZEROS), args[0], _ZEROS)

    return _VECTOR(_VECTOR), build


@njit(fastmath=True, error_model="numpy", inline="always")
def inverse_root(x):
    """Return 1 / sqrt(x) to 0.07 %, without a root and a division: Newton's method."""
    y = _rough_inverse_root(x)
    return _NEWTON_B * y * (_NEWTON_A - x * y * y)


@intrinsic
def _rough_inverse_root(_, x):
    """Halve the exponent and turn its sign, in the bits of the floats."""

    def build(_context, builder, _signature, args):
        halved = builder.lshr(builder.bitcast(args[0], _INTS), ir.Constant(_INTS, [1] * LANES))
        start = ir.Constant(_INTS, [0x5F1FFFF9] * LANES)
        return builder.bitcast(builder.sub(start, halved), _FLOATS)

    return _VECTOR(_VECTOR), build


def check() -> None:
    """Run every function once; raise if one fails or gives wrong numbers."""
    x = np.linspace(-3, 3, 4 * LANES, dtype=np.float32).reshape(2, 2 * LANES)
    out, expected, a = np.zeros_like(x), np.zeros_like(x), x[1, LANES:]
    expected[1, LANES:] = np.maximum(a, 0) / np.sqrt(2 + a * a)
    summed = _run(x, out, np.float32(2))
    if not (np.allclose(out, expected, rtol=2e-3) and np.isclose(summed, np.sum(2 * a - a * a))):
        raise ArithmeticError("wrong numbers")


@njit(fastmath=True, error_model="numpy", cache=True)
def _run(x, out, two):
    row, start = np.uintp(1), np.uintp(LANES)
    a, sums = load(x, row, start), zeros()
    sums += two * a - a * a
    store(out, row, start, positive(a) * inverse_root(two + a * a))
    return total(sums)
