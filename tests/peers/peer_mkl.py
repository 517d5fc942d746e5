"""Intel MKL through its C interface: matrix products of f32, and of bf16 into f32."""

import ctypes
import pathlib
import sys

import numpy

from lines import MATMULS, Unsupported, inputs

ROW_MAJOR, NO_TRANSPOSE = 101, 111


class Call:
    """One call with arguments that were converted before; `keep` are the arrays that they point into."""

    def __init__(self, function, arguments, out, keep):
        self._function, self._arguments, self._out, self._keep = function, arguments, out, keep

    def __call__(self):
        self._function(*self._arguments)
        return self._out

    def output(self):
        return self()

    def memory(self, result):
        return result.ctypes.data, result.nbytes


def load(threads):
    library = sorted(pathlib.Path(sys.prefix, "lib").glob("libmkl_rt.so*"))[-1]
    mkl = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    mkl.MKL_Set_Num_Threads(threads)
    return mkl


def bfloat16(array):
    """The upper halves of the words, rounded to nearest, as MKL takes them."""
    return ((array.view(numpy.uint32) + 0x8000) >> 16).astype(numpy.uint16)


def prepare(line, threads, _cache, _reader):
    shape, dtype = line["shape"], line["dtype"]
    if line["op"] not in MATMULS or dtype not in ("f32", "bf16"):
        raise Unsupported(f"MKL has no {line['op']} of {dtype} by {dtype}")
    mkl = load(threads)
    a, b = inputs(line)
    batch, m, n, k = shape.get("B", 1), shape["M"], shape["N"], shape["K"]
    out = numpy.empty((batch, m, n) if "B" in shape else (m, n), numpy.float32)
    if dtype == "bf16":
        a, b = bfloat16(a), bfloat16(b)
    size, one, zero = ctypes.c_int, ctypes.c_float(1), ctypes.c_float(0)
    pointer = lambda array: array.ctypes.data_as(ctypes.c_void_p)
    head = [ROW_MAJOR, NO_TRANSPOSE, NO_TRANSPOSE, size(m), size(n), size(k), one]
    if batch == 1:
        function = mkl.cblas_sgemm if dtype == "f32" else mkl.cblas_gemm_bf16bf16f32
        tail = [pointer(a), size(k), pointer(b), size(n), zero, pointer(out), size(n)]
    elif dtype == "f32":
        function = mkl.cblas_sgemm_batch_strided
        tail = [pointer(a), size(k), size(m * k), pointer(b), size(n), size(k * n), zero, pointer(out), size(n)]
        tail += [size(m * n), size(batch)]
    else:
        raise Unsupported("no batches of bf16 here")
    return Call(function, head + tail, out, (a, b))
