//! Seeded faults.
