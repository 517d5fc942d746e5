"""The tuning curve of TVM's MetaSchedule on one f32 matrix product of a workload suite, one core.

    $(tests/peers/setup tvm) tests/peers/tune_tvm.py [--name mm_512] [--trials 64] [--mcpu sapphirerapids]

Prints one line of JSON per trial: its number, the seconds since tuning began (building included), its time and the best
so far in milliseconds; then a summary. `./dev check cpu` compares with what this gave on a quiet machine.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

SUITE = pathlib.Path(__file__).parents[2] / "datasets/workloads/cpu.json"
PER_ITERATION = 16


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="mm_512", help="a matmul of the suite (default mm_512)")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--mcpu", default="sapphirerapids", help="LLVM's name of this processor")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    lines = {line["name"]: line for line in json.loads(SUITE.read_text())["workloads"]}
    line = lines.get(arguments.name)
    if line is None or line["op"] != "matmul" or line["dtype"] != "f32":
        parser.error(f"--name {arguments.name!r} is no matmul of f32 in {SUITE}")
    return arguments, line


def product(te, m, n, k):
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    axis = te.reduce_axis((0, k), name="k")
    out = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="out")
    return te.create_prim_func([a, b, out])


def main():
    arguments, line = parse()
    os.environ["TVM_NUM_THREADS"] = "1"
    import tvm
    from tvm import te
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    start, best, done = time.time(), None, 0

    @derived_object
    class Curve(ms.measure_callback.PyMeasureCallback):
        def apply(self, _scheduler, _task, _candidates, builds, runs):
            nonlocal best, done
            wall = time.time() - start
            for build, run in zip(builds, runs):
                done += 1
                failed = build.error_msg or run.error_msg or not run.run_secs
                took = None if failed else 1e3 * min(float(seconds) for seconds in run.run_secs)
                best = took if best is None else best if took is None else min(best, took)
                print(json.dumps({"trial": done, "wall_s": round(wall, 2), "ms": took, "best_ms": best}), flush=True)

    shape = line["shape"]
    module = tvm.IRModule({"main": product(te, shape["M"], shape["N"], shape["K"])})
    target = tvm.target.Target({"kind": "llvm", "mcpu": arguments.mcpu, "num-cores": 1})
    timing = ms.runner.EvaluatorConfig(number=3, repeat=3, min_repeat_ms=30)
    with tempfile.TemporaryDirectory() as scratch:
        ms.tune_tir(
            module, target, scratch, arguments.trials, num_trials_per_iter=PER_ITERATION, seed=arguments.seed,
            builder=ms.builder.LocalBuilder(timeout_sec=120, max_workers=2),
            runner=ms.runner.LocalRunner(timeout_sec=60, evaluator_config=timing),
            measure_callbacks=[ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel(), Curve()],
            num_tuning_cores=2,
        )
    print(json.dumps({
        "name": arguments.name, "tvm": tvm.__version__, "trials": done, "wall_s": round(time.time() - start, 1),
        "best_ms": best, "gflops": best and line["flops"] / best / 1e6, "load": os.getloadavg(),
    }))


# The builder starts processes that import this file.
if __name__ == "__main__":
    main()
