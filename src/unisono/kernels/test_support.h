#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "unisono/kernels/reduce_tree.h"

namespace unisono::kernels {

/// Bytes that begin at a chosen distance from a cache line and end with their allocation, so that a
/// sanitizer sees every access beyond them.
class OffsetBytes {
 public:
  OffsetBytes(std::size_t size, std::size_t offset)
      : size_(size),
        offset_(offset),
        memory_(static_cast<std::byte*>(::operator new(size + offset, kAlignment))) {
    std::memset(memory_.get(), 0, size + offset);
  }

  OffsetBytes(const OffsetBytes& other) : OffsetBytes(other.size_, other.offset_) {
    std::memcpy(data(), other.data(), size_);
  }

  OffsetBytes(OffsetBytes&&) = default;
  OffsetBytes& operator=(const OffsetBytes&) = delete;
  OffsetBytes& operator=(OffsetBytes&&) = default;
  ~OffsetBytes() = default;

  [[nodiscard]] std::byte* data() const { return memory_.get() + offset_; }

  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kAlignment{64};

  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };

  std::size_t size_;
  std::size_t offset_;
  std::unique_ptr<std::byte, Free> memory_;
};

/// The left-balanced tree over inputs [from, to), its value's number returned.
inline int append_canonical_steps(std::vector<ReduceStep>& steps, int n_inputs, int from, int to) {
  if (to - from == 1) {
    return from;
  }
  int n_left = 1;
  while (2 * n_left < to - from) {
    n_left *= 2;
  }
  const int lhs = append_canonical_steps(steps, n_inputs, from, from + n_left);
  const int rhs = append_canonical_steps(steps, n_inputs, from + n_left, to);
  steps.push_back({.lhs = lhs, .rhs = rhs});
  return n_inputs + static_cast<int>(steps.size()) - 1;
}

inline std::vector<ReduceStep> canonical_steps(int n_inputs) {
  std::vector<ReduceStep> steps;
  append_canonical_steps(steps, n_inputs, 0, n_inputs);
  return steps;
}

/// Each instruction set that the kernels can use here, as Highway's bit: the last is what the
/// compiler takes for granted.
std::vector<std::int64_t> instruction_sets();

/// Rounds up and flushes subnormals while it lives, as a caller might.
class HostileMode {
 public:
  HostileMode();
  ~HostileMode();
  HostileMode(const HostileMode&) = delete;
  HostileMode& operator=(const HostileMode&) = delete;
  HostileMode(HostileMode&&) = delete;
  HostileMode& operator=(HostileMode&&) = delete;

  /// Whether the mode is still as the constructor left it.
  [[nodiscard]] bool is_intact() const;

 private:
  std::uint64_t saved_;
};

}  // namespace unisono::kernels
