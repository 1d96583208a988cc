#include "unisono/engine/nccl/communicator.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/engine/nccl/gpu_context.h"

namespace unisono::engine::nccl {
namespace {

// Interval of polls while NCCL finalizes a communicator.
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

// Returns the remedy if NVIDIA's driver is older than the CUDA for which NCCL was built. NCCL has
// no function that returns the version of that CUDA.
std::string explain_driver(const NcclLibrary& library) {
  const int cuda = cuda_driver().cuda_version;
  return fmt::format(
      " ({} is NCCL {}, and NVIDIA's driver supports CUDA {}: if NCCL was built for a newer CUDA, "
      "update the driver, or install the NCCL of this CUDA, such as pip install nvidia-nccl-cu{})",
      library.file,
      format_version(library.version),
      format_cuda_version(cuda),
      cuda / 1000);
}

}  // namespace

Communicator::Communicator(const NcclLibrary& library,
                           const ncclUniqueId& id,
                           int rank,
                           int world_size)
    : library_(library) {
  ncclConfig_t config{.blocking = 0};
  const ncclResult_t result = library_.init(&communicator_, world_size, id, rank, &config);
  try {
    check(result);
  } catch (const Error&) {
    abort();
    throw;
  }
}

void Communicator::check(ncclResult_t result) const {
  if (result == ncclSuccess || result == ncclInProgress) {
    return;
  }
  std::string text = describe(library_, result, communicator_);
  if (result == ncclUnhandledCudaError && !is_complete_) {
    text += explain_driver(library_);
  }
  throw Error(code_of(result), text);
}

bool Communicator::is_settled() {
  ncclResult_t state = ncclSuccess;
  check(library_.state(communicator_, &state));
  check(state);
  is_complete_ = is_complete_ || state == ncclSuccess;
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
