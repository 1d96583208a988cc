#pragma once

#include <cstdint>

namespace unisono::data {

/// Random numbers that are equal on every machine: SplitMix64.
///
/// A value of 8 bytes, cheap to create: one for each sample, seeded by the sample's numbers, so
/// that the result does not depend on the thread that loads the sample or on the time. Not
/// thread-safe.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
class Random {
 public:
  /// Generators with equal seeds return equal numbers.
  explicit constexpr Random(std::uint64_t seed) : state_(seed) {}

  /// Returns the generator for sample `index` in epoch `epoch` of a job with `seed`.
  [[nodiscard]] static constexpr Random of_sample(std::int64_t seed,
                                                  std::int64_t epoch,
                                                  std::int64_t index) {
    const std::uint64_t of_job = Random(static_cast<std::uint64_t>(seed)).next();
    const std::uint64_t of_epoch = Random(of_job + static_cast<std::uint64_t>(epoch)).next();
    return Random(Random(of_epoch + static_cast<std::uint64_t>(index)).next());
  }

  /// Returns 64 random bits.
  constexpr std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15;
    std::uint64_t bits = state_;
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB;
    return bits ^ bits >> 31;
  }

  /// Returns a uniformly distributed number from 0 to limit - 1. `limit` must be above 0.
  constexpr std::uint64_t below(std::uint64_t limit) {
    // The lowest 2^64 % limit values would make the first remainders more likely.
    const std::uint64_t n_uneven = (0 - limit) % limit;
    std::uint64_t bits = next();
    while (bits < n_uneven) {
      bits = next();
    }
    return bits % limit;
  }

  /// Returns a number in [0, 1), a multiple of 2^-53.
  constexpr double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace unisono::data
