//! Operations on the two-dimensional registers of a processor's matrix unit (AMX): eight registers of 16 rows of 64
//! bytes, all of the same shape in the kernels generated here.

use search_space::workload::DType;

use super::Address;

/// Registers of the unit.
pub const REGISTERS: u8 = 8;
/// Rows of a register.
pub const ROWS: u64 = 16;
/// Bytes of a row.
pub const ROW_BYTES: u64 = 64;

/// One operation. Registers are numbered from 0 to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    /// Gives all registers their shape; comes before every other operation of a kernel.
    Configure,
    /// Gives the unit back; comes after every other operation of a kernel.
    Release,
    /// All elements zero.
    Zero {
        /// The register.
        register: u8,
    },
    /// Row `r` is what memory holds `r · row_bytes` after an address.
    Load {
        /// The register.
        register: u8,
        /// First row.
        at: Address,
        /// Bytes from one row to the next.
        row_bytes: i64,
    },
    /// The opposite of [`Matrix::Load`].
    Store {
        /// The register.
        register: u8,
        /// First row.
        at: Address,
        /// Bytes from one row to the next.
        row_bytes: i64,
    },
    /// `acc[i, j] += Σ a[i, k] · b[k, j]` over as many k as a row of `a` holds; a row of `b` holds, for each j, the
    /// elements of as many neighbouring k as fit four bytes.
    Multiply {
        /// Sums of 32 bits.
        acc: u8,
        /// Left factor.
        a: u8,
        /// Right factor.
        b: u8,
        /// Element types of the factors.
        factors: [DType; 2],
    },
}
