"""Tests of the replay and its figures: python3 tests/peers/replay_test.py. The cases by hand are those of
cli/src/replay/score.rs, so that both compute the same."""

import gzip
import json
import pathlib
import tempfile
import unittest

import play_random
import replay


def space(times, costs_ms=0.0):
    rows = {(at,): time for at, time in enumerate(times)}
    parameters = {"at": list(range(len(times)))}
    return replay.Space("s", "k", "d", parameters, rows, {config: costs_ms for config in rows})


class Rules(unittest.TestCase):
    def test_a_configuration_counts_once_and_a_failed_one_too(self):
        play = space([3.0, None, 2.0], costs_ms=10.0).play(2)
        self.assertEqual(play.measure((1,)), None)
        self.assertEqual(play.measure((1,)), None)
        self.assertEqual(play.best_ms, [None])
        self.assertEqual(play.measure((0,)), 3.0)
        self.assertEqual((play.best_ms, play.left, play.clock_ms), ([None, 3.0], 0, 20.0))

    def test_nothing_new_is_told_when_the_budget_is_spent(self):
        play = space([3.0, 1.0]).play(1)
        play.measure((0,))
        with self.assertRaises(replay.BudgetSpent):
            play.measure((1,))
        self.assertEqual(play.measure((0,)), 3.0)  # a repeat is free
        self.assertEqual(play.best_ms, [3.0])

    def test_what_is_not_in_the_table_cannot_be_measured(self):
        play = space([3.0]).play(1)
        self.assertNotIn((7,), play)
        with self.assertRaises(KeyError):
            play.measure((7,))
        self.assertEqual(play.left, 1)

    def test_a_recorded_space_is_read_with_its_failures(self):
        with tempfile.TemporaryDirectory() as folder:
            header = pathlib.Path(folder) / "k-d.json"
            parameters = [{"name": "a", "values": [1, 2]}, {"name": "b", "values": ["x", "y"]}]
            header.write_text(json.dumps(
                {"format": "replay-space/1", "space": "k-d", "kernel": "k", "device": "d", "parameters": parameters}))
            with gzip.open(header.with_suffix(".csv.gz"), "wt") as table:
                table.write("a,b,status,time_ms,compile_ms,bench_ms\n1,x,ok,2.5,3,4\n2,y,compile_error,,5,\n")
            read = replay.Space.read(header)
        self.assertEqual((read.configs, read.times), ([(1, "x"), (2, "y")], [2.5]))
        play = read.play(9)
        self.assertEqual((play.left, play.measure((2, "y")), play.measure((1, "x"))), (2, None, 2.5))
        self.assertEqual(play.clock_ms, 12.0)


class Figures(unittest.TestCase):
    def test_the_expected_best_is_that_of_all_draws_counted(self):
        rising = [1.0, 2.0, 4.0, 8.0]
        expected = [15 / 4, (3 + 2 * 2 + 4) / 6, (3 * 1 + 2) / 4, 1.0]
        for draws, best in enumerate(expected, 1):
            self.assertAlmostEqual(replay.expected_best(rising, draws), best)

    def test_failures_count_as_the_worst_time(self):
        failing = space([2.0, None, 1.0, None, 4.0])
        self.assertAlmostEqual(failing.yardstick(200)[0], (1 + 2 + 3 * 4) / 5)
        self.assertEqual(len(failing.yardstick(200)), 5)
        # Before anything worked, the search stands as badly.
        self.assertLess(replay.score_of([None] * 5, failing, failing.yardstick(200)), 0)

    def test_scores_are_those_computed_by_hand(self):
        known = space([1.0, 8.0])
        score = lambda curve: replay.score_of(curve, known, [5.0, 3.0, 2.0])
        mean = (score([None, 2.0, 1.0]) + score([4.0, 4.0, 1.04])) / 2
        self.assertAlmostEqual(mean, (-1 / 4 + 0 / 2 + 0.98 / 1) / 3)

    def test_a_score_ends_where_draws_cannot_miss(self):
        known = space([1.0, 1.0, 3.0])
        self.assertAlmostEqual(replay.score_of([3.0, 1.0, 1.0], known, known.yardstick(3)), (5 / 3 - 3) / (2 / 3))
        flat = space([1.0, 1.0])
        self.assertIsNone(replay.score_of([1.0], flat, flat.yardstick(2)))

    def test_random_draws_score_about_nothing_and_the_optimum_at_once_one(self):
        known = space([1.0 + i * i % 59 if i % 3 else None for i in range(60)])
        runs = []
        for seed in range(2000):
            runs.append(known.play(40))
            with self.assertRaises(replay.BudgetSpent):
                play_random.search(known, runs[-1], "random", seed, {})
        figures = replay.score(known, runs, 4.0, 40)
        self.assertLess(abs(figures["p200"]), 0.07)
        self.assertLess(figures["p200_low"], figures["p200"])
        self.assertEqual(list(figures["frac"]), ["1", "5", "10", "25"])
        self.assertEqual(figures["evaluations"], 40)
        self.assertAlmostEqual(figures["cpu_ms_per_eval"], 4e3 / (2000 * 40))
        at_once = replay.score_of([known.times[0]] * 40, known, known.yardstick(40))
        self.assertAlmostEqual(at_once, 1.0)

    def test_hits_and_need_are_of_the_seeds_that_came_near(self):
        known = space([1.0, 1.04, 2.0, 4.0])
        runs = [known.play(2) for _ in range(2)]
        for play, configs in zip(runs, [(3, 1), (2, 3)]):
            for at in configs:
                play.measure((at,))
        figures = replay.score(known, runs, 0.0, 2)
        self.assertEqual((figures["hit5"], figures["hit1"], figures["need5"]), (0.5, 0.0, None))
        self.assertAlmostEqual(figures["frac"]["1"], (1 / 4 + 1 / 2) / 2)


if __name__ == "__main__":
    unittest.main()
