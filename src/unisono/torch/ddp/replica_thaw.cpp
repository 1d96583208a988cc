// Parameters that were frozen when their module was wrapped, and are thawed later.
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/model_properties.h"
#include "unisono/torch/ddp/reducer.h"
#include "unisono/torch/ddp/replica.h"
#include "unisono/torch/tensor/agreement.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {
namespace {

constexpr const char* kWhatToDo =
    "call set_requires_grad(true) on every rank, before the same forward pass";

std::string quote_first(const std::vector<NamedTensor>& parameters) {
  return "parameter '" + parameters.front().name + "'" +
         (parameters.size() > 1 ? " and " + std::to_string(parameters.size() - 1) + " more" : "");
}

std::vector<Property> states_of(const std::vector<NamedTensor>& parameters) {
  std::vector<Property> states;
  states.reserve(parameters.size());
  for (const NamedTensor& parameter : parameters) {
    states.push_back({.what = "parameter '" + parameter.name + "'",
                      .value = parameter.tensor.requires_grad() ? "thawed" : "frozen"});
  }
  return states;
}

}  // namespace

// A rank that has thawed nothing does not take part in the comparison, and meets it with another
// operation.
void Replica::compare_thawed(const std::vector<NamedTensor>& thawed) const {
  const std::string problem =
      std::string(
          "DistributedDataParallel: the ranks have thawed different parameters, but must ") +
      kWhatToDo;
  try {
    check_agreement(*group_, states_of(wrapped_.frozen()), problem, options_.timeout);
  } catch (const Error& error) {
    const bool has_compared = std::string_view(error.what()).starts_with(problem);
    // Under join() a rank without batches takes part that has thawed nothing.
    if (error.code() != ErrorCode::kMismatch || has_compared || thawed.empty()) {
      throw;
    }
    throw Error(error.code(),
                std::string(error.what()) + "; this rank has thawed " + quote_first(thawed) +
                    ", which it tells the others before this forward pass: " + kWhatToDo);
  }
}

void Replica::take_in_thawed(bool is_any_thawed) {
  if (!is_any_thawed) {
    return;
  }
  const std::vector<NamedTensor> thawed = wrapped_.thawed();
  compare_thawed(thawed);
  reducer_->add(thawed, find_sparse(thawed, sparse_, options_.logical_ranks));
  wrapped_.take_thawed();
  reducer_->set_advice(advice_on_frozen());
}

std::string Replica::advice_on_frozen() const {
  return wrapped_.frozen().empty() ? ""
                                   : "this rank has frozen " + quote_first(wrapped_.frozen()) +
                                         "; if another has thawed such a one: " + kWhatToDo;
}

void Replica::refuse_thaw_within_step() const {
  if (is_in_step_ && wrapped_.has_thawed()) {
    throw group_->refuse("DistributedDataParallel",
                         quote_first(wrapped_.thawed()) +
                             " was thawed within a step; do it before " +
                             (logical_ ? "for_each_shard()" : "run_step()") + ", on every rank");
  }
}

}  // namespace unisono::ddp
