#include "unisono/torch/ddp/features/weighted_samples.h"

#include <string>
#include <utility>

#include <ATen/ops/from_blob.h>

#include "unisono/base/error.h"
#include "unisono/torch/ddp/model_check.h"

namespace unisono::ddp {

void write_vote(const at::Tensor& elements, int rank, const SampleVote& vote) {
  elements.zero_();
  elements[rank].fill_((2 * vote.n_samples) + (vote.has_changed_buffers ? 1 : 0));
}

SampleVotes read_votes(const at::Tensor& elements) {
  std::vector<double> numbers(static_cast<std::size_t>(elements.numel()));
  at::from_blob(numbers.data(), {elements.numel()}, at::kDouble).copy_(elements);
  SampleVotes votes;
  for (std::size_t rank = numbers.size(); rank-- > 0;) {
    const auto number = static_cast<std::int64_t>(numbers[rank]);
    if (number / 2 > 0) {
      votes.root = static_cast<int>(rank);
    }
    votes.n_samples += number / 2;
    votes.have_changed_buffers = votes.have_changed_buffers || number % 2 != 0;
  }
  return votes;
}

WeightedSamples::WeightedSamples(PassContext& context) : context_(context) {
  context.weights.is_summed = true;
  context.n_votes = context.group->world_size();
  context.hook_refusal = "with weigh_samples buckets are weighted sums, which a hook would average";
}

void WeightedSamples::check(const std::vector<NamedTensor>& parameters) const {
  check_wide_types(parameters, "weigh_samples", "which hold sums over all samples");
}

void WeightedSamples::fail(const char* problem) const {
  throw Error(ErrorCode::kInvalidArgument,
              "[rank " + std::to_string(context_.group->rank()) +
                  "] DistributedDataParallel: with weigh_samples " + problem);
}

void WeightedSamples::begin(std::int64_t n_samples) {
  is_on_ = true;
  is_reduced_ = false;
  vote_ = {.n_samples = n_samples};
  are_votes_taken_ = false;
  context_.weights.own = n_samples;
}

void WeightedSamples::on_backward(bool /*is_synchronized*/, bool /*is_untouched*/) {
  if (!is_on_) {
    fail("backward() is called in run_step() only");
  }
}

void WeightedSamples::on_synchronize() {
  if (is_reduced_) {
    fail(
        "a step's gradients are averaged once, but run_step() calls backward() again; call all but "
        "the last under no_sync()");
  }
  is_reduced_ = true;
}

void WeightedSamples::before_launch(std::size_t bucket) {
  if (bucket == 0) {
    write_vote(context_.buckets->votes(), context_.group->rank(), vote_);
  }
}

void WeightedSamples::wait() {
  votes_ = read_votes(context_.buckets->votes());
  context_.weights.divisor = votes_.n_samples;
}

void WeightedSamples::end() {
  if (!is_reduced_) {
    fail(
        "run_step() calls backward() for its samples, at the end not under no_sync(); a rank that "
        "has none calls run_step(0, ...)");
  }
  is_on_ = false;
}

std::optional<SampleVotes> WeightedSamples::take_votes() {
  if (votes_.n_samples > 0 && !std::exchange(are_votes_taken_, true)) {
    return votes_;
  }
  return {};
}

}  // namespace unisono::ddp
