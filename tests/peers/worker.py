"""One peer in one process, timed on demand: worker.py PEER THREADS CACHE, with the interpreter that `setup` prints.

A line of JSON prepares work and is answered with one:
    {"prepare": LINE OF A WORKLOAD LIST, "reader": false}
    {"ok": true, "samples": [..]}        64 elements of the output, spread evenly; null where they cannot be had
    {"ok": false, "why": ".."}
Each line `go SECONDS` is answered with the nanoseconds of one call: {"median_ns": .., "min_ns": .., "calls": ..}.
With "reader", the whole output is read once after each call, inside of the time. CACHE holds what was compiled.

The caller pins the process and sets OMP_NUM_THREADS and its like, which are read when a peer loads.
"""

import ctypes
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy

import lines

LEAST_SAMPLE_NS = 200_000  # a sample holds enough calls for the clock's own cost to vanish
SAMPLES = 64
WARM_UP_S = 0.1  # as long as our side is busy with compiling and checking before it samples

READER = """
#include <stddef.h>
#include <stdint.h>
uint64_t read_all(const uint64_t *words, size_t count) {
    uint64_t seen = 0;
    for (size_t i = 0; i < count; i++) seen |= words[i];
    return seen;
}
"""


def build_reader(cache):
    """A function that reads bytes (address, count of 64-bit words) as fast as the processor can."""
    library = cache / f"reader-{os.getpid()}.so"
    command = ["gcc", "-O3", "-march=native", "-shared", "-fPIC", "-x", "c", "-", "-o", library]
    subprocess.run(command, input=READER, text=True, check=True)
    function = ctypes.CDLL(str(library)).read_all
    library.unlink()
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_uint64
    return function


def with_reader(call, read):
    def both():
        result = call()
        address, size = call.memory(result)
        read(address, size // 8)
        return result

    return both


def sample(call, calls):
    start = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return time.perf_counter_ns() - start


def measure(call, seconds):
    calls = 1
    warm = time.perf_counter() + WARM_UP_S
    while sample(call, calls) < LEAST_SAMPLE_NS:
        calls *= 2
    while time.perf_counter() < warm:
        sample(call, calls)
    samples = []
    end = time.perf_counter() + seconds
    while not samples or time.perf_counter() < end:
        samples.append(sample(call, calls) / calls)
    return {"median_ns": statistics.median(samples), "min_ns": min(samples), "calls": calls * len(samples)}


def spread(output):
    """Some elements of the output, from the first to the last."""
    flat = numpy.asarray(output).reshape(-1)
    return [float(flat[i * (flat.size - 1) // (SAMPLES - 1)]) for i in range(SAMPLES)]


class Work:
    """What was prepared last."""

    def __init__(self, peer, request, threads, cache):
        line, reader = request["prepare"], request.get("reader", False)
        call = peer.prepare(line, threads, cache, reader)
        output = call.output()
        self.samples = None if output is None else spread(output)
        # A peer that is timed by a program of its own does that itself.
        self.go = call.measure if hasattr(call, "measure") else None
        if self.go is None:
            timed = with_reader(call, build_reader(cache)) if reader else call
            self.go = lambda seconds: measure(timed, seconds)


def main():
    name, threads, cache = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    cache.mkdir(parents=True, exist_ok=True)
    # Whatever a library prints goes to stderr: stdout belongs to the protocol.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer, work = importlib.import_module(f"peer_{name}"), None
    for text in sys.stdin:
        if text.startswith("go "):
            answer = work.go(float(text[3:]))
        else:
            work = None  # its memory goes before new memory comes
            try:
                work = Work(peer, json.loads(text), threads, cache)
                answer = {"ok": True, "samples": work.samples}
            except lines.Unsupported as why:
                answer = {"ok": False, "why": str(why)}
            except Exception as error:  # the peer's own faults are its result
                answer = {"ok": False, "why": f"{type(error).__name__}: {error}"[:600]}
        print(json.dumps(answer), file=out, flush=True)


main()
