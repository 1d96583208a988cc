#include "unisono/torch/parallel/pipeline/routes.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/torch/parallel/pipeline/options.h"

namespace unisono::parallel {

std::vector<Route> routes_of(int n_stages, const std::vector<SkipConnection>& skips) {
  std::vector<Route> routes;
  for (int stage = 0; stage + 1 < n_stages; ++stage) {
    routes.push_back({.from = stage, .to = stage + 1});
  }
  for (const SkipConnection& skip : skips) {
    if (skip.from < 0 || skip.to <= skip.from || skip.to >= n_stages || skip.output < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "Pipeline: a skip connection from output " + std::to_string(skip.output) +
                      " of stage " + std::to_string(skip.from) + " to stage " +
                      std::to_string(skip.to) + "; it has to go forward, within stages 0 to " +
                      std::to_string(n_stages - 1));
    }
    const bool is_second = std::ranges::any_of(routes, [&](const Route& other) {
      return other.from == skip.from && other.output == skip.output;
    });
    if (is_second) {
      throw Error(ErrorCode::kInvalidArgument,
                  "Pipeline: output " + std::to_string(skip.output) + " of stage " +
                      std::to_string(skip.from) +
                      " has two skip connections; return the tensor once for each");
    }
    routes.push_back({.from = skip.from, .to = skip.to, .output = skip.output});
  }
  return routes;
}

std::vector<int> routes_into(int stage, const std::vector<Route>& routes) {
  std::vector<int> places;
  for (std::size_t place = 0; place < routes.size(); ++place) {
    if (routes[place].to == stage) {
      places.push_back(static_cast<int>(place));
    }
  }
  return places;
}

std::vector<int> routes_out_of(int stage, const std::vector<Route>& routes) {
  std::vector<int> places;
  for (std::size_t place = 0; place < routes.size(); ++place) {
    if (routes[place].from == stage) {
      places.push_back(static_cast<int>(place));
    }
  }
  return places;
}

std::vector<int> outputs_on(const Route& route, const std::vector<Route>& routes, int n_outputs) {
  if (route.output) {
    if (*route.output >= n_outputs) {
      throw Error(ErrorCode::kInvalidArgument,
                  "returned " + std::to_string(n_outputs) + " tensors, but output " +
                      std::to_string(*route.output) + " is to skip to stage " +
                      std::to_string(route.to));
    }
    return {*route.output};
  }
  std::vector<int> outputs;
  for (int output = 0; output < n_outputs; ++output) {
    const bool has_own_route = std::ranges::any_of(routes, [&](const Route& other) {
      return other.from == route.from && other.output == output;
    });
    if (!has_own_route) {
      outputs.push_back(output);
    }
  }
  return outputs;
}

}  // namespace unisono::parallel
