#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/engine/engine.h"

namespace unisono::comm {

/// The device memory for which the buffers of one operation or message stand, each memory once.
/// Empty for an operation on host memory, whose cost is a few comparisons.
///
/// A value that shares the mirrors with the buffers. Threads as in DeviceMirror.
class Mirrors {
 public:
  Mirrors() = default;

  /// Returns whether a buffer of the operation stands for device memory.
  [[nodiscard]] static bool has_any(const engine::Operation& operation) {
    const auto is_mirrored = [](const Buffer& buffer) { return buffer.mirror != nullptr; };
    return is_mirrored(operation.in) || is_mirrored(operation.out) ||
           std::any_of(operation.ins.begin(), operation.ins.end(), is_mirrored) ||
           std::any_of(operation.outs.begin(), operation.outs.end(), is_mirrored);
  }

  explicit Mirrors(const engine::Operation& operation);

  explicit Mirrors(const Buffer& buffer) { add(buffer); }

  [[nodiscard]] bool is_empty() const { return mirrors_.empty(); }

  /// Waits until the host memory has all elements. Throws like DeviceMirror::fetch().
  void fetch(Deadline deadline) const;

  /// Starts the copies of the results to the devices. Throws like DeviceMirror::write_back().
  void write_back() const;

  /// Makes this thread's later work on the devices wait for the results.
  void follow() const;

  /// Waits until the results are on the devices. Throws like DeviceMirror::synchronize().
  void synchronize(Deadline deadline) const;

 private:
  void add(const Buffer& buffer) {
    if (buffer.mirror != nullptr) [[unlikely]] {
      insert(buffer.mirror);
    }
  }

  void insert(const std::shared_ptr<DeviceMirror>& mirror);

  std::vector<std::shared_ptr<DeviceMirror>> mirrors_;
};

}  // namespace unisono::comm
