#include "unisono/engine/nccl/nccl_library.h"

#include <fmt/format.h>
#include <nccl.h>

#include <string>
#include <string_view>

#include "unisono/base/loaded_library.h"

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

}  // namespace unisono::engine::nccl
