//! Whole-pipeline tests: one backend suite per device, crash and fuzz harnesses, and the bars of `./dev check`.
//!
//! Tests live in `tests/tests/`, the bars in [`check`]. Suites that take minutes run only under `./dev test --all`,
//! which sets `TILEWRIGHT_TESTS=all`; see [`slow_suites`].

pub mod check;

/// Whether the slow suites were asked for (`./dev test --all`). A slow test that is not asked for prints that it is
/// skipped and returns.
#[must_use]
pub fn slow_suites() -> bool {
    std::env::var_os("TILEWRIGHT_TESTS").is_some_and(|value| value == "all")
}
