#include "unisono/torch/ddp/features/unused_parameters.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/objects.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

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

// Ranks that lack the same parameters are named together.
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

void UsedParameters::allocate() {
  const auto n_parameters = static_cast<std::int64_t>(context_.parameters.size());
  if (used_.count != n_parameters) {
    used_ = context_.group->allocate(n_parameters, DType::kUInt8);
  }
}

void UsedParameters::after_launch(const std::function<bool(std::size_t)>& is_used) {
  const std::size_t n_parameters = context_.parameters.size();
  allocate();
  const std::span used(static_cast<std::uint8_t*>(used_.data), n_parameters);
  for (std::size_t i = 0; i < n_parameters; ++i) {
    used[i] = is_used(i) ? 1 : 0;
  }
  context_.is_used = used;
  work_ = context_.group->all_reduce_async(
      used_, {.op = kMax, .timeout = context_.options.timeout, .label = "use of parameters"});
}

void UnreachedParameters::before_forward() {
  if (!problem_.empty()) {
    throw Error(ErrorCode::kInvalidArgument, problem_);
  }
}

void UnreachedParameters::end_pass(PassResult& result) {
  if (result.flags == 0) {
    return;
  }
  std::string own;
  for (const std::size_t parameter : context_.missing) {
    own += (own.empty() ? "'" : ", '") + context_.parameters[parameter].name + "'";
  }
  const std::vector<std::string> of_ranks =
      all_gather_object(*context_.group, own, {.timeout = context_.options.timeout});
  problem_ = "[rank " + std::to_string(context_.group->rank()) +
             "] DistributedDataParallel: backward computed no gradient for " +
             describe_unreached(of_ranks) +
             (context_.n_passes == 1 ? " in the first pass"
                                     : " in pass " + std::to_string(context_.n_passes) +
                                           ", but in every pass before") +
             "; use these parameters (and every output of forward) in the loss, or set the option "
             "find_unused_parameters";
}

}  // namespace unisono::ddp
