#include "unisono/engine/backends.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/engine/capabilities.h"
#include "unisono/engine/mpi/mpi_engine.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine {
namespace {

using transport::OperationKind;

// An operation of ProcessGroup; kNone: a message between two ranks, which no engine carries.
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

constexpr auto kOperationNames = [] {
  std::array<std::string_view, kOperations.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = kOperations[i].name;
  }
  return names;
}();

bool has_name(const Backend& backend, std::string_view name) {
  const auto& others = backend.other_names;
  return backend.name == name || std::find(others.begin(), others.end(), name) != others.end();
}

// All there are.
class Registry {
 public:
  void add(Backend backend) UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (find(backend.name) != backends_.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("register_backend: there is a backend \"{}\" already", backend.name));
    }
    backends_.push_back(std::move(backend));
  }

  [[nodiscard]] std::optional<Backend> get(std::string_view name) const UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = find(name);
    return found == backends_.end() ? std::nullopt : std::optional(*found);
  }

  [[nodiscard]] std::vector<Backend> all() const UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return backends_;
  }

 private:
  [[nodiscard]] std::vector<Backend>::const_iterator find(std::string_view name) const
      UNISONO_REQUIRES(mutex_) {
    return std::find_if(backends_.begin(), backends_.end(), [&](const Backend& backend) {
      return has_name(backend, name);
    });
  }

  mutable Mutex mutex_;
  std::vector<Backend> backends_ UNISONO_GUARDED_BY(mutex_){
      {.name = "unisono",
       .other_names = {"native", "tcp"},
       .help = "shared memory inside a node, tcp between nodes"},
      {.name = "gloo", .help = "PyTorch's; unisono does what it does on CPUs", .is_there = false},
      mpi::describe_backend(),
      {.name = "nccl",
       .help = "for GPUs; copy tensors to the CPU and use unisono",
       .is_there = false}};
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

}  // namespace

std::vector<Backend> backends() {
  return registry().all();
}

bool Backend::has(std::string_view operation, DeviceType device) const {
  const auto* const found =
      std::find_if(kOperations.begin(), kOperations.end(), [&](const NamedOperation& candidate) {
        return candidate.name == operation;
      });
  return is_there && found != kOperations.end() && capabilities.devices.has(device) &&
         (found->kind == OperationKind::kNone || capabilities.operations.has(found->kind));
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

Backend find_backend(std::string_view name) {
  const std::optional<Backend> found = registry().get(name);
  if (!found) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("there is no backend \"{}\"; there is {}", name, names_of_those_there()));
  }
  if (!found->is_there) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("backend {} is not built in: {}", found->name, found->help));
  }
  return *found;
}

std::span<const std::string_view> operation_names() {
  return kOperationNames;
}

}  // namespace unisono::engine
