#include "unisono/engine/nccl/communicator.h"

#include <nccl.h>

#include <chrono>
#include <thread>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/engine/nccl/nccl_library.h"

namespace unisono::engine::nccl {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{1};

ErrorCode code_of(ncclResult_t result) {
  switch (result) {
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return ErrorCode::kInvalidArgument;
    case ncclRemoteError:
      return ErrorCode::kPeerLost;
    default:
      return ErrorCode::kSystem;
  }
}

}  // namespace

Communicator::Communicator(const NcclLibrary& library,
                           const ncclUniqueId& id,
                           int rank,
                           int world_size)
    : library_(library) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = library_.init(&communicator_, world_size, id, rank, &config);
  try {
    check(result);
  } catch (const Error&) {
    abort();
    throw;
  }
}

void Communicator::check(ncclResult_t result) const {
  if (result != ncclSuccess && result != ncclInProgress) {
    throw Error(code_of(result), describe(library_, result, communicator_));
  }
}

bool Communicator::is_settled() const {
  ncclResult_t state = ncclSuccess;
  check(library_.state(communicator_, &state));
  check(state);
  return state != ncclInProgress;
}

void Communicator::abort() noexcept {
  if (ncclComm_t const communicator = std::exchange(communicator_, nullptr)) {
    (void)library_.abort(communicator);
  }
}

void Communicator::close(Deadline deadline) noexcept {
  if (communicator_ == nullptr) {
    return;
  }
  ncclResult_t state = library_.finalize(communicator_);
  while (state == ncclInProgress && !deadline.has_passed()) {
    std::this_thread::sleep_for(kBetweenTries);
    if (library_.state(communicator_, &state) != ncclSuccess) {
      break;
    }
  }
  if (state == ncclSuccess) {
    (void)library_.destroy(std::exchange(communicator_, nullptr));
  } else {
    abort();
  }
}

}  // namespace unisono::engine::nccl
