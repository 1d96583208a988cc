#include "unisono/pipeline/layer_costs.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/balance.h"
#include "unisono/pipeline/simulate.h"

namespace unisono::pipeline {
namespace {

// In quotes where it has what ends a field, as RFC 4180 has it.
std::string field_of(const std::string& name) {
  if (name.find_first_of(",\"\r\n") == std::string::npos) {
    return name;
  }
  std::string field = "\"";
  for (const char letter : name) {
    field += letter == '"' ? "\"\"" : std::string(1, letter);
  }
  return field + "\"";
}

}  // namespace

std::vector<StageTimes> times_of_parts(const std::vector<StageTimes>& layers,
                                       const std::vector<LayerRange>& parts) {
  std::vector<StageTimes> sums;
  for (const LayerRange& part : parts) {
    StageTimes& sum =
        sums.emplace_back(StageTimes{.forward = 0, .backward_input = 0, .backward_weight = 0});
    for (int layer = part.begin; layer < part.end; ++layer) {
      const StageTimes& times = layers[as_index(layer)];
      sum.forward += times.forward;
      sum.backward_input += times.backward_input;
      sum.backward_weight += times.backward_weight;
    }
  }
  return sums;
}

std::string to_csv(const LayerCosts& layers) {
  std::string text = layers.names.empty() ? "" : "name,";
  text += "forward_ms,backward_ms,weight_ms";
  text += layers.activation_mib.empty() ? "" : ",activation_mib";
  text += layers.gradient_mib.empty() ? "\n" : ",gradient_mib\n";
  for (std::size_t layer = 0; layer < layers.times.size(); ++layer) {
    const StageTimes& times = layers.times[layer];
    text += layers.names.empty() ? "" : field_of(layers.names[layer]) + ",";
    text +=
        fmt::format("{:.4f},{:.4f},{:.4f}", times.forward, times.backward(), times.backward_weight);
    for (const std::vector<double>* sizes : {&layers.activation_mib, &layers.gradient_mib}) {
      text += sizes->empty() ? "" : fmt::format(",{:.6f}", (*sizes)[layer]);
    }
    text += "\n";
  }
  return text;
}

}  // namespace unisono::pipeline
