//! Rules every tile program obeys; a family that breaks one is refused before lowering.

use super::{Access, Cond, Kernel, LoopKind, Place, Program, Scalar, Space, Stmt, View, matrix};
use crate::atoms::Scope;
use crate::index::{Index, Var};

/// The rule a program breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TileError {
    /// A variable is used outside its loop.
    #[error("variable {name} is used outside its loop")]
    Unbound {
        /// Its name.
        name: String,
    },
    /// A buffer, tile or pipe does not exist.
    #[error("{what} {position} does not exist")]
    Missing {
        /// `buffer`, `tile` or `pipe`.
        what: &'static str,
        /// Position asked for.
        position: usize,
    },
    /// A view has another number of indices than its place has dimensions.
    #[error("{place} has {dims} dimensions, the view has {indices} indices")]
    Arity {
        /// Name of the buffer or tile.
        place: String,
        /// Dimensions.
        dims: usize,
        /// Indices.
        indices: usize,
    },
    /// A coordinate beyond the window's dimensions, or one that a factor may not use.
    #[error("coordinate %{dim} may not be used by {place}")]
    Coordinate {
        /// The dimension.
        dim: usize,
        /// Name of the buffer or tile.
        place: String,
    },
    /// The accumulator is not a register tile of the contraction's m and n.
    #[error("accumulator {tile} is not a register tile of shape [m, n]")]
    Accumulator {
        /// Name of the tile.
        tile: String,
    },
    /// An instruction that takes several steps of k at once does not keep its factors.
    #[error("{place} cannot be filled by an instruction that takes several steps of k at once")]
    Keep {
        /// Name of the buffer or tile.
        place: String,
    },
    /// What is asked for has no constant shape.
    #[error("the window of {place} that is asked for must have a constant shape")]
    Prefetch {
        /// Name of the buffer or tile.
        place: String,
    },
    /// A read-only buffer is written.
    #[error("buffer {buffer} is read-only and is written")]
    ReadOnly {
        /// Name of the buffer.
        buffer: String,
    },
    /// In a kernel with a loop over the cores, a buffer is written outside that loop: every core would write it.
    #[error("buffer {buffer} is written outside the loop over the cores")]
    OutsideCores {
        /// Name of the buffer.
        buffer: String,
    },
    /// Loops over cores or one grid dimension are nested.
    #[error("loops over cores (or one grid dimension) are nested")]
    NestedParallel,
    /// A value of a sweep that does not exist yet, or an argument that does not exist.
    #[error("value {position} of a {what} does not exist where it is used")]
    Value {
        /// `sweep` or `map`.
        what: &'static str,
        /// Position asked for.
        position: usize,
    },
    /// The folds of a sweep keep different dimensions, or all of them.
    #[error("the folds of a sweep must fold the same dimensions, at least one; {place} does not")]
    Folds {
        /// Name of the buffer or tile.
        place: String,
    },
    /// A register tile of a matrix unit is used as its registers cannot be.
    #[error("register tile {tile} of a matrix unit: it {why}")]
    Matrix {
        /// Name of the tile.
        tile: String,
        /// The rule.
        why: &'static str,
    },
    /// The layout of a tile maps two coordinates to one place.
    #[error("the layout of tile {tile} is not injective or has another shape")]
    Layout {
        /// Name of the tile.
        tile: String,
    },
}

/// Checks all kernels.
///
/// # Errors
/// [`TileError`], the first broken rule.
pub fn verify(program: &Program) -> Result<(), TileError> {
    program.kernels.iter().try_for_each(|kernel| {
        check_tiles(kernel)?;
        let mut check = Check { kernel, bound: Vec::new(), parallel: Vec::new(), cores: uses_cores(&kernel.body) };
        check.block(&kernel.body)?;
        matrix::verify(kernel)
    })
}

fn check_tiles(kernel: &Kernel) -> Result<(), TileError> {
    for tile in &kernel.tiles {
        let fault = || TileError::Layout { tile: tile.name.clone() };
        let (shape, injective) = match &tile.space {
            Space::Scratch(layout) | Space::Shared(layout) => (layout.shape(), layout.is_injective()),
            Space::Register(held) => (held.lanes.shape(), held.is_injective()),
        };
        if shape != tile.shape || !injective {
            return Err(fault());
        }
    }
    Ok(())
}

struct Check<'k> {
    kernel: &'k Kernel,
    bound: Vec<Var>,
    parallel: Vec<LoopKind>,
    cores: bool,
}

impl Check<'_> {
    fn block(&mut self, stmts: &[Stmt]) -> Result<(), TileError> {
        stmts.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<(), TileError> {
        match stmt {
            Stmt::For { var, extent, kind, body } => {
                self.index(extent, 0, "loop extent")?;
                let parallel = kind.is_cores() || matches!(kind, LoopKind::Grid(_));
                if parallel && self.parallel.iter().any(|open| open == kind || (open.is_cores() && kind.is_cores())) {
                    return Err(TileError::NestedParallel);
                }
                self.bound.push(*var);
                self.parallel.push(*kind);
                self.block(body)?;
                self.parallel.pop();
                self.bound.pop();
                Ok(())
            }
            Stmt::If { cond, then, otherwise } => {
                let (Cond::Lt(lhs, rhs) | Cond::Eq(lhs, rhs)) = cond;
                self.index(lhs, 0, "condition")?;
                self.index(rhs, 0, "condition")?;
                self.block(then)?;
                self.block(otherwise)
            }
            Stmt::Copy { shape, dst, src } => {
                self.shape(shape)?;
                self.view(src, shape.len(), &[])?;
                self.written(dst, shape.len())
            }
            Stmt::Fill { tile, .. } => self.tile(*tile).map(|_| ()),
            Stmt::Map { shape, dst, args, expr } => {
                self.shape(shape)?;
                args.iter().try_for_each(|arg| self.view(arg, shape.len(), &[]))?;
                self.scalar(expr, shape.len(), args.len(), 0, "map")?;
                self.written(dst, shape.len())
            }
            Stmt::Sweep { shape, args, lets, stores, folds, .. } => {
                self.shape(shape)?;
                args.iter().try_for_each(|arg| self.view(arg, shape.len(), &[]))?;
                for (before, expr) in lets.iter().enumerate() {
                    self.scalar(expr, shape.len(), args.len(), before, "sweep")?;
                }
                let used = stores.iter().map(|(_, value)| *value).chain(folds.iter().map(|fold| fold.value));
                if let Some(position) = used.into_iter().find(|value| *value >= lets.len()) {
                    return Err(TileError::Value { what: "sweep", position });
                }
                let written = stores.iter().map(|(view, _)| view).chain(folds.iter().map(|fold| &fold.into));
                written.into_iter().try_for_each(|view| self.written(view, shape.len()))?;
                let kept = |view: &View| {
                    let uses = |dim: usize| view.index.iter().any(|index| index.uses_coord(dim));
                    (0..shape.len()).map(uses).collect::<Vec<bool>>()
                };
                for fold in folds {
                    if kept(&fold.into) != kept(&folds[0].into) || !kept(&fold.into).contains(&false) {
                        return Err(TileError::Folds { place: self.name(&fold.into) });
                    }
                }
                Ok(())
            }
            Stmt::Contract { shape, acc, a, b, atom, keep, .. } => {
                self.shape(shape)?;
                self.view(a, 3, &[1])?;
                self.view(b, 3, &[0])?;
                if let Some(keep) = keep {
                    if atom.scope == Scope::Matrix || atom.shape.2 > 1 {
                        return Err(TileError::Keep { place: self.name(keep) });
                    }
                    self.view(keep, 3, &[0])?;
                    self.written(keep, 3)?;
                }
                let tile = self.tile(*acc)?;
                let wanted: Vec<Index> = tile.shape.iter().map(|&extent| Index::of(extent)).collect();
                if !matches!(tile.space, Space::Register(_)) || wanted != shape[..2] {
                    return Err(TileError::Accumulator { tile: tile.name.clone() });
                }
                Ok(())
            }
            Stmt::Prefetch { shape, src } => {
                self.shape(shape)?;
                match shape.iter().all(|extent| extent.as_const().is_some()) {
                    true => self.view(src, shape.len(), &[]),
                    false => Err(TileError::Prefetch { place: self.name(src) }),
                }
            }
            Stmt::Pipe { pipe, .. } if *pipe >= self.kernel.pipes.len() => {
                Err(TileError::Missing { what: "pipe", position: *pipe })
            }
            Stmt::Pipe { .. } => Ok(()),
        }
    }

    fn scalar(
        &self,
        expr: &Scalar,
        dims: usize,
        args: usize,
        lets: usize,
        what: &'static str,
    ) -> Result<(), TileError> {
        let missing = |position: usize| Err(TileError::Value { what, position });
        match expr {
            Scalar::Arg(position) if *position >= args => missing(*position),
            Scalar::Let(position) if *position >= lets => missing(*position),
            Scalar::Arg(_) | Scalar::Let(_) | Scalar::Const(_) => Ok(()),
            Scalar::Position(index) => self.index(index, dims, "a position"),
            Scalar::Select(_, parts) => parts.iter().try_for_each(|part| self.scalar(part, dims, args, lets, what)),
            Scalar::Unary(_, value) => self.scalar(value, dims, args, lets, what),
            Scalar::Binary(_, lhs, rhs) => {
                self.scalar(lhs, dims, args, lets, what)?;
                self.scalar(rhs, dims, args, lets, what)
            }
        }
    }

    fn name(&self, view: &View) -> String {
        match view.place {
            Place::Buffer(position) => self.kernel.buffers[position].name.clone(),
            Place::Tile(position) => self.kernel.tiles[position].name.clone(),
        }
    }

    fn tile(&self, position: usize) -> Result<&super::Tile, TileError> {
        self.kernel.tiles.get(position).ok_or(TileError::Missing { what: "tile", position })
    }

    fn shape(&self, shape: &[Index]) -> Result<(), TileError> {
        shape.iter().try_for_each(|extent| self.index(extent, 0, "shape"))
    }

    fn written(&self, view: &View, dims: usize) -> Result<(), TileError> {
        self.view(view, dims, &[])?;
        let Place::Buffer(position) = view.place else { return Ok(()) };
        let buffer = &self.kernel.buffers[position];
        if buffer.access == Access::Read {
            return Err(TileError::ReadOnly { buffer: buffer.name.clone() });
        }
        if self.cores && !self.parallel.iter().any(|kind| kind.is_cores()) {
            return Err(TileError::OutsideCores { buffer: buffer.name.clone() });
        }
        Ok(())
    }

    fn view(&self, view: &View, dims: usize, forbidden: &[usize]) -> Result<(), TileError> {
        let (name, wanted) = match view.place {
            Place::Buffer(position) => {
                let missing = TileError::Missing { what: "buffer", position };
                (&self.kernel.buffers.get(position).ok_or(missing)?.name, 1)
            }
            Place::Tile(position) => {
                let tile = self.tile(position)?;
                (&tile.name, tile.shape.len())
            }
        };
        if view.index.len() != wanted {
            return Err(TileError::Arity { place: name.clone(), dims: wanted, indices: view.index.len() });
        }
        let guards = view.guards.iter().flat_map(|guard| [&guard.index, &guard.bound]);
        for index in view.index.iter().chain(guards) {
            self.index(index, dims, name)?;
            if let Some(&dim) = forbidden.iter().find(|&&dim| index.uses_coord(dim)) {
                return Err(TileError::Coordinate { dim, place: name.clone() });
            }
        }
        Ok(())
    }

    fn index(&self, index: &Index, dims: usize, place: &str) -> Result<(), TileError> {
        match index {
            Index::Const(_) => Ok(()),
            Index::Var(var) if self.bound.contains(var) => Ok(()),
            Index::Var(var) => {
                let name = self.kernel.vars.get(var.0 as usize).cloned().unwrap_or_else(|| format!("#{}", var.0));
                Err(TileError::Unbound { name })
            }
            Index::Coord(dim) if *dim < dims => Ok(()),
            Index::Coord(dim) => Err(TileError::Coordinate { dim: *dim, place: place.into() }),
            Index::Op(_, args) => {
                self.index(&args.0, dims, place)?;
                self.index(&args.1, dims, place)
            }
        }
    }
}

fn uses_cores(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match stmt {
        Stmt::For { kind, body, .. } => kind.is_cores() || uses_cores(body),
        Stmt::If { then, otherwise, .. } => uses_cores(then) || uses_cores(otherwise),
        _ => false,
    })
}
