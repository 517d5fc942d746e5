//! Atoms: the multiply-accumulate instructions a contraction can be built of, one table row each.
//!
//! A row states what the hardware does; it is data, so a new instruction is a new row. Only the fma rows exist now.

use search_space::workload::DType;

/// Who issues an atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One lane alone.
    Lane,
}

/// One multiply-accumulate instruction: `acc[m, n] += Σ_k a[m, k] · b[k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atom {
    /// Name in schedules and printed text.
    pub name: &'static str,
    /// CPU feature or device feature that must be there; empty when none.
    pub feature: &'static str,
    /// `(m, n, k)` of one instruction; `n` is the vector width in elements.
    pub shape: (u64, u64, u64),
    /// Element type of the factors.
    pub factor: DType,
    /// Element type of the sums.
    pub acc: DType,
    /// Who issues it.
    pub scope: Scope,
}

/// All rows.
pub const ATOMS: &[Atom] =
    &[row("fma.f32x1", "", 1), row("fma.f32x4", "", 4), row("fma.f32x8", "avx", 8), row("fma.f32x16", "avx512f", 16)];

const fn row(name: &'static str, feature: &'static str, width: u64) -> Atom {
    Atom { name, feature, shape: (1, width, 1), factor: DType::F32, acc: DType::F32, scope: Scope::Lane }
}

/// The row called `name`.
pub fn find(name: &str) -> Option<Atom> {
    ATOMS.iter().copied().find(|atom| atom.name == name)
}

/// The f32 fma row that is `width` elements wide.
pub fn fma_f32(width: u64) -> Option<Atom> {
    ATOMS.iter().copied().find(|atom| atom.acc == DType::F32 && atom.shape == (1, width, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (position, atom) in ATOMS.iter().enumerate() {
            assert_eq!(find(atom.name), Some(*atom));
            assert!(ATOMS[..position].iter().all(|other| other.name != atom.name));
        }
        assert_eq!(find("mma.sync"), None);
        assert_eq!(fma_f32(16).unwrap().name, "fma.f32x16");
    }
}
