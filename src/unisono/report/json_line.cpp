#include "unisono/report/json_line.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "unisono/report/named_value.h"
#include "unisono/report/progress_text.h"

namespace unisono::report {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "Infinity" : "-Infinity";
  }
  return value;
}

}  // namespace

std::string json_line(const ProgressState& state, int rank, double unix_seconds) {
  Json line{{"time", unix_seconds}, {"rank", rank}};
  if (!state.title.empty()) {
    line["title"] = state.title;
  }
  line["step"] = state.step;
  if (state.total > 0) {
    line["total"] = state.total;
  }
  line["seconds"] = state.seconds;
  line["steps_per_second"] = state.steps_per_second;
  if (state.n_samples > 0) {
    line["unit"] = state.unit;
    line["samples"] = state.n_samples;
    line["samples_per_second"] = state.samples_per_second;
  }
  Json& values = line["values"] = Json::object();
  for (const NamedValue& value : state.values) {
    values[value.name] = number(value.value);
  }
  constexpr int kOneLine = -1;
  return line.dump(kOneLine, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace unisono::report
