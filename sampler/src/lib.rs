//! How branches get recorded: pinning, draining, integrity, the sampler
//! thread, targets, and sources of branches where the CPU records none.
