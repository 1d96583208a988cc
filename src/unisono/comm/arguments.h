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
#include "unisono/comm/blocks.h"
#include "unisono/comm/membership.h"
#include "unisono/comm/refused_call.h"
#include "unisono/engine/operation.h"

namespace unisono::comm {

/// An argument in messages: "in", or "out[3]". Made into text only for a message.
struct ArgumentName {
  // NOLINTNEXTLINE(google-explicit-constructor): most names are literals.
  ArgumentName(const char* argument, std::size_t at = kWhole) : name(argument), index(at) {}

  static constexpr std::size_t kWhole = SIZE_MAX;

  const char* name;
  std::size_t index;  ///< In a list, or kWhole.

  [[nodiscard]] std::string text() const;
};

/// Checks the arguments of one call. All throw RefusedCall, whose text begins with this rank, the
/// operation and the caller's label, and which ranks that wait for this one can see.
class Arguments {
 public:
  /// All outlive it.
  Arguments(Membership& membership, const char* operation, const std::string& label);

  /// To be thrown: the call is refused.
  [[nodiscard]] RefusedCall invalid(const std::string& problem) const;

  /// What the engine says of the operation.
  void check_operation(const engine::Operation& operation) const;

  void check_buffer(const Buffer& buffer, ArgumentName name) const;

  void check_dtype(const Buffer& buffer, ArgumentName name, DType dtype) const;

  void check_count(const Buffer& buffer, ArgumentName name, std::int64_t count) const;

  void check_root(int root) const;

  /// A count for each rank, none negative.
  void check_counts(std::span<const std::int64_t> counts) const;

  /// What only the root passes.
  void check_absent(const Blocks& blocks, const char* name) const;

  /// A block of this dtype for each rank: of these counts if there are any, else a list's as they
  /// are, and a buffer's of equal size.
  [[nodiscard]] std::vector<Buffer> blocks_of(const Blocks& given,
                                              const char* name,
                                              DType dtype,
                                              std::span<const std::int64_t> counts) const;

  /// The two are the same memory, or have no byte in common.
  void check_same_or_apart(const Buffer& in, const Buffer& out) const;

  /// No input has a byte in common with an output, save one that is the very same memory as the
  /// output that it goes to: `own_in` and `own_out`, indices or -1.
  void check_apart(std::span<const Buffer> ins,
                   std::span<const Buffer> outs,
                   int own_in,
                   int own_out) const;

  /// The caller's timeout, or the group's.
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
  // As the caller numbers it, and as the job does.
  [[nodiscard]] std::string name_of(int rank) const;

  Membership& membership_;
  const char* operation_;
  const std::string& label_;
  int rank_;
  int world_size_;
};

}  // namespace unisono::comm
