#include "unisono/engine/nccl/nccl_library.h"

#include <fmt/format.h>
#include <link.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "unisono/base/error.h"
#include "unisono/base/process.h"

namespace unisono::engine::nccl {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libnccl.so.2";

// The first release with non-blocking communicators (ncclCommInitRankConfig, ncclCommFinalize).
constexpr int kOldestVersion = 21400;

// Sets `result` to the path of LibTorch's libc10.so, if the process has loaded that library.
int find_torch(dl_phdr_info* library, std::size_t /*size*/, void* result) {
  const fs::path path = library->dlpi_name == nullptr ? "" : library->dlpi_name;
  if (path.filename() != "libc10.so") {
    return 0;
  }
  *static_cast<fs::path*>(result) = path;
  return 1;
}

// Returns the library's file in NVIDIA's wheel, which pip installs beside the packages that use
// NCCL: torch, or unisono with its program. Returns an empty path if there is no such file.
fs::path find_in_wheel() {
  fs::path torch;
  (void)::dl_iterate_phdr(find_torch, &torch);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const bool is_in_package = program.parent_path().parent_path().filename() == "unisono";
  for (const fs::path& file : {torch, is_in_package ? program : fs::path()}) {
    // PACKAGES/torch/lib/libc10.so, PACKAGES/unisono/bin/unisono.
    const fs::path packages = file.parent_path().parent_path().parent_path();
    const fs::path found = packages / "nvidia/nccl/lib" / kName;
    if (packages.is_absolute() && fs::is_regular_file(found, error)) {
      return found;
    }
  }
  return {};
}

void find_functions(const LoadedLibrary& file, NcclLibrary& library) {
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
}

NcclLibrary load(const std::string& name) {
  const LoadedLibrary file(name);
  NcclLibrary library{};
  library.file = file.path();
  decltype(&ncclGetVersion) get_version = nullptr;
  file.find("ncclGetVersion", get_version);
  if (get_version(&library.version) != ncclSuccess || library.version < kOldestVersion) {
    throw Error(ErrorCode::kIncompatible,
                fmt::format("{} is NCCL {}", library.file, format_version(library.version)));
  }
  try {
    find_functions(file, library);
  } catch (const Error& error) {
    throw Error(ErrorCode::kIncompatible,
                fmt::format("{} and is NCCL {}", error.what(), format_version(library.version)));
  }
  return library;
}

NcclLibrary load_first() {
  std::string problems;
  for (const std::string& file : {std::string(kName), find_in_wheel().string()}) {
    if (file.empty()) {
      continue;
    }
    try {
      return load(file);
    } catch (const Error& error) {
      problems += fmt::format("{}{}", problems.empty() ? "" : "; ", error.what());
    }
  }
  throw Error(
      ErrorCode::kNotFound,
      fmt::format("NVIDIA's NCCL can't be loaded: {}; install NCCL {} or newer (pip install "
                  "nvidia-nccl-cu13, apt-get install libnccl2) and name its folder in "
                  "LD_LIBRARY_PATH",
                  problems,
                  format_version(kOldestVersion)));
}

}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = load_first();
  return library;
}

std::string format_version(int version) {
  // Releases before 2.9 have a digit less: 2804 for 2.8.4.
  const int per_major = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / per_major, version % per_major / 100, version % 100);
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
