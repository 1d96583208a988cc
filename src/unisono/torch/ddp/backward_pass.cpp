#include "unisono/torch/ddp/backward_pass.h"

#include <functional>
#include <string>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

namespace unisono::ddp {
namespace {

namespace autograd = ::torch::autograd;

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

}  // namespace

bool is_in_backward() {
  return autograd::get_current_graph_task_id() != -1;
}

void at_end_of_backward(std::function<void()> callback) {
  autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

void attach_backward_signal(at::Tensor& output, std::function<void()> on_backward) {
  if (!output.defined() || !output.requires_grad()) {
    return;
  }
  if (output.is_leaf()) {
    output = output.view_as(output);
  }
  // The tensor itself gets the new history, not a view of it: in-place operations of the caller
  // then work as they do without us.
  auto signal = c10::make_intrusive<BackwardSignal>(
      autograd::edge_list{autograd::impl::gradient_edge(output)}, std::move(on_backward));
  autograd::create_gradient_edge(output, std::move(signal));
}

}  // namespace unisono::ddp
