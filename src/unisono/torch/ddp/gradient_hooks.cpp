#include "unisono/torch/ddp/gradient_hooks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "unisono/base/error.h"

namespace unisono::ddp {
namespace {

namespace autograd = ::torch::autograd;

class Hook : public autograd::FunctionPostHook {
 public:
  Hook(std::size_t parameter, std::shared_ptr<const std::function<void(std::size_t)>> on_gradient)
      : parameter_(parameter), on_gradient_(std::move(on_gradient)) {}

  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list& /*inputs*/) override {
    (*on_gradient_)(parameter_);
    return outputs;
  }

 private:
  std::size_t parameter_;
  // All hooks of one GradientHooks share it.
  std::shared_ptr<const std::function<void(std::size_t)>> on_gradient_;
};

}  // namespace

struct GradientHooks::Entry {
  at::Tensor parameter;
  c10::intrusive_ptr<autograd::Node> accumulator = {};
  std::uintptr_t hook = 0;

  void attach(std::unique_ptr<Hook> to_attach) {
    accumulator = autograd::impl::grad_accumulator(parameter);
    UNISONO_CHECK(accumulator, "a parameter has no gradient accumulator");
    hook = accumulator->add_post_hook(std::move(to_attach));
  }

  void detach() const { accumulator->del_post_hook(hook); }

  // A frozen parameter has none that could be found.
  [[nodiscard]] bool is_stale() const {
    return parameter.requires_grad() &&
           autograd::impl::try_get_grad_accumulator(parameter) != accumulator;
  }
};

GradientHooks::GradientHooks(const std::vector<at::Tensor>& parameters,
                             std::function<void(std::size_t)> on_gradient)
    : on_gradient_(
          std::make_shared<const std::function<void(std::size_t)>>(std::move(on_gradient))) {
  add(parameters);
}

void GradientHooks::add(const std::vector<at::Tensor>& parameters) {
  entries_.reserve(entries_.size() + parameters.size());
  for (const at::Tensor& parameter : parameters) {
    entries_.push_back({.parameter = parameter});
    entries_.back().attach(std::make_unique<Hook>(entries_.size() - 1, on_gradient_));
  }
}

GradientHooks::~GradientHooks() {
  for (const Entry& entry : entries_) {
    entry.detach();
  }
}

void GradientHooks::follow() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].is_stale()) {
      entries_[i].detach();
      entries_[i].attach(std::make_unique<Hook>(i, on_gradient_));
    }
  }
}

std::optional<std::vector<bool>> GradientHooks::find_reached() const {
  // Non-empty only when the caller asked for the gradients of certain tensors.
  const auto& requested = *autograd::get_current_graph_task_exec_info();
  const auto& nodes = *autograd::get_current_graph_task_nodes_in_graph();
  std::vector<bool> reached;
  reached.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    if (requested.empty()) {
      reached.push_back(nodes.contains(entry.accumulator.get()));
    } else {
      const auto found = requested.find(entry.accumulator.get());
      reached.push_back(found != requested.end() && found->second.needed_);
    }
  }
  if (!requested.empty() && std::ranges::find(reached, true) == reached.end()) {
    return std::nullopt;
  }
  return reached;
}

}  // namespace unisono::ddp
