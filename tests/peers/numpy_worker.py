"""One matrix multiplication of numpy, timed on demand.

The first line of standard input describes the work: {"m": .., "n": .., "k": .., "batch": ..} (f32, row-major; batch may
be left out). Each further line `go SECONDS` is answered with one line of JSON: the median and the least nanoseconds of
one call, and the calls made. Inputs are standard normal, as on our side, and the output is allocated once. The caller
pins the threads: OMP_NUM_THREADS and OPENBLAS_NUM_THREADS are read when numpy loads.
"""

import json
import statistics
import sys
import time

import numpy

LEAST_SAMPLE_NS = 200_000  # a sample holds enough calls for the clock's own cost to vanish


def prepare(work):
    m, n, k, batch = work["m"], work["n"], work["k"], work.get("batch", 1)
    stack = (batch,) if batch > 1 else ()
    rng = numpy.random.default_rng(0)
    a = rng.standard_normal((*stack, m, k), dtype=numpy.float32)
    b = rng.standard_normal((*stack, k, n), dtype=numpy.float32)
    out = numpy.empty((*stack, m, n), dtype=numpy.float32)
    return lambda: numpy.matmul(a, b, out=out)


def sample(call, calls):
    start = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return time.perf_counter_ns() - start


def measure(call, seconds):
    calls = 1
    while sample(call, calls) < LEAST_SAMPLE_NS:  # also the warm-up
        calls *= 2
    samples = []
    end = time.perf_counter() + seconds
    while not samples or time.perf_counter() < end:
        samples.append(sample(call, calls) / calls)
    return {"median_ns": statistics.median(samples), "min_ns": min(samples), "calls": calls * len(samples)}


def main():
    call = prepare(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        word, seconds = line.split()
        if word != "go":
            sys.exit(f"numpy_worker: unknown request {line!r}; known: go SECONDS")
        print(json.dumps(measure(call, float(seconds))), flush=True)


main()
