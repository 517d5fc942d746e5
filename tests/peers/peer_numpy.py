"""numpy with its own OpenBLAS."""

import numpy

from lines import EPSILON, MATMULS, Unsupported, inputs


class Call:
    def __init__(self, function, *arrays):
        self._function, self._arrays = function, arrays

    def __call__(self):
        return self._function(*self._arrays)

    def output(self):
        return self()

    def memory(self, result):
        return (result.ctypes.data, result.nbytes) if isinstance(result, numpy.ndarray) else (0, 0)


def softmax(x):
    x = numpy.exp(x - x.max(-1, keepdims=True))
    x /= x.sum(-1, keepdims=True)
    return x


def layernorm(x, gamma, beta):
    x = x - x.mean(-1, keepdims=True)
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + numpy.float32(EPSILON)) * gamma + beta


def rmsnorm(x, gamma):
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + numpy.float32(EPSILON)) * gamma


def attention(q, k, v):
    scale = numpy.float32(q.shape[-1] ** -0.5)
    return numpy.matmul(softmax(numpy.matmul(q, k.transpose(0, 2, 1)) * scale), v)


def gelu(x):
    inner = numpy.float32(0.7978845608) * (x + numpy.float32(0.044715) * x * x * x)
    return numpy.float32(0.5) * x * (1 + numpy.tanh(inner))


FUNCTIONS = {
    "softmax": softmax,
    "layernorm": layernorm,
    "rmsnorm": rmsnorm,
    "attention": attention,
    "reduce_sum": numpy.sum,
    "transpose": lambda x: numpy.ascontiguousarray(x.T),
    "gelu_tanh": gelu,
}


def prepare(line, _threads, _cache, _reader):
    if line["dtype"] != "f32":
        raise Unsupported(f"numpy is not made for {line['dtype']}")
    arrays = inputs(line)
    if line["op"] in MATMULS:
        a, b = arrays
        out = numpy.empty((*a.shape[:-1], b.shape[-1]), numpy.float32)
        return Call(lambda: numpy.matmul(a, b, out=out))
    if line["op"] not in FUNCTIONS:
        raise Unsupported(f"numpy has no {line['op']}")
    return Call(FUNCTIONS[line["op"]], *arrays)
