//! Features of configurations and learned cost models.
//!
//! [`Features`] turns a configuration into numbers a model can use, [`Trees`] is the first model: boosted trees that
//! learn within one search. Models know no device and no clock; they see configurations and log seconds.
//!
//! ```
//! use tilewright_cost_model::Trees;
//! use search_space::space::SpaceBuilder;
//! use search_space::strategy::{Evolution, Strategy};
//! let space = SpaceBuilder::new().param("mc", [8, 16, 32]).param("kc", [8, 16]).build()?;
//! let mut search = Evolution::new(space.into(), None, Some(Box::new(Trees::new())), 1);
//! assert_eq!(search.ask(100).len(), 6);
//! # Ok::<(), search_space::space::SpaceError>(())
//! ```

pub mod explain;
mod features;
mod gp;
mod prior;
mod trees;

pub use features::Features;
pub use gp::GaussianProcess;
pub use prior::{Prior, Source, likeness};
pub use trees::Trees;
