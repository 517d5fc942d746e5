"""Uniform draws without replacement: shows that the replay is fair, for their score must be about 0."""

import random

STRATEGIES = ("random",)


def search(space, play, strategy, seed, options):
    configs = list(space.configs)
    random.Random(seed).shuffle(configs)
    for config in configs:
        play.measure(config)
