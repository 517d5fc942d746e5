//! One room per family of workloads: from a schedule to the level-1 tile program of each kind of target.

pub mod attention;
pub mod contraction;
pub mod elementwise;
pub mod map;
pub mod nest;
pub mod reduction;
pub mod rows;
