//! Reads named values of a schedule, and domains that several families share.

use crate::schedule::Schedule;
use crate::space::SpaceBuilder;
use crate::target::Target;
use crate::workload::Workload;

/// Whether an output is written through the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Ordinary stores.
    Plain,
    /// Non-temporal stores.
    Stream,
}

/// The words of [`Store`] in schedules.
pub const STORES: [&str; 2] = ["plain", "stream"];

/// A positive number.
///
/// # Errors
/// The parameter that is missing or not a positive number.
pub fn int(schedule: &Schedule, name: &str) -> Result<u64, String> {
    let value = schedule.int(name).ok_or_else(|| format!("parameter {name} is missing or not a number"))?;
    u64::try_from(value).ok().filter(|&value| value > 0).ok_or_else(|| format!("{name}={value} must be > 0"))
}

/// The position of a word in `words`.
///
/// # Errors
/// The parameter that is missing or has no meaning.
pub fn word(schedule: &Schedule, name: &str, words: &[&str]) -> Result<usize, String> {
    let value = schedule.name(name).ok_or_else(|| format!("parameter {name} is missing or a number"))?;
    words.iter().position(|word| *word == value).ok_or_else(|| format!("{name}={value} is not known"))
}

/// How the output is stored.
///
/// # Errors
/// As [`word`].
pub fn store(schedule: &Schedule) -> Result<Store, String> {
    Ok(if word(schedule, "store", &STORES)? == 1 { Store::Stream } else { Store::Plain })
}

/// Caches of a core whose size outputs may have that are stored through them: what reads them next finds them there,
/// where it would have to fetch what was stored past them. Copies of 0.1 to 256 MB on an AVX-512 core with 2 MiB gained
/// from streaming, followed by a read of the copy, from 4 to 8 MB on; by themselves already from 1.5 MB on.
const NEAR_CACHES: u64 = 4;

/// Keeps outputs that their reader finds in the caches from being stored past them.
pub(crate) fn stream_far(space: &mut SpaceBuilder, target: &Target, workload: &Workload) {
    let bytes = |output: usize| workload.operand_len(output).saturating_mul(workload.operands[output].dtype.bytes());
    let bytes: u64 = workload.outputs().into_iter().map(bytes).fold(0, u64::saturating_add);
    if bytes < NEAR_CACHES.saturating_mul(target.limits.l2_bytes) {
        space.require("stream_far", "store == 'plain'");
    }
}

/// The shares of a loop for each core; schedules that do not say mean 1.
///
/// # Errors
/// As [`int`].
pub fn shares_of(schedule: &Schedule) -> Result<u64, String> {
    schedule.get("shares").map_or(Ok(1), |_| int(schedule, "shares"))
}

/// The parameter `shares`: how often each core takes a share of a loop that `par` spreads over them.
pub(crate) fn shares(space: &mut SpaceBuilder, target: &Target) {
    let several = target.key.threads > 1;
    space.param("shares", if several { vec![1, 4, 16] } else { vec![1] });
    space.require("shared_loop", "par == '-' => shares == 1");
}

/// The members of `ladder` below `extent`, and `extent` itself: sizes of blocks of an axis.
pub fn blocks(ladder: &[u64], extent: u64) -> Vec<i64> {
    let inside = ladder.iter().copied().filter(|&size| size < extent).chain([extent]);
    inside.map(|size| i64::try_from(size).expect("invariant: extents are below 2^62")).collect()
}
