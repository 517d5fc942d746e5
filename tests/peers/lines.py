"""Lines of a workload list (datasets/workloads/cpu.json): the arrays they begin with, and the size of what they give.

The same seed fills the arrays of every peer, so that their outputs can be compared.
"""

import numpy

MATMULS = ("matmul", "batch_matmul")
CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
EPSILON = 1e-5  # of the norms


class Unsupported(Exception):
    """What the peer has no way to compute; the reason is shown in its place."""


def input_shapes(line):
    shape, op = line["shape"], line["op"]
    if op in MATMULS:
        stack = (shape["B"],) if "B" in shape else ()
        return [(*stack, shape["M"], shape["K"]), (*stack, shape["K"], shape["N"])]
    if op in CONVOLUTIONS:
        channels = shape["C"] // shape["groups"]
        if shape["layout"] == "NHWC":
            image = (shape["N"], shape["H"], shape["W"], shape["C"])
            return [image, (shape["R"], shape["S"], channels, shape["K"])]
        return [(shape["N"], shape["C"], shape["H"], shape["W"]), (shape["K"], channels, shape["R"], shape["S"])]
    if op == "attention":
        return [(shape["heads"], shape["seq"], shape["dim"])] * 3
    if "rows" in shape:
        vectors = {"layernorm": 2, "rmsnorm": 1}.get(op, 0)
        return [(shape["rows"], shape["cols"])] + [(shape["cols"],)] * vectors
    return [(shape["n"],)]


def inputs(line):
    """Row-major arrays: int8 over its range but -128, everything else f32 with a deviation of 0.1."""
    rng = numpy.random.default_rng(0)
    if line["dtype"] == "s8":
        return [rng.integers(-127, 128, shape, dtype=numpy.int8) for shape in input_shapes(line)]
    return [rng.standard_normal(shape, dtype=numpy.float32) * numpy.float32(0.1) for shape in input_shapes(line)]


def output_shape(line):
    shape, op = line["shape"], line["op"]
    first, *rest = input_shapes(line)
    if op in MATMULS:
        return (*first[:-1], rest[0][-1])
    if op in CONVOLUTIONS:
        height, width = (
            (shape[size] + 2 * shape["pad"] - shape[window]) // shape["stride"] + 1
            for size, window in (("H", "R"), ("W", "S"))
        )
        nhwc = shape["layout"] == "NHWC"
        return (shape["N"], height, width, shape["K"]) if nhwc else (shape["N"], shape["K"], height, width)
    return {"reduce_sum": (), "transpose": first[::-1]}.get(op, first)
