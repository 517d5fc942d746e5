//! The recorded GPU spaces, where they are: every table is read, and the published constraints are compared with it.

use std::time::Instant;

use tilewright_datasets::{recorded, spaces};

use super::published;

/// The headers, by name.
fn headers() -> Vec<std::path::PathBuf> {
    let Some(folder) = published() else { return Vec::new() };
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut headers: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    headers.sort();
    headers
}

#[test]
fn every_recorded_space_is_read() {
    for path in headers() {
        let start = Instant::now();
        let found = recorded::read(&path).unwrap();
        let judge = found.judge();
        println!(
            "{}: {} on {}, {} configurations, best {:.4} ms, within 5 % {}, 1 % {}, {} nodes, read in {:.1?}",
            found.name,
            found.kernel,
            found.device,
            found.len(),
            judge.optimum_s() * 1e3,
            judge.within(0.05),
            judge.within(0.01),
            found.space().nodes(),
            start.elapsed()
        );
        let header: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(Some(found.len() as u64), header["n_configs"].as_u64());
        assert!((judge.optimum_s() * 1e3 / header["best_ms"].as_f64().unwrap() - 1.0).abs() < 1e-5);
        assert_eq!(Some(judge.within(0.05) as u64), header["n_within_5pct"].as_u64());
        assert_eq!(Some(judge.within(0.01) as u64), header["n_within_1pct"].as_u64());
    }
}

#[test]
fn published_constraints_describe_the_tables() {
    for path in headers() {
        let table = spaces::read(&path).unwrap();
        assert!(table.untranslated.is_empty(), "{:?}", table.untranslated);
        // The same header without a table beside it: the constraints decide.
        let alone = tempfile::tempdir().unwrap();
        let copy = alone.path().join(path.file_name().unwrap());
        std::fs::copy(&path, &copy).unwrap();
        let constrained = spaces::read(&copy).unwrap();
        let broken = (0..table.space.count())
            .filter(|&rank| !constrained.space.contains(&table.space.unrank(rank).unwrap()))
            .count();
        println!(
            "{}: constraints allow {}, the table has {}, of which {broken} break a constraint",
            table.name,
            constrained.space.count(),
            table.space.count()
        );
        // Only that: a table may have been cut, or be of a kernel whose constraints were not published.
        assert_eq!(broken, 0, "{}", table.name);
    }
}
