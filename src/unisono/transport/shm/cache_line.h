#pragma once

#include <cstddef>

namespace unisono::shm {

/// To be called by the one rank that has read `n_bytes` bytes which their owner will write anew,
/// and before the owner may. Changes nothing, but saves the owner time where that is worth it.
///
/// AMD's CPUs take 7 ns for a store to a cache line that another core has only read, but 1.6 ns
/// where that core has written to it (EPYC, from 16 KiB on). So a byte of each line is written as
/// it is.
void hand_back(std::byte* bytes, std::size_t n_bytes) noexcept;

/// Copies such bytes to `to`, and hands them back.
void take_over(std::byte* to, std::byte* from, std::size_t n_bytes) noexcept;

}  // namespace unisono::shm
