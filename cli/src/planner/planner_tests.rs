use super::*;

const S: Duration = Duration::from_secs(1);

fn standing(count: u64, best_s: f64, bound_s: f64, trials: u64) -> Standing {
    Standing {
        count,
        bound_s,
        best_s: vec![best_s],
        trials,
        trials_now: trials,
        spent: Duration::from_millis(50) * to_u32(usize::try_from(trials).unwrap()),
        prepared: Duration::from_millis(30) * to_u32(usize::try_from(trials).unwrap()),
        ..Standing::default()
    }
}

fn planner(time: Option<Duration>, trials: Option<u64>, searches: usize) -> Planner {
    Planner::new(Limit { time, trials }, searches, FinalsOptions::default())
}

#[test]
fn every_default_comes_first_and_in_order() {
    let planner = planner(Some(60 * S), None, 3);
    let mut standings = vec![standing(1, 1e-3, 0.0, 1), Standing::default(), Standing::default()];
    let turn = planner.next(&standings, S).unwrap();
    assert_eq!((turn.search, turn.trials), (1, 1));
    standings[1].trials = 1;
    assert_eq!(planner.next(&standings, S).unwrap().search, 2);
    // Too late for one more: the finals of the others come first.
    let deadline = planner.search_deadline(&standings).unwrap();
    assert_eq!(planner.next(&standings, deadline), None);
}

#[test]
fn time_goes_where_the_model_gains_most() {
    let planner = planner(Some(60 * S), None, 2);
    // Equal kernels; the second runs ten times as often.
    let often = [standing(1, 1e-3, 1e-4, 20), standing(10, 1e-3, 1e-4, 20)];
    assert_eq!(planner.next(&often, S).unwrap().search, 1);
    // The second is at its roofline: it gives its time away.
    let near = [standing(1, 1e-3, 1e-4, 200), standing(10, 1e-3, 1e-3, 20)];
    assert_eq!(planner.next(&near, S).unwrap().search, 0);
    // Long without progress against young.
    let stale = [standing(1, 1e-3, 1e-4, 500), standing(1, 1e-3, 1e-4, 10)];
    assert_eq!(planner.next(&stale, S).unwrap().search, 1);
    // Equal but for recent progress.
    let mut moving = [standing(1, 1e-3, 1e-4, 100), standing(1, 1e-3, 1e-4, 100)];
    moving[1].best_s = vec![2e-3; 20].into_iter().chain([1e-3]).collect();
    assert_eq!(planner.next(&moving, S).unwrap().search, 1);
    // A slow device is no reason to leave a fast one.
    let mut devices = [standing(1, 1e-3, 1e-4, 20), standing(1, 1.0, 0.1, 20), standing(1, 1.0, 0.1, 20)];
    (devices[1].device, devices[2].device) = (1, 1);
    assert_eq!(planner.next(&devices, S).unwrap().search, 0);
    // What is slow to measure must gain more for it.
    let mut slow = [standing(1, 1e-3, 1e-4, 20), standing(1, 1e-3, 1e-4, 20)];
    slow[0].spent *= 10;
    assert_eq!(planner.next(&slow, S).unwrap().search, 1);
}

#[test]
fn finals_get_their_time_reserved() {
    let planner = planner(Some(20 * S), None, 2);
    let standings = [standing(1, 1e-3, 0.0, 40), standing(1, 1e-3, 0.0, 40)];
    let reserved: Duration = standings.iter().map(|s| s.final_time(&planner.finals)).sum();
    assert!(reserved > S && reserved < 8 * S, "{reserved:?}");
    let deadline = planner.search_deadline(&standings).unwrap();
    assert_eq!(deadline + reserved, 20 * S);
    assert!(planner.next(&standings, deadline - Duration::from_millis(60)).is_some());
    // A trial takes 50 ms: one that would end after the deadline is not begun.
    assert!(planner.next(&standings, deadline - Duration::from_millis(40)).is_none());
    let turn = planner.next(&standings, deadline - Duration::from_millis(100)).unwrap();
    assert_eq!(turn.until, deadline, "a turn ends with the search");
}

#[test]
fn the_number_of_trials_is_a_limit_of_each() {
    let planner = planner(None, Some(50), 2);
    let mut standings = [standing(1, 1e-3, 0.0, 50), standing(1, 1e-3, 0.0, 48)];
    let turn = planner.next(&standings, 9999 * S).unwrap();
    assert_eq!((turn.search, turn.trials), (1, 2));
    standings[1].trials = 50;
    assert_eq!(planner.next(&standings, S), None);
    standings[1].trials = 48;
    standings[1].ended = true;
    assert_eq!(planner.next(&standings, S), None);
}

#[test]
fn slow_kernels_have_smaller_finals() {
    let finals = FinalsOptions { budget_s: 4.0, ..FinalsOptions::default() };
    let fast = standing(1, 1e-3, 0.0, 10).final_plan(&finals);
    assert_eq!((fast.candidates, &fast.options), (FINALISTS, &finals));
    let slower = standing(1, 0.02, 0.0, 10);
    assert!((1..FINALISTS).contains(&slower.final_plan(&finals).candidates));
    let slow = standing(1, 0.2, 0.0, 10).final_plan(&finals);
    assert_eq!((slow.candidates, slow.options.test_workers, slow.options.select_blocks), (1, 1, 4));
    assert!(slower.final_time(&finals) < 9 * S, "{:?}", slower.final_time(&finals));
}

#[test]
fn finals_leave_half_of_the_time_to_searching_and_share_what_is_left() {
    let planner = planner(Some(20 * S), None, 2);
    let slow = [standing(1, 0.5, 0.0, 2), standing(1, 0.5, 0.0, 2)];
    assert!(slow.iter().map(|s| s.final_time(&planner.finals)).sum::<Duration>() > 10 * S);
    assert_eq!(planner.search_deadline(&slow), Some(10 * S));
    let fast = standing(1, 1e-3, 0.0, 40);
    let budget = |now, finals| planner.final_plan(&fast, now, finals).options.budget_s;
    assert_eq!((budget(10 * S, 1), budget(18 * S, 2), budget(30 * S, 1)), (2.5, 0.5, LEAST_BUDGET_S));
}

#[test]
fn a_turn_outlasts_what_changing_costs() {
    let planner = planner(Some(600 * S), None, 2);
    let mut standings = [standing(1, 1e-3, 0.0, 10), standing(1, 1e-3, 0.0, 10)];
    assert_eq!(planner.next(&standings, S).unwrap().until, S + TURN);
    standings[0].load = S;
    assert_eq!(planner.next(&standings, S).unwrap().until, 6 * S);
}

#[test]
fn the_first_split_adds_up() {
    let split = first_split(10 * S, &[3.0, 1.0]);
    assert!((split.iter().sum::<f64>() - 10.0).abs() < 1e-9 && split[0] > split[1], "{split:?}");
    assert_eq!(first_split(10 * S, &[0.0, 0.0]), [5.0, 5.0]);
}
