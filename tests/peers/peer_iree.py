"""IREE, compiled for this processor. Timed by its own iree-benchmark-module; with a reader, through its Python runtime,
whose calls cost some microseconds more."""

import json
import pathlib
import statistics
import subprocess
import sys

import iree.runtime
import numpy

import onnx_graph
from lines import MATMULS, Unsupported, inputs

FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-data-tiling",
    "--iree-opt-level=O3",
)
NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def tool(name, *arguments):
    """What a program of IREE's prints; it lies beside the interpreter."""
    command = [pathlib.Path(sys.executable).with_name(name), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise Unsupported(f"{name}: {ran.stderr.strip()[-300:]}")
    return ran.stdout


def matmul(line):
    """MLIR of a matrix product; ONNX has none of bf16 into f32 and back."""
    shape = line["shape"]
    stack = f"{shape['B']}x" if "B" in shape else ""
    element = {"s8": "i8"}.get(line["dtype"], line["dtype"])
    sum_type = {"bf16": "f32", "i8": "i32"}.get(element, element)
    result_type = {"bf16": "bf16"}.get(element, sum_type)
    tensor = lambda rows, cols, kind: f"tensor<{stack}{shape[rows]}x{shape[cols]}x{kind}>"
    a, b, c = tensor("M", "K", element), tensor("K", "N", element), tensor("M", "N", sum_type)
    out = tensor("M", "N", result_type)
    last = f"%out = arith.truncf %sums : {c} to {out}" if out != c else ""
    return f"""
func.func @main(%a: {a}, %b: {b}) -> {out} {{
  %zero = arith.constant {"0" if sum_type == "i32" else "0.0"} : {sum_type}
  %empty = tensor.empty() : {c}
  %zeros = linalg.fill ins(%zero : {sum_type}) outs(%empty : {c}) -> {c}
  %sums = linalg.{line["op"]} ins(%a, %b : {a}, {b}) outs(%zeros : {c}) -> {c}
  {last}
  return {"%out" if last else "%sums"} : {out}
}}
"""


def compiled(line, folder):
    """The compiled module, and the arrays it is called with."""
    source, module = folder / "main.mlir", folder / "main.vmfb"
    if line["op"] in MATMULS:
        source.write_text(matmul(line))
        arrays = inputs(line)
    else:
        model, named = onnx_graph.model(line)
        (folder / "main.onnx").write_bytes(model.SerializeToString())
        tool("iree-import-onnx", folder / "main.onnx", "-o", source)
        arrays = list(named.values())
    if not module.exists():  # the name of the folder says of what
        tool("iree-compile", source, "-o", folder / "unfinished.vmfb", *FLAGS)
        (folder / "unfinished.vmfb").rename(module)
    return module, arrays


class Timed:
    """Timed by IREE's own program."""

    def __init__(self, module, arrays, line, threads, folder):
        device = ["--device=local-sync"]
        if threads > 1:
            device = ["--device=local-task", f"--task_topology_group_count={threads}"]
        self._arguments = [f"--module={module}", "--function=main", *device]
        for position, array in enumerate(arrays):
            if line["dtype"] == "bf16":  # numpy has no such type
                self._arguments.append(f"--input={'x'.join(map(str, array.shape))}xbf16=0.1")
            else:
                numpy.save(folder / f"{position}.npy", array)
                self._arguments.append(f"--input=@{folder / f'{position}.npy'}")
        self._check = None if line["dtype"] == "bf16" else Called(module, arrays, threads)

    def output(self):
        return self._check.output() if self._check else None

    def measure(self, seconds):
        repetitions = 5
        flags = ("--benchmark_min_warmup_time=0.1", f"--benchmark_min_time={max(seconds / repetitions, 0.01)}s",
                 f"--benchmark_repetitions={repetitions}", "--benchmark_format=json")
        runs = json.loads(tool("iree-benchmark-module", *self._arguments, *flags))["benchmarks"]
        runs = [run for run in runs if run.get("run_type") == "iteration"]
        times = [run["real_time"] * NANOSECONDS[run["time_unit"]] for run in runs]
        calls = sum(run["iterations"] for run in runs)
        return {"median_ns": statistics.median(times), "min_ns": min(times), "calls": calls}


class Called:
    """Called from Python, so that the output is at hand."""

    def __init__(self, module, arrays, threads):
        config = iree.runtime.Config("local-sync" if threads == 1 else "local-task")
        context = iree.runtime.SystemContext(config=config)
        context.add_vm_module(iree.runtime.VmModule.mmap(config.vm_instance, str(module)))
        self._function = context.modules.module["main"]
        self._arrays = [iree.runtime.asdevicearray(config.device, array) for array in arrays]

    def __call__(self):
        return self._function(*self._arrays)

    def output(self):
        return self().to_host()

    def memory(self, result):
        host = result.to_host()  # a view of the mapped buffer
        return host.ctypes.data, host.nbytes


def prepare(line, threads, cache, reader):
    folder = cache / f"iree-{line['name']}"
    folder.mkdir(parents=True, exist_ok=True)
    module, arrays = compiled(line, folder)
    if not reader:
        return Timed(module, arrays, line, threads, folder)
    if line["dtype"] == "bf16":
        raise Unsupported("numpy has no bf16, so its output cannot be read from Python")
    return Called(module, arrays, threads)
