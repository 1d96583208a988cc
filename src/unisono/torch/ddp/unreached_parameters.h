#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// Parameters for which a pass had no gradient on some rank, where the options allow none. All
/// ranks learn of them, and refuse the next forward pass.
class UnreachedParameters {
 public:
  /// What this rank's pass lacked.
  void note(const std::vector<NamedTensor>& parameters, const std::vector<std::size_t>& which);

  /// The pass is given up.
  void forget() { own_.clear(); }

  /// Whether note() has named any.
  [[nodiscard]] bool is_any() const { return !own_.empty(); }

  /// A collective operation, after a pass in which some rank has noted some.
  void exchange(ProcessGroup& group,
                std::int64_t pass,
                std::optional<std::chrono::milliseconds> timeout);

  /// Throws Error(kInvalidArgument) with each rank's, as exchange() has found them.
  void check() const;

 private:
  std::string own_;      // names
  std::string problem_;  // what check() says
};

}  // namespace unisono::ddp
