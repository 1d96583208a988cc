#include "unisono/torch/ddp/features/unfreezing.h"

#include <string_view>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/model_check.h"
#include "unisono/torch/tensor/agreement.h"

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

Unfreezing::Unfreezing(WrappedTensors& wrapped,
                       Reducer& reducer,
                       const std::vector<at::Tensor>& sparse)
    : wrapped_(wrapped), reducer_(reducer), sparse_(sparse) {
  reducer_.context().advice = advice();
}

// A rank without thawed parameters does not take part in the comparison and calls another
// operation, which ends the comparison with kMismatch.
void Unfreezing::compare(const std::vector<NamedTensor>& thawed) const {
  const std::string problem =
      std::string(
          "DistributedDataParallel: the ranks have thawed different parameters, but must ") +
      kWhatToDo;
  const PassContext& context = reducer_.context();
  try {
    check_agreement(*context.group, states_of(wrapped_.frozen()), problem, context.options.timeout);
  } catch (const Error& error) {
    const bool has_compared = std::string_view(error.what()).starts_with(problem);
    // Under join() a finished rank takes part although the rank has thawed no parameters.
    if (error.code() != ErrorCode::kMismatch || has_compared || thawed.empty()) {
      throw;
    }
    throw Error(error.code(),
                std::string(error.what()) + "; this rank has thawed " + quote_first(thawed) +
                    ", and announces it before this forward pass: " + kWhatToDo);
  }
}

void Unfreezing::take_in(bool is_any_thawed) {
  if (!is_any_thawed) {
    return;
  }
  const std::vector<NamedTensor> thawed = wrapped_.thawed();
  compare(thawed);
  reducer_.add(thawed, find_sparse(thawed, sparse_, reducer_.context().options.logical_ranks));
  wrapped_.take_thawed();
  reducer_.context().advice = advice();
}

std::string Unfreezing::advice() const {
  return wrapped_.frozen().empty() ? ""
                                   : "this rank has frozen " + quote_first(wrapped_.frozen()) +
                                         "; if another has thawed such a one: " + kWhatToDo;
}

void Unfreezing::refuse_within(const std::string& step) const {
  if (wrapped_.has_thawed()) {
    throw reducer_.context().group->refuse("DistributedDataParallel",
                                           quote_first(wrapped_.thawed()) +
                                               " was thawed within a step; do it before " + step +
                                               ", on every rank");
  }
}

}  // namespace unisono::ddp
