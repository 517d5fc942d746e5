"""A line of a workload list as an ONNX model, for the peers that read those."""

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from lines import CONVOLUTIONS, EPSILON, MATMULS, inputs, output_shape

TYPES = {"f32": TensorProto.FLOAT, "bf16": TensorProto.BFLOAT16, "s8": TensorProto.INT8}
OPSET = 20


class Graph:
    """The nodes so far, the inputs by name, and the constants."""

    def __init__(self, arrays):
        self.inputs, self.nodes, self.constants = dict(zip("xyz", arrays)), [], []

    def node(self, op, operands, result="out", **attributes):
        self.nodes.append(helper.make_node(op, operands, [result], **attributes))

    def constant(self, name, value):
        self.constants.append(numpy_helper.from_array(numpy.asarray(value), name))

    def freeze(self, name):
        """Makes an input a constant, as weights are in use."""
        self.constant(name, self.inputs.pop(name))


def model(line):
    """The model and its inputs by name. Weights of convolutions and norms are constants."""
    graph, op, shape = Graph(inputs(line)), line["op"], line["shape"]
    if op in MATMULS:
        graph.node("MatMulInteger" if line["dtype"] == "s8" else "MatMul", ["x", "y"])
    elif op in CONVOLUTIONS:
        convolution(graph, shape)
    elif op == "attention":
        graph.constant("scale", numpy.float32(shape["dim"] ** -0.5))
        graph.node("Transpose", ["y"], "keys", perm=[0, 2, 1])
        graph.node("MatMul", ["x", "keys"], "scores")
        graph.node("Mul", ["scores", "scale"], "scaled")
        graph.node("Softmax", ["scaled"], "shares", axis=-1)
        graph.node("MatMul", ["shares", "z"])
    elif op == "rmsnorm":
        rmsnorm(graph)
    elif op == "reduce_sum":
        graph.constant("axes", numpy.array([0], numpy.int64))
        graph.node("ReduceSum", ["x", "axes"], keepdims=0)
    elif op == "layernorm":
        graph.freeze("y")
        graph.freeze("z")
        graph.node("LayerNormalization", ["x", "y", "z"], axis=-1, epsilon=EPSILON)
    else:
        name, attributes = {
            "softmax": ("Softmax", {"axis": -1}),
            "transpose": ("Transpose", {"perm": [1, 0]}),
            "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
        }[op]
        graph.node(name, ["x"], **attributes)
    return finished(graph, line), graph.inputs


def convolution(graph, shape):
    options = {
        "strides": [shape["stride"]] * 2,
        "pads": [shape["pad"]] * 4,
        "group": shape["groups"],
        "kernel_shape": [shape["R"], shape["S"]],
    }
    if shape["layout"] == "NHWC":  # ONNX has no such convolution; the runtimes fold the transpositions as they can
        graph.inputs["y"] = numpy.ascontiguousarray(graph.inputs["y"].transpose(3, 2, 0, 1))
        graph.freeze("y")
        graph.node("Transpose", ["x"], "planes", perm=[0, 3, 1, 2])
        graph.node("Conv", ["planes", "y"], "convolved", **options)
        graph.node("Transpose", ["convolved"], perm=[0, 2, 3, 1])
    else:
        graph.freeze("y")
        graph.node("Conv", ["x", "y"], **options)


def rmsnorm(graph):
    """By elementary operations: this operator set has none."""
    graph.freeze("y")
    graph.constant("epsilon", numpy.float32(EPSILON))
    graph.constant("two", numpy.float32(2))
    graph.constant("axes", numpy.array([-1], numpy.int64))
    graph.node("Pow", ["x", "two"], "squares")
    graph.node("ReduceMean", ["squares", "axes"], "mean")
    graph.node("Add", ["mean", "epsilon"], "shifted")
    graph.node("Sqrt", ["shifted"], "root")
    graph.node("Div", ["x", "root"], "normed")
    graph.node("Mul", ["normed", "y"])


def finished(graph, line):
    kind = TYPES[line["dtype"]]
    result = TensorProto.INT32 if line["dtype"] == "s8" else kind
    given = [helper.make_tensor_value_info(name, kind, array.shape) for name, array in graph.inputs.items()]
    out = [helper.make_tensor_value_info("out", result, output_shape(line))]
    made = helper.make_graph(graph.nodes, "main", given, out, graph.constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
