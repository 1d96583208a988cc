#include "unisono/cli/layer_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/readers/csv.h"
#include "unisono/pipeline/layer_costs.h"

namespace unisono::cli {
namespace {

// One column of the file, if it has that.
class Column {
 public:
  Column(const CsvReader& reader, const std::string& path, std::string_view name)
      : path_(path), name_(name) {
    const std::vector<std::string>& names = reader.header();
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) {
      place_ = static_cast<std::size_t>(found - names.begin());
    }
  }

  [[nodiscard]] bool is_there() const { return place_.has_value(); }

  // Nothing where the file has no such column.
  [[nodiscard]] std::optional<double> read(const CsvReader& reader,
                                           const std::vector<std::string>& fields) const {
    if (!place_) {
      return std::nullopt;
    }
    const std::string& field = fields[*place_];
    double number = 0;
    const char* const end = field.data() + field.size();
    const auto [stop, error] = std::from_chars(field.data(), end, number);
    if (error != std::errc() || stop != end || !std::isfinite(number) || number < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: {} is \"{}\": it must be a number, and not negative",
                              path_,
                              reader.line(),
                              name_,
                              field));
    }
    return number;
  }

 private:
  const std::string& path_;
  std::string_view name_;
  std::optional<std::size_t> place_;
};

}  // namespace

pipeline::LayerCosts read_layer_costs(const std::string& path) {
  CsvReader reader(path);
  const Column forward(reader, path, "forward_ms");
  const Column backward(reader, path, "backward_ms");
  const Column weight(reader, path, "weight_ms");
  const Column activation(reader, path, "activation_mib");
  if (!forward.is_there() || !backward.is_there()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: the first line must name the columns forward_ms and backward_ms", path));
  }
  pipeline::LayerCosts costs;
  while (const std::optional<std::vector<std::string>> fields = reader.next()) {
    const double whole = backward.read(reader, *fields).value_or(0);
    const double weights = weight.read(reader, *fields).value_or(whole / 2);
    if (weights > whole) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: weight_ms is a part of backward_ms, and {} is more than {}",
                              path,
                              reader.line(),
                              weights,
                              whole));
    }
    costs.times.push_back({.forward = forward.read(reader, *fields).value_or(0),
                           .backward_input = whole - weights,
                           .backward_weight = weights});
    if (const std::optional<double> mib = activation.read(reader, *fields)) {
      costs.activation_mib.push_back(*mib);
    }
  }
  if (costs.times.empty()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: there are no layers", path));
  }
  return costs;
}

}  // namespace unisono::cli
