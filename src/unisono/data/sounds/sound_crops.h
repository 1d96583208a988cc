#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/data/dataset.h"
#include "unisono/data/sounds/wav_list.h"
#include "unisono/data/transforms/sound_features.h"

namespace unisono {

struct SoundCropOptions {
  /// Of each crop. Where max_frames frames of 25 ms, 10 ms apart, at 16 kHz are wanted:
  /// max_frames * 160 + 240.
  std::size_t n_samples = 32'240;
  /// Each epoch another part of a sound, by chance; else always the middle.
  bool random = true;
  std::int64_t seed = 0;
  /// Features in place of samples; their rate must be that of the sounds.
  std::optional<LogMelOptions> log_mel = std::nullopt;
  /// So many cepstral coefficients of them, in place of the powers; 0: none.
  std::size_t n_mfcc = 0;
};

/// Parts of a list's sounds, all equally long: float32 of shape {n_samples}, or with features of
/// shape {frames, values}. A shorter sound is repeated until it is long enough.
///
/// Which part depends on the seed, the epoch and the sound's index, and on nothing else: not on the
/// number of workers or ranks, or on whether an epoch was interrupted.
class SoundCrops final : public Dataset {
 public:
  /// Throws Error(kInvalidArgument) for options that make no sense, as crops shorter than a frame.
  explicit SoundCrops(std::shared_ptr<const WavList> sounds, const SoundCropOptions& options = {});

  /// Call before a loader starts the epoch's pass, or every epoch has the same parts.
  void set_epoch(std::int64_t epoch) { epoch_.store(epoch, std::memory_order_relaxed); }

  [[nodiscard]] std::int64_t size() const override { return sounds_->size(); }

  [[nodiscard]] DType dtype() const override { return DType::kFloat32; }

  [[nodiscard]] std::vector<std::int64_t> sample_shape() const override { return shape_; }

  /// Throws Error as WavList::sound().
  [[nodiscard]] std::int64_t load(std::int64_t index, std::span<std::byte> into) const override;

 private:
  std::shared_ptr<const WavList> sounds_;  // shared with the caller
  SoundCropOptions options_;
  std::optional<LogMel> log_mel_;
  std::vector<std::int64_t> shape_;
  // Relaxed: a loader's start() orders it before what its workers read.
  std::atomic<std::int64_t> epoch_ = 0;
};

}  // namespace unisono
