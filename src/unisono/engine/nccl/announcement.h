#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/nccl/cuda_driver.h"
#include "unisono/engine/operation.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine::nccl {

/// What a rank tells the others before an operation.
struct Announcement {
  transport::Descriptor descriptor = {};
  std::int32_t device = -1;  ///< cuda:`device`; -1: the operation has no buffers.
  std::uint32_t reserved = 0;
  CudaUuid uuid = {};
  std::array<char, 128> id = {};  ///< Of rank 0, while there is no communicator.
};

static_assert(sizeof(Announcement) == 176, "it travels byte by byte");

/// The error with the call that it ends: "[rank 0/2] all_reduce #1 (f32[4], sum) of weights: ...".
[[nodiscard]] Error with_call(const rendezvous::Roster& roster,
                              const Operation& operation,
                              const Error& error);

/// Has all ranks tell each other what they call, by an operation of the native engine; so whoever
/// does not come is found as in any operation. Returns all announcements, by rank.
///
/// Where ranks know only the sizes of their own blocks (all_to_all) they also tell what they have
/// for each, and what comes is compared with where it is to go.
///
/// Throws what the native engine throws; Error(kMismatch) if ranks differ, with_call(), with who
/// called what.
[[nodiscard]] std::vector<Announcement> agree(Engine& native,
                                              const rendezvous::Roster& roster,
                                              const Operation& operation,
                                              const Announcement& own,
                                              TimeLimit limit,
                                              Caller caller);

/// Two ranks that have the same GPU: "ranks 0 and 1 are both on cuda:0 of node-a; ...", with what
/// to do; empty where none have.
[[nodiscard]] std::string explain_same_gpu(const rendezvous::Roster& roster,
                                           std::span<const Announcement> announcements);

}  // namespace unisono::engine::nccl
