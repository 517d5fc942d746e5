"""PyTorch in eager mode, which calls oneDNN and MKL."""

import torch

from lines import CONVOLUTIONS, EPSILON, MATMULS, inputs


class Call:
    def __init__(self, function, tensors, channels_last):
        self._function, self._tensors, self._channels_last = function, tensors, channels_last

    def __call__(self):
        return self._function(*self._tensors)

    def output(self):
        result = self()
        if self._channels_last:
            result = result.permute(0, 2, 3, 1)
        return result.contiguous().float().numpy() if result.dim() else result.item()

    def memory(self, result):
        return result.data_ptr(), result.numel() * result.element_size()


def function(line):
    named, op, shape = torch.nn.functional, line["op"], line["shape"]
    if op in MATMULS:
        return torch._int_mm if line["dtype"] == "s8" else torch.matmul
    if op in CONVOLUTIONS:
        options = {"stride": shape["stride"], "padding": shape["pad"], "groups": shape["groups"]}
        return lambda x, w: named.conv2d(x, w, **options)
    return {
        "softmax": lambda x: torch.softmax(x, -1),
        "layernorm": lambda x, gamma, beta: named.layer_norm(x, (shape["cols"],), gamma, beta, EPSILON),
        "rmsnorm": lambda x, gamma: named.rms_norm(x, (shape["cols"],), gamma, EPSILON),
        "attention": named.scaled_dot_product_attention,
        "reduce_sum": torch.sum,
        "transpose": lambda x: x.t().contiguous(),
        "gelu_tanh": lambda x: named.gelu(x, approximate="tanh"),
    }[op]


def prepare(line, threads, _cache, _reader):
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    tensors = [torch.from_numpy(array) for array in inputs(line)]
    if line["dtype"] == "bf16":
        tensors = [tensor.bfloat16() for tensor in tensors]
    if line["op"] == "attention":
        tensors = [tensor.unsqueeze(0) for tensor in tensors]
    channels_last = line["shape"].get("layout") == "NHWC"
    if channels_last:  # views with the strides that torch calls channels_last
        x, w = tensors
        w = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        tensors = [x.permute(0, 3, 1, 2), w]
    return Call(function(line), tensors, channels_last)
