#include "unisono/torch/nn/data_parallel.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <optional>
#include <span>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include "unisono/base/error.h"
#include "unisono/torch/device/host_copies.h"
#include "unisono/torch/nn/replica_threads.h"

namespace unisono::nn {
namespace {

namespace autograd = ::torch::autograd;

using Tensors = ReplicaSet::Tensors;
using ModulePointer = std::shared_ptr<::torch::nn::Module>;

[[noreturn]] void reject(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "DataParallel: " + problem);
}

bool can_have_gradient(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

template <class Dictionary>
void check_alike(const Dictionary& of_module, const Dictionary& of_replica, const char* what) {
  if (of_replica.size() != of_module.size()) {
    reject("a replica has " + std::to_string(of_replica.size()) + " " + what +
           "s, and the module " + std::to_string(of_module.size()));
  }
  for (std::size_t i = 0; i < of_module.size(); ++i) {
    const at::Tensor& tensor = of_module[i].value();
    const at::Tensor& own = of_replica[i].value();
    const std::string name = std::string(what) + " '" + of_module[i].key() + "'";
    if (of_replica[i].key() != of_module[i].key() || own.sizes() != tensor.sizes() ||
        own.scalar_type() != tensor.scalar_type()) {
      reject("a replica has no " + name +
             " like the module's; replicas are of the same class, and made with the same options");
    }
    if (own.is_same(tensor)) {
      reject("a replica has the module's own " + name + "; it must be a copy");
    }
  }
}

// A Sequential's clone() numbers even child modules with names.
void take_names(const ::torch::nn::Module& module, ::torch::nn::Module& clone) {
  const auto children = module.named_children();
  const auto of_clone = clone.named_children();
  if (children.size() != of_clone.size()) {
    return;  // check_alike() reports the difference
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    take_names(*children[i].value(), *of_clone[i].value());
  }
  if (clone.as<::torch::nn::SequentialImpl>() == nullptr) {
    return;
  }
  for (const auto& child : of_clone) {
    clone.unregister_module(child.key());
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    clone.register_module(children[i].key(), of_clone[i].value());
  }
}

// Sums in the order of the canonical tree; undefined tensors count as zero.
at::Tensor sum_of(std::span<const at::Tensor> parts) {
  if (parts.size() == 1) {
    return parts.front();
  }
  const std::size_t middle = std::bit_floor(parts.size() - 1);
  const at::Tensor left = sum_of(parts.first(middle));
  const at::Tensor right = sum_of(parts.subspan(middle));
  if (left.defined() && right.defined()) {
    return left.add(right);
  }
  return left.defined() ? left : right;
}

// Returns the device of the module's tensors; the CPU for a module without tensors.
at::Device device_of(const ::torch::nn::Module& module) {
  Tensors tensors = module.parameters();
  const Tensors buffers = module.buffers();
  tensors.insert(tensors.end(), buffers.begin(), buffers.end());
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device() != tensors.front().device()) {
      reject("the module is on several devices (" + tensors.front().device().str() + ", " +
             tensor.device().str() + "); move it to one by module.to(device)");
    }
  }
  return tensors.empty() ? at::Device(at::kCPU) : tensors.front().device();
}

void check_devices(at::Device first, const DataParallelOptions& options) {
  const auto n_devices = static_cast<int>(options.devices.size());
  if (options.n_replicas != 0 && options.n_replicas != n_devices) {
    reject("n_replicas is " + std::to_string(options.n_replicas) + ", but there are " +
           std::to_string(n_devices) + " devices; leave n_replicas out");
  }
  for (const at::Device& device : options.devices) {
    if (device.type() != first.type() || options.devices.front() != first) {
      reject("devices has " + (device.type() != first.type() ? device : options.devices[0]).str() +
             ", but the module is on " + first.str() +
             "; devices are of one kind, and the first is the module's");
    }
  }
}

}  // namespace

// State of a forward pass, kept as long as a backward pass may follow.
struct ReplicaSet::Pass {
  struct Part {
    Tensors inputs;      // leaves of the replica's own graph
    Tensors outputs;     // roots of the graph
    Tensors parameters;  // leaves as well, shared with other passes
  };

  std::shared_ptr<ReplicaThreads> threads;
  std::vector<at::Device> devices;  // Of the replicas.
  std::int64_t dim;
  std::vector<Part> parts;

  // Returns the part of the gradient of output `i` that belongs to `part`.
  [[nodiscard]] at::Tensor part_of(const at::Tensor& gradient,
                                   std::size_t part,
                                   std::size_t i) const {
    const at::Tensor& output = parts[part].outputs[i];
    if (output.dim() == 0) {
      return gradient[static_cast<std::int64_t>(part)];
    }
    std::int64_t begin = 0;
    for (std::size_t earlier = 0; earlier < part; ++earlier) {
      begin += parts[earlier].outputs[i].size(dim);
    }
    return gradient.narrow(dim, begin, output.size(dim));
  }
};

// Runs each replica's backward pass on the replica's thread.
class ReplicaSet::Backward : public autograd::Node {
 public:
  Backward(std::shared_ptr<const Pass> pass, const Tensors& inputs, const Tensors& parameters)
      : pass_(std::move(pass)), n_inputs_(inputs.size()), n_parameters_(parameters.size()) {
    for (const at::Tensor& input : inputs) {
      input_devices_.push_back(input.device());
    }
    for (const Tensors* const tensors : {&inputs, &parameters}) {
      for (const at::Tensor& tensor : *tensors) {
        add_next_edge(tensor.requires_grad() ? autograd::impl::gradient_edge(tensor)
                                             : autograd::Edge());
      }
    }
  }

  [[nodiscard]] std::string name() const override { return "DataParallelBackward"; }

  void release_variables() override { pass_.reset(); }

 protected:
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    if (!pass_) {
      reject("backward() for the second time; the first one needs retain_graph");
    }
    const bool keeps_graph = autograd::get_current_graph_task_keep_graph();
    std::vector<Roots> roots(pass_->parts.size());
    for (std::size_t part = 0; part < roots.size(); ++part) {
      roots[part] = prepare_part(part, gradients);
    }
    if (pass_->devices.front().is_cpu()) {
      pass_->threads->run(roots.size(), [&](std::size_t part) { run(roots[part], keeps_graph); });
    } else {
      run(joined(roots), keeps_graph);
    }
    autograd::variable_list result;
    for (std::size_t i = 0; i < n_inputs_; ++i) {
      result.push_back(input_gradient(i));
    }
    for (std::size_t i = 0; i < n_parameters_; ++i) {
      Tensors of_parts;
      for (const Pass::Part& part : pass_->parts) {
        const at::Tensor gradient = std::exchange(part.parameters[i].mutable_grad(), {});
        of_parts.push_back(gradient.defined() ? gradient.to(pass_->devices.front()) : gradient);
      }
      result.push_back(sum_of(of_parts));
    }
    return result;
  }

 private:
  // The outputs of a part that need gradients, and the gradients.
  struct Roots {
    Tensors outputs;
    Tensors gradients;
  };

  [[nodiscard]] Roots prepare_part(std::size_t index, const Tensors& gradients) const {
    const Pass::Part& part = pass_->parts[index];
    for (const Tensors* const leaves : {&part.inputs, &part.parameters}) {
      for (const at::Tensor& leaf : *leaves) {
        leaf.mutable_grad().reset();
      }
    }
    Roots roots;
    for (std::size_t i = 0; i < part.outputs.size(); ++i) {
      if (part.outputs[i].requires_grad() && gradients[i].defined()) {
        roots.outputs.push_back(part.outputs[i]);
        roots.gradients.push_back(
            pass_->part_of(gradients[i], index, i).to(part.outputs[i].device()));
      }
    }
    return roots;
  }

  // Devices compute at the same time in one backward pass. Passes on several threads would wait for
  // the device's thread of LibTorch, which runs this node.
  static Roots joined(const std::vector<Roots>& of_parts) {
    Roots all;
    for (const Roots& roots : of_parts) {
      all.outputs.insert(all.outputs.end(), roots.outputs.begin(), roots.outputs.end());
      all.gradients.insert(all.gradients.end(), roots.gradients.begin(), roots.gradients.end());
    }
    return all;
  }

  static void run(const Roots& roots, bool keeps_graph) {
    if (!roots.outputs.empty()) {
      autograd::backward(roots.outputs, roots.gradients, keeps_graph);
    }
  }

  [[nodiscard]] at::Tensor input_gradient(std::size_t i) const {
    Tensors of_parts;
    bool is_any_defined = false;
    for (const Pass::Part& part : pass_->parts) {
      const at::Tensor& gradient = part.inputs[i].grad();
      is_any_defined = is_any_defined || gradient.defined();
      of_parts.push_back(
          (gradient.defined() ? gradient : at::zeros_like(part.inputs[i])).to(input_devices_[i]));
    }
    return is_any_defined ? at::cat(of_parts, pass_->dim) : at::Tensor();
  }

  std::shared_ptr<const Pass> pass_;
  std::size_t n_inputs_;
  std::size_t n_parameters_;
  std::vector<at::Device> input_devices_;
};

std::vector<at::Device> ReplicaSet::devices_of(const ::torch::nn::Module& module,
                                               const DataParallelOptions& options) {
  constexpr int kMost = 1024;
  if (options.n_replicas < 0 || options.n_replicas > kMost) {
    reject("n_replicas is " + std::to_string(options.n_replicas) + "; it must be from 1 to " +
           std::to_string(kMost) + ", or 0: one for each compute thread");
  }
  const at::Device first = device_of(module);
  if (!options.devices.empty()) {
    check_devices(first, options);
    return options.devices;
  }
  const int n_devices =
      first.is_cpu() ? 1 : c10::impl::VirtualGuardImpl(first.type()).deviceCount();
  const int by_default = first.is_cpu() ? at::get_num_threads() : n_devices;
  std::vector<at::Device> devices;
  for (int i = 0; i < (options.n_replicas > 0 ? options.n_replicas : by_default); ++i) {
    devices.emplace_back(first.type(),
                         first.is_cpu()
                             ? at::DeviceIndex{-1}
                             : static_cast<at::DeviceIndex>((first.index() + i) % n_devices));
  }
  return devices;
}

ReplicaSet::ReplicaSet(ModulePointer module,
                       Modules replicas,
                       std::vector<at::Device> devices,
                       std::int64_t dim)
    : module_(std::move(module)),
      replicas_(std::move(replicas)),
      devices_(std::move(devices)),
      dim_(dim) {
  for (const ModulePointer& replica : replicas_) {
    if (replica == nullptr) {
      reject("a replica is null");
    }
    if (replica->modules().size() != module_->modules().size()) {
      reject("a replica has another number of modules in it than the module");
    }
    check_alike(module_->named_parameters(), replica->named_parameters(), "parameter");
    check_alike(module_->named_buffers(), replica->named_buffers(), "buffer");
  }
  for (std::size_t i = 0; i < replicas_.size() && is_on_devices(); ++i) {
    replicas_[i]->to(devices_[i]);
  }
  threads_ = std::make_shared<ReplicaThreads>(replicas_.size());
}

ReplicaSet::~ReplicaSet() = default;

// Updates the replicas' values, training mode and requires_grad, which also covers a module that
// was loaded or frozen in between.
void ReplicaSet::follow_module() {
  const c10::NoGradGuard no_grad;
  const Tensors parameters = module_->parameters();
  const Tensors buffers = module_->buffers();
  const Modules modules = module_->modules();
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    const Modules own_modules = replicas_[i]->modules();
    for (std::size_t m = 0; m < modules.size(); ++m) {
      if (own_modules[m]->is_training() != modules[m]->is_training()) {
        own_modules[m]->train(modules[m]->is_training());
      }
    }
    follow_parameters(i, parameters);
    Tensors own_buffers = replicas_[i]->buffers();
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      // Replica 0 writes into the module's buffers.
      if (i > 0) {
        own_buffers[b].copy_(buffers[b]);
      } else if (!own_buffers[b].is_alias_of(buffers[b])) {
        own_buffers[b].set_data(buffers[b]);
      }
    }
  }
}

// A replica on another device gets new memory, so that the graph of an earlier pass keeps its
// values.
void ReplicaSet::follow_parameters(std::size_t replica, const Tensors& parameters) const {
  Tensors own = replicas_[replica]->parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!own[p].is_alias_of(parameters[p]) || own[p].strides() != parameters[p].strides()) {
      own[p].set_data(parameters[p].detach().to(devices_[replica], /*non_blocking=*/true));
    }
    own[p].set_requires_grad(parameters[p].requires_grad());
  }
}

std::vector<Tensors> ReplicaSet::scatter(const Tensors& inputs) const {
  if (inputs.empty()) {
    reject("forward() has no argument that is a tensor, so there is nothing to divide");
  }
  std::vector<Tensors> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "tensor " + std::to_string(i) + " of forward()'s arguments";
    if (!inputs[i].defined() || dim_ >= inputs[i].dim() || dim_ < -inputs[i].dim()) {
      reject(name +
             (inputs[i].defined() ? " has " + std::to_string(inputs[i].dim()) + " dimensions"
                                  : " is undefined") +
             ", but batches are cut along dimension " + std::to_string(dim_));
    }
    const std::int64_t size = inputs[i].size(dim_);
    if (size != inputs[0].size(dim_)) {
      reject(name + " has " + std::to_string(size) + " elements along dimension " +
             std::to_string(dim_) + ", and tensor 0 has " + std::to_string(inputs[0].size(dim_)) +
             "; samples are divided, so that all have as many");
    }
    const Tensors chunks = size == 0
                               ? Tensors{inputs[i]}
                               : inputs[i].chunk(static_cast<std::int64_t>(replicas_.size()), dim_);
    parts.resize(chunks.size());
    for (std::size_t part = 0; part < chunks.size(); ++part) {
      parts[part].push_back(chunks[part]);
    }
  }
  return parts;
}

void ReplicaSet::run_forward(Pass& pass, const Forward& forward) {
  // The threads continue on the streams of this thread.
  std::vector<std::optional<c10::Stream>> streams(pass.parts.size());
  for (std::size_t part = 0; part < streams.size() && is_on_devices(); ++part) {
    streams[part] = current_stream(devices_[part]);
  }
  threads_->run(pass.parts.size(), [&](std::size_t part) {
    const c10::OptionalStreamGuard on_stream(streams[part]);
    pass.parts[part].outputs = forward(part, pass.parts[part].inputs);
  });
  const Tensors& first = pass.parts.front().outputs;
  for (std::size_t part = 0; part < pass.parts.size(); ++part) {
    const Tensors& own = pass.parts[part].outputs;
    for (std::size_t i = 0; i < std::max(first.size(), own.size()); ++i) {
      if (first.size() != own.size() || !own[i].defined() || own[i].dim() != first[i].dim() ||
          (own[i].dim() > 0 && (dim_ >= own[i].dim() || dim_ < -own[i].dim()))) {
        reject("tensor " + std::to_string(i) + " of what replica " + std::to_string(part) +
               " returns can't be put together with replica 0's; all return as many tensors, "
               "with the batch along dimension " +
               std::to_string(dim_) + ", or none");
      }
    }
  }
}

Tensors ReplicaSet::gather(const Pass& pass) const {
  const c10::NoGradGuard no_grad;
  Tensors result;
  for (std::size_t i = 0; i < pass.parts.front().outputs.size(); ++i) {
    Tensors of_parts;
    for (const Pass::Part& part : pass.parts) {
      of_parts.push_back(part.outputs[i].detach().to(devices_.front()));
    }
    result.push_back(of_parts.front().dim() == 0 ? at::stack(of_parts) : at::cat(of_parts, dim_));
  }
  return result;
}

Tensors ReplicaSet::run(const Tensors& inputs, const Forward& forward) {
  follow_module();
  const bool has_gradients = c10::GradMode::is_enabled();
  auto pass = std::make_shared<Pass>();
  pass->threads = threads_;
  pass->devices = devices_;
  pass->dim = dim_;
  for (const Tensors& part : scatter(inputs)) {
    const std::size_t replica = pass->parts.size();
    pass->parts.push_back(
        {.inputs = {}, .outputs = {}, .parameters = replicas_[replica]->parameters()});
    for (std::size_t i = 0; i < part.size(); ++i) {
      pass->parts.back().inputs.push_back(
          part[i]
              .detach()
              .to(devices_[replica], /*non_blocking=*/true)
              .set_requires_grad(has_gradients && inputs[i].requires_grad()));
    }
  }
  run_forward(*pass, forward);
  Tensors outputs = gather(*pass);
  if (!has_gradients) {
    return outputs;
  }
  auto node = c10::make_intrusive<Backward>(pass, inputs, module_->parameters());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const bool needs_gradient =
        can_have_gradient(outputs[i]) && std::ranges::any_of(pass->parts, [&](const auto& part) {
          return part.outputs[i].requires_grad();
        });
    if (needs_gradient) {
      autograd::create_gradient_edge(outputs[i], node);
    } else {
      node->add_input_metadata(autograd::Node::undefined_input());
    }
  }
  return outputs;
}

ModulePointer clone_module(const ::torch::nn::Module& module) {
  try {
    ModulePointer clone = module.clone();
    take_names(module, *clone);
    return clone;
  } catch (const std::exception& error) {
    reject(std::string("the module can't be copied: derive it from torch::nn::Cloneable, or pass a "
                       "function that makes a replica. ") +
           error_text(error));
  }
}

}  // namespace unisono::nn
