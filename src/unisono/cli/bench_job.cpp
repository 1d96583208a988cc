#include "unisono/cli/bench_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "unisono/base/error.h"
#include "unisono/cli/bench_report.h"
#include "unisono/cli/parse.h"
#include "unisono/comm/init.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/engine/backends.h"
#include "unisono/rendezvous/find_launch_info.h"
#include "unisono/rendezvous/this_node.h"
#include "unisono/transport/rank_table.h"

namespace unisono::cli::bench {
namespace {

constexpr int kWrongResults = 1;

void print_error(const char* what) {
  fmt::print(stderr, "[unisono] error: {}\n", what);
}

bool is_default_backend(const BenchOptions& options) {
  return options.backend == BenchOptions().backend;
}

class TimedGroup final : public TimedRanks {
 public:
  TimedGroup(ProcessGroup& group, const BenchOperation& operation, const BenchCall& call)
      : group_(group), operation_(operation), call_(call) {}

  void barrier() override { group_.barrier(); }

  void repeat(int n_calls) override {
    for (int i = 0; i < n_calls; ++i) {
      operation_.call(group_, call_);
    }
  }

  void max_of_ranks(std::span<double> values) override {
    group_.all_reduce(as_buffer(values), {.op = kMax});
  }

 private:
  ProcessGroup& group_;
  const BenchOperation& operation_;
  const BenchCall& call_;
};

// Writes zeros to every page, so that all pages are present before the first call and repeated sums
// in place stay finite.
Buffer make_buffer(ProcessGroup& group, Memory memory, std::int64_t count, DType dtype) {
  constexpr std::size_t kPageBytes = 4096;
  Buffer buffer{.data = nullptr, .count = count, .dtype = dtype};
  if (memory == Memory::kSymmetric) {
    buffer = group.allocate(count, dtype);
  } else {
    const std::size_t n_pages = static_cast<std::size_t>(buffer.n_bytes()) / kPageBytes + 1;
    // NOLINTNEXTLINE(cppcoreguidelines-no-malloc): owned by the next line.
    buffer.data = std::aligned_alloc(kPageBytes, n_pages * kPageBytes);
    if (buffer.data == nullptr) {
      throw Error(ErrorCode::kSystem,
                  fmt::format("bench: no memory for a buffer of {} bytes", buffer.n_bytes()));
    }
    buffer.owner = std::shared_ptr<void>(buffer.data, std::free);
  }
  if (count > 0) {
    std::memset(buffer.data, 0, static_cast<std::size_t>(buffer.n_bytes()));
  }
  return buffer;
}

class Measurement {
 public:
  Measurement(ProcessGroup& group, const BenchOptions& options) : group_(group), options_(options) {
    std::set<std::string_view> nodes;
    for (const transport::Member& member : group.roster().members) {
      nodes.insert(member.node);
    }
    n_nodes_ = static_cast<int>(nodes.size());
  }

  [[nodiscard]] int n_nodes() const { return n_nodes_; }

  // Measures an operation. Collective: every rank calls it and gets the same result.
  [[nodiscard]] Result measure(const BenchOperation& operation, std::int64_t n_bytes) {
    const RankPlace place{.rank = group_.rank(), .world_size = group_.world_size()};
    const std::int64_t n_elems =
        count_elements(operation, n_bytes, options_.dtype, place.world_size);
    const BenchCall call = make_call(operation, operation.counts(place, n_elems));
    TimedGroup ranks(group_, operation, call);
    Summary time = sample(ranks, options_.seconds);
    for (double* value : {&time.median, &time.min, &time.p99}) {
      *value /= operation.n_transfers;
    }
    const auto [algorithm, busiest_bytes] = look_into_call(operation, call);
    return {
        .op = operation.name,
        .n_ranks = place.world_size,
        .n_nodes = n_nodes_,
        .n_bytes = n_elems * static_cast<std::int64_t>(size_of(options_.dtype)),
        .dtype = to_string(options_.dtype),
        .memory = to_string(options_.memory),
        .backend = is_default_backend(options_) ? "" : options_.backend,
        .algorithm = to_string(algorithm),
        .is_algorithm_auto = call.algorithm == Algorithm::kAuto && algorithm != Algorithm::kAuto,
        .time = time,
        .bus_factor = operation.bus_factor(place.world_size),
        .busiest_bytes = busiest_bytes,
        .n_wrong = options_.is_checked ? check(group_, operation, call) : std::nullopt};
  }

 private:
  struct CallDetails {
    Algorithm algorithm;
    std::optional<std::int64_t> busiest_bytes;
  };

  // Makes a separate call, because sampling itself uses reductions to compare ranks.
  [[nodiscard]] CallDetails look_into_call(const BenchOperation& operation, const BenchCall& call) {
    const std::int64_t before = exchanged_bytes();
    operation.call(group_, call);
    auto n_bytes = static_cast<double>(exchanged_bytes() - before) / operation.n_transfers;
    CallDetails details{
        .algorithm = operation.algorithms.empty() ? Algorithm::kAuto : group_.last_algorithm(),
        .busiest_bytes = std::nullopt};
    group_.all_reduce(as_buffer(std::span(&n_bytes, 1)), {.op = kMax});
    // The traffic of another library is not counted.
    if (n_nodes_ > 1 && is_default_backend(options_)) {
      details.busiest_bytes = std::llround(n_bytes);
    }
    return details;
  }

  // Returns the bytes exchanged with other nodes so far.
  [[nodiscard]] std::int64_t exchanged_bytes() const {
    std::int64_t n_bytes = 0;
    for (const RankTraffic& with_rank : group_.traffic()) {
      n_bytes += with_rank.sent_bytes + with_rank.received_bytes;
    }
    return n_bytes;
  }

  [[nodiscard]] BenchCall make_call(const BenchOperation& operation, Counts counts) {
    BenchCall call{.in = {},
                   .out = make_buffer(group_, options_.memory, counts.out, options_.dtype),
                   .algorithm = algorithm_of(operation, options_.algorithm)};
    call.in = operation.is_in_place
                  ? call.out
                  : make_buffer(group_, options_.memory, counts.in, options_.dtype);
    return call;
  }

  ProcessGroup& group_;
  const BenchOptions& options_;
  int n_nodes_ = 1;
};

// Output of rank 0; the other ranks have no Output.
class Output {
 public:
  explicit Output(const std::string& json_path) : json_path_(json_path) {
    if (!json_path_.empty()) {
      check_json_path(json_path_);
    }
  }

  void begin(const ProcessGroup& group, int n_nodes, const BenchOptions& options) {
    fmt::print("# {} rank{} on {} node{}, {} memory, {}{}; times of the slowest rank\n",
               group.world_size(),
               group.world_size() == 1 ? "" : "s",
               n_nodes,
               n_nodes == 1 ? "" : "s",
               to_string(options.memory),
               to_string(options.dtype),
               is_default_backend(options) ? "" : ", backend " + options.backend);
    if (const std::string others = names_without(options.operations, options.algorithm);
        !others.empty()) {
      fmt::print(
          "# algorithm auto, as they don't have {}: {}\n", to_string(options.algorithm), others);
    }
    fmt::print("{}\n", table_header());
    std::fflush(stdout);
  }

  void add(const Result& result) {
    fmt::print("{}\n", table_row(result));
    std::fflush(stdout);
    json_ += json_line(result) + '\n';
  }

  // Writes the file after all measurements, so that a failed run does not replace the file of an
  // earlier run.
  void end() {
    if (!json_path_.empty()) {
      write_json(json_path_, json_);
    }
  }

 private:
  std::string json_path_;
  std::string json_;
};

// Returns true if every checked result is correct.
bool measure_all(ProcessGroup& group, const BenchOptions& options, Output* output) {
  Measurement measurement(group, options);
  if (output != nullptr) {
    output->begin(group, measurement.n_nodes(), options);
  }
  bool is_right = true;
  for (const BenchOperation& operation : options.operations) {
    if (group.world_size() < operation.min_ranks) {
      continue;
    }
    const std::size_t n_sizes = operation.extent == Extent::kNone ? 1 : options.sizes.size();
    for (const std::int64_t n_bytes : std::span(options.sizes).first(n_sizes)) {
      const Result result = measurement.measure(operation, n_bytes);
      is_right = is_right && result.n_wrong.value_or(0) == 0;
      if (output != nullptr) {
        output->add(result);
      }
    }
  }
  if (output != nullptr) {
    output->end();
  }
  return is_right;
}

}  // namespace

Environment with_debug_log(const Environment& base) {
  return [base](const char* variable) -> std::optional<std::string> {
    return std::string_view(variable) == "UNISONO_LOG" ? "debug" : base(variable);
  };
}

Environment pretend_nodes(const Environment& base, int n_nodes) {
  const rendezvous::LaunchInfo launch_info = rendezvous::find_launch_info(base);
  const int node = launch_info.rank * n_nodes / launch_info.world_size;
  // The name extends the name of the real node, so that ranks of two machines never count as one
  // node.
  const std::string name = fmt::format("{}/bench{}", rendezvous::node_id(read_config(base)), node);
  return [base, name](const char* variable) -> std::optional<std::string> {
    return std::string_view(variable) == "UNISONO_NODE_ID" ? name : base(variable);
  };
}

int run_in_job(const BenchOptions& options) {
  Environment environment = process_environment();
  if (options.n_pretend_nodes > 1) {
    environment = pretend_nodes(environment, options.n_pretend_nodes);
  }
  std::optional<Output> output;
  if (rendezvous::find_launch_info(environment).rank == 0) {
    output.emplace(options.json_path);
    // Only rank 0 logs the chosen algorithms and the reasons.
    environment = options.is_verbose ? with_debug_log(environment) : environment;
  }
  const std::shared_ptr<ProcessGroup> group =
      create_process_group({.backend = options.backend, .environment = environment});
  BenchOptions used = options;
  // The ranks may have fallen back to another backend.
  used.backend = comm::backend_of(*group).name;
  bool is_right = true;
  try {
    is_right = measure_all(*group, used, output ? &*output : nullptr);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) {
      throw;
    }
    // Every rank was refused the same arguments. Rank 0 reports that before any rank ends, because
    // the launcher then ends the other ranks.
    if (output) {
      print_error(error.what());
    }
    group->barrier();
    group->destroy();
    return kWrongUsage;
  }
  group->destroy();
  if (!is_right && output) {
    print_error("bench: results were wrong; see the table");
    return kWrongResults;
  }
  return 0;
}

}  // namespace unisono::cli::bench
