#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include "unisono/base/error.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/device/host_copies.h"
#include "unisono/torch/parallel/pipeline/gather_timeline.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"
#include "unisono/torch/parallel/pipeline/stage_pass.h"
#include "unisono/torch/parallel/pipeline/transfers.h"
#include "unisono/torch/parallel/pipeline/weight_products.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/random_state.h"

namespace unisono::parallel {

namespace {

constexpr double kBytesPerMiB = 1 << 20;
constexpr ChunkRandom kRandom{.seed = 0, .step = 0, .chunk = 0};

// RAII guard: removes the gradients, and restores the gradients and the values of the buffers in
// the destructor.
class KeptModel {
 public:
  explicit KeptModel(const torch::nn::Sequential& model)
      : parameters_(model->parameters()), buffers_(model->buffers()) {
    for (at::Tensor& parameter : parameters_) {
      gradients_.push_back(std::exchange(parameter.mutable_grad(), at::Tensor()));
    }
    for (const at::Tensor& buffer : buffers_) {
      values_.push_back(buffer.detach().clone());
    }
  }

  ~KeptModel() {
    const c10::NoGradGuard no_grad;
    // The gradient of a shared parameter counts for the first layer.
    for (std::size_t i = parameters_.size(); i-- > 0;) {
      parameters_[i].mutable_grad() = gradients_[i];
    }
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      buffers_[i].variable_data().copy_(values_[i]);
    }
  }

  KeptModel(const KeptModel&) = delete;
  KeptModel& operator=(const KeptModel&) = delete;
  KeptModel(KeptModel&&) = delete;
  KeptModel& operator=(KeptModel&&) = delete;

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradients_;
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> values_;
};

// The measured times of a layer, one per pass.
struct Samples {
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> inputs;  // The two halves of backward.
  std::vector<double> weights;
};

class Measurement {
 public:
  Measurement(const torch::nn::Sequential& model,
              const Tensors& chunk,
              const LayerMeasurement& options,
              std::vector<at::Device> devices)
      : options_(options), devices_(std::move(devices)) {
    for (int layer = 0; layer < static_cast<int>(model->size()); ++layer) {
      layers_.emplace_back(layer, model, layer, layer + 1);
    }
    for (const at::Tensor& input : chunk) {
      chunk_.push_back(input.detach().clone());  // The first layer may work in place.
    }
  }

  pipeline::LayerCosts run(std::vector<std::string> names) {
    pipeline::LayerCosts costs{.names = std::move(names)};
    costs.activation_mib = activation_mib(costs.names);
    costs.gradient_mib = gradient_mib();
    pass(/*is_split=*/false);
    pass(/*is_split=*/true);
    sums_.bits.try_new_shapes();
    samples_.assign(layers_.size(), {});
    for (int trial = 0; trial < options_.trials; ++trial) {
      pass(/*is_split=*/false);
      pass(/*is_split=*/true);
    }
    for (Samples& samples : samples_) {
      costs.times.push_back(times_of(samples));
    }
    return costs;
  }

 private:
  // Devices are idle before and after each measurement.
  template <class Work>
  double ms_of(const Work& work) const {
    const auto start = std::chrono::steady_clock::now();
    work();
    for (const at::Device& device : devices_) {
      synchronize_current(device);
    }
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  }

  static double median(std::vector<double>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  static pipeline::StageTimes times_of(Samples& samples) {
    const double backward = median(samples.backward);
    const double inputs = median(samples.inputs);
    const double weights = median(samples.weights);
    const double share = inputs + weights > 0 ? weights / (inputs + weights) : 0;
    return {.forward = median(samples.forward),
            .backward_input = backward * (1 - share),
            .backward_weight = backward * share};
  }

  // Measures the memory kept by each layer. All layers share a graph, as in a stage: a layer may
  // free the output of the previous layer.
  std::vector<double> activation_mib(const std::vector<std::string>& names) {
    std::vector<double> kept;
    const AllocationMeter meter;
    std::int64_t before = 0;
    Tensors values = chunk_;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      const auto fail = [&](const char* what) {
        throw Error(ErrorCode::kInvalidArgument,
                    "measure_layers: layer " + names[layer] + ": " + what);
      };
      try {
        values = layers_[layer].forward(values, kRandom);
        if (layer + 1 == layers_.size() && options_.loss) {
          values = {options_.loss(values.at(0))};
        }
      } catch (const c10::Error& error) {
        fail(error.what_without_backtrace());
      } catch (const std::exception& error) {
        fail(error.what());
      }
      const std::int64_t after = meter.present();
      kept.push_back(static_cast<double>(after - before) / kBytesPerMiB);
      before = after;
    }
    // A negative change is the output of an earlier layer, which no layer saved.
    for (std::size_t layer = kept.size(); layer-- > 1;) {
      if (kept[layer] < 0) {
        kept[layer - 1] += std::exchange(kept[layer], 0);
      }
    }
    kept.front() = std::max(kept.front(), 0.0);
    return kept;
  }

  std::vector<double> gradient_mib() const {
    std::vector<double> sizes;
    for (const StagePart& layer : layers_) {
      double n_bytes = 0;
      for (const NamedTensor& parameter : layer.parameters()) {
        n_bytes +=
            parameter.tensor.requires_grad() ? static_cast<double>(parameter.tensor.nbytes()) : 0.0;
      }
      sizes.push_back(n_bytes / kBytesPerMiB);
    }
    return sizes;
  }

  // Forward and backward of the chunk through all layers.
  void pass(bool is_split) {
    samples_.resize(layers_.size());
    std::vector<std::unique_ptr<StagePass>> passes;
    StageMessage values{.tensors = chunk_,
                        .needs_gradient = std::vector<bool>(chunk_.size(), false)};
    for (const StagePart& layer : layers_) {
      StagePass::Options options{.random = kRandom, .is_checkpointed = false};
      if (passes.size() + 1 == layers_.size() && options_.loss) {
        options.loss = [this](const Tensors& outputs) { return options_.loss(outputs.at(0)); };
      }
      samples_[passes.size()].forward.push_back(ms_of([&] {
        passes.push_back(std::make_unique<StagePass>(layer, std::move(values), std::move(options)));
      }));
      values = passes.back()->take_outputs();
    }
    Tensors gradients;
    if (options_.loss) {
      gradients = {passes.back()->gradient_of_loss(1)};
    } else {
      for (const at::Tensor& output : values.tensors) {
        gradients.push_back(at::ones_like(output));
      }
    }
    values = {};
    for (std::size_t layer = passes.size(); layer-- > 0;) {
      gradients = backward(layer, std::exchange(passes[layer], nullptr), gradients, is_split);
    }
  }

  Tensors backward(std::size_t layer,
                   std::unique_ptr<StagePass> pass,
                   const Tensors& gradients,
                   bool is_split) {
    Samples& samples = samples_[layer];
    Tensors of_inputs;
    if (is_split) {
      samples.inputs.push_back(ms_of([&] {
        pass->backward_inputs(gradients);
        of_inputs = pass->input_gradients();
      }));
      samples.weights.push_back(ms_of([&] {
        pass->backward_weights(sums_);
        pass.reset();
      }));
      return of_inputs;
    }
    samples.backward.push_back(ms_of([&] {
      pass->backward(gradients, sums_);
      of_inputs = pass->input_gradients();
      pass.reset();
    }));
    return of_inputs;
  }

  const LayerMeasurement& options_;
  std::vector<at::Device> devices_;
  std::vector<StagePart> layers_;
  Tensors chunk_;
  std::vector<Samples> samples_;
  WeightSums sums_;
};

void check(const torch::nn::Sequential& model,
           const Tensors& chunk,
           const LayerMeasurement& options) {
  const auto reject = [](const std::string& problem) {
    throw Error(ErrorCode::kInvalidArgument, "measure_layers: " + problem);
  };
  if (options.trials < 1) {
    reject(std::to_string(options.trials) + " trials: at least 1 is needed");
  }
  if (model.is_empty() || model->is_empty()) {
    reject("the model has no layers");
  }
  if (chunk.empty() ||
      std::ranges::any_of(chunk, [](const at::Tensor& input) { return !input.defined(); })) {
    reject("an input of the first layer is missing");
  }
}

}  // namespace

pipeline::LayerCosts measure_layers(const torch::nn::Sequential& model,
                                    const Tensors& chunk,
                                    const LayerMeasurement& options) {
  check(model, chunk, options);
  std::vector<std::string> names;
  for (const auto& child : model->named_children()) {
    names.push_back(child.key() + " " + child.value()->name());
  }
  const c10::AutoGradMode with_gradients(true);
  Tensors tensors = model->parameters();
  tensors.insert(tensors.end(), chunk.begin(), chunk.end());
  const std::vector<at::Device> devices = accelerators_of(tensors);
  const KeptRandomState kept_random(devices);
  const KeptModel kept(model);
  return Measurement(model, chunk, options, devices).run(std::move(names));
}

}  // namespace unisono::parallel
