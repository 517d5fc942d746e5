"""ONNX Runtime's CPU provider (MLAS). Weights of convolutions are constants, so it may prepack them."""

import numpy
import onnxruntime

import onnx_graph
from lines import Unsupported, output_shape


class Call:
    """Runs on memory that was bound before, so that nothing is copied or allocated."""

    def __init__(self, session, inputs, out):
        self._session, self._binding = session, session.io_binding()
        self._out = onnxruntime.OrtValue.ortvalue_from_numpy(out)
        self._inputs = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in inputs.items()}
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        self._binding.bind_ortvalue_output("out", self._out)
        self._memory = self._out.data_ptr(), out.nbytes

    def __call__(self):
        self._session.run_with_iobinding(self._binding)

    def output(self):
        self()
        return self._out.numpy()

    def memory(self, _result):
        return self._memory


def prepare(line, threads, _cache, _reader):
    if line["dtype"] == "bf16":
        raise Unsupported("ONNX Runtime's CPU provider has no MatMul of bf16")
    model, inputs = onnx_graph.model(line)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    out = numpy.zeros(output_shape(line), numpy.int32 if line["dtype"] == "s8" else numpy.float32)
    return Call(session, inputs, out)
