#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/group_state.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/engine/engine.h"
#include "unisono/transport/descriptor.h"

namespace unisono::comm {

/// Name of an argument in messages: "in", or "out[3]". Formatted only for a message.
struct ArgumentName {
  // NOLINTNEXTLINE(google-explicit-constructor): most names are literals.
  ArgumentName(const char* argument, std::size_t at = kWhole) : name(argument), index(at) {}

  static constexpr std::size_t kWhole = SIZE_MAX;

  const char* name;
  std::size_t index;  ///< Index in a list, or kWhole.

  /// Returns the name as messages contain it.
  [[nodiscard]] std::string text() const;
};

/// Checks the arguments of a call. Lives on the stack of the call. All functions throw RefusedCall,
/// whose text begins with this rank, the operation and the caller's label; ranks that wait for this
/// rank can report the refused call.
class Arguments {
 public:
  /// The arguments must outlive the object.
  Arguments(GroupState& state, const char* operation, const std::string& label);

  /// Records the refused call, and returns the error for the caller to throw.
  [[nodiscard]] RefusedCall invalid(const std::string& problem) const;

  /// Throws if the backend or the engine does not support the operation.
  void check_operation(const engine::Operation& operation) const;

  /// Requires a non-negative count, memory for all elements, a valid dtype, and a device of the
  /// backend.
  void check_buffer(const Buffer& buffer, ArgumentName name) const;

  /// Calls check_buffer(), and requires this dtype.
  void check_dtype(const Buffer& buffer, ArgumentName name, DType dtype) const;

  void check_count(const Buffer& buffer, ArgumentName name, std::int64_t count) const;

  /// Requires a rank of the group.
  void check_root(int root) const;

  /// Requires a non-negative count for each rank.
  void check_counts(std::span<const std::int64_t> counts) const;

  /// Requires that a rank other than the root passes no blocks.
  void check_absent(const Blocks& blocks, const char* name) const;

  /// Returns a block of this dtype for each rank: with these counts if there are any; otherwise the
  /// entries of a list, or equal parts of a buffer.
  [[nodiscard]] std::vector<Buffer> blocks_of(const Blocks& given,
                                              const char* name,
                                              DType dtype,
                                              std::span<const std::int64_t> counts) const;

  /// Requires that the two are the same memory, or do not overlap.
  void check_same_or_apart(const Buffer& in, const Buffer& out) const;

  /// Requires that no input overlaps an output, except that input `own_in` may be the same memory
  /// as output `own_out`; both are indices or -1.
  void check_apart(std::span<const Buffer> ins,
                   std::span<const Buffer> outs,
                   int own_in,
                   int own_out) const;

  /// Returns the caller's timeout, or the group's.
  [[nodiscard]] std::chrono::milliseconds timeout(
      std::optional<std::chrono::milliseconds> timeout) const;

  [[nodiscard]] TimeLimit limit(std::optional<std::chrono::milliseconds> timeout) const {
    return TimeLimit(this->timeout(timeout));
  }

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] int world_size() const { return world_size_; }

 private:
  void check_list(std::span<const Buffer> list,
                  const char* name,
                  DType dtype,
                  std::span<const std::int64_t> counts) const;
  [[nodiscard]] std::vector<Buffer> parts_of(const Buffer& whole,
                                             const char* name,
                                             std::span<const std::int64_t> counts) const;
  // Returns the caller's number of the rank, and the job's.
  [[nodiscard]] std::string name_of(int rank) const;

  GroupState& state_;
  const char* operation_;
  const std::string& label_;
  int rank_;
  int world_size_;
};

/// Data on which all ranks must agree if each rank has the sizes of all blocks.
struct BlockSizes {
  std::int64_t total = 0;
  /// For blocks of equal size, the detail of an operation without blocks.
  transport::BlockDetail detail = {};
};

/// Returns the sum of the sizes, and a detail with a fingerprint of the sizes if the blocks differ.
/// The list must not be empty.
[[nodiscard]] BlockSizes sizes_of(std::span<const std::int64_t> counts);
[[nodiscard]] BlockSizes sizes_of(std::span<const Buffer> blocks);

/// Returns the sizes of a coalesced operation: the detail differs if the sizes or the number of
/// `buffers` differ.
[[nodiscard]] BlockSizes sizes_of_coalesced(std::span<const Buffer> buffers);

/// Returns the value on which ranks must agree for a reduction beyond its kind: the factor's bits,
/// or a hash of the name of a user's function; otherwise 0.
[[nodiscard]] std::uint64_t fingerprint_of(const ReduceOp& op);

/// Makes the operation a reduction of this kind. The descriptor must already contain the sizes of
/// blocks.
void set_reduction(engine::Operation& operation, const ReduceOp& op, Algorithm algorithm);

}  // namespace unisono::comm
