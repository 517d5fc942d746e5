"""What search strategies of others reach on recorded spaces, with the rules and figures of `tilewright replay`.

    $(tests/peers/setup kernel_tuner) tests/peers/search.py --tool kernel_tuner --strategy pso --spaces SPACE.json...

`--tool random` needs no environment. One line per space, or with `--json` one object with the fields that `tilewright
replay --json` prints, and a summary. One thread; the same seed gives the same search (but for the processor time).
"""

import argparse
import importlib
import json
import pathlib
import sys
import time

import replay

TOOLS = ("kernel_tuner", "optuna", "xgboost", "random")


def main():
    arguments = parse()
    # The modules are called after the tools, so they are only imported when their tool is there.
    try:
        player = importlib.import_module(f"play_{arguments.tool}")
    except ImportError as error:
        here = pathlib.Path(__file__).parent
        sys.exit(f"search.py: {error}; run with the interpreter that `{here}/setup {arguments.tool}` prints")
    strategy = arguments.strategy or player.STRATEGIES[0]
    if strategy not in player.STRATEGIES:
        sys.exit(f"search.py: {arguments.tool} has no strategy {strategy!r}; known: {', '.join(player.STRATEGIES)}")
    options = dict(arguments.option)
    lines = []
    for path in arguments.spaces:
        space = replay.Space.read(path)
        lines.append(measured(player, space, strategy, options, arguments))
        show(lines[-1], arguments.json)
    total = replay.summary(lines)
    if arguments.json:
        print(json.dumps({"schema": replay.SCHEMA, "summary": total}))
    else:
        show({"space": f"mean of {len(lines)}"} | total, False)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", choices=TOOLS, required=True)
    parser.add_argument("--strategy", help="the tool's name for it (default: its first)")
    parser.add_argument("--spaces", nargs="+", required=True, metavar="JSON", help="headers of recorded spaces")
    parser.add_argument("--seeds", type=int, default=30, help="searches in each space (default 30)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=200, help="evaluations of each search (default 200)")
    parser.add_argument("--option", action="append", default=[], type=option, metavar="NAME=VALUE",
                        help="an option of the strategy, the value in JSON")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.seeds < 1 or arguments.budget < 1:
        parser.error("--seeds and --budget must be 1 or more")
    return arguments


def option(text):
    name, _, value = text.partition("=")
    return name, json.loads(value)


def measured(player, space, strategy, options, arguments):
    """All seeds' searches of one space, scored."""
    runs, cpu_s = [], 0.0
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        play = space.play(arguments.budget)
        start = time.process_time()
        try:
            player.search(space, play, strategy, seed, options)
        except replay.BudgetSpent:
            pass
        cpu_s += time.process_time() - start
        runs.append(play)
    return {
        "schema": replay.SCHEMA,
        "space": space.name,
        "kernel": space.kernel,
        "device": space.device,
        "strategy": f"{arguments.tool} {strategy}" if arguments.tool != strategy else strategy,
        "seeds": arguments.seeds,
        "first_seed": arguments.first_seed,
        "budget": arguments.budget,
        "configs": len(space.configs),
        "optimum_ms": space.times[0],
    } | replay.score(space, runs, cpu_s, arguments.budget)


def show(line, as_json):
    if as_json:
        print(json.dumps(line), flush=True)
        return
    marks = " ".join(f"@{mark} {frac:.3f}" for mark, frac in line["frac"].items())
    p200 = "-" if line["p200"] is None else f"{line['p200']:.2f}"
    print(f"{line['space']}: {marks} hit5 {line['hit5']:.2f} hit1 {line['hit1']:.2f} P200 {p200}", flush=True)


if __name__ == "__main__":
    main()
