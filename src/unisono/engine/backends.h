#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/engine/engine.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/rank_table.h"

namespace unisono {
enum class MpiImplementation : std::uint8_t;
}  // namespace unisono

namespace unisono::engine {

/// A set of values of an enumeration with fewer than 32 values.
template <class Enum>
class SetOf {
 public:
  constexpr SetOf() = default;

  constexpr SetOf(std::initializer_list<Enum> values) {
    for (const Enum value : values) {
      bits_ |= bit(value);
    }
  }

  /// Returns the set of all values up to and including `last`.
  [[nodiscard]] static constexpr SetOf up_to(Enum last) {
    SetOf all;
    all.bits_ = bit(last) | (bit(last) - 1);
    return all;
  }

  /// Returns true if the set contains the value.
  [[nodiscard]] constexpr bool has(Enum value) const { return (bits_ & bit(value)) != 0; }

  /// Returns the values of this set that `others` does not contain.
  [[nodiscard]] constexpr SetOf without(SetOf others) const {
    SetOf rest;
    rest.bits_ = bits_ & ~others.bits_;
    return rest;
  }

  friend constexpr bool operator==(SetOf, SetOf) = default;

 private:
  static constexpr std::uint32_t bit(Enum value) { return 1U << static_cast<unsigned>(value); }

  std::uint32_t bits_ = 0;
};

/// Operations, types and options that a backend supports.
struct Capabilities {
  SetOf<DeviceType> devices = {DeviceType::kCpu};
  SetOf<transport::OperationKind> operations =
      SetOf<transport::OperationKind>::up_to(transport::kLastOperationKind);
  bool passes_messages = true;  ///< Messages between CPU buffers, of every dtype.
  SetOf<DType> dtypes = SetOf<DType>::up_to(DType::kBool);  ///< Types that data movement accepts.
  SetOf<DType> reduced_dtypes = SetOf<DType>::up_to(DType::kBool);
  SetOf<ReduceKind> reductions = SetOf<ReduceKind>::up_to(ReduceKind::kUser);
  bool takes_algorithm = true;  ///< The caller may choose the algorithm.
  /// Reductions give the bits of the canonical tree, wherever the ranks are.
  bool has_canonical_bits = true;
  /// Remedy for a missing capability: a clause to which error messages append " it" or " them".
  std::string_view instead = "make the group with backend unisono, which has";
};

/// Throws Error(kInvalidArgument) unless `capabilities`, which belong to `backend`, cover the
/// operation; the text names the missing capability and the remedy. The caller checks the devices.
void check_capabilities(const Capabilities& capabilities,
                        std::string_view backend,
                        const Operation& operation);

/// Throws Error(kInvalidArgument) unless the backend passes messages.
void check_passes_messages(const Capabilities& capabilities, std::string_view backend);

/// Makes the engine of a group on this rank. `roster` outlives the engine. `native` is the engine
/// that the group would otherwise use: the new engine may keep `native` and delegate operations to
/// it. Ranks may have different engines, but each engine must take part in the operations of the
/// others.
using MakeEngine = std::function<std::shared_ptr<Engine>(
    const transport::RankTable& roster, std::shared_ptr<SupervisingEngine> native)>;

/// Facts about a process that decide whether it can have a backend.
struct ProcessFacts {
  std::optional<MpiImplementation> mpi =
      {};  ///< The MPI that started the process as a rank; std::nullopt without MPI.
  /// LOCAL_RANK, or the launcher's variable; std::nullopt if neither is set.
  std::optional<int> local_rank = {};
};

/// A backend as users select it: name, capabilities, and the factory of engines. A value type that
/// describes the state of this machine at the time of the query.
struct Backend {
  std::string name;
  std::vector<std::string> other_names = {};
  std::string help;      ///< Description; for an unavailable backend the reason and the remedy.
  bool is_there = true;  ///< The build contains the backend, and the machine meets its needs.
  Capabilities capabilities = {};
  std::optional<Capabilities> gpu_capabilities = std::nullopt;  ///< Set if they differ on GPUs.
  MakeEngine make = nullptr;  ///< Null: the group uses the native engine.
  /// Makes `make` for this process, before the process meets other ranks. Throws Error with a
  /// remedy if the process cannot use the backend.
  std::function<MakeEngine(const ProcessFacts& process)> prepare = nullptr;

  /// Returns the capabilities for buffers on this type of device.
  [[nodiscard]] const Capabilities& capabilities_on(DeviceType device) const;

  /// Returns whether the backend is available and executes `operation`, which is an element of
  /// operation_names(), on `device`.
  [[nodiscard]] bool has(std::string_view operation, DeviceType device) const;
};

/// Returns all backends in the present state of this machine: built-in backends, registered
/// backends, and backends that users of torch.distributed expect, such as gloo, even if
/// unavailable. Thread-safe.
[[nodiscard]] std::vector<Backend> backends();

/// Adds a backend of the program, for groups that are made from now on and for subgroups of these
/// groups. Each rank calls `make` on the thread that makes a group; an exception ends that attempt.
/// The native engine passed to `make` belongs to the group and ends with the group. A call beyond
/// `capabilities` is refused before any data is sent. Thread-safe.
///
/// Throws Error(kInvalidArgument) if the name or `make` is missing, or if a backend has the name.
void register_backend(std::string name,
                      std::string help,
                      MakeEngine make,
                      const Capabilities& capabilities = {});

/// Returns the backend with this name or alias, available or not. Throws Error(kInvalidArgument)
/// that lists the available backends if no backend has the name. Thread-safe.
[[nodiscard]] Backend look_up_backend(std::string_view name);

/// Returns the backend with its `make` for this process. Throws Error with a remedy if the machine
/// or the process cannot use the backend.
[[nodiscard]] Backend prepared(Backend backend, const ProcessFacts& process);

/// Returns the public names of the operations that a backend may have, such as "all_reduce" and
/// "send".
[[nodiscard]] std::span<const std::string_view> operation_names();

}  // namespace unisono::engine
