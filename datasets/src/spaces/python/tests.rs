//! What is translated into what.
