#include "unisono/torch/ddp/sample_votes.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/ops/from_blob.h>

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

}  // namespace unisono::ddp
