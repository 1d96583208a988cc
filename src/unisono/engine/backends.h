#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/engine/capabilities.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/supervising_engine.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::engine {

/// Makes what carries out the operations of a group on one of its ranks; `roster` outlives it.
/// `native` is what would do so otherwise: the engine may keep it and hand it what it does not
/// carry out itself. Ranks need not have the same engine, but each must do its part in the others'
/// operations.
using MakeEngine = std::function<std::shared_ptr<Engine>(
    const rendezvous::Roster& roster, std::shared_ptr<SupervisingEngine> native)>;

/// What carries out a group's operations, under the name by which users ask for it.
struct Backend {
  std::string name;
  std::vector<std::string> other_names = {};
  std::string help;      ///< What it is; of one that is not there, why, and what to install or do.
  bool is_there = true;  ///< Whether this build has it and this machine what it needs.
  Capabilities capabilities = {};
  std::optional<Capabilities> gpu_capabilities = std::nullopt;  ///< Where those on GPUs are others.
  MakeEngine make = nullptr;  ///< Null: the native engine does it.
  /// Makes `make` for a process in that environment, before it meets other ranks. Throws Error with
  /// what to do if the process can't have the backend.
  std::function<MakeEngine(const Environment& environment)> prepare = nullptr;

  [[nodiscard]] const Capabilities& capabilities_on(DeviceType device) const;

  /// Whether it has an operation, one of operation_names(), on a device.
  [[nodiscard]] bool has(std::string_view operation, DeviceType device) const;
};

/// Those that are built in or registered, and others that users of torch.distributed know, as they
/// are on this machine at this time. Thread-safe.
[[nodiscard]] std::vector<Backend> backends();

/// Adds a backend of the program's own, which groups can be made of from here on, and groups of
/// those. `make` is called by each rank's thread that makes a group; what it throws ends that. The
/// native engine that it gets is the group's: it ends with the group. A call that goes beyond
/// `capabilities` is refused before anything is sent. Thread-safe.
///
/// Throws Error(kInvalidArgument) if there is no name, or one that a backend has.
void register_backend(std::string name,
                      std::string help,
                      MakeEngine make,
                      const Capabilities& capabilities = {});

/// The backend of that name, whether it is there or not. Throws Error(kInvalidArgument) with the
/// names that there are, if it is none of them. Thread-safe.
[[nodiscard]] Backend look_up_backend(std::string_view name);

/// The backend fit for a process in that environment. Throws Error with what to do, if it is not
/// there or the process can't have it.
[[nodiscard]] Backend prepared(Backend backend, const Environment& environment);

/// The operations that a backend may have: the names of ProcessGroup's members.
[[nodiscard]] std::span<const std::string_view> operation_names();

}  // namespace unisono::engine
