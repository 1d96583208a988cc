#include "unisono/torch/ddp/bucket_set.h"

#include <cstring>
#include <exception>
#include <iterator>
#include <map>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {
namespace {

struct Registry {
  Mutex mutex;
  std::map<const std::byte*, const std::byte*> ends
      UNISONO_GUARDED_BY(mutex);  // end of each bucket, by start
};

Registry& registry() {
  static Registry the_registry;
  return the_registry;
}

}  // namespace

BucketMemory::BucketMemory(const at::Tensor& elements) : begin_(elements.const_data_ptr()) {
  const auto* const begin = static_cast<const std::byte*>(begin_);
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  all.ends[begin] = begin + elements.nbytes();
}

BucketMemory::~BucketMemory() {
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  all.ends.erase(static_cast<const std::byte*>(begin_));
}

bool is_in_a_bucket(const at::Tensor& tensor) {
  const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  const auto next = all.ends.upper_bound(data);
  return next != all.ends.begin() && data < std::prev(next)->second;
}

namespace {

// Gradients get the strides of their parameters: autograd and optimizers are fastest that way.
std::vector<std::int64_t> gradient_strides(const at::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) {
    return parameter.strides().vec();
  }
  return contiguous_strides(parameter.sizes());
}

void check_gradient(const at::Tensor& gradient, const at::Tensor& view, const std::string& name) {
  if (gradient.layout() != at::kStrided) {
    throw Error(ErrorCode::kInvalidArgument,
                "the gradient of parameter '" + name +
                    "' is sparse; DistributedDataParallel reduces sparse gradients of "
                    "torch::nn::Embedding and EmbeddingBag only: build the layer with "
                    "sparse(false)");
  }
  if (gradient.scalar_type() != view.scalar_type() || gradient.sizes() != view.sizes() ||
      gradient.device() != view.device()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the gradient of parameter '" + name + "' is " + describe(gradient) +
                    ", but the parameter was " + describe(view) +
                    " when it was wrapped: convert or resize a module before it is wrapped");
  }
}

bool is_same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.strides() == b.strides();
}

void copy_gradient(const at::Tensor& view, const at::Tensor& gradient) {
  // The layouts are nearly always equal. A memcpy then avoids the checks of a tensor copy, which
  // cost more than the bytes of small gradients.
  if (view.device().is_cpu() && gradient.strides() == view.strides() && !gradient.is_neg() &&
      !gradient.is_conj()) {
    std::memcpy(view.data_ptr(), gradient.const_data_ptr(), view.nbytes());
  } else {
    view.copy_(gradient);
  }
}

// Memory that the ranks of a node share exists on the CPU only. Zeroed, because the elements that
// carry no gradient are reduced, too.
at::Tensor allocate_elements(ProcessGroup& group, const BucketLayout& layout, at::Device device) {
  const at::ScalarType type = scalar_type_of(layout.dtype);
  return device.is_cpu()
             ? allocate_tensor(group, {layout.n_elems}, type)
             : at::zeros({layout.n_elems}, at::TensorOptions().dtype(type).device(device));
}

}  // namespace

GradientBucket::GradientBucket(ProcessGroup& group,
                               const BucketLayout& layout,
                               std::span<const NamedTensor> parameters,
                               const std::vector<bool>& is_sparse,
                               std::size_t index)
    : elements_(allocate_elements(
          group, layout, parameters[layout.slots.front().parameter].tensor.device())),
      memory_(std::make_unique<BucketMemory>(elements_)) {
  for (const BucketSlot& slot : layout.slots) {
    const at::Tensor& parameter = parameters[slot.parameter].tensor;
    if (is_sparse[slot.parameter]) {
      views_.push_back(part(slot.offset, {0}, {1}));
      continue;
    }
    views_.push_back(part(slot.offset, parameter.sizes(), gradient_strides(parameter)));
    dense_views_.push_back(views_.back());
    dense_parameters_.push_back(parameter);
  }
  label_ =
      "bucket " + std::to_string(index) + " (" + parameters[layout.slots.front().parameter].name;
  if (layout.slots.size() > 1) {
    label_ += " and " + std::to_string(layout.slots.size() - 1) + " more";
  }
  label_ += ")";
}

// A tensor with a storage of its own, so that saving a gradient does not save the bucket.
at::Tensor GradientBucket::part(std::int64_t offset,
                                at::IntArrayRef sizes,
                                at::IntArrayRef strides) const {
  auto* const start = static_cast<std::byte*>(elements_.data_ptr()) +
                      offset * static_cast<std::int64_t>(elements_.element_size());
  return at::for_blob(start, sizes)
      .strides(strides)
      .deleter([elements = elements_](void*) {})
      .options(elements_.options())
      .target_device(elements_.device())
      .make_tensor();
}

void GradientBucket::deposit(std::size_t slot, const NamedTensor& parameter) {
  const at::Tensor& view = views_[slot];
  if (!device().is_cpu()) {
    streams_.add_current(device());
  }
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) {
    view.zero_();
    return;
  }
  check_gradient(gradient, view, parameter.name);
  if (!is_same_memory(gradient, view)) {
    copy_gradient(view, gradient);
    gradient = view;
  }
}

void GradientBucket::launch(ProcessGroup& group, const ReduceBucketOptions& options) {
  join_streams();
  work_ = all_reduce_async(
      group, elements_, {.op = options.op, .timeout = options.timeout, .label = label_});
}

void GradientBucket::join_streams() {
  if (!device().is_cpu()) {
    streams_.make_current_wait(device());
  }
}

GradBucket GradientBucket::for_hook(std::size_t index,
                                    bool is_last,
                                    std::int64_t n_elems,
                                    std::optional<std::chrono::milliseconds> timeout) {
  join_streams();
  return GradBucket({.index = index,
                     .is_last = is_last,
                     .buffer = elements(0, n_elems),
                     .gradients = dense_views_,
                     .parameters = dense_parameters_,
                     .label = label_,
                     .timeout = timeout});
}

at::Tensor GradientBucket::elements(std::int64_t offset, std::int64_t n_elems) const {
  return part(offset, {n_elems}, {1});
}

namespace {

BucketPlan plan_for(std::span<const NamedTensor> parameters,
                    const std::vector<bool>& is_sparse,
                    std::span<const std::size_t> order,
                    const BucketCaps& caps,
                    std::int64_t n_votes) {
  std::vector<GradientSpec> gradients;
  gradients.reserve(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters[i].tensor;
    gradients.push_back(
        {.n_elems = is_sparse[i] ? 0 : tensor.numel(), .dtype = dtype_of(tensor.scalar_type())});
  }
  return plan_buckets(gradients, order, caps, n_votes);
}

// Aborts the group if the hook throws: other ranks would wait for the operations that the hook did
// not start.
template <class Call>
BucketWork call_hook(ProcessGroup& group, const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    group.abort(std::string("DistributedDataParallel: the communication hook failed: ") +
                error_text(error));
    throw;
  }
}

}  // namespace

BucketSet::BucketSet(ProcessGroup& group,
                     std::span<const NamedTensor> parameters,
                     const std::vector<bool>& is_sparse,
                     std::span<const std::size_t> order,
                     const BucketCaps& caps,
                     std::int64_t n_votes)
    : group_(group),
      parameters_(parameters),
      bucket_of_(parameters.size()),
      slot_of_(parameters.size()) {
  const BucketPlan plan = plan_for(parameters, is_sparse, order, caps, n_votes);
  for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
    const BucketLayout& layout = plan.buckets[bucket];
    buckets_.emplace_back(group, layout, parameters, is_sparse, bucket);
    for (std::size_t slot = 0; slot < layout.slots.size(); ++slot) {
      bucket_of_[layout.slots[slot].parameter] = bucket;
      slot_of_[layout.slots[slot].parameter] = slot;
    }
  }
  flags_offset_ = plan.flags_offset;
  // Flags on a device would have to be copied to the host in each pass.
  flags_ = buckets_.back().device().is_cpu()
               ? buckets_.back().elements(plan.flags_offset, kFlagBits)
               : allocate_tensor(group, {kFlagBits});
  votes_ = buckets_.front().elements(plan.votes_offset, n_votes);
}

void BucketSet::deposit(std::size_t parameter) {
  buckets_[bucket_of_[parameter]].deposit(slot_of_[parameter], parameters_[parameter]);
}

void BucketSet::launch(std::size_t bucket,
                       PassFlags flags,
                       const CommHook& hook,
                       const ReduceBucketOptions& options) {
  const bool is_last = bucket + 1 == buckets_.size();
  if (is_last) {
    write_flags(flags_, flags);
  }
  if (hook) {
    launch_hook(bucket, hook, options.timeout);
  } else {
    buckets_[bucket].launch(group_, options);
  }
  if (is_last && (hook || !buckets_[bucket].device().is_cpu())) {
    launch_flags(options.timeout);
  }
}

void BucketSet::launch_hook(std::size_t bucket,
                            const CommHook& hook,
                            std::optional<std::chrono::milliseconds> timeout) {
  const bool is_last = bucket + 1 == buckets_.size();
  const std::int64_t n_elems = is_last ? flags_offset_ : buckets_[bucket].n_elems();
  const GradBucket for_hook = buckets_[bucket].for_hook(bucket, is_last, n_elems, timeout);
  of_hook_.push_back(call_hook(group_, [&] { return hook(for_hook); }));
}

void BucketSet::launch_flags(std::optional<std::chrono::milliseconds> timeout) {
  flags_work_ =
      all_reduce_async(group_, flags_, {.op = kAvg, .timeout = timeout, .label = "end of pass"});
}

void BucketSet::wait() {
  for (const GradientBucket& bucket : buckets_) {
    bucket.wait();
  }
  finish_hooks();
}

// Every rank runs the continuations of the same buckets in the same order, so that all ranks start
// the same operations in the same order. Continuations are skipped if a rank aborted the pass.
void BucketSet::finish_hooks() {
  std::vector<BucketWork> works = std::exchange(of_hook_, {});
  for (const BucketWork& work : works) {
    work.work.wait();
  }
  std::exchange(flags_work_, {}).wait();
  while (!works.empty() && (flags() & kGivenUp) == 0) {
    std::erase_if(works, [](const BucketWork& work) { return !work.then; });
    for (BucketWork& work : works) {
      work = call_hook(group_, std::exchange(work.then, {}));
    }
    for (const BucketWork& work : works) {
      work.work.wait();
    }
  }
}

void BucketSet::multiply(double factor) const {
  for (std::size_t parameter = 0; parameter < parameters_.size(); ++parameter) {
    if (factor == 0) {
      view(parameter).zero_();
    } else {
      view(parameter).mul_(factor);
    }
  }
}

void BucketSet::divide(std::int64_t divisor) const {
  for (std::size_t parameter = 0; parameter < parameters_.size(); ++parameter) {
    view(parameter).div_(divisor);
  }
}

}  // namespace unisono::ddp
