"""Recorded spaces replayed for searches of others, by the rules and with the figures of `tilewright replay`.

A search gets results through `Playback.measure` alone. Each distinct configuration costs one evaluation, a failed one
too; a repeat is free. Only the standard library is needed. The figures are defined in docs/cli.md, "Comparing
strategies without a device"; cli/src/replay/score.rs computes the same.
"""

import csv
import gzip
import json
import pathlib
import random
import statistics

MARKS = (1, 5, 10, 25, 50, 100, 200)
RESAMPLES = 10_000
LEAST_GAP = 1e-9  # part of the optimum by which the baseline must exceed it for a quotient to mean something
SCHEMA = "tilewright.replay-score/1"


class BudgetSpent(Exception):
    """The budget is spent and another configuration was asked for."""


class Space:
    """A recorded space (`replay-space/1`): parameters and the time in ms of each configuration, None for a failure."""

    def __init__(self, name, kernel, device, parameters, rows, costs_ms):
        self.name, self.kernel, self.device = name, kernel, device
        self.parameters = parameters  # name -> list of values
        self.configs = list(rows)  # tuples of values in the order of the parameters
        self._rows, self._costs_ms = rows, costs_ms
        self.times = sorted(time for time in rows.values() if time is not None)
        if not self.times:
            raise SystemExit(f"{name}: no configuration worked, so there is nothing to find")

    @staticmethod
    def read(path):
        path = pathlib.Path(path)
        header = json.loads(path.read_text())
        if header.get("format") != "replay-space/1":
            raise SystemExit(f"{path}: not the header of a recorded space; it must say \"format\": \"replay-space/1\"")
        parameters = {parameter["name"]: parameter["values"] for parameter in header["parameters"]}
        known = [{str(value): value for value in values} for values in parameters.values()]
        packed = path.with_suffix(".csv.gz")
        opened = gzip.open(packed, "rt", newline="") if packed.exists() else path.with_suffix(".csv").open(newline="")
        rows, costs_ms = {}, {}
        with opened as table:
            for row in csv.DictReader(table):
                config = tuple(values[row[name]] for name, values in zip(parameters, known))
                rows[config] = float(row["time_ms"]) if row["status"] == "ok" else None
                costs_ms[config] = sum(float(row.get(part) or 0) for part in ("compile_ms", "bench_ms"))
        device = header.get("device_key", header["device"])
        return Space(header["space"], header["kernel"], device, parameters, rows, costs_ms)

    def play(self, budget):
        return Playback(self, budget)

    def yardstick(self, draws):
        """The expected best of 1, 2, ... distinct draws; what failed counts as the slowest time."""
        counted = self.times + [self.times[-1]] * (len(self._rows) - len(self.times))
        return [expected_best(counted, t) for t in range(1, min(draws, len(counted)) + 1)]


class Playback:
    """Where one search gets its results."""

    def __init__(self, space, budget):
        self._space, self._seen = space, {}
        self.left = min(budget, len(space.configs))
        self.best_ms = []  # after each evaluation
        self.clock_ms = 0.0

    def __contains__(self, config):
        return config in self._space._rows

    def known(self, config):
        """Whether it was measured already, so that it would be free."""
        return config in self._seen

    def measure(self, config):
        """The time in ms of a configuration of the space, None when it fails. Raises BudgetSpent."""
        if config not in self._seen:
            if self.left == 0:
                raise BudgetSpent
            time = self._space._rows[config]
            self.left -= 1
            self._seen[config] = time
            self.clock_ms += self._space._costs_ms[config]
            best = self.best_ms[-1] if self.best_ms else None
            self.best_ms.append(best if time is None else time if best is None else min(best, time))
        return self._seen[config]


def expected_best(rising, draws):
    """The exact expectation of the least of `draws` distinct uniform draws."""
    n = len(rising)
    probability, total = draws / n, 0.0
    for at in range(n - draws + 1):
        total += probability * rising[at]
        left = n - at - 1
        if left > 0:
            probability *= (left - draws + 1) / left
    return total


def score_of(best_ms, space, baseline):
    """The score of one search against random draws; None where these cannot miss the optimum."""
    optimum, best, terms = space.times[0], space.times[-1], []
    for at, expected in enumerate(baseline):
        if at < len(best_ms) and best_ms[at] is not None:
            best = best_ms[at]
        gap = expected - optimum
        if gap <= LEAST_GAP * optimum:
            break
        terms.append((expected - best) / gap)
    return sum(terms) / len(terms) if terms else None


def score(space, runs, cpu_s, budget):
    """The figures of all seeds' searches, as `tilewright replay --json` names them."""
    optimum, baseline = space.times[0], space.yardstick(budget)
    curves = [run.best_ms for run in runs]
    mean = statistics.fmean

    def frac(curve, mark):
        best = curve[min(mark, len(curve)) - 1] if curve else None
        return 0.0 if best is None else optimum / best

    def needed(curve, part):
        near = (at + 1 for at, best in enumerate(curve) if best is not None and best <= optimum * (1 + part))
        return next(near, float("inf"))

    each = [score_of(curve, space, baseline) for curve in curves]
    scored = None not in each
    need5 = statistics.median(needed(curve, 0.05) for curve in curves)
    return {
        "frac": {str(mark): mean(frac(curve, mark) for curve in curves) for mark in MARKS if mark <= budget},
        "hit5": mean(needed(curve, 0.05) < float("inf") for curve in curves),
        "hit1": mean(needed(curve, 0.01) < float("inf") for curve in curves),
        "p200": mean(each) if scored else None,
        "cpu_ms_per_eval": 1e3 * cpu_s / max(1, sum(map(len, curves))),
        "need5": need5 if need5 < float("inf") else None,
        "p200_low": lower_bound(each) if scored else None,
        "evaluations": mean(map(len, curves)),  # a peer may stop before its budget is spent
        "clock_s": mean(run.clock_ms for run in runs) / 1e3,
    }


def lower_bound(values):
    """The fifth percentile of the means of `values` resampled with replacement."""
    rng = random.Random(0)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[RESAMPLES // 20]


def summary(lines):
    """The means over spaces, as in the last line of `tilewright replay --json`."""
    def means(lines):
        scored = [line["p200"] for line in lines if line["p200"] is not None]
        return {
            "spaces": len(lines),
            "frac": {mark: statistics.fmean(line["frac"][mark] for line in lines) for mark in lines[0]["frac"]},
            **{name: statistics.fmean(line[name] for line in lines) for name in ("hit5", "hit1", "cpu_ms_per_eval")},
            "p200": statistics.fmean(scored) if scored else None,
        } if lines else {"spaces": 0}

    large = means([line for line in lines if line["configs"] > 1000])
    return means(lines) | {name: lines[0][name] for name in ("strategy", "seeds", "budget")} | {"large": large}
