#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/engine/operation.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine {

/// Some values of an enumeration that has fewer than 32.
template <class Enum>
class SetOf {
 public:
  constexpr SetOf() = default;

  constexpr SetOf(std::initializer_list<Enum> values) {
    for (const Enum value : values) {
      bits_ |= bit(value);
    }
  }

  /// All up to `last`.
  [[nodiscard]] static constexpr SetOf up_to(Enum last) {
    SetOf all;
    all.bits_ = bit(last) | (bit(last) - 1);
    return all;
  }

  [[nodiscard]] constexpr bool has(Enum value) const { return (bits_ & bit(value)) != 0; }

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

/// What a backend can do.
struct Capabilities {
  SetOf<DeviceType> devices = {DeviceType::kCpu};
  SetOf<transport::OperationKind> operations =
      SetOf<transport::OperationKind>::up_to(transport::kLastOperationKind);
  bool passes_messages = true;                              ///< Of memory on the CPU, of all types.
  SetOf<DType> dtypes = SetOf<DType>::up_to(DType::kBool);  ///< Of what it moves.
  SetOf<DType> reduced_dtypes = SetOf<DType>::up_to(DType::kBool);
  SetOf<ReduceKind> reductions = SetOf<ReduceKind>::up_to(ReduceKind::kUser);
  bool takes_algorithm = true;  ///< Whether the caller may choose one.
  /// Whether a reduction has the bits of the canonical tree, wherever the ranks are.
  bool has_canonical_bits = true;
  /// What to do where it lacks something: a clause to which " it" is added.
  std::string_view instead = "make the group with backend unisono, which has";
};

/// Throws Error(kInvalidArgument) unless `backend`, with those capabilities, has the operation; the
/// text says what it lacks, and what to do. Devices are the caller's to check.
void check_capabilities(const Capabilities& capabilities,
                        std::string_view backend,
                        const Operation& operation);

/// The same for messages.
void check_passes_messages(const Capabilities& capabilities, std::string_view backend);

}  // namespace unisono::engine
