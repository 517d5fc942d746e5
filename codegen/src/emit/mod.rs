//! Emitters print lanes as LLVM IR or WGSL. An emitter decides nothing: it may reject with a typed error, never change.

pub mod llvm;
pub mod wgsl;
