#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/cli/doctor/link.h"
#include "unisono/cli/doctor/report.h"

namespace unisono::cli::doctor {

/// What a rank tells rank 0.
struct Contribution {
  Examination examination;
  std::vector<Link> links;
};

[[nodiscard]] std::string encode(const Contribution& contribution);

/// Nothing for bytes that encode() does not make.
[[nodiscard]] std::optional<Contribution> decode(std::string_view bytes);

}  // namespace unisono::cli::doctor
