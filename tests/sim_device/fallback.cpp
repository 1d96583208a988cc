#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/enum_tag.h>
#include <torch/library.h>

#include "sim_device/machine.h"
#include "sim_device/operator_shapes.h"
#include "sim_device/operator_task.h"
#include "sim_device/place.h"
#include "sim_device/torch_device.h"

namespace sim {
namespace {

void copy_state(const at::Generator& from, const at::Generator& to) {
  auto* source = from.get<at::CPUGeneratorImpl>();
  auto* target = to.get<at::CPUGeneratorImpl>();
  target->set_engine(source->engine());
  target->set_next_float_normal_sample(source->next_float_normal_sample());
  target->set_next_double_normal_sample(source->next_double_normal_sample());
}

// The CPU's kernels refuse a generator of another device.
at::Generator cpu_copy(const at::Generator& generator) {
  at::Generator copy = at::make_generator<at::CPUGeneratorImpl>();
  copy_state(generator, copy);
  return copy;
}

at::Tensor zeros_on_cpu(const at::Tensor& like) {
  at::Tensor zeros =
      at::detail::empty_strided_cpu(like.sizes(), like.strides(), like.scalar_type());
  if (zeros.data_ptr() != nullptr) {
    std::memset(zeros.data_ptr(), 0, extent_of(like));
  }
  return zeros;
}

/// One call of an operator that has no kernel for the device. Lives on the calling thread.
///
/// The call runs twice: at once on zeros in host memory, which determines the shapes of the results
/// and throws errors of shapes, and later on the device's bytes in the current stream. If the
/// zeros do not suffice, the host waits for the stream instead.
class OperatorCall {
 public:
  OperatorCall(const c10::OperatorHandle& op, Stack arguments)
      : op_(op),
        schema_(op.schema()),
        name_(op.operator_name().name.c_str()),
        arguments_(std::move(arguments)),
        device_(device_of_call()),
        results_(results_of(schema_)) {}

  Stack run() {
    check_arguments();
    bool is_late = !needs_values(op_, arguments_, results_);
    if (is_random()) {
      find_generator();
    }
    is_late = is_late && learn_shapes();
    if (is_late) {
      resize_results();
    }
    note_writes();
    return is_late ? launch() : run_and_wait();
  }

 private:
  [[nodiscard]] bool is_random() const { return op_.hasTag(at::Tag::nondeterministic_seeded); }

  c10::Device device_of_call() {
    std::optional<c10::Device> device;
    for (const c10::IValue& value : arguments_) {
      for_each_tensor(value, [&](const at::Tensor& t) {
        if (t.is_privateuseone()) {
          check_same(device.value_or(t.device()), t.device());
          device = t.device();
        }
      });
      if (value.isDevice() && !device) {
        device = value.toDevice();
      }
    }
    TORCH_CHECK(device, "sim: no argument of ", name_, " names a device");
    return with_index(*device);
  }

  void check_same(c10::Device first, c10::Device second) const {
    TORCH_CHECK(first == second,
                "Expected all tensors to be on the same device, but found ",
                first.str(),
                " and ",
                second.str(),
                " in ",
                name_);
  }

  // Notes the reads as well.
  void check_arguments() {
    const std::string& name = op_.operator_name().name;
    const bool may_index_from_cpu =
        name.rfind("aten::index", 0) == 0 || name.rfind("aten::_index", 0) == 0;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const bool is_written = writes_argument(schema_, i);
      for_each_tensor(arguments_[i], [&](const at::Tensor& t) {
        if (t.is_privateuseone()) {
          TORCH_CHECK(t.layout() == at::kStrided,
                      "sim: ",
                      name_,
                      " got a tensor of layout ",
                      t.layout(),
                      ", but the device has strided tensors only");
          if (!is_written) {
            accesses_.push_back(read_of(t, name_));
          }
        } else if (is_written || (t.dim() != 0 && !may_index_from_cpu)) {
          check_same(device_, t.device());
        }
      });
    }
  }

  void find_generator() {
    generator_ = default_generator(device_.index());
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (is_generator(i) && !arguments_[i].isNone()) {
        generator_ = arguments_[i].toGenerator();
      }
    }
  }

  [[nodiscard]] bool is_generator(std::size_t argument) const {
    return schema_.arguments()[argument].name() == "generator";
  }

  // Returns false if the results depend on values of tensors.
  bool learn_shapes() {
    static auto& known = *new KnownResults;
    std::string key;
    if (!generator_) {
      key = KnownResults::key_of(op_, arguments_);
      if (std::optional<Results> found = known.find(key)) {
        results_ = *std::move(found);
        return true;
      }
    }
    if (!run_on_zeros()) {
      return false;
    }
    if (!generator_) {
      known.add(key, results_);
    }
    return true;
  }

  // A random operator runs on zeros in each call, because that advances the generator.
  bool run_on_zeros() {
    machine().n_trial_runs.fetch_add(1, std::memory_order_relaxed);
    std::unique_lock<std::mutex> lock;
    at::Generator advanced;
    if (generator_) {
      lock = std::unique_lock(generator_->mutex());
      state_ = cpu_copy(*generator_);
      advanced = cpu_copy(*generator_);
    }
    Stack stack;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (generator_ && is_generator(i)) {
        stack.emplace_back(advanced);
      } else if (arguments_[i].isDevice()) {
        stack.emplace_back(c10::Device(c10::kCPU));
      } else {
        stack.push_back(with_tensors(arguments_[i], [](const at::Tensor& t) {
          return t.is_privateuseone() ? zeros_on_cpu(t) : t;
        }));
      }
    }
    try {
      call_cpu_kernel(op_, stack);
    } catch (const std::exception&) {
      // Either an error, or zeros do not stand for the values: the run on the values decides.
      return false;
    }
    if (generator_) {
      copy_state(advanced, *generator_);
    }
    add_shapes(results_, stack);
    return true;
  }

  // The task must not see a result of the wrong size.
  void resize_results() {
    const BelowAutograd below;
    for (const Result& result : results_) {
      if (result.argument && arguments_[*result.argument].isTensor()) {
        const at::Tensor tensor = arguments_[*result.argument].toTensor();
        if (tensor.sizes() != at::IntArrayRef(result.shapes[0].sizes)) {
          tensor.resize_(result.shapes[0].sizes);
        }
      }
    }
  }

  void note_writes() {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (writes_argument(schema_, i)) {
        for_each_tensor(arguments_[i],
                        [&](const at::Tensor& t) { accesses_.push_back(write_of(t, name_)); });
      }
    }
  }

  OperatorTask make_task() {
    OperatorTask task(op_);
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (generator_ && is_generator(i)) {
        task.add_argument(state_, false);
      } else {
        const c10::AliasInfo* alias = schema_.arguments()[i].alias_info();
        task.add_argument(arguments_[i], alias != nullptr && alias->isWrite());
      }
    }
    return task;
  }

  Stack launch() {
    auto task = std::make_shared<OperatorTask>(make_task());
    Stack outputs;
    std::vector<std::vector<std::optional<Place>>> targets;
    for (const Result& result : results_) {
      targets.emplace_back();
      if (result.argument) {
        outputs.push_back(arguments_[*result.argument]);
        continue;
      }
      c10::List<at::Tensor> list;
      for (const Shape& shape : result.shapes) {
        at::Tensor tensor;
        targets.back().emplace_back();
        if (shape.is_defined) {
          tensor = make_tensor(device_, shape.sizes, shape.strides, shape.type);
          accesses_.push_back(write_of(tensor, name_));
          targets.back().back() = place_of(tensor);
        }
        list.push_back(tensor);
      }
      outputs.push_back(result.is_list ? c10::IValue(list) : c10::IValue(list.get(0)));
    }
    current_stream(device_).launch(
        [task, targets = std::move(targets)] {
          const Stack stack = task->run();
          const BelowAutograd below;
          const std::size_t first = stack.size() - targets.size();
          for (std::size_t i = 0; i < targets.size(); ++i) {
            std::size_t next = 0;
            for (const std::optional<Place>& target : targets[i]) {
              const at::Tensor from = tensors_of(stack[first + i])[next++];
              if (target && from.defined()) {
                target->open().copy_(from);
              }
            }
          }
        },
        accesses_);
    return outputs;
  }

  Stack run_and_wait() {
    if (generator_ && !state_.defined()) {
      const std::lock_guard<std::mutex> lock(generator_->mutex());
      state_ = cpu_copy(*generator_);
    }
    const OperatorTask task = make_task();
    Stack stack;
    std::exception_ptr error;
    Stream& stream = current_stream(device_);
    stream.launch(
        [&] {
          try {
            stack = task.run();
          } catch (...) {
            error = std::current_exception();
          }
        },
        accesses_);
    wait_for(stream);
    if (error) {
      std::rethrow_exception(error);
    }
    if (generator_) {
      const std::lock_guard<std::mutex> lock(generator_->mutex());
      copy_state(state_, *generator_);
    }
    Stack outputs;
    const std::size_t first = stack.size() - results_.size();
    for (std::size_t i = 0; i < results_.size(); ++i) {
      outputs.push_back(results_[i].argument ? arguments_[*results_[i].argument]
                                             : to_device(stack[first + i], stream));
    }
    return outputs;
  }

  c10::IValue to_device(const c10::IValue& value, Stream& stream) const {
    return with_tensors(value, [&](const at::Tensor& t) {
      const Shape shape = shape_of(t);
      at::Tensor tensor = make_tensor(device_, shape.sizes, shape.strides, shape.type);
      const Access access = write_of(tensor, name_);
      stream.launch(
          [place = place_of(tensor), t] {
            const BelowAutograd below;
            place.open().copy_(t);
          },
          {&access, 1});
      return tensor;
    });
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  const char* const name_;  // The dispatcher's, which lives as long as the process.
  const Stack arguments_;
  const c10::Device device_;
  Results results_;
  std::vector<Access> accesses_;
  std::optional<at::Generator> generator_;
  at::Generator state_;  // The generator's state before the call, for the CPU's kernel.
};

void fallback(const c10::OperatorHandle& op, Stack* stack) {
  machine().n_operators.fetch_add(1, std::memory_order_relaxed);
  machine().context.errors.rethrow();
  const std::size_t count = op.schema().arguments().size();
  Stack outputs = OperatorCall(op, torch::jit::pop(*stack, count)).run();
  stack->insert(stack->end(),
                std::make_move_iterator(outputs.begin()),
                std::make_move_iterator(outputs.end()));
}

}  // namespace

void add_fallback(torch::Library& all, torch::Library& aten) {
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
  // Operators whose composite implementation would win over the fallback and take another way than
  // the CPU's kernel.
  for (const char* name : {"convolution",
                           "convolution_backward",
                           "native_layer_norm",
                           "native_group_norm",
                           "silu_backward",
                           "mish_backward",
                           "mse_loss",
                           "smooth_l1_loss",
                           "huber_loss"}) {
    aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

}  // namespace sim
