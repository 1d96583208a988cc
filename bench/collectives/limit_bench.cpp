// Measures how fast two processes can add arrays in shared memory and write the sums into both.
// This time is the lower limit of any all_reduce on this machine.
//
//     limit_bench all_reduce 8:64M:x2 0.5

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>

#include "unisono/base/error.h"
#include "unisono/cli/bench_report.h"

#include "limit.h"
#include "peer.h"

namespace bench {
namespace {

using unisono::cli::bench::Result;

// The two buffers follow the rendezvous memory, each on separate pages.
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kBuffersOffset =
    (sizeof(LimitMemory) + kPageBytes - 1) / kPageBytes * kPageBytes;

std::byte* map_shared(std::size_t n_bytes) {
  void* const memory =
      ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw unisono::system_error("limit_bench: mmap", errno);
  }
  return static_cast<std::byte*>(memory);
}

// Binds each process to a separate core: the n-th core that this process may use.
void bind_to_core(int n) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument, "limit_bench needs two cores");
  }
  int core = 0;
  for (int seen = -1; seen < n; ++core) {
    seen += CPU_ISSET(core, &allowed) ? 1 : 0;
  }
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(core - 1, &mine);
  ::sched_setaffinity(0, sizeof mine, &mine);
}

class TimedLimit final : public unisono::cli::bench::TimedRanks {
 public:
  TimedLimit(LimitRank& rank, float* mine, float* theirs, std::int64_t count)
      : rank_(rank), mine_(mine), theirs_(theirs), count_(count) {}

  void barrier() override { rank_.meet(); }

  void repeat(int n_calls) override {
    for (int i = 0; i < n_calls; ++i) {
      rank_.all_reduce(mine_, theirs_, count_);
    }
  }

  void max_of_ranks(std::span<double> values) override { rank_.max_of_ranks(values); }

 private:
  LimitRank& rank_;
  float* mine_;
  float* theirs_;
  std::int64_t count_;
};

void run_rank(const PeerArguments& arguments,
              std::byte* shared,
              std::size_t buffer_bytes,
              int rank) {
  bind_to_core(rank);
  LimitRank self(*reinterpret_cast<LimitMemory*>(shared), rank);
  const auto buffer = [&](int owner) {
    return reinterpret_cast<float*>(shared + kBuffersOffset +
                                    static_cast<std::size_t>(owner) * buffer_bytes);
  };
  for (const std::int64_t n_bytes : arguments.sizes) {
    const auto n_floats = n_bytes / static_cast<std::int64_t>(sizeof(float));
    std::fill_n(buffer(rank), n_floats, 0.0F);
    TimedLimit ranks(self, buffer(rank), buffer(1 - rank), n_floats);
    const Result result{.op = "all_reduce",
                        .n_ranks = 2,
                        .n_bytes = n_floats * static_cast<std::int64_t>(sizeof(float)),
                        .dtype = "f32",
                        .memory = "symmetric",
                        .algorithm = "auto",
                        .time = sample(ranks, arguments.seconds)};
    if (rank == 0) {
      std::printf("%s\n", json_line(result).c_str());
      std::fflush(stdout);
    }
  }
}

void run(int argc, char** argv) {
  const PeerArguments arguments = parse_peer_arguments(argc, argv);
  if (arguments.operation != "all_reduce") {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument,
                         "limit_bench supports all_reduce only, not " + arguments.operation);
  }
  const auto largest = static_cast<std::size_t>(*std::ranges::max_element(arguments.sizes));
  const std::size_t buffer_bytes = (largest / kPageBytes + 1) * kPageBytes;
  std::byte* const shared = map_shared(kBuffersOffset + 2 * buffer_bytes);
  const pid_t child = ::fork();
  if (child < 0) {
    throw unisono::system_error("limit_bench: fork", errno);
  }
  if (child == 0) {
    // Waits have no deadline, so rank 1 must end when rank 0 ends.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  run_rank(arguments, shared, buffer_bytes, child == 0 ? 1 : 0);
  if (child == 0) {
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  try {
    bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "limit_bench: %s\n", error.what());
    return 1;
  }
}
