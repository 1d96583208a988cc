#include "unisono/torch/replica.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/agreement.h"
#include "unisono/torch/backward_pass.h"
#include "unisono/torch/bucket_plan.h"
#include "unisono/torch/coalesced_broadcast.h"
#include "unisono/torch/named_tensor.h"
#include "unisono/torch/reducer.h"
#include "unisono/torch/tensor.h"

namespace unisono::ddp {
namespace {

[[noreturn]] void reject(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "DistributedDataParallel: " + message);
}

void check_tensor(const std::string& what, const NamedTensor& named) {
  const at::Tensor& tensor = named.tensor;
  if (tensor.layout() != at::kStrided || !tensor.device().is_cpu()) {
    reject(what + " '" + named.name + "' is " +
           (tensor.device().is_cpu() ? "sparse" : "on " + tensor.device().str()) +
           "; only dense tensors in CPU memory can be wrapped");
  }
}

Claim claim_about(const std::string& what, const NamedTensor& named) {
  check_tensor(what, named);
  std::ostringstream value;
  value << describe(named.tensor);
  if (!named.tensor.is_contiguous()) {
    value << " with strides " << named.tensor.strides();
  }
  if (what == "parameter" && !named.tensor.requires_grad()) {
    value << " without gradient";
  }
  return {.what = what + " '" + named.name + "'", .value = value.str()};
}

template <class T>
Claim option_claim(const std::string& name, T value) {
  std::ostringstream text;
  text << std::boolalpha << value;
  return {.what = "option " + name, .value = text.str()};
}

std::vector<Claim> claims_about(const std::vector<NamedTensor>& parameters,
                                const std::vector<NamedTensor>& buffers,
                                const DistributedDataParallelOptions& options) {
  std::vector<Claim> claims{
      option_claim("bucket_cap_mb", options.bucket_cap_mb),
      option_claim("first_bucket_cap_mb", options.first_bucket_cap_mb),
      option_claim("broadcast_buffers", options.broadcast_buffers),
      option_claim("find_unused_parameters", options.find_unused_parameters),
  };
  for (const NamedTensor& parameter : parameters) {
    claims.push_back(claim_about("parameter", parameter));
  }
  for (const NamedTensor& buffer : buffers) {
    claims.push_back(claim_about("buffer", buffer));
  }
  return claims;
}

std::int64_t cap_bytes(const char* name, double mebibytes) {
  constexpr double kMaxMebibytes = 1 << 20;
  if (!(mebibytes > 0) || mebibytes > kMaxMebibytes) {
    std::ostringstream text;
    text << name << " is " << mebibytes << "; it must be greater than 0, and at most "
         << kMaxMebibytes;
    reject(text.str());
  }
  return std::max<std::int64_t>(1, std::llround(mebibytes * (1 << 20)));
}

ReducerOptions reducer_options(const DistributedDataParallelOptions& options) {
  return {.caps = {.first_bytes = cap_bytes("first_bucket_cap_mb", options.first_bucket_cap_mb),
                   .bytes = cap_bytes("bucket_cap_mb", options.bucket_cap_mb)},
          .find_unused_parameters = options.find_unused_parameters,
          .timeout = options.timeout};
}

std::vector<NamedTensor> with_gradient(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> result;
  std::ranges::copy_if(parameters, std::back_inserter(result), [](const NamedTensor& parameter) {
    return parameter.tensor.requires_grad();
  });
  return result;
}

}  // namespace

Replica::Replica(std::shared_ptr<ProcessGroup> group,
                 const std::vector<NamedTensor>& parameters,
                 const std::vector<NamedTensor>& buffers,
                 const DistributedDataParallelOptions& options)
    : group_(std::move(group)), options_(options), buffers_(buffers, "buffers") {
  if (group_ == nullptr) {
    reject("the process group is null");
  }
  const ReducerOptions for_reducer = reducer_options(options_);
  check_agreement(*group_,
                  claims_about(parameters, buffers, options_),
                  "DistributedDataParallel: the ranks' modules differ",
                  options_.timeout);
  std::vector<NamedTensor> trained = with_gradient(parameters);
  if (trained.empty()) {
    reject("the module has no parameter that requires a gradient; it needs no wrapper");
  }
  CoalescedBroadcast(parameters, "parameters").run(*group_, options_.timeout);
  buffers_.run(*group_, options_.timeout);
  reducer_ = std::make_shared<Reducer>(group_, std::move(trained), for_reducer);
}

Replica::~Replica() = default;

void Replica::before_forward(bool is_training) {
  if (is_in_backward()) {
    return;  // an activation checkpoint repeats its part of the forward pass
  }
  if (is_synchronized_ && c10::GradMode::is_enabled()) {
    reducer_->before_forward();
  }
  if (is_synchronized_ && options_.broadcast_buffers && may_buffers_differ_) {
    buffers_.run(*group_, options_.timeout);
    may_buffers_differ_ = false;
  }
  may_buffers_differ_ = may_buffers_differ_ || is_training;
}

void Replica::after_forward(std::span<at::Tensor* const> outputs) {
  if (!c10::GradMode::is_enabled()) {
    return;
  }
  for (at::Tensor* const output : outputs) {
    attach_backward_signal(*output,
                           [reducer = std::weak_ptr(reducer_), is_synchronized = is_synchronized_] {
                             if (const std::shared_ptr<Reducer> alive = reducer.lock()) {
                               alive->on_backward(is_synchronized);
                             }
                           });
  }
}

void Replica::set_synchronized(bool is_synchronized) {
  is_synchronized_ = is_synchronized;
  reducer_->set_synchronized(is_synchronized);
}

std::size_t Replica::n_buckets() const {
  return reducer_->n_buckets();
}

}  // namespace unisono::ddp
