//! Atoms: the multiply-accumulate instructions a contraction can be built of, one table row each.
//!
//! A row states what the hardware does; it is data, so a new instruction is a new row.

use search_space::workload::DType;

/// Who issues an atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One lane alone.
    Lane,
    /// One core with its matrix unit: the sums are in registers of 16×16 of them.
    Matrix,
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
    /// Element types of the factors `a` and `b`.
    pub factors: [DType; 2],
    /// Element type of the sums.
    pub acc: DType,
    /// Who issues it.
    pub scope: Scope,
}

/// All rows. A `mul` row is a product and a sum of 32-bit integers, modulo 2³².
pub const ATOMS: &[Atom] = &[
    lane("fma.f32x1", "", 1, DType::F32),
    lane("fma.f32x4", "", 4, DType::F32),
    lane("fma.f32x8", "avx", 8, DType::F32),
    lane("fma.f32x16", "avx512f", 16, DType::F32),
    lane("mul.i32x1", "", 1, DType::I32),
    lane("mul.i32x4", "", 4, DType::I32),
    lane("mul.i32x8", "avx2", 8, DType::I32),
    lane("mul.i32x16", "avx512f", 16, DType::I32),
    dot("vnni.i8.i8", [DType::I8, DType::I8]),
    dot("vnni.i8.u8", [DType::I8, DType::U8]),
    dot("vnni.u8.i8", [DType::U8, DType::I8]),
    matrix("amx.bf16.bf16", "amx-bf16", [DType::Bf16, DType::Bf16], DType::F32),
    matrix("amx.i8.i8", "amx-int8", [DType::I8, DType::I8], DType::I32),
    matrix("amx.i8.u8", "amx-int8", [DType::I8, DType::U8], DType::I32),
    matrix("amx.u8.i8", "amx-int8", [DType::U8, DType::I8], DType::I32),
    matrix("amx.u8.u8", "amx-int8", [DType::U8, DType::U8], DType::I32),
];

const fn lane(name: &'static str, feature: &'static str, width: u64, dtype: DType) -> Atom {
    Atom { name, feature, shape: (1, width, 1), factors: [dtype, dtype], acc: dtype, scope: Scope::Lane }
}

/// Sixteen sums of four products of bytes.
const fn dot(name: &'static str, factors: [DType; 2]) -> Atom {
    Atom { name, feature: "avx512vnni", shape: (1, 16, 4), factors, acc: DType::I32, scope: Scope::Lane }
}

const fn matrix(name: &'static str, feature: &'static str, factors: [DType; 2], acc: DType) -> Atom {
    let depth = if matches!(acc, DType::F32) { 32 } else { 64 };
    Atom { name, feature, shape: (16, 16, depth), factors, acc, scope: Scope::Matrix }
}

/// The row called `name`.
pub fn find(name: &str) -> Option<Atom> {
    ATOMS.iter().copied().find(|atom| atom.name == name)
}

/// The f32 fma row that is `width` elements wide.
pub fn fma_f32(width: u64) -> Option<Atom> {
    multiply_add(DType::F32, width)
}

/// The row that multiplies and adds vectors of `width` elements of one type, F32 or I32.
pub fn multiply_add(acc: DType, width: u64) -> Option<Atom> {
    ATOMS.iter().copied().find(|atom| atom.scope == Scope::Lane && atom.acc == acc && atom.shape == (1, width, 1))
}

/// The row that sums products of several steps of k in each lane, for factors of these types.
pub fn dot_of(factors: [DType; 2], acc: DType) -> Option<Atom> {
    let dots = |atom: &Atom| atom.scope == Scope::Lane && atom.shape.2 > 1;
    ATOMS.iter().copied().find(|atom| dots(atom) && atom.factors == factors && atom.acc == acc)
}

/// The row of the matrix unit for factors of these types.
pub fn matrix_of(factors: [DType; 2], acc: DType) -> Option<Atom> {
    ATOMS.iter().copied().find(|atom| atom.scope == Scope::Matrix && atom.factors == factors && atom.acc == acc)
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
        assert_eq!(multiply_add(DType::I32, 8).unwrap().name, "mul.i32x8");
        assert_eq!(matrix_of([DType::U8, DType::I8], DType::I32).unwrap().shape, (16, 16, 64));
        assert_eq!(dot_of([DType::I8, DType::I8], DType::I32).unwrap().feature, "avx512vnni");
        assert_eq!(matrix_of([DType::F16, DType::F16], DType::F32), None);
    }
}
