"""Optuna's tree-structured Parzen estimator (`TPESampler`, its defaults).

A number with more than two values is an integer, its position in the rising list, so that the sampler knows the order;
anything else is categorical. What is not in the space is rejected without being charged, and told as failed, which the
sampler passes over; told as pruned, which it counts among the worst, it does less well (docs/search.md). What fails
when measured is told as pruned. A repeat is told again. A search that no longer finds anything new ends after 20 trials for
each evaluation of the budget.
"""

import optuna

from replay import BudgetSpent

STRATEGIES = ("tpe",)
MOST_TRIALS = 20  # for each evaluation of the budget, repeats and rejections included


def ask(trial, space):
    config = []
    for name, values in space.parameters.items():
        if len(values) > 2 and all(isinstance(value, (int, float)) for value in values):
            config.append(sorted(values)[trial.suggest_int(name, 0, len(values) - 1)])
        else:
            config.append(trial.suggest_categorical(name, values))
    return tuple(config)


def search(space, play, strategy, seed, options):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, **options))
    for _ in range(MOST_TRIALS * play.left):
        trial = study.ask()
        config = ask(trial, space)
        if config not in play:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        try:
            time = play.measure(config)
        except BudgetSpent:
            return
        if time is None:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, time)
        if play.left == 0:
            return
