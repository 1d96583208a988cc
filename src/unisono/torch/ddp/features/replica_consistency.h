#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/options.h"
#include "unisono/torch/ddp/pass_feature.h"
#include "unisono/torch/device/host_copies.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// Fingerprints of successive parts of the parameters' memory. kParts fingerprints cover the whole
/// memory at the total cost of one hash over all parameters. Not thread-safe.
class ParameterSamples {
 public:
  static constexpr std::size_t kParts = 128;
  /// Smallest size of a part, also for small models.
  static constexpr std::size_t kLeastBytes = 2048;

  /// `parameters` must outlive the object and may grow. Parameters with elements that are not
  /// contiguous in memory are skipped.
  explicit ParameterSamples(const std::vector<NamedTensor>& parameters) : parameters_(parameters) {}

  /// Starts to copy the next part of parameters on a device to the host, for take(). Does nothing
  /// for parameters in CPU memory. The parameters do not change until take().
  void prepare();

  /// Returns the fingerprint of the next part. Equal parameters give equal fingerprints; different
  /// parameters collide with probability 1/65536.
  [[nodiscard]] std::uint16_t take();

  /// Advances to the next part.
  void skip() {
    ++n_taken_;
    pieces_.clear();
    copied_.clear();
  }

 private:
  void find_pieces();

  const std::vector<NamedTensor>& parameters_;
  std::uint64_t n_taken_ = 0;
  std::vector<std::span<const std::byte>> pieces_;  // The next part, if it has been found.
  std::vector<at::Tensor> copied_;                  // Memory of the pieces from devices.
  HostCopies copies_;
};

/// The flags of a fingerprint: its bits, and the inverted bits.
[[nodiscard]] PassFlags flags_of(std::uint16_t fingerprint);

/// Returns true if the flags come from two fingerprints at least: a bit is 0 on one rank and 1 on
/// another.
[[nodiscard]] bool do_fingerprints_differ(PassFlags flags);

/// Compares a part of the ranks' parameters in each pass, and does about ranks that have others
/// what was asked for.
class ReplicaConsistency : public PassFeature {
 public:
  explicit ReplicaConsistency(const PassContext& context);

  [[nodiscard]] int n_flags() const override { return 32; }

  void on_synchronize() override;

  /// The fingerprint's; 0 where parameters are not compared.
  PassFlags flags() override;

  /// If two ranks have other parameters, compares them once in full, to name one. Throws
  /// Error(kMismatch) where that was asked for; else rank 0 warns, and nothing is compared any
  /// more.
  void end_pass(PassResult& result) override;

 private:
  [[nodiscard]] bool compares() const {
    return is_on_ && !context_.has_comm_hook && !context_.is_joined;
  }

  const PassContext& context_;
  ParameterDrift policy_;
  ParameterSamples samples_;
  bool is_on_;
};

}  // namespace unisono::ddp
