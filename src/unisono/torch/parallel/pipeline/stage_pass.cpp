#include "unisono/torch/parallel/pipeline/stage_pass.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/input_metadata.h>
#include <torch/csrc/autograd/variable.h>

#include "unisono/base/error.h"
#include "unisono/torch/parallel/pipeline/product_memory.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"
#include "unisono/torch/parallel/pipeline/weight_products.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

bool can_have_gradient(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

// Gives buffers (running means, counts of calls) the values back that a second forward changes.
class KeptBuffers {
 public:
  explicit KeptBuffers(const std::vector<NamedTensor>& buffers) : buffers_(buffers) {
    for (const NamedTensor& buffer : buffers) {
      values_.push_back(buffer.tensor.detach().clone());
    }
  }

  ~KeptBuffers() {
    const c10::NoGradGuard no_grad;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      // Past the version, as normalization writes them: graphs that keep them go on.
      buffers_[i].tensor.variable_data().copy_(values_[i]);
    }
  }

  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;
  KeptBuffers(KeptBuffers&&) = delete;
  KeptBuffers& operator=(KeptBuffers&&) = delete;

 private:
  const std::vector<NamedTensor>& buffers_;
  std::vector<at::Tensor> values_;
};

}  // namespace

StagePass::StagePass(const StagePart& stage, Delivery inputs, Options options)
    : stage_(stage), inputs_(std::move(inputs)), options_(std::move(options)) {
  if (!c10::GradMode::is_enabled()) {
    keep_outputs(stage_.forward(inputs_.tensors, options_.random));
    inputs_.tensors.clear();
    return;
  }
  if (!options_.is_checkpointed) {
    run_with_graph();
    inputs_.tensors.clear();
    return;
  }
  const c10::NoGradGuard nothing_kept;
  Tensors outputs = forward_keeping_inputs();
  if (options_.loss) {
    (void)compute_loss(outputs);
  }
  keep_outputs(outputs);
}

// Inputs that the stage works on in place are copied first; the others are not.
Tensors StagePass::forward_keeping_inputs() {
  const auto versions_of = [](const Tensors& tensors) {
    std::vector<std::int64_t> versions;
    for (const at::Tensor& tensor : tensors) {
      versions.push_back(tensor._version());
    }
    return versions;
  };
  versions_ = versions_of(inputs_.tensors);
  if (!stage_.may_change_inputs()) {
    return stage_.forward(inputs_.tensors, options_.random);
  }
  Tensors copies;
  for (const at::Tensor& input : inputs_.tensors) {
    copies.push_back(input.clone());
  }
  const std::vector<std::int64_t> before = versions_of(copies);
  Tensors outputs = stage_.forward(copies, options_.random);
  stage_.note_inputs(versions_of(copies) != before);
  return outputs;
}

void StagePass::keep_outputs(const Tensors& outputs) {
  bool has_gradients = stage_.is_trained();
  for (const bool needs_gradient : inputs_.needs_gradient) {
    has_gradients = has_gradients || needs_gradient;
  }
  for (const at::Tensor& output : outputs) {
    outputs_.tensors.push_back(output.detach());
    // A checkpointed pass learns only in backward which of them need it.
    outputs_.needs_gradient.push_back(
        output.requires_grad() ||
        (options_.is_checkpointed && has_gradients && can_have_gradient(output)));
  }
}

at::Tensor StagePass::compute_loss(const Tensors& outputs) {
  at::Tensor loss = options_.loss(outputs);
  if (!loss.defined() || loss.numel() != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "the loss function returned " + describe(loss) + ", no tensor of one element");
  }
  loss_ = loss.item<double>();
  sizes_of_loss_ = loss.sizes().vec();
  of_loss_ = loss.options();
  return loss;
}

at::Tensor StagePass::gradient_of_loss(double weight) const {
  return at::full(sizes_of_loss_, weight, of_loss_);
}

void StagePass::run_with_graph() {
  end_ = c10::make_intrusive<InputGradients>();
  Tensors inputs;
  for (std::size_t i = 0; i < inputs_.tensors.size(); ++i) {
    inputs.push_back(inputs_.needs_gradient[i] ? InputGradients::attach(end_, inputs_.tensors[i])
                                               : inputs_.tensors[i]);
  }
  const Tensors outputs = stage_.forward(inputs, options_.random);
  keep_outputs(outputs);
  keep_roots(options_.loss ? Tensors{compute_loss(outputs)} : outputs);
}

void StagePass::keep_roots(const Tensors& outputs) {
  for (const at::Tensor& output : outputs) {
    roots_.push_back(output.requires_grad() ? torch::autograd::impl::gradient_edge(output)
                                            : torch::autograd::Edge());
  }
}

void StagePass::run_again() {
  for (std::size_t i = 0; i < inputs_.tensors.size(); ++i) {
    if (inputs_.tensors[i]._version() != versions_[i]) {
      throw Error(ErrorCode::kInvalidArgument,
                  "its input " + std::to_string(i) + ", " + describe(inputs_.tensors[i]) +
                      ", was changed in place, so it can't be computed again; let the stage begin "
                      "with a layer that does not work in place, or set checkpoint to kNever");
    }
  }
  const KeptBuffers kept(stage_.buffers());
  run_with_graph();
  outputs_ = {};
}

StagePass::Roots StagePass::take_roots(const Tensors& gradients) {
  if (options_.is_checkpointed) {
    run_again();
    inputs_.tensors.clear();
  }
  UNISONO_CHECK(gradients.size() == roots_.size(), "a gradient for each output");
  Roots roots;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const torch::autograd::Edge& root = roots_[i];
    if (gradients[i].defined() && root.is_valid()) {
      const auto& output = root.function->input_metadata(root.input_nr);
      if (!output.is_same_shape(gradients[i])) {
        throw Error(ErrorCode::kMismatch,
                    "the gradient of its output " + std::to_string(i) + ", " +
                        describe(output.zeros_like()) + ", is " + describe(gradients[i]));
      }
      roots.edges.push_back(root);
      roots.gradients.push_back(gradients[i]);
    }
  }
  roots_.clear();
  return roots;
}

void StagePass::backward(const Tensors& gradients, WeightSums& sums) {
  const Roots roots = take_roots(gradients);
  if (roots.edges.empty()) {
    return;
  }
  const bool may_add = std::ranges::any_of(
      stage_.parameters(), [](const NamedTensor& named) { return may_add_product(named.tensor); });
  if (may_add) {
    backward_with_products(roots.edges, roots.gradients, sums);
  } else {
    torch::autograd::Engine::get_default_engine().execute(roots.edges,
                                                          roots.gradients,
                                                          /*keep_graph=*/false,
                                                          /*create_graph=*/false,
                                                          /*accumulate_grad=*/true);
  }
}

void StagePass::backward_inputs(const Tensors& gradients) {
  Roots roots = take_roots(gradients);
  split_.emplace(std::move(roots.edges), std::move(roots.gradients), end_);
}

void StagePass::backward_weights(WeightSums& sums) {
  split_->add_weight_gradients(sums);
  split_.reset();
}

Tensors StagePass::input_gradients() const {
  Tensors gradients;
  std::size_t n_taken = 0;
  for (const bool needs_gradient : inputs_.needs_gradient) {
    gradients.push_back(needs_gradient ? end_->gradients()[n_taken++] : at::Tensor());
  }
  return gradients;
}

}  // namespace unisono::parallel
