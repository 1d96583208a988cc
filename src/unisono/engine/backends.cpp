#include "unisono/engine/backends.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/engine/nccl/nccl_backend.h"

namespace unisono::engine {
namespace {

constexpr std::array<std::string_view, 16> kOperations{"all_reduce",
                                                       "all_reduce_coalesced",
                                                       "reduce",
                                                       "reduce_scatter",
                                                       "reduce_scatter_coalesced",
                                                       "broadcast",
                                                       "all_gather",
                                                       "all_gather_coalesced",
                                                       "gather",
                                                       "scatter",
                                                       "all_to_all",
                                                       "barrier",
                                                       "monitored_barrier",
                                                       "send",
                                                       "recv",
                                                       "batch"};

bool has_name(const Backend& backend, std::string_view name) {
  const auto& others = backend.other_names;
  return backend.name == name || std::find(others.begin(), others.end(), name) != others.end();
}

// As it is on this machine.
Backend resolve(Backend backend) {
  if (const std::string obstacle = backend.find_obstacle == nullptr ? "" : backend.find_obstacle();
      !obstacle.empty()) {
    backend.is_there = false;
    backend.help = obstacle;
  }
  return backend;
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
      {.name = "mpi",
       .help = "unisono does what it does on CPUs, and needs no MPI",
       .is_there = false},
      nccl::describe_backend()};
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
  std::vector<Backend> all = registry().all();
  std::transform(all.begin(), all.end(), all.begin(), resolve);
  return all;
}

void register_backend(std::string name, std::string help, MakeEngine make) {
  if (name.empty() || make == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("register_backend: the backend \"{}\" needs {}",
                            name,
                            name.empty() ? "a name" : "a function that makes its engine"));
  }
  registry().add({.name = std::move(name), .help = std::move(help), .make = std::move(make)});
}

Backend find_backend(std::string_view name) {
  const std::optional<Backend> registered = registry().get(name);
  if (!registered) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("there is no backend \"{}\"; there is {}", name, names_of_those_there()));
  }
  Backend found = resolve(*registered);
  if (!found.is_there) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("backend {} is {}: {}", found.name, found.absence(), found.help));
  }
  return found;
}

std::span<const std::string_view> operation_names() {
  return kOperations;
}

}  // namespace unisono::engine
