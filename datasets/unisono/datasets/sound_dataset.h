#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/data/batch.h"
#include "unisono/datasets/sound_features.h"
#include "unisono/datasets/wav.h"

namespace unisono::datasets {

/// Sounds of a text file in the format of voxceleb_trainer: each line has an id (of a speaker, for
/// example), white space, and the path of a WAV file in `folder`. sound() decodes on demand.
/// Thread-safe.
class WavList {
 public:
  /// Reads the list, plain or gzip, and does not open the WAV files. The list is UTF-8 with or
  /// without a byte order mark; lines end in LF or CR LF; empty lines at the end are skipped. All
  /// sounds must have the rate `sample_rate`; 0 allows any rate.
  ///
  /// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder or device, or a negative rate;
  /// kCorruptData for an empty list, another encoding, and, with file and line, for a missing id or
  /// path and a CR without LF.
  WavList(const std::string& list, const std::string& folder, std::int64_t sample_rate);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(entries_.size()); }

  /// Required rate of all sounds; 0: any rate.
  [[nodiscard]] std::int64_t sample_rate() const { return sample_rate_; }

  /// The ids, sorted. A label is an index of this list.
  [[nodiscard]] const std::vector<std::string>& ids() const { return ids_; }

  /// Label of sound `index`, 0 <= index < size().
  [[nodiscard]] std::int64_t label(std::int64_t index) const;

  /// Path of sound `index`.
  [[nodiscard]] std::string path(std::int64_t index) const;

  /// Decodes sound `index`. Logs one warning per list for sounds with `is_streamed`.
  ///
  /// Throws Error as read_wav(), with the line of the list.
  [[nodiscard]] Sound sound(std::int64_t index) const;

 private:
  struct Entry {
    std::string path;  // below folder_
    std::int64_t label;
  };

  std::string list_;
  std::string folder_;
  std::int64_t sample_rate_;
  std::vector<std::string> ids_;
  std::vector<Entry> entries_;  // one per line
  // Relaxed: the flag only selects the thread that warns; no other data depends on it.
  mutable std::atomic<bool> has_warned_ = false;
};

/// Form of the crops. `seed` selects the sequence of random parts.
struct SoundCropOptions {
  /// Samples of a crop. For max_frames frames of 25 ms, 10 ms apart, at 16 kHz: max_frames * 160 +
  /// 240.
  std::size_t n_samples = 32'240;
  /// Takes a random part of a sound in each epoch; false: always the middle.
  bool random = true;
  std::int64_t seed = 0;
  /// Features in place of samples. The rate must equal the rate of the sounds.
  std::optional<LogMelOptions> log_mel = std::nullopt;
  /// Number of cepstral coefficients in place of the log-mel powers; 0: powers.
  std::size_t n_mfcc = 0;
};

/// Parts of equal length of the sounds of a list: float32 of shape {n_samples}, or with features of
/// shape {frames, values}. A shorter sound is repeated up to the length.
///
/// The part depends on the seed, the epoch and the index of the sound alone: the number of workers
/// or ranks and an interruption of the epoch make no difference. Thread-safe.
class SoundCrops final : public data::Dataset {
 public:
  /// Throws Error(kInvalidArgument) for impossible options, such as crops shorter than a frame.
  explicit SoundCrops(std::shared_ptr<const WavList> sounds, const SoundCropOptions& options = {});

  /// Selects the parts of this epoch. Call before the loader starts the pass of the epoch.
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
  // Relaxed: the loader's start() orders the store before the loads of the workers.
  std::atomic<std::int64_t> epoch_ = 0;
};

}  // namespace unisono::datasets
