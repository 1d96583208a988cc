#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/nccl/gpu_context.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/rank_table.h"

namespace unisono::engine::nccl {

/// Data that a rank sends to all other ranks before an operation.
struct OperationAnnouncement {
  transport::Descriptor descriptor = {};
  std::int32_t device = -1;  ///< cuda:`device`; -1: the operation has no buffers.
  std::uint32_t reserved = 0;
  CudaUuid uuid = {};
  std::array<char, 128> id = {};  ///< From rank 0, while there is no communicator.
};

static_assert(sizeof(OperationAnnouncement) == 176, "it travels byte by byte");

/// Returns the error with the call that it ends: "[rank 0/2] all_reduce #1 (f32[4], sum) of
/// weights: ...".
[[nodiscard]] Error with_call(const std::string& prefix,
                              const Operation& operation,
                              const Error& error);

/// Exchanges the calls of all ranks by an operation of the native engine, which detects absent
/// ranks as in any operation. Returns all announcements, by rank.
///
/// If ranks have only the sizes of their own blocks (all_to_all), each rank also sends these sizes,
/// which every receiver compares with the expected sizes.
///
/// Throws the errors of the native engine, and Error(kMismatch), extended by with_call(), with the
/// ranks and calls that differ.
[[nodiscard]] std::vector<OperationAnnouncement> agree(SupervisingEngine& native,
                                                       const transport::RankTable& roster,
                                                       const Operation& operation,
                                                       const OperationAnnouncement& own,
                                                       TimeLimit limit,
                                                       Caller caller);

/// Returns a text about two ranks with the same GPU and the remedy: "ranks 0 and 1 are both on
/// cuda:0 of node-a; ..."; empty if all GPUs are distinct.
[[nodiscard]] std::string explain_same_gpu(const transport::RankTable& roster,
                                           std::span<const OperationAnnouncement> announcements);

}  // namespace unisono::engine::nccl
