//! What every backend promises, as cases.
