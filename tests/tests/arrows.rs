//! The arrows of the house: which crate may depend on which. They are the architecture, so any other arrow is an error.
//!
//! Also holds the promise to programs that only look results up: the database brings neither a code generator, nor a
//! graphics driver, nor a parser of models.

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Allowed arrows between workspace crates, whatever the kind of dependency. `tilewright-tests` may use every crate,
/// and no crate may use it.
const ARROWS: &[(&str, &[&str])] = &[
    ("tilewright-search-space", &[]),
    ("tilewright-codegen", &["tilewright-search-space"]),
    ("tilewright-measure", &["tilewright-codegen", "tilewright-search-space"]),
    ("tilewright-cost-model", &["tilewright-codegen", "tilewright-search-space"]),
    ("tilewright-tuning-db", &["tilewright-search-space"]),
    ("tilewright-datasets", &["tilewright-search-space"]),
    (
        "tilewright",
        &[
            "tilewright-measure",
            "tilewright-cost-model",
            "tilewright-tuning-db",
            "tilewright-datasets",
            "tilewright-codegen",
            "tilewright-search-space",
        ],
    ),
    (
        "tilewright-tests",
        &[
            "tilewright",
            "tilewright-measure",
            "tilewright-cost-model",
            "tilewright-tuning-db",
            "tilewright-datasets",
            "tilewright-codegen",
            "tilewright-search-space",
        ],
    ),
];

/// What a crate must not link, directly or through others.
const ABSENT: &[(&str, &[&str])] = &[
    ("tilewright-search-space", &["inkwell", "llvm-sys", "wgpu", "prost", "rusqlite"]),
    ("tilewright-tuning-db", &["inkwell", "llvm-sys", "wgpu", "prost"]),
    ("tilewright-datasets", &["inkwell", "llvm-sys", "wgpu", "rusqlite"]),
    ("tilewright-codegen", &["wgpu", "rusqlite", "prost"]),
];

/// Dependencies by package name: for the arrows, of every kind; for what is linked, normal and build ones.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Every arrow of `graph` that `allowed` does not list, and every crate that it does not know.
fn wrong_arrows(graph: &Graph, allowed: &[(&str, &[&str])]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (from, targets) in graph {
        match allowed.iter().find(|(name, _)| name == from) {
            None => wrong.push(format!("{from}: a crate without arrows; add it to ARROWS and to ARCHITECTURE.md")),
            Some((_, to)) => {
                wrong.extend(targets.iter().filter(|t| !to.contains(&t.as_str())).map(|t| format!("{from} -> {t}")));
            }
        }
    }
    wrong
}

/// The chain `from -> ... -> to` for each forbidden `to` that `from` reaches in `graph`.
fn forbidden_links(graph: &Graph, absent: &[(&str, &[&str])]) -> Vec<String> {
    let mut found = Vec::new();
    for (from, names) in absent {
        let mut parent: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = VecDeque::from([*from]);
        while let Some(name) = queue.pop_front() {
            for next in graph.get(name).into_iter().flatten() {
                if next != from && !parent.contains_key(next.as_str()) {
                    parent.insert(next, name);
                    queue.push_back(next);
                }
            }
        }
        for name in names.iter().filter(|name| parent.contains_key(**name)) {
            let mut chain = vec![*name];
            while let Some(up) = parent.get(chain[chain.len() - 1]) {
                chain.push(up);
            }
            chain.reverse();
            found.push(chain.join(" -> "));
        }
    }
    found
}

fn metadata() -> Metadata {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    MetadataCommand::new()
        .manifest_path(manifest)
        .other_options(["--locked", "--filter-platform", "host-tuple"].map(str::to_owned))
        .exec()
        .expect("cargo metadata reads the workspace")
}

fn names(metadata: &Metadata) -> BTreeMap<&PackageId, &str> {
    metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect()
}

/// The arrows between members of the workspace, of every kind.
fn member_graph(metadata: &Metadata) -> Graph {
    let members: BTreeSet<&str> = metadata.workspace_packages().iter().map(|p| p.name.as_str()).collect();
    metadata
        .workspace_packages()
        .iter()
        .map(|package| {
            let targets = package.dependencies.iter().filter(|d| members.contains(d.name.as_str()));
            (package.name.to_string(), targets.map(|d| d.name.clone()).collect())
        })
        .collect()
}

/// What is linked (or run while building) for each package of the resolved graph.
fn link_graph(metadata: &Metadata) -> Graph {
    let names = names(metadata);
    let mut graph = Graph::new();
    for node in &metadata.resolve.as_ref().expect("cargo metadata resolves").nodes {
        let linked = node.deps.iter().filter(|d| d.dep_kinds.iter().any(|k| k.kind != DependencyKind::Development));
        graph.entry(names[&node.id].to_owned()).or_default().extend(linked.map(|d| names[&d.pkg].to_owned()));
    }
    graph
}

#[test]
fn crates_follow_the_arrows() {
    let graph = member_graph(&metadata());
    assert!(graph["tilewright-codegen"].contains("tilewright-search-space"), "the graph was read: {graph:?}");
    assert_eq!(wrong_arrows(&graph, ARROWS), Vec::<String>::new());
}

#[test]
fn the_device_free_part_links_no_device() {
    let graph = link_graph(&metadata());
    assert!(graph["tilewright-codegen"].contains("inkwell"), "the graph was read");
    assert_eq!(forbidden_links(&graph, ABSENT), Vec::<String>::new());
}

/// Seeded faults: a forbidden arrow, an unknown crate and a link through a third crate are each named.
#[test]
fn wrong_arrows_and_links_are_found() {
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    let mut graph = member_graph(&metadata());
    graph.entry("tilewright-search-space".into()).or_default().insert("tilewright-codegen".into());
    graph.insert("tilewright-extra".into(), set(&[]));
    let wrong = wrong_arrows(&graph, ARROWS);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong.iter().any(|w| w == "tilewright-search-space -> tilewright-codegen"), "{wrong:?}");
    assert!(wrong.iter().any(|w| w.starts_with("tilewright-extra:")), "{wrong:?}");

    let graph = Graph::from([
        ("tilewright-tuning-db".into(), set(&["rusqlite", "helper"])),
        ("helper".into(), set(&["inkwell", "tilewright-tuning-db"])),
        ("inkwell".into(), set(&["llvm-sys"])),
    ]);
    let found = forbidden_links(&graph, ABSENT);
    assert_eq!(
        found,
        ["tilewright-tuning-db -> helper -> inkwell", "tilewright-tuning-db -> helper -> inkwell -> llvm-sys"]
    );
}
