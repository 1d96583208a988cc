#include "unisono/engine/backends.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/engine/mpi/mpi_engine.h"
#include "unisono/engine/nccl/nccl_backend.h"

namespace unisono::engine {
namespace {

[[noreturn]] void refuse(std::string_view backend, const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("backend {} {}", backend, problem));
}

}  // namespace

void check_capabilities(const Capabilities& capabilities,
                        std::string_view backend,
                        const Operation& operation) {
  const transport::Descriptor& descriptor = operation.descriptor;
  if (!capabilities.operations.has(descriptor.kind)) {
    refuse(backend,
           fmt::format("has no {}; {} it", to_string(descriptor.kind), capabilities.instead));
  }
  if (!transport::reduces(descriptor.kind)) {
    if (transport::has_elements(descriptor.kind) && !capabilities.dtypes.has(descriptor.dtype)) {
      refuse(backend,
             fmt::format("does not move {}; convert the elements, or {} it",
                         to_string(descriptor.dtype),
                         capabilities.instead));
    }
    return;
  }
  if (!capabilities.reduced_dtypes.has(descriptor.dtype)) {
    refuse(backend,
           fmt::format("does not reduce {}; convert the elements (16-bit floats to f32), or {} it",
                       to_string(descriptor.dtype),
                       capabilities.instead));
  }
  if (!capabilities.reductions.has(descriptor.reduce)) {
    refuse(backend,
           fmt::format(
               "has no reduction {}; {} it", to_string(descriptor.reduce), capabilities.instead));
  }
  if (!capabilities.takes_algorithm && descriptor.algorithm != Algorithm::kAuto) {
    refuse(backend,
           fmt::format("chooses the algorithm by itself; leave out algorithm {}, or {} it",
                       to_string(descriptor.algorithm),
                       capabilities.instead));
  }
}

void check_passes_messages(const Capabilities& capabilities, std::string_view backend) {
  if (!capabilities.passes_messages) {
    refuse(backend, fmt::format("does not support messages; {} them", capabilities.instead));
  }
}

namespace {

using transport::OperationKind;

// Calls that pass messages. No descriptor travels with these.
constexpr std::array<std::string_view, 3> kMessageCalls{"send", "recv", "batch"};

// Operations with elements, then operations without, then messages.
constexpr auto kOperationNames = [] {
  constexpr std::size_t kNoOperation = 1;
  std::array<std::string_view, transport::kOperations.size() - kNoOperation + kMessageCalls.size()>
      names;
  std::size_t n_names = 0;
  for (const bool has_elements : {true, false}) {
    for (std::size_t kind = kNoOperation; kind < transport::kOperations.size(); ++kind) {
      if (transport::kOperations[kind].has_elements == has_elements) {
        names[n_names++] = transport::kOperations[kind].name;
      }
    }
  }
  for (const std::string_view call : kMessageCalls) {
    names[n_names++] = call;
  }
  return names;
}();

// A backend is described on request, since the description may have to probe the machine.
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

// All backends: built-in and registered.
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

// Returns the available backends for an error message: "unisono (also called native, tcp), traced".
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

// Throws Error(kInvalidArgument) with the remedy if the backend is unavailable.
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
  if (std::find(kMessageCalls.begin(), kMessageCalls.end(), operation) != kMessageCalls.end()) {
    return is_there && device == DeviceType::kCpu && capabilities.passes_messages;
  }
  for (std::size_t kind = 1; kind < transport::kOperations.size(); ++kind) {
    if (transport::kOperations[kind].name == operation) {
      return is_there && capabilities.devices.has(device) &&
             capabilities_on(device).operations.has(static_cast<OperationKind>(kind));
    }
  }
  return false;
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

Backend prepared(Backend backend, const ProcessFacts& process) {
  check_is_there(backend);
  if (backend.prepare != nullptr) {
    backend.make = backend.prepare(process);
  }
  return backend;
}

std::span<const std::string_view> operation_names() {
  return kOperationNames;
}

}  // namespace unisono::engine
