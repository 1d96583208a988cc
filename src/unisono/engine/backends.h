#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/engine/engine.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::engine {

/// Makes what carries out the operations of a group on one of its ranks; `roster` outlives it.
/// `native` is what would do so otherwise: the engine may keep it and hand it what it does not
/// carry out itself. Ranks need not have the same engine, but each must do its part in the others'
/// operations.
using MakeEngine = std::function<std::unique_ptr<Engine>(const rendezvous::Roster& roster,
                                                         std::unique_ptr<Engine> native)>;

/// What carries out a group's operations, under the name by which users ask for it.
struct Backend {
  std::string name;
  std::vector<std::string> other_names = {};
  std::string help;  ///< What it is; of one that is not there, what to do instead.
  bool is_there = true;
  bool has_cpu = true;
  bool has_cuda = false;
  MakeEngine make = nullptr;  ///< Null: the native engine does it.
  /// Of one that not every machine can use: why this one can't, and what to do; empty if it can. Of
  /// a backend that was asked for, it has been called: `help` says why and `is_there` is false.
  std::function<std::string()> find_obstacle = nullptr;

  /// Of one that is not there, in two words.
  [[nodiscard]] const char* absence() const {
    return find_obstacle == nullptr ? "not built in" : "not usable here";
  }

  [[nodiscard]] bool has(DeviceType device) const {
    return is_there && (device == DeviceType::kCpu ? has_cpu : has_cuda);
  }
};

/// Those that are built in or registered, and others that users of torch.distributed know.
/// Thread-safe.
[[nodiscard]] std::vector<Backend> backends();

/// Adds a backend of the program's own, which groups can be made of from here on, and groups of
/// those. `make` is called by each rank's thread that makes a group; what it throws ends that. The
/// native engine that it gets is the group's: it ends with the group. Thread-safe.
///
/// Throws Error(kInvalidArgument) if there is no name, or one that a backend has.
void register_backend(std::string name, std::string help, MakeEngine make);

/// Throws Error(kInvalidArgument) with what to do, if there is no such backend. Thread-safe.
[[nodiscard]] Backend find_backend(std::string_view name);

/// The operations that each backend which is there has, on each of its devices: the names of
/// ProcessGroup's members.
[[nodiscard]] std::span<const std::string_view> operation_names();

}  // namespace unisono::engine
