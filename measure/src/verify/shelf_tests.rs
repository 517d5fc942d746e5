//! What is believed of a shelf's content.

use super::*;

const MOST: u64 = 1 << 20;

fn open(file: &File, workload: &str) -> Shelf {
    Shelf::open(file.try_clone().unwrap(), workload, MOST)
}

fn filled() -> File {
    let file = tempfile::tempfile().unwrap();
    let mut shelf = open(&file, "w");
    shelf.put("exact", &[b"one", b"", &[7; 100_000]]).unwrap();
    shelf.put("numeric", &[b"two"]).unwrap();
    file
}

fn taken(shelf: &mut Shelf, name: &str) -> Option<Vec<Vec<u8>>> {
    Some(shelf.take(name)?.iter().map(|part| part.to_vec()).collect())
}

#[test]
fn what_was_put_is_found_by_the_next_worker() {
    let file = filled();
    let mut shelf = open(&file, "w");
    assert_eq!(taken(&mut shelf, "exact").unwrap(), [b"one".to_vec(), Vec::new(), vec![7; 100_000]]);
    assert_eq!(taken(&mut shelf, "numeric").unwrap(), [b"two".to_vec()]);
    assert_eq!(taken(&mut shelf, "hostile"), None);
    // A later worker adds what was missing.
    shelf.put("hostile", &[b"three"]).unwrap();
    let mut shelf = open(&file, "w");
    let all = ["exact", "numeric", "hostile"].map(|name| taken(&mut shelf, name).is_some());
    assert_eq!(all, [true; 3]);
}

#[test]
fn another_case_is_not_taken_for_this_one() {
    assert_eq!(taken(&mut open(&filled(), "w"), "numeric"), None);
}

#[test]
fn the_next_workload_empties_the_file() {
    let file = filled();
    assert!(file.metadata().unwrap().len() > 100_000);
    assert_eq!(taken(&mut open(&file, "v"), "exact"), None);
    assert_eq!(file.metadata().unwrap().len(), 0);
}

#[test]
fn damaged_content_is_not_believed_and_replaced() {
    for at in [16, 88, 96, HEADER as u64, HEADER as u64 + 50_000] {
        let file = filled();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        let mut shelf = open(&file, "w");
        assert_eq!(taken(&mut shelf, "exact"), None, "damaged at {at}");
        shelf.put("exact", &[b"again"]).unwrap();
        assert_eq!(taken(&mut open(&file, "w"), "exact").unwrap(), [b"again".to_vec()]);
    }
}

#[test]
fn what_a_dying_worker_left_is_not_believed() {
    // Without its header.
    let file = filled();
    file.write_all_at(&[0; HEADER], 0).unwrap();
    assert_eq!(taken(&mut open(&file, "w"), "exact"), None);
    // Cut off.
    let file = filled();
    file.set_len(HEADER as u64 + 50_000).unwrap();
    assert_eq!(taken(&mut open(&file, "w"), "exact"), None);
    file.set_len(100).unwrap();
    assert_eq!(taken(&mut open(&file, "w"), "exact"), None);
}

#[test]
fn too_much_is_not_kept() {
    let file = tempfile::tempfile().unwrap();
    assert!(open(&file, "w").put("exact", &[&vec![0; 2 << 20]]).is_none());
    assert!(file.metadata().unwrap().len() <= MOST);
    assert_eq!(taken(&mut open(&file, "w"), "exact"), None);
}

#[test]
fn what_was_read_stays_in_memory_that_cannot_be_written() {
    let file = filled();
    let parts = open(&file, "w").take("exact").unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.starts_with(&format!("{:x}-", parts[0].as_ptr().addr()))).unwrap();
    assert!(line.contains("r--s"), "{line}");
}
