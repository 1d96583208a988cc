#include "unisono/torch/ddp/unreached_parameters.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/objects.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {
namespace {

std::string text_of_ranks(const std::vector<int>& ranks, int world_size) {
  if (std::ssize(ranks) == world_size) {
    return world_size == 1 ? "" : " on all ranks";
  }
  std::string text = ranks.size() == 1 ? " on rank " : " on ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

// Ranks that lack the same are named together.
std::string describe_unreached(const std::vector<std::string>& names_of_ranks) {
  std::vector<std::pair<std::string, std::vector<int>>> lacks;
  for (std::size_t rank = 0; rank < names_of_ranks.size(); ++rank) {
    const std::string& names = names_of_ranks[rank];
    if (names.empty()) {
      continue;
    }
    auto place = std::ranges::find(lacks, names, [](const auto& entry) { return entry.first; });
    if (place == lacks.end()) {
      place = lacks.emplace(lacks.end(), names, std::vector<int>());
    }
    place->second.push_back(static_cast<int>(rank));
  }
  std::string text;
  for (const auto& [names, ranks] : lacks) {
    text += (text.empty() ? "" : ", ") + names;
    text += text_of_ranks(ranks, static_cast<int>(names_of_ranks.size()));
  }
  return text;
}

}  // namespace

void UnreachedParameters::note(const std::vector<NamedTensor>& parameters,
                               const std::vector<std::size_t>& which) {
  own_.clear();
  for (const std::size_t parameter : which) {
    own_ += (own_.empty() ? "'" : ", '") + parameters[parameter].name + "'";
  }
}

void UnreachedParameters::exchange(ProcessGroup& group,
                                   std::int64_t pass,
                                   std::optional<std::chrono::milliseconds> timeout) {
  const std::vector<std::string> of_ranks =
      all_gather_object(group, std::exchange(own_, {}), {.timeout = timeout});
  problem_ = "[rank " + std::to_string(group.rank()) +
             "] DistributedDataParallel: backward computed no gradient for " +
             describe_unreached(of_ranks) +
             (pass == 1 ? " in the first pass"
                        : " in pass " + std::to_string(pass) + ", but in every pass before") +
             "; use these parameters (and every output of forward) in the loss, or set the option "
             "find_unused_parameters";
}

void UnreachedParameters::check() const {
  if (!problem_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, problem_);
  }
}

}  // namespace unisono::ddp
