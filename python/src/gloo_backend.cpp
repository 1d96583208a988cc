#include "gloo_backend.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"

#include "errors.h"
#include "interrupt.h"
#include "staging.h"
#include "work.h"

namespace unisono::python {
namespace {

using Tensors = GlooBackend::Tensors;
using TensorLists = GlooBackend::TensorLists;
using WorkHandle = GlooBackend::WorkHandle;

// An operation of Gloo on copies. The operation is complete when the results are in the caller's
// tensors; the first observer of Gloo's completion copies the results.
class StagedWork final : public c10d::Work {
 public:
  StagedWork(WorkHandle gloo, PlainTensors plain, TensorLists outputs)
      : gloo_(std::move(gloo)), plain_(std::move(plain)), outputs_(std::move(outputs)) {}

  bool isCompleted() override {
    const bool has_ended = gloo_->isCompleted();
    if (has_ended && gloo_->isSuccess()) {
      copy_back();
    }
    return has_ended;
  }

  bool isSuccess() const override { return gloo_->isSuccess(); }

  std::exception_ptr exception() const override { return gloo_->exception(); }

  int sourceRank() const override { return gloo_->sourceRank(); }

  Tensors result() override {
    (void)gloo_->result();  // Throws if there is no result yet.
    copy_back();
    return outputs_.empty() ? Tensors() : outputs_.front();
  }

  bool wait(std::chrono::milliseconds timeout) override {
    const bool has_ended = gloo_->wait(timeout);
    copy_back();
    return has_ended;
  }

  void synchronize() override { (void)wait(kNoTimeout); }

  void abort() override { gloo_->abort(); }

  std::uint64_t getSequencenumber() const override { return gloo_->getSequencenumber(); }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const at::IValue value = future_value(outputs_);
    return gloo_->getFuture()->then(
        [self = c10::intrusive_ptr<StagedWork>::unsafe_reclaim_from_nonowning(this),
         value](c10::ivalue::Future& ended) {
          if (ended.hasError()) {
            std::rethrow_exception(ended.exception_ptr());
          }
          self->copy_back();
          return value;
        },
        value.type());
  }

 private:
  void copy_back() {
    const std::lock_guard<std::mutex> lock(mutex_);
    plain_.copy_back();
  }

  WorkHandle gloo_;
  PlainTensors plain_;
  TensorLists outputs_;
};

// The tensors of one call, and the copies that Gloo works on.
class Staged {
 public:
  Tensors inputs(const Tensors& tensors) {
    return map(tensors, [](const at::Tensor& tensor) { return PlainTensors::input(tensor); });
  }

  TensorLists inputs(const TensorLists& lists) {
    return map(lists, [this](const Tensors& tensors) { return inputs(tensors); });
  }

  at::Tensor output(const at::Tensor& tensor) { return plain_.output(tensor); }

  Tensors outputs(const Tensors& tensors) {
    return map(tensors, [this](const at::Tensor& tensor) { return plain_.output(tensor); });
  }

  TensorLists outputs(const TensorLists& lists) {
    return map(lists, [this](const Tensors& tensors) { return outputs(tensors); });
  }

  Tensors in_outs(const Tensors& tensors) {
    return map(tensors, [this](const at::Tensor& tensor) { return plain_.in_out(tensor); });
  }

  // `results` are the caller's tensors.
  WorkHandle follow(WorkHandle gloo, TensorLists results) {
    if (plain_.is_empty()) {
      return gloo;
    }
    return c10::make_intrusive<StagedWork>(std::move(gloo), std::move(plain_), std::move(results));
  }

 private:
  template <class Item, class Function>
  static std::vector<Item> map(const std::vector<Item>& items, const Function& function) {
    std::vector<Item> mapped;
    mapped.reserve(items.size());
    for (const Item& item : items) {
      mapped.push_back(function(item));
    }
    return mapped;
  }

  PlainTensors plain_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> GlooBackend::gloo() const {
  const MutexLock lock(mutex_);
  return gloo_;
}

c10::intrusive_ptr<c10d::Backend> GlooBackend::running() const {
  auto gloo = this->gloo();
  if (!gloo) {
    throw_translated({ErrorCode::kClosed,
                      "the group was destroyed; create it again by new_group(pg_options="
                      "unisono.Options(engine=\"gloo\"))"});
  }
  return gloo;
}

void GlooBackend::shutdown() {
  c10::intrusive_ptr<c10d::Backend> gloo;
  {
    const MutexLock lock(mutex_);
    gloo = std::move(gloo_);
  }
  // Gloo's threads take the GIL to release tensors.
  without_gil([&gloo] { gloo.reset(); });
}

WorkHandle GlooBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Staged staged;
  Tensors plain = staged.in_outs(tensors);
  return staged.follow(running()->broadcast(plain, options), {tensors});
}

WorkHandle GlooBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Staged staged;
  Tensors plain = staged.in_outs(tensors);
  return staged.follow(running()->allreduce(plain, options), {tensors});
}

WorkHandle GlooBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return running()->allreduce_sparse(tensors, options);
}

WorkHandle GlooBackend::allreduce_coalesced(Tensors& tensors,
                                            const c10d::AllreduceCoalescedOptions& options) {
  Staged staged;
  Tensors plain = staged.in_outs(tensors);
  return staged.follow(running()->allreduce_coalesced(plain, options), {tensors});
}

WorkHandle GlooBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Staged staged;
  Tensors plain = staged.in_outs(tensors);
  return staged.follow(running()->reduce(plain, options), {tensors});
}

WorkHandle GlooBackend::allgather(TensorLists& outputs,
                                  Tensors& inputs,
                                  const c10d::AllgatherOptions& options) {
  Staged staged;
  TensorLists plain_outputs = staged.outputs(outputs);
  Tensors plain_inputs = staged.inputs(inputs);
  return staged.follow(running()->allgather(plain_outputs, plain_inputs, options), outputs);
}

WorkHandle GlooBackend::_allgather_base(at::Tensor& output,
                                        at::Tensor& input,
                                        const c10d::AllgatherOptions& options) {
  Staged staged;
  at::Tensor plain_output = staged.output(output);
  at::Tensor plain_input = PlainTensors::input(input);
  return staged.follow(running()->_allgather_base(plain_output, plain_input, options), {{output}});
}

WorkHandle GlooBackend::allgather_coalesced(TensorLists& outputs,
                                            Tensors& inputs,
                                            const c10d::AllgatherOptions& options) {
  Staged staged;
  TensorLists plain_outputs = staged.outputs(outputs);
  Tensors plain_inputs = staged.inputs(inputs);
  return staged.follow(running()->allgather_coalesced(plain_outputs, plain_inputs, options),
                       outputs);
}

WorkHandle GlooBackend::allgather_into_tensor_coalesced(Tensors& outputs,
                                                        Tensors& inputs,
                                                        const c10d::AllgatherOptions& options) {
  Staged staged;
  Tensors plain_outputs = staged.outputs(outputs);
  Tensors plain_inputs = staged.inputs(inputs);
  return staged.follow(
      running()->allgather_into_tensor_coalesced(plain_outputs, plain_inputs, options), {outputs});
}

WorkHandle GlooBackend::gather(TensorLists& outputs,
                               Tensors& inputs,
                               const c10d::GatherOptions& options) {
  Staged staged;
  TensorLists plain_outputs = staged.outputs(outputs);
  Tensors plain_inputs = staged.inputs(inputs);
  return staged.follow(running()->gather(plain_outputs, plain_inputs, options), outputs);
}

WorkHandle GlooBackend::scatter(Tensors& outputs,
                                TensorLists& inputs,
                                const c10d::ScatterOptions& options) {
  Staged staged;
  Tensors plain_outputs = staged.outputs(outputs);
  TensorLists plain_inputs = staged.inputs(inputs);
  return staged.follow(running()->scatter(plain_outputs, plain_inputs, options), {outputs});
}

WorkHandle GlooBackend::reduce_scatter(Tensors& outputs,
                                       TensorLists& inputs,
                                       const c10d::ReduceScatterOptions& options) {
  Staged staged;
  Tensors plain_outputs = staged.outputs(outputs);
  TensorLists plain_inputs = staged.inputs(inputs);
  return staged.follow(running()->reduce_scatter(plain_outputs, plain_inputs, options), {outputs});
}

WorkHandle GlooBackend::_reduce_scatter_base(at::Tensor& output,
                                             at::Tensor& input,
                                             const c10d::ReduceScatterOptions& options) {
  Staged staged;
  at::Tensor plain_output = staged.output(output);
  at::Tensor plain_input = PlainTensors::input(input);
  return staged.follow(running()->_reduce_scatter_base(plain_output, plain_input, options),
                       {{output}});
}

WorkHandle GlooBackend::reduce_scatter_tensor_coalesced(Tensors& outputs,
                                                        Tensors& inputs,
                                                        const c10d::ReduceScatterOptions& options) {
  Staged staged;
  Tensors plain_outputs = staged.outputs(outputs);
  Tensors plain_inputs = staged.inputs(inputs);
  return staged.follow(
      running()->reduce_scatter_tensor_coalesced(plain_outputs, plain_inputs, options), {outputs});
}

WorkHandle GlooBackend::alltoall_base(at::Tensor& output,
                                      at::Tensor& input,
                                      std::vector<std::int64_t>& output_splits,
                                      std::vector<std::int64_t>& input_splits,
                                      const c10d::AllToAllOptions& options) {
  Staged staged;
  at::Tensor plain_output = staged.output(output);
  at::Tensor plain_input = PlainTensors::input(input);
  return staged.follow(
      running()->alltoall_base(plain_output, plain_input, output_splits, input_splits, options),
      {{output}});
}

WorkHandle GlooBackend::alltoall(Tensors& outputs,
                                 Tensors& inputs,
                                 const c10d::AllToAllOptions& options) {
  Staged staged;
  Tensors plain_outputs = staged.outputs(outputs);
  Tensors plain_inputs = staged.inputs(inputs);
  return staged.follow(running()->alltoall(plain_outputs, plain_inputs, options), {outputs});
}

WorkHandle GlooBackend::send(Tensors& tensors, int to, int tag) {
  Staged staged;
  Tensors plain = staged.inputs(tensors);
  return running()->send(plain, to, tag);
}

WorkHandle GlooBackend::recv(Tensors& tensors, int from, int tag) {
  Staged staged;
  Tensors plain = staged.outputs(tensors);
  return staged.follow(running()->recv(plain, from, tag), {tensors});
}

WorkHandle GlooBackend::recvAnysource(Tensors& tensors, int tag) {
  Staged staged;
  Tensors plain = staged.outputs(tensors);
  return staged.follow(running()->recvAnysource(plain, tag), {tensors});
}

}  // namespace unisono::python
