"""Kernel Tuner's own strategies and cost function, with results from the record.

Everything between a strategy and the device is Kernel Tuner's (`Searchspace`, `CostFunc`, `TuningBudget`); only its
runner is replaced. The space holds exactly the recorded configurations. Its `Searchspace` keeps neighbours that it has
handed out, so each search gets a fresh one: with one for all seeds, simulated annealing looks twice as good as it is.
`max_fevals` is the budget, as a user would give it; other options are Kernel Tuner's defaults unless `--option` changes
them.
"""

import functools
import random

import numpy
from kernel_tuner import util
from kernel_tuner.interface import Options, strategy_map
from kernel_tuner.runners.runner import Runner
from kernel_tuner.searchspace import Searchspace
from scipy.stats import qmc

from replay import BudgetSpent

STRATEGIES = tuple(strategy_map)
LatinHypercube = qmc.LatinHypercube


class RecordedRunner(Runner):
    """Answers from the record, and like `SimulationRunner` gives None for what the budget no longer covers."""

    def __init__(self, play):
        super().__init__()
        self._play = play

    def get_device_info(self):
        return None

    def get_environment(self, tuning_options):
        return {}

    def run(self, parameter_space, tuning_options):
        return [self._result(tuple(config), tuning_options) for config in parameter_space]

    def _result(self, config, tuning_options):
        if tuning_options.budget.is_done():
            return None
        new = not self._play.known(config)
        try:
            time = self._play.measure(config)
        except BudgetSpent:
            return None
        tuning_options.budget.add_evaluations(int(new))
        result = dict(zip(tuning_options.tune_params, config))
        return result | ({"__error__": util.RuntimeFailedConfig()} if time is None else {"time": time})


def search(space, play, strategy, seed, options):
    random.seed(seed)
    numpy.random.seed(seed)
    # `Searchspace` makes its Latin hypercubes (for diff_evo) with an unseeded generator.
    qmc.LatinHypercube = functools.partial(LatinHypercube, rng=seed)
    names = list(space.parameters)
    table = {"tune_params": space.parameters, "cache": dict(enumerate(dict(zip(names, row)) for row in space.configs))}
    searchspace = Searchspace(None, None, None, from_cache=table)
    tuning_options = Options(
        tune_params=space.parameters,
        restrictions=[],
        objective=["time"],
        objective_higher_is_better=[False],
        strategy_options=Options({"max_fevals": play.left} | options),
        budget=util.TuningBudget(max_fevals=play.left),
        max_fevals=play.left,
        verbose=False,
        seed=seed,
        metrics=None,
        cache={},
    )
    # Some strategies let this end them, others return.
    try:
        strategy_map[strategy].tune(searchspace, RecordedRunner(play), tuning_options)
    except util.StopCriterionReached:
        pass
