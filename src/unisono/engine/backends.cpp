#include "unisono/engine/backends.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/engine/capabilities.h"
#include "unisono/engine/mpi/mpi_engine.h"
#include "unisono/engine/nccl/nccl_backend.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine {
namespace {

using transport::OperationKind;

// An operation of ProcessGroup; kNone: a message between two ranks.
struct NamedOperation {
  std::string_view name;
  OperationKind kind;
};

constexpr std::array kOperations = std::to_array<NamedOperation>(
    {{"all_reduce", OperationKind::kAllReduce},
     {"all_reduce_coalesced", OperationKind::kAllReduceCoalesced},
     {"reduce", OperationKind::kReduce},
     {"reduce_scatter", OperationKind::kReduceScatter},
     {"reduce_scatter_coalesced", OperationKind::kReduceScatterCoalesced},
     {"broadcast", OperationKind::kBroadcast},
     {"all_gather", OperationKind::kAllGather},
     {"all_gather_coalesced", OperationKind::kAllGatherCoalesced},
     {"gather", OperationKind::kGather},
     {"scatter", OperationKind::kScatter},
     {"all_to_all", OperationKind::kAllToAll},
     {"barrier", OperationKind::kBarrier},
     {"monitored_barrier", OperationKind::kMonitoredBarrier},
     {"send", OperationKind::kNone},
     {"recv", OperationKind::kNone},
     {"batch", OperationKind::kNone}});

static_assert(kOperations.size() == static_cast<std::size_t>(transport::kLastOperationKind) + 3,
              "each kind is there, and three that are messages");

constexpr auto kOperationNames = [] {
  std::array<std::string_view, kOperations.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = kOperations[i].name;
  }
  return names;
}();

// A backend is described when somebody asks for it: that may look for what the machine has.
struct Row {
  std::string name;
  std::vector<std::string> other_names = {};
  std::function<Backend()> describe;

  [[nodiscard]] bool has_name(std::string_view wanted) const {
    return name == wanted ||
           std::find(other_names.begin(), other_names.end(), wanted) != other_names.end();
  }
};

Row row_of(const Backend& backend) {
  return {.name = backend.name, .other_names = backend.other_names, .describe = [backend] {
            return backend;
          }};
}

// All there are.
class Registry {
 public:
  void add(const Backend& backend) UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (find(backend.name) != rows_.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("register_backend: there is a backend \"{}\" already", backend.name));
    }
    rows_.push_back(row_of(backend));
  }

  [[nodiscard]] std::optional<Row> get(std::string_view name) const UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = find(name);
    return found == rows_.end() ? std::nullopt : std::optional(*found);
  }

  [[nodiscard]] std::vector<Row> all() const UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return rows_;
  }

 private:
  [[nodiscard]] std::vector<Row>::const_iterator find(std::string_view name) const
      UNISONO_REQUIRES(mutex_) {
    return std::find_if(
        rows_.begin(), rows_.end(), [&](const Row& row) { return row.has_name(name); });
  }

  mutable Mutex mutex_;
  std::vector<Row> rows_ UNISONO_GUARDED_BY(mutex_){
      row_of({.name = "unisono",
              .other_names = {"native", "tcp"},
              .help = "shared memory inside a node, tcp between nodes"}),
      row_of({.name = "gloo",
              .help =
                  "Gloo is a library inside of PyTorch; use backend unisono, the default of "
                  "InitOptions::backend, whose native engine has all of Gloo's operations on CPUs, "
                  "by shared memory inside a node and tcp between nodes (in Python, "
                  "unisono.Options(engine=\"gloo\") takes PyTorch's Gloo)",
              .is_there = false}),
      {.name = "mpi", .describe = mpi::describe_backend},
      {.name = "nccl", .describe = nccl::describe_backend}};
};

Registry& registry() {
  static Registry instance;
  return instance;
}

// As an error lists them: "unisono (also called native, tcp), traced".
std::string names_of_those_there() {
  std::string text;
  for (const Backend& backend : backends()) {
    if (backend.is_there) {
      text += fmt::format("{}{}", text.empty() ? "" : ", ", backend.name);
      if (!backend.other_names.empty()) {
        text += fmt::format(" (also called {})", fmt::join(backend.other_names, ", "));
      }
    }
  }
  return text;
}

void check_is_there(const Backend& backend) {
  if (!backend.is_there) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("backend {} can't be used here: {}", backend.name, backend.help));
  }
}

}  // namespace

std::vector<Backend> backends() {
  std::vector<Backend> all;
  for (const Row& row : registry().all()) {
    all.push_back(row.describe());
  }
  return all;
}

const Capabilities& Backend::capabilities_on(DeviceType device) const {
  return device == DeviceType::kCuda && gpu_capabilities ? *gpu_capabilities : capabilities;
}

bool Backend::has(std::string_view operation, DeviceType device) const {
  const auto* const found =
      std::find_if(kOperations.begin(), kOperations.end(), [&](const NamedOperation& candidate) {
        return candidate.name == operation;
      });
  if (!is_there || found == kOperations.end()) {
    return false;
  }
  return found->kind == OperationKind::kNone
             ? device == DeviceType::kCpu && capabilities.passes_messages
             : capabilities.devices.has(device) &&
                   capabilities_on(device).operations.has(found->kind);
}

void register_backend(std::string name,
                      std::string help,
                      MakeEngine make,
                      const Capabilities& capabilities) {
  if (name.empty() || make == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("register_backend: the backend \"{}\" needs {}",
                            name,
                            name.empty() ? "a name" : "a function that makes its engine"));
  }
  registry().add({.name = std::move(name),
                  .help = std::move(help),
                  .capabilities = capabilities,
                  .make = std::move(make)});
}

Backend look_up_backend(std::string_view name) {
  const std::optional<Row> row = registry().get(name);
  if (!row) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("there is no backend \"{}\"; there is {}", name, names_of_those_there()));
  }
  return row->describe();
}

Backend prepared(Backend backend, const Environment& environment) {
  check_is_there(backend);
  if (backend.prepare != nullptr) {
    backend.make = backend.prepare(environment);
  }
  return backend;
}

std::span<const std::string_view> operation_names() {
  return kOperationNames;
}

}  // namespace unisono::engine
