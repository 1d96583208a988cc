#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/kernels/reduce.h"

namespace unisono::kernels {

/// Bytes that begin at a chosen distance from a cache line and end at the end of the allocation, so
/// that a sanitizer detects every access beyond the bytes.
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

/// Appends the left-balanced tree over inputs [from, to). Returns the index of the tree's value.
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

/// Returns each instruction set that the kernels can use on this machine, as Highway's bit. The
/// last entry is the compiler's baseline.
std::vector<std::int64_t> instruction_sets();

/// Sets a caller's unusual floating point mode during the lifetime of the object: rounds up and
/// flushes subnormals.
class HostileMode {
 public:
  HostileMode();
  ~HostileMode();
  HostileMode(const HostileMode&) = delete;
  HostileMode& operator=(const HostileMode&) = delete;
  HostileMode(HostileMode&&) = delete;
  HostileMode& operator=(HostileMode&&) = delete;

  /// Returns true if the mode is unchanged since construction.
  [[nodiscard]] bool is_intact() const;

 private:
  std::uint64_t saved_;
};

using Random = std::mt19937;

[[nodiscard]] int pick(Random& random, int from, int to);
[[nodiscard]] bool one_in(Random& random, int n);

/// Fills memory with ordinary numbers, edge cases, and random bits.
void fill(const OffsetBytes& bytes, std::size_t n_bytes, DType dtype, Random& random);

/// Returns the index of the first different number. All NaNs count as equal.
[[nodiscard]] std::optional<std::size_t> first_difference(const std::byte* expected,
                                                          const std::byte* actual,
                                                          std::size_t n_bytes,
                                                          DType dtype);

/// A task with its memory. Copies have separate memory.
struct Trial {
  static constexpr std::size_t kGuardBytes = 80;

  ReduceTask shape{};
  UserReduction user;
  std::vector<ReduceStep> steps;
  std::vector<bool> is_partial;
  std::vector<OffsetBytes> buffers;
  // Indices into `buffers`.
  std::vector<std::size_t> outputs;
  std::int64_t count = 0;

  [[nodiscard]] DType output_dtype() const {
    return shape.output_is_partial ? partial_dtype(shape.dtype, shape.kind) : shape.dtype;
  }

  void run(void (*reduction)(const ReduceTask&, std::int64_t)) {
    std::vector<ReduceInput> inputs;
    inputs.reserve(is_partial.size());
    for (std::size_t i = 0; i < is_partial.size(); ++i) {
      inputs.push_back({.data = buffers[i].data(), .is_partial = is_partial[i]});
    }
    std::vector<void*> to;
    to.reserve(outputs.size());
    for (const std::size_t output : outputs) {
      to.push_back(buffers[output].data());
    }
    ReduceTask task = shape;
    task.inputs = inputs;
    task.steps = steps;
    task.outputs = to;
    task.user = &user;
    reduction(task, count);
  }
};

/// Returns a random task: order of combination, partial inputs, alignment, aliasing and elements
/// vary.
[[nodiscard]] Trial make_trial(DType dtype, ReduceKind kind, int n_inputs, Random& random);

/// Returns the parameters of a trial, for failure messages.
[[nodiscard]] std::string describe(const Trial& trial);

}  // namespace unisono::kernels
