//! Rules of register tiles of a matrix unit: they share its registers and know few operations.

use super::verify::TileError;
use super::{Kernel, Place, Stmt, View};
use crate::atoms::Scope;
use crate::index::Index;

/// Checks a kernel whose places all exist.
///
/// # Errors
/// [`TileError::Matrix`], the first broken rule.
pub(super) fn verify(kernel: &Kernel) -> Result<(), TileError> {
    let mut check = Check { kernel, matrix: vec![false; kernel.tiles.len()], alive: None };
    check.mark(&kernel.body);
    if check.matrix.contains(&true) { check.block(&kernel.body) } else { Ok(()) }
}

struct Check<'k> {
    kernel: &'k Kernel,
    /// Which tiles are sums of a matrix unit.
    matrix: Vec<bool>,
    /// The tile whose sums the registers hold.
    alive: Option<usize>,
}

impl Check<'_> {
    fn mark(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::For { body, .. } => self.mark(body),
                Stmt::If { then, otherwise, .. } => {
                    self.mark(then);
                    self.mark(otherwise);
                }
                Stmt::Contract { acc, atom, .. } => self.matrix[*acc] |= atom.scope == Scope::Matrix,
                _ => {}
            }
        }
    }

    fn fault(&self, tile: usize, why: &'static str) -> TileError {
        TileError::Matrix { tile: self.kernel.tiles[tile].name.clone(), why }
    }

    fn of(&self, view: &View) -> Option<usize> {
        match view.place {
            Place::Tile(tile) if self.matrix[tile] => Some(tile),
            _ => None,
        }
    }

    fn block(&mut self, stmts: &[Stmt]) -> Result<(), TileError> {
        stmts.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<(), TileError> {
        match stmt {
            Stmt::For { body, .. } => {
                // Twice: the second iteration finds what the first leaves.
                self.block(body)?;
                self.block(body)
            }
            Stmt::If { then, otherwise, .. } => {
                let before = self.alive;
                self.block(then)?;
                let after = std::mem::replace(&mut self.alive, before);
                self.block(otherwise)?;
                self.alive = self.alive.filter(|tile| after == Some(*tile));
                Ok(())
            }
            Stmt::Fill { tile, value } if self.matrix[*tile] => {
                self.alive = Some(*tile);
                if *value == 0.0 { Ok(()) } else { Err(self.fault(*tile, "must begin with zeros")) }
            }
            Stmt::Contract { shape, acc, atom, .. } if self.matrix[*acc] => {
                let (rows, columns, depth) = atom.shape;
                let tile = &self.kernel.tiles[*acc];
                let whole = tile.shape[0].is_multiple_of(rows) && tile.shape[1].is_multiple_of(columns);
                let rest = shape[2].as_const().is_some_and(|k| !k.unsigned_abs().is_multiple_of(depth));
                if !whole || rest || atom.scope != Scope::Matrix || tile.dtype != atom.acc {
                    return Err(self.fault(*acc, "must be made of whole instructions of one kind"));
                }
                self.live(*acc)
            }
            Stmt::Copy { shape, dst, src } => match (self.of(dst), self.of(src)) {
                (None, None) => Ok(()),
                (Some(tile), None) => {
                    self.alive = Some(tile);
                    self.plain(tile, shape, dst, src)
                }
                (None, Some(tile)) => {
                    self.live(tile)?;
                    self.plain(tile, shape, src, dst)
                }
                (Some(tile), Some(_)) => Err(self.fault(tile, "may be copied from and to memory only")),
            },
            Stmt::Map { dst, args, .. } => self.untouched(std::iter::once(dst).chain(args)),
            Stmt::Sweep { args, stores, folds, .. } => {
                let written = stores.iter().map(|(view, _)| view).chain(folds.iter().map(|fold| &fold.into));
                self.untouched(written.chain(args))
            }
            Stmt::Fill { .. } | Stmt::Contract { .. } | Stmt::Prefetch { .. } | Stmt::Pipe { .. } => Ok(()),
        }
    }

    fn live(&self, tile: usize) -> Result<(), TileError> {
        let why = "may not be used while the registers hold another tile";
        if self.alive == Some(tile) { Ok(()) } else { Err(self.fault(tile, why)) }
    }

    fn untouched<'v>(&self, mut views: impl Iterator<Item = &'v View>) -> Result<(), TileError> {
        match views.find_map(|view| self.of(view)) {
            Some(tile) => Err(self.fault(tile, "may be filled, contracted into and copied only")),
            None => Ok(()),
        }
    }

    /// The whole of the tile, as it is, where everything exists.
    fn plain(&self, tile: usize, shape: &[Index], registers: &View, memory: &View) -> Result<(), TileError> {
        let extents: Vec<Index> = self.kernel.tiles[tile].shape.iter().map(|&extent| Index::of(extent)).collect();
        let whole = shape == extents && registers.index == [Index::Coord(0), Index::Coord(1)];
        let dtype = match memory.place {
            Place::Buffer(position) => self.kernel.buffers[position].dtype,
            Place::Tile(position) => self.kernel.tiles[position].dtype,
        };
        let exists = registers.guards.is_empty() && memory.guards.is_empty();
        if whole && exists && dtype == self.kernel.tiles[tile].dtype {
            return Ok(());
        }
        Err(self.fault(tile, "must be copied whole, to memory of its own type without guards"))
    }
}
