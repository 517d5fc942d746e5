//! How a night divides its time, on a clock of its own.

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
fn everybody_is_heard_before_anybody_has_a_second_turn() {
    let planner = planner(Some(60 * S), None, 3);
    // The first gains ever more; the others were measured once.
    let mut standings = [standing(9, 1e-3, 1e-5, 20), standing(1, 1e-3, 1e-4, 2), standing(1, 1e-3, 1e-4, 1)];
    standings[0].best_s = vec![3e-3, 2e-3, 1e-3];
    let turn = planner.next(&standings, S).unwrap();
    assert_eq!((turn.search, turn.until), (2, S + TURN - standings[2].spent));
    standings[2].spent = TURN;
    assert_eq!(planner.next(&standings, S).unwrap().search, 1);
    standings[1].spent = TURN;
    assert_eq!(planner.next(&standings, S).unwrap().search, 0);
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
    let deadline = planner.search_deadline(&standings).unwrap();
    assert!((14 * S..19 * S).contains(&deadline), "{deadline:?}");
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
fn finals_shrink_to_their_share() {
    let finals = FinalsOptions::default();
    let fast = standing(1, 1e-3, 0.0, 10);
    let plan = fast.final_plan(&finals, 10 * S);
    assert_eq!((plan.candidates, &plan.options), (FINALISTS, &finals));
    let share = Duration::from_millis(1500);
    let short = fast.final_plan(&finals, share);
    assert!((1..FINALISTS).contains(&short.candidates), "{short:?}");
    assert!(fast.final_time(&short.options, short.candidates) <= share);
    // Where not even two testing workers fit, one fresh worker chooses and another one tests.
    let slow = standing(1, 0.2, 0.0, 10).final_plan(&finals, 4 * S);
    assert_eq!((slow.candidates, slow.options.test_workers, slow.options.select_blocks), (1, 1, 4));
}

#[test]
fn finals_leave_half_of_the_time_to_searching_and_share_what_is_left() {
    let planner = planner(Some(20 * S), None, 2);
    let slow = [standing(1, 0.5, 0.0, 2), standing(1, 0.5, 0.0, 2)];
    assert_eq!(planner.search_deadline(&slow), Some(10 * S));
    let fast = standing(1, 1e-3, 0.0, 40);
    let candidates = |now, finals| planner.final_plan(&fast, now, finals).candidates;
    assert_eq!((candidates(10 * S, 1), candidates(30 * S, 1)), (FINALISTS, 1));
    assert!((2..FINALISTS).contains(&candidates(17 * S, 2)));
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

#[test]
fn a_final_counts_what_loading_costs_a_fresh_worker() {
    let options = FinalsOptions::default();
    let light = standing(1, 1e-3, 0.0, 10);
    // Changing to the workload takes longer, but fresh workers find what was computed then.
    let heavy = Standing { load: 60 * S, reload: S, case: 7 * S, ..light.clone() };
    let more = |candidates| heavy.final_time(&options, candidates) - light.final_time(&options, candidates);
    assert_eq!(more(1), (1 + options.test_workers) * S + 7 * S);
    // A default without rivals is timed where it is loaded already.
    assert_eq!(more(0), 7 * S);
    assert!(light.final_time(&options, 0) < light.final_time(&options, 1) / 3);
}
