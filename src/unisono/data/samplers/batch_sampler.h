#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "unisono/data/samplers/sampler.h"

namespace unisono {

namespace data {

/// `indices` in pieces of `batch_size`; the last one may be smaller, or is left out.
///
/// Throws Error(kInvalidArgument) unless batch_size is at least 1.
[[nodiscard]] std::vector<std::vector<std::int64_t>> cut_into_batches(
    std::span<const std::int64_t> indices, std::int64_t batch_size, bool drop_last);

}  // namespace data

/// The batches of another sampler's indices, in their order; same as
/// torch.utils.data.BatchSampler. Not thread-safe.
template <Sampler Source>
class BatchSampler {
 public:
  /// `source` must outlive this.
  ///
  /// `drop_last` leaves out the last batch where it is smaller than the others.
  BatchSampler(Source& source, std::int64_t batch_size, bool drop_last = false)
      : source_(&source), batch_size_(batch_size), drop_last_(drop_last) {}

  /// Starts an epoch of the source: its batches.
  ///
  /// Throws what the source's indices() throws, and Error(kInvalidArgument) for a batch size below
  /// 1.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> batches() {
    return data::cut_into_batches(source_->indices(), batch_size_, drop_last_);
  }

 private:
  Source* source_;
  std::int64_t batch_size_;
  bool drop_last_;
};

}  // namespace unisono
