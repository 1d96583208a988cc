#include "unisono/cli/doctor/examine_limits.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "unisono/base/fd.h"
#include "unisono/cli/doctor/system_files.h"

namespace unisono::cli::doctor {
namespace {

std::string failed(const char* call) {
  return fmt::format("{}: {}", call, std::generic_category().message(errno));
}

// As transport/shm makes arenas, but small.
std::string try_arena() {
  constexpr std::size_t kBytes = 4096;
  const Fd memory(::memfd_create("unisono-doctor", MFD_CLOEXEC));
  if (!memory.is_open()) {
    return failed("memfd_create");
  }
  if (::ftruncate(memory.get(), kBytes) != 0) {
    return failed("ftruncate");
  }
  void* const page =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.get(), 0);
  if (page == MAP_FAILED) {
    return failed("mmap");
  }
  *static_cast<volatile std::byte*>(page) = std::byte{1};
  (void)::munmap(page, kBytes);
  return "";
}

std::string describe(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : format_bytes(limit);
}

Finding examine_arena(const MemoryCalls& calls) {
  if (calls.arena_error.empty()) {
    return {.state = State::kOk,
            .topic = "shared memory",
            .text = "a rank can make memory that its node's other ranks map (memfd_create)"};
  }
  return {.state = State::kProblem,
          .topic = "shared memory",
          .text = calls.arena_error,
          .advice =
              "ranks of a node share memory by memfd_create: let the container's seccomp "
              "profile and the limits of memory allow it"};
}

Findings examine_dev_shm(const MemoryCalls& calls) {
  constexpr std::uint64_t kSmall = std::uint64_t{256} << 20;
  if (!calls.shm_bytes) {
    return {};
  }
  Finding finding{
      .state = State::kInfo,
      .topic = "/dev/shm",
      .text = fmt::format("{}; Unisono uses none of it", format_bytes(*calls.shm_bytes))};
  if (*calls.shm_bytes < kSmall) {
    finding.state = State::kWarning;
    finding.text += ", but PyTorch's DataLoader, MPI and NCCL do";
    finding.advice =
        "docker run --shm-size=1g, or in Kubernetes an emptyDir of medium Memory there";
  }
  return {finding};
}

Findings examine_address_space(const MemoryCalls& calls) {
  if (calls.address_space.rlim_cur == RLIM_INFINITY) {
    return {};
  }
  return {
      {.state = State::kWarning,
       .topic = "address space",
       .text = fmt::format("limited to {} (ulimit -v); a rank maps an arena for each rank of its "
                           "node, as large as the machine's memory, most of it never used",
                           describe(calls.address_space.rlim_cur)),
       .advice = "ulimit -v unlimited, or a small UNISONO_ARENA_BYTES"}};
}

Finding examine_locked_memory(const MemoryCalls& calls, const std::filesystem::path& root) {
  const bool has_fabric = !names_in(root / "sys/class/infiniband").empty();
  Finding finding{.state = State::kInfo,
                  .topic = "locked memory",
                  .text = fmt::format("{} (ulimit -l)", describe(calls.locked.rlim_cur))};
  if (has_fabric && calls.locked.rlim_cur != RLIM_INFINITY) {
    finding.state = State::kWarning;
    finding.text += "; InfiniBand here needs more for large messages (UCX, MPI, NCCL)";
    finding.advice =
        "ulimit -l unlimited, set in /etc/security/limits.conf or the daemon that "
        "starts jobs (docker run --ulimit memlock=-1)";
  }
  return finding;
}

Finding examine_files(const MemoryCalls& calls, int world_size) {
  // Sockets for collectives, messages and control, and shared memory for each rank, and the rest.
  constexpr rlim_t kForEachRank = 4;
  constexpr rlim_t kForTheProgram = 128;
  const rlim_t needed = kForEachRank * static_cast<rlim_t>(world_size) + kForTheProgram;
  const auto say = [](rlim_t limit) {
    return limit == RLIM_INFINITY ? std::string("unlimited") : fmt::format("{}", limit);
  };
  Finding finding{.state = State::kOk,
                  .topic = "open files",
                  .text = fmt::format("{} at a time (ulimit -n; at most {})",
                                      say(calls.files.rlim_cur),
                                      say(calls.files.rlim_max))};
  if (calls.files.rlim_cur < needed) {
    finding.state = State::kWarning;
    finding.text += fmt::format("; a rank of {} may need {}", world_size, needed);
    finding.advice = fmt::format("ulimit -n {}", needed);
  }
  return finding;
}

}  // namespace

MemoryCalls call_memory() {
  MemoryCalls calls{.arena_error = try_arena()};
  struct statvfs status{};
  if (::statvfs("/dev/shm", &status) == 0) {
    calls.shm_bytes = std::uint64_t{status.f_blocks} * status.f_frsize;
  }
  (void)::getrlimit(RLIMIT_AS, &calls.address_space);
  (void)::getrlimit(RLIMIT_MEMLOCK, &calls.locked);
  (void)::getrlimit(RLIMIT_NOFILE, &calls.files);
  return calls;
}

Findings examine_limits(const MemoryCalls& calls,
                        const std::filesystem::path& root,
                        int world_size) {
  Findings findings{examine_arena(calls)};
  append(findings, examine_dev_shm(calls));
  append(findings, examine_address_space(calls));
  findings.push_back(examine_locked_memory(calls, root));
  findings.push_back(examine_files(calls, world_size));
  return findings;
}

}  // namespace unisono::cli::doctor
