#pragma once

namespace unisono::launch {

/// Throws Error(kInvalidArgument) when this process may never have as many file descriptors as the
/// launcher of so many ranks needs.
void check_descriptor_limit(int n_workers);

/// As far as the user may. In a launcher after the guardian was started: the ranks keep the limit
/// that they have.
void raise_descriptor_limit();

}  // namespace unisono::launch
