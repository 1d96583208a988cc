#pragma once

#include <optional>
#include <vector>

#include "unisono/torch/parallel/pipeline/options.h"

namespace unisono::parallel {

/// Outputs of a stage that are inputs of one farther on. Gradients come back on the same way.
struct Route {
  int from;
  int to;
  /// Which of the outputs; nothing: those that have no route of their own.
  std::optional<int> output = {};
};

/// From each stage to the next one, then the skip connections. A stage's inputs are in this order.
[[nodiscard]] std::vector<Route> routes_of(int n_stages, const std::vector<SkipConnection>& skips);

/// The places among `routes` of those that end, or begin, at a stage.
[[nodiscard]] std::vector<int> routes_into(int stage, const std::vector<Route>& routes);
[[nodiscard]] std::vector<int> routes_out_of(int stage, const std::vector<Route>& routes);

/// Which of a stage's `n_outputs` outputs go that way. Throws Error(kInvalidArgument) where there
/// are too few of them.
[[nodiscard]] std::vector<int> outputs_on(const Route& route,
                                          const std::vector<Route>& routes,
                                          int n_outputs);

}  // namespace unisono::parallel
