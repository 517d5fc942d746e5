"""The loop of TVM's AutoTVM: rank what was measured with boosted trees, search the ranking, measure a batch, again.

32 random configurations, then batches of 16: 10 % random, the rest those that the model ranks best among what a search
on the model has met. Strategy `annealing` walks on the model as AutoTVM does (128 chains, one parameter changed in each
step, temperature from 1 to 0); `evolution` breeds (four generations of 256, half of the children from two parents, each
with one parameter changed). The trees are xgboost's with a pairwise rank loss on the parameters' values and
fastest / time (failures: 0) as relevance. All of the space is ranked at once after each fit, only so that a search on
the model can look ranks up. Source: Chen et al., "Learning to Optimize Tensor Programs", 2018.
"""

import random

import numpy
import xgboost

STRATEGIES = ("annealing", "evolution")
START, BATCH, RANDOM_SHARE = 32, 16, 0.1
TREES = {
    "objective": "rank:pairwise",
    "lambdarank_pair_method": "mean",
    "lambdarank_num_pair_per_sample": 8,
    "max_depth": 6,
    "eta": 0.2,
    "min_child_weight": 1,
    "gamma": 1e-4,
    "nthread": 1,
}
ROUNDS = 100


def search(space, play, strategy, seed, options):
    rng = random.Random(seed)
    met = numpy.array([[position(values, value) for values, value in zip(space.parameters.values(), config)]
                       for config in space.configs], dtype=numpy.float32)
    everything = xgboost.DMatrix(met)
    number = {config: at for at, config in enumerate(space.configs)}
    relevance = {}  # number -> time in ms or None

    def measure(at):
        relevance[at] = play.measure(space.configs[at])

    for at in rng.sample(range(len(number)), min(START, play.left)):
        measure(at)
    while play.left > 0:
        rank = fitted(met, relevance, options, seed).predict(everything)
        walk = {"annealing": anneal, "evolution": evolve}[strategy]
        found = sorted(walk(space, number, rank, relevance, rng), key=lambda at: (-rank[at], at))
        fresh = [at for at in found if at not in relevance]
        unknown = [at for at in range(len(number)) if at not in relevance]
        batch = []
        for _ in range(min(BATCH, play.left)):
            drawn = rng.random() < RANDOM_SHARE or not fresh
            at = rng.choice(unknown) if drawn else fresh[0]
            batch.append(at)
            unknown.remove(at)
            if at in fresh:
                fresh.remove(at)
        for at in batch:
            measure(at)


def position(values, value):
    return value if isinstance(value, (int, float)) else values.index(value)


def fitted(features, measured, options, seed):
    numbers = sorted(measured)
    times = [measured[at] for at in numbers]
    best = min((time for time in times if time is not None), default=1.0)
    labels = [0.0 if time is None else best / time for time in times]
    rows = xgboost.DMatrix(features[numbers], label=labels, group=[len(numbers)])
    return xgboost.train(TREES | {"seed": seed} | options, rows, num_boost_round=ROUNDS)


def changed(space, config, rng):
    """A copy with another value for one parameter."""
    several = [at for at, values in enumerate(space.parameters.values()) if len(values) > 1]
    at = rng.choice(several)
    values = list(space.parameters.values())[at]
    other = rng.choice([value for value in values if value != config[at]])
    return config[:at] + (other,) + config[at + 1:]


def anneal(space, number, rank, measured, rng, chains=128, steps=200):
    everything = range(len(number))
    known = sorted(measured, key=lambda at: (measured[at] is None, measured[at]))
    start = known[:chains // 2]
    points = start + [rng.choice(everything) for _ in range(chains - len(start))]
    met = set(points)
    for step in range(steps):
        temperature = 1.0 - step / steps
        for chain, at in enumerate(points):
            to = number.get(changed(space, space.configs[at], rng))
            if to is None:
                continue
            met.add(to)
            if rank[to] > rank[at] or rng.random() < numpy.exp((rank[to] - rank[at]) / temperature):
                points[chain] = to
    return met


def evolve(space, number, rank, measured, rng, population=256, generations=4):
    everything = range(len(number))
    known = sorted(measured, key=lambda at: (measured[at] is None, measured[at]))
    pool = known[:population // 4]
    pool += [rng.choice(everything) for _ in range(population - len(pool))]
    met = set(pool)
    for _ in range(generations):
        parents = sorted(set(pool), key=lambda at: (-rank[at], at))[:population // 4]
        children, attempts = [], 0
        while len(children) < population and attempts < 50 * population:
            attempts += 1
            child = space.configs[rng.choice(parents)]
            if rng.random() < 0.5:
                other = space.configs[rng.choice(parents)]
                child = tuple(rng.choice(pair) for pair in zip(child, other))
            at = number.get(changed(space, child, rng))
            if at is not None:
                children.append(at)
        met.update(children)
        pool = parents + children
    return met
