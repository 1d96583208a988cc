#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"

namespace unisono::engine::mpi {

/// Memory that keeps its size from one operation to the next.
class Scratch {
 public:
  /// At least so many bytes, of any content.
  [[nodiscard]] std::byte* take(std::int64_t n_bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::int64_t n_bytes_ = 0;
};

/// The blocks of one side of an operation as an MPI has them: in one memory, by offset. Blocks that
/// lie one after the other stay where they are, others are copied.
class Blocks {
 public:
  /// Where blocks are read from. They outlive this.
  void set_source(std::span<const Buffer> blocks);

  /// Where blocks come to. They are written beside their memory where `is_apart`, too.
  void set_target(std::span<const Buffer> blocks, bool is_apart);

  /// Brings what has come to the target's blocks.
  void deliver() const;

  [[nodiscard]] std::byte* data() const { return data_; }

  [[nodiscard]] const std::vector<int>& counts() const { return counts_; }

  [[nodiscard]] const std::vector<int>& offsets() const { return offsets_; }

  /// Whether the MPI works on other memory than that of the blocks.
  [[nodiscard]] bool is_copy() const { return is_copy_; }

 private:
  void set(std::span<const Buffer> blocks, bool is_apart);

  std::span<const Buffer> blocks_;
  std::byte* data_ = nullptr;
  bool is_copy_ = false;
  std::vector<int> counts_;
  std::vector<int> offsets_;
  Scratch scratch_;
};

/// Whether all have as many elements.
[[nodiscard]] bool are_equal(std::span<const Buffer> blocks);

}  // namespace unisono::engine::mpi
