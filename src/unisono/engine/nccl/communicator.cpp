#include "unisono/engine/nccl/communicator.h"

#include <fmt/format.h>

#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/process.h"

namespace unisono::engine::nccl {
namespace {

NcclLibrary load_nccl() {
  const LoadedLibrary file("libnccl.so.2");
  NcclLibrary library{};
  file.find("ncclGetUniqueId", library.make_id);
  file.find("ncclCommInitRankConfig", library.init);
  file.find("ncclCommFinalize", library.finalize);
  file.find("ncclCommDestroy", library.destroy);
  file.find("ncclCommAbort", library.abort);
  file.find("ncclCommGetAsyncError", library.state);
  file.find("ncclGetErrorString", library.error_text);
  file.find("ncclGetLastError", library.last_error);
  file.find("ncclGroupStart", library.begin_group);
  file.find("ncclGroupEnd", library.end_group);
  file.find("ncclAllReduce", library.all_reduce);
  file.find("ncclReduce", library.reduce);
  file.find("ncclBroadcast", library.broadcast);
  file.find("ncclAllGather", library.all_gather);
  file.find("ncclReduceScatter", library.reduce_scatter);
  file.find("ncclSend", library.send);
  file.find("ncclRecv", library.receive);
  return library;
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = load_nccl();
  return library;
}

std::string describe(const NcclLibrary& library, ncclResult_t result, ncclComm_t communicator) {
  const char* const last = library.last_error(communicator);
  std::string_view detail = last == nullptr ? "" : last;
  while (detail.ends_with('\n')) {
    detail.remove_suffix(1);
  }
  return fmt::format(
      "NCCL: {}{}{}", library.error_text(result), detail.empty() ? "" : ": ", detail);
}

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
