// Measures the operations of `unisono bench` with MPI. The program is built for each installed MPI.
//
//     mpirun -n 2 mpi_bench all_reduce 8:64M:x2 0.5

#include <mpi.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>

#include "unisono/base/error.h"
#include "unisono/cli/bench_report.h"

#include "peer.h"

namespace bench {
namespace {

using unisono::cli::bench::Result;
using unisono::cli::bench::Summary;

struct Call {
  float* in;
  float* out;
  int count;  // Number of elements for the size in bytes.
  int rank;
  int world_size;

  [[nodiscard]] int chunk() const { return count / world_size; }
};

// A row like those of cli/bench_operations.cpp.
struct Operation {
  const char* name;
  bool has_chunks;
  int n_transfers;
  double (*bus_factor)(double world_size);
  void (*call)(const Call& call);
};

constexpr int kTag = 0;

void all_reduce(const Call& call) {
  MPI_Allreduce(MPI_IN_PLACE, call.out, call.count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void broadcast(const Call& call) {
  MPI_Bcast(call.out, call.count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

void barrier(const Call& /*call*/) {
  MPI_Barrier(MPI_COMM_WORLD);
}

void all_gather(const Call& call) {
  MPI_Allgather(
      call.in, call.chunk(), MPI_FLOAT, call.out, call.chunk(), MPI_FLOAT, MPI_COMM_WORLD);
}

void reduce_scatter(const Call& call) {
  MPI_Reduce_scatter_block(call.in, call.out, call.chunk(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void all_to_all(const Call& call) {
  MPI_Alltoall(call.in, call.chunk(), MPI_FLOAT, call.out, call.chunk(), MPI_FLOAT, MPI_COMM_WORLD);
}

void send_and_receive(const Call& call) {
  const int last = call.world_size - 1;
  if (call.rank == 0) {
    MPI_Send(call.in, call.count, MPI_FLOAT, last, kTag, MPI_COMM_WORLD);
    MPI_Recv(call.out, call.count, MPI_FLOAT, last, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (call.rank == last) {
    MPI_Recv(call.out, call.count, MPI_FLOAT, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(call.out, call.count, MPI_FLOAT, 0, kTag, MPI_COMM_WORLD);
  }
}

double one(double /*world_size*/) {
  return 1;
}

double share_of_others(double world_size) {
  return (world_size - 1) / world_size;
}

constexpr std::array kOperations{
    Operation{"all_reduce", false, 1, [](double n) { return 2 * (n - 1) / n; }, all_reduce},
    Operation{"broadcast", false, 1, one, broadcast},
    Operation{"barrier", false, 1, one, barrier},
    Operation{"all_gather", true, 1, share_of_others, all_gather},
    Operation{"reduce_scatter", true, 1, share_of_others, reduce_scatter},
    Operation{"all_to_all", true, 1, share_of_others, all_to_all},
    Operation{"sendrecv", false, 2, one, send_and_receive},
};

class TimedMpi final : public unisono::cli::bench::TimedRanks {
 public:
  TimedMpi(const Operation& operation, const Call& call) : operation_(operation), call_(call) {}

  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

  void repeat(int n_calls) override {
    for (int i = 0; i < n_calls; ++i) {
      operation_.call(call_);
    }
  }

  void max_of_ranks(std::span<double> values) override {
    MPI_Allreduce(MPI_IN_PLACE,
                  values.data(),
                  static_cast<int>(values.size()),
                  MPI_DOUBLE,
                  MPI_MAX,
                  MPI_COMM_WORLD);
  }

 private:
  const Operation& operation_;
  const Call& call_;
};

const Operation& find_operation(const std::string& name) {
  for (const Operation& operation : kOperations) {
    if (name == operation.name) {
      return operation;
    }
  }
  throw unisono::Error(unisono::ErrorCode::kInvalidArgument, "no operation " + name);
}

Result measure(const Operation& operation,
               std::int64_t n_bytes,
               std::chrono::duration<double> seconds) {
  Call call{};
  MPI_Comm_rank(MPI_COMM_WORLD, &call.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &call.world_size);
  const int step = operation.has_chunks ? call.world_size : 1;
  const auto n_floats = static_cast<int>(n_bytes / static_cast<std::int64_t>(sizeof(float)));
  call.count = (n_floats + step - 1) / step * step;
  const FloatArray in(call.count);
  const FloatArray out(call.count);
  call.in = in.data();
  call.out = out.data();
  TimedMpi ranks(operation, call);
  Summary time = sample(ranks, seconds);
  for (double* value : {&time.median, &time.min, &time.p99}) {
    *value /= operation.n_transfers;
  }
  return {.op = operation.name,
          .n_ranks = call.world_size,
          .n_bytes = call.count * static_cast<std::int64_t>(sizeof(float)),
          .dtype = "f32",
          .memory = "private",
          .algorithm = "auto",
          .time = time,
          .bus_factor = operation.bus_factor(call.world_size)};
}

void run(int argc, char** argv) {
  const PeerArguments arguments = parse_peer_arguments(argc, argv);
  const Operation& operation = find_operation(arguments.operation);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (const std::int64_t n_bytes : arguments.sizes) {
    const Result result = measure(operation, n_bytes, arguments.seconds);
    if (rank == 0) {
      std::printf("%s\n", json_line(result).c_str());
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int exit_code = 0;
  try {
    bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_bench: %s\n", error.what());
    exit_code = 1;
  }
  MPI_Finalize();
  return exit_code;
}
