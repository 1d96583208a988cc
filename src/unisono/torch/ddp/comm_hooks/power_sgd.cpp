#include <algorithm>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/work.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/comm_hooks/hook_support.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {
namespace {

void run_gram_schmidt(const at::Tensor& matrix, double epsilon) {
  const std::int64_t n_columns = matrix.size(1);
  for (std::int64_t i = 0; i < n_columns; ++i) {
    const at::Tensor column = matrix.narrow(1, i, 1);
    column.div_(column.norm(2, {0}, /*keepdim=*/true).add_(epsilon));
    const at::Tensor rest = matrix.narrow(1, i + 1, n_columns - i - 1);
    rest.sub_(column.mul(rest).sum({0}, /*keepdim=*/true).mul(column));
  }
}

/// Makes the columns of the matrix orthonormal, in place. The matrix has at most as many columns as
/// rows. Uses the Gram-Schmidt procedure up to two columns, where it is fastest, and for 16-bit
/// types; otherwise a QR decomposition. Gram-Schmidt adds `epsilon` to the norms before the
/// division.
void orthogonalize(const at::Tensor& matrix, double epsilon) {
  const bool is_16_bit = matrix.scalar_type() == at::kHalf || matrix.scalar_type() == at::kBFloat16;
  if (matrix.size(1) <= 2 || is_16_bit) {
    run_gram_schmidt(matrix, epsilon);
  } else {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
  }
}

void require(bool is_right, const std::string& problem) {
  if (!is_right) {
    throw Error(ErrorCode::kInvalidArgument, "PowerSgdState: " + problem);
  }
}

template <class T>
std::string is_value(const char* name, T value) {
  std::ostringstream text;
  text << name << " is " << value << "; it must be ";
  return text.str();
}

// Equals numpy's RandomState(seed).randint(10^9), which PyTorch draws: takes the low 30 bits and
// repeats until the number is below 10^9.
std::uint64_t draw_seed(std::mt19937& random) {
  constexpr std::uint32_t kEnd = 1'000'000'000;
  constexpr std::uint32_t kMask = (1U << 30U) - 1;
  std::uint32_t number = kEnd;
  while (number >= kEnd) {
    number = static_cast<std::uint32_t>(random()) & kMask;
  }
  return number;
}

// Cuts a flat tensor into consecutive parts and returns the parts as matrices.
std::vector<at::Tensor> split_matrices(
    const at::Tensor& flat, const std::vector<std::pair<std::int64_t, std::int64_t>>& sizes) {
  std::vector<at::Tensor> parts;
  std::int64_t offset = 0;
  for (const auto& [n_rows, n_columns] : sizes) {
    parts.push_back(flat.narrow(0, offset, n_rows * n_columns).view({n_rows, n_columns}));
    offset += n_rows * n_columns;
  }
  return parts;
}

}  // namespace

PowerSgdState::PowerSgdState(std::shared_ptr<ProcessGroup> group, const PowerSgdOptions& options)
    : group_(std::move(group)), options_(options), random_(options.random_seed) {
  require(group_ != nullptr, "the process group is null");
  require(options_.matrix_approximation_rank > 0,
          is_value("matrix_approximation_rank", options_.matrix_approximation_rank) + "positive");
  require(options_.min_compression_rate > 0,
          is_value("min_compression_rate", options_.min_compression_rate) + "positive");
  require(
      options_.orthogonalization_epsilon >= 0,
      is_value("orthogonalization_epsilon", options_.orthogonalization_epsilon) + "0 or greater");
  const bool has_memory = options_.use_error_feedback || options_.warm_start;
  require(options_.start_power_sgd_iter >= (has_memory ? 2 : 0),
          is_value("start_power_sgd_iter", options_.start_power_sgd_iter) +
              (has_memory ? "2 or greater with use_error_feedback or warm_start, as buckets change "
                            "after the first pass"
                          : "0 or greater"));
}

/// The compression of one bucket in a pass, shared by the functions that finish the bucket.
class PowerSgdPass {
 public:
  PowerSgdPass(PowerSgdState& state, const GradBucket& bucket) : state_(state), bucket_(bucket) {}

  // Starts the sums of P and of the uncompressed gradients. Both are in flight on return.
  Work start() {
    add_error();
    sort_gradients();
    make_factors();
    if (!rest_.empty()) {
      rest_flat_ = at::cat(flat(rest_));
      rest_work_ = ddp::average(*state_.group_, rest_flat_, bucket_);
    }
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      at::mm_out(ps_[i], matrices_[i], qs_[i]);
    }
    // The sum serves as well as the mean, because orthogonalization ignores the scale of P.
    return reduce(p_flat_, kSum);
  }

  Work project() {
    rest_work_.wait();
    std::int64_t offset = 0;
    for (const at::Tensor& gradient : rest_) {
      gradient.copy_(rest_flat_.narrow(0, offset, gradient.numel()).view(gradient.sizes()));
      offset += gradient.numel();
    }
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      orthogonalize(ps_[i], state_.options_.orthogonalization_epsilon);
      at::mm_out(qs_[i], matrices_[i].t(), ps_[i]);
    }
    return reduce(q_flat_, kAvg);
  }

  void finish() {
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      at::mm_out(matrices_[i], ps_[i], qs_[i].t());
    }
    if (state_.options_.use_error_feedback) {
      ddp::subtract_finite(input_, bucket_.buffer());
      state_.errors_.keep(bucket_, input_);
    }
    keep_right_factors();
    if (bucket_.is_last()) {
      ++state_.n_passes_;
    }
  }

 private:
  // Discards the factors of a pass that overflowed: all later passes would be non-finite. Factors
  // have the same bits on every rank, so that all ranks restart together.
  void keep_right_factors() {
    if (!state_.options_.warm_start) {
      return;
    }
    if (q_flat_.isfinite().all().item<bool>()) {
      state_.right_factors_[bucket_.index()] = q_flat_;
    } else {
      state_.right_factors_.erase(bucket_.index());
    }
  }

  using Sizes = std::vector<std::pair<std::int64_t, std::int64_t>>;

  static std::vector<at::Tensor> flat(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> result;
    result.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      result.push_back(tensor.reshape({-1}));
    }
    return result;
  }

  void add_error() {
    if (state_.options_.use_error_feedback) {
      state_.errors_.add_to(bucket_);
      input_ = bucket_.buffer().clone();
    }
  }

  // Separates the matrices that are worth compressing from the other gradients.
  void sort_gradients() {
    for (const at::Tensor& gradient : bucket_.gradients()) {
      const std::int64_t n_elems = gradient.numel();
      state_.n_elems_before_ += n_elems;
      if (gradient.dim() == 0 || n_elems == 0 || !gradient.is_contiguous()) {
        rest_.push_back(gradient);
        state_.n_elems_after_ += n_elems;
        continue;
      }
      const at::Tensor matrix = gradient.view({gradient.size(0), -1});
      const std::int64_t n_compressed = (matrix.size(0) + matrix.size(1)) * n_columns(matrix);
      const bool is_worth_it =
          static_cast<double>(n_compressed) * state_.options_.min_compression_rate <
          static_cast<double>(n_elems);
      (is_worth_it ? matrices_ : rest_).push_back(is_worth_it ? matrix : gradient);
      state_.n_elems_after_ += is_worth_it ? n_compressed : n_elems;
    }
  }

  [[nodiscard]] std::int64_t n_columns(const at::Tensor& matrix) const {
    return std::min({matrix.size(0), matrix.size(1), state_.options_.matrix_approximation_rank});
  }

  void make_factors() {
    Sizes p_sizes;
    Sizes q_sizes;
    std::int64_t n_p = 0;
    std::int64_t n_q = 0;
    for (const at::Tensor& matrix : matrices_) {
      p_sizes.emplace_back(matrix.size(0), n_columns(matrix));
      q_sizes.emplace_back(matrix.size(1), n_columns(matrix));
      n_p += matrix.size(0) * n_columns(matrix);
      n_q += matrix.size(1) * n_columns(matrix);
    }
    p_flat_ = at::empty({n_p}, bucket_.buffer().options());
    ps_ = split_matrices(p_flat_, p_sizes);
    const auto known = state_.right_factors_.find(bucket_.index());
    const bool is_known = known != state_.right_factors_.end() && known->second.numel() == n_q;
    q_flat_ = is_known ? known->second : at::empty({n_q}, bucket_.buffer().options());
    qs_ = split_matrices(q_flat_, q_sizes);
    if (!is_known) {
      fill_at_random();
    }
    for (const at::Tensor& q : qs_) {
      orthogonalize(q, state_.options_.orthogonalization_epsilon);
    }
  }

  void fill_at_random() {
    const at::Generator generator =
        at::make_generator<at::CPUGeneratorImpl>(draw_seed(state_.random_));
    for (const at::Tensor& q : qs_) {
      q.copy_(at::randn(q.sizes(), generator, q.options().device(at::kCPU)));
    }
  }

  Work reduce(const at::Tensor& factors, const ReduceOp& op) {
    return all_reduce_async(
        *state_.group_,
        factors,
        {.op = op, .timeout = bucket_.timeout(), .label = bucket_.label() + " factors"});
  }

  PowerSgdState& state_;
  GradBucket bucket_;
  at::Tensor input_;
  std::vector<at::Tensor> matrices_;
  std::vector<at::Tensor> rest_;
  at::Tensor rest_flat_;
  Work rest_work_;
  at::Tensor p_flat_;
  at::Tensor q_flat_;
  std::vector<at::Tensor> ps_;
  std::vector<at::Tensor> qs_;
};

BucketWork power_sgd_hook(PowerSgdState& state, const GradBucket& bucket) {
  const bool is_real = at::isFloatingType(bucket.buffer().scalar_type());
  if (state.n_passes_ < state.options_.start_power_sgd_iter || !is_real) {
    state.n_passes_ += bucket.is_last() ? 1 : 0;
    return allreduce_hook(*state.group_, bucket);
  }
  auto pass = std::make_shared<PowerSgdPass>(state, bucket);
  const auto finish = [pass] {
    pass->finish();
    return BucketWork();
  };
  const auto project = [pass, finish] {
    return BucketWork{.work = pass->project(), .then = finish};
  };
  return {.work = pass->start(), .then = project};
}

}  // namespace unisono
