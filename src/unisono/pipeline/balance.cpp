#include "unisono/pipeline/balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/pipeline/as_index.h"

namespace unisono::pipeline {
namespace {

void check_n_parts(int n_parts) {
  if (n_parts < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("balance: {} parts: at least 1 is needed", n_parts));
  }
}

void check_costs(const std::vector<double>& costs, int n_parts) {
  check_n_parts(n_parts);
  if (costs.size() < as_index(n_parts)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("balance: {} layers can't be cut into {} parts", costs.size(), n_parts));
  }
  for (std::size_t layer = 0; layer < costs.size(); ++layer) {
    if (!std::isfinite(costs[layer]) || costs[layer] < 0) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("balance: layer {} has cost {}: it must be a number, and not negative",
                      layer,
                      costs[layer]));
    }
  }
}

}  // namespace

std::vector<LayerRange> cut_evenly(int n_layers, int n_parts) {
  check_n_parts(n_parts);
  if (n_layers < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("balance: {} layers: at least 1 is needed", n_layers));
  }
  const int n = std::min(n_layers, n_parts);
  std::vector<LayerRange> parts;
  for (int part = 0; part < n; ++part) {
    const int begin = parts.empty() ? 0 : parts.back().end;
    parts.push_back({.begin = begin, .end = begin + n_layers / n + (part < n_layers % n ? 1 : 0)});
  }
  return parts;
}

std::vector<LayerRange> cut_by_cost(const std::vector<double>& costs, int n_parts) {
  check_costs(costs, n_parts);
  const std::size_t n_layers = costs.size();
  // least[n]: the smallest largest sum of the first n layers in as many parts as were looked at,
  // whose last begins at begins[parts][n].
  std::vector<double> least(n_layers + 1, std::numeric_limits<double>::infinity());
  least[0] = 0;
  std::vector<std::vector<std::size_t>> begins;
  for (int n_done = 0; n_done < n_parts; ++n_done) {
    std::vector<double> next(n_layers + 1, std::numeric_limits<double>::infinity());
    std::vector<std::size_t>& begin_of = begins.emplace_back(n_layers + 1, 0);
    for (std::size_t end = 1; end <= n_layers; ++end) {
      double sum = 0;
      for (std::size_t begin = end; begin-- > 0;) {
        sum += costs[begin];
        const double largest = std::max(least[begin], sum);
        if (largest <= next[end]) {
          next[end] = largest;
          begin_of[end] = begin;
        }
      }
    }
    least = std::move(next);
  }
  std::vector<LayerRange> parts(as_index(n_parts));
  std::size_t end = n_layers;
  for (std::size_t part = parts.size(); part-- > 0;) {
    const std::size_t begin = begins[part][end];
    parts[part] = {.begin = static_cast<int>(begin), .end = static_cast<int>(end)};
    end = begin;
  }
  return parts;
}

std::vector<double> sums_of_parts(const std::vector<double>& costs,
                                  const std::vector<LayerRange>& parts) {
  std::vector<double> sums;
  for (const LayerRange& part : parts) {
    sums.push_back(std::accumulate(costs.begin() + part.begin, costs.begin() + part.end, 0.0));
  }
  return sums;
}

}  // namespace unisono::pipeline
