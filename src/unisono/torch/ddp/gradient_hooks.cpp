#include "unisono/torch/ddp/gradient_hooks.h"

#include <algorithm>
#include <string>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "unisono/base/error.h"

namespace unisono::ddp {
namespace {

namespace autograd = ::torch::autograd;

// Identity node that calls a callback when a backward pass reaches the node.
class BackwardSignal : public autograd::Node {
 public:
  BackwardSignal(autograd::edge_list&& next_edges, std::function<void()> on_backward)
      : autograd::Node(std::move(next_edges)), on_backward_(std::move(on_backward)) {}

  [[nodiscard]] std::string name() const override { return "DistributedDataParallelBackward"; }

 protected:
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    on_backward_();
    return std::move(gradients);
  }

 private:
  std::function<void()> on_backward_;
};

// Owned by the end-of-backward callback of one pass. Destruction without finish() means that the
// pass ended with an exception, and aborts the pass.
class PassEnd {
 public:
  PassEnd(std::function<void()> finish, std::function<void()> give_up)
      : finish_(std::move(finish)), give_up_(std::move(give_up)) {}

  ~PassEnd() {
    if (give_up_) {
      give_up_();
    }
  }

  PassEnd(const PassEnd&) = delete;
  PassEnd& operator=(const PassEnd&) = delete;
  PassEnd(PassEnd&&) = delete;
  PassEnd& operator=(PassEnd&&) = delete;

  void finish() {
    give_up_ = nullptr;
    finish_();
  }

 private:
  std::function<void()> finish_;
  std::function<void()> give_up_;
};

}  // namespace

bool is_in_backward() {
  return autograd::get_current_graph_task_id() != -1;
}

void at_end_of_backward(std::function<void()> finish, std::function<void()> give_up) {
  auto end = std::make_shared<PassEnd>(std::move(finish), std::move(give_up));
  autograd::Engine::get_default_engine().queue_callback([end = std::move(end)] { end->finish(); });
}

void attach_backward_signal(at::Tensor& output, std::function<void()> on_backward) {
  if (!output.defined() || !output.requires_grad()) {
    return;
  }
  if (output.is_leaf()) {
    output = output.view_as(output);
  }
  // The tensor itself gets the new history instead of a view of the tensor, so that the caller's
  // in-place operations work as without DistributedDataParallel.
  auto signal = c10::make_intrusive<BackwardSignal>(
      autograd::edge_list{autograd::impl::gradient_edge(output)}, std::move(on_backward));
  autograd::create_gradient_edge(output, std::move(signal));
}

namespace {

namespace autograd = ::torch::autograd;

// Autograd hook of one parameter's gradient accumulator.
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
  // Shared by all hooks of one GradientHooks.
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

  // Returns true if the parameter has another accumulator than the hook. Frozen parameters are
  // skipped: no accumulator can be found for them.
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
  // Not empty only if the caller requested the gradients of specific tensors.
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
