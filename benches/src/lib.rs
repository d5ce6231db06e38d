//! Speed and memory of rollhook, as ratios.
