//! A workload and how often it is asked for.

use indexmap::IndexMap;
use search_space::Workload;

/// A workload and where it occurs.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The workload.
    pub workload: Workload,
    /// How often it is asked for.
    pub count: u64,
    /// Who asks for it, in order. A node of a model is called by its name, or by operator and first output (`Conv:y`)
    /// when it has none; a line of a list by file and line (`night.txt:3`).
    pub names: Vec<String>,
}

/// Distinct workloads in the order of their first occurrence.
#[derive(Debug, Default)]
pub(crate) struct Tasks(IndexMap<String, Task>);

impl Tasks {
    /// Adds `count` more of `workload`; `None` when the sum does not fit.
    pub(crate) fn add(&mut self, workload: Workload, count: u64, name: String) -> Option<()> {
        let entry = self.0.entry(workload.key());
        let task = entry.or_insert_with(|| Task { workload, count: 0, names: Vec::new() });
        task.count = task.count.checked_add(count)?;
        task.names.push(name);
        Some(())
    }

    /// The tasks.
    pub(crate) fn into_vec(self) -> Vec<Task> {
        self.0.into_values().collect()
    }
}
