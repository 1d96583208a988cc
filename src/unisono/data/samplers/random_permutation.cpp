#include "unisono/data/samplers/random_permutation.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "unisono/base/error.h"

namespace unisono::data {
namespace {

constexpr std::int64_t kMaxNumbers = std::int64_t{1} << 48;

// From this size on torch takes 64-bit random numbers, and another way of shuffling.
constexpr std::size_t kFirstWide = std::numeric_limits<std::uint32_t>::max() / 20;

// Each place gets one of the numbers that are left.
void shuffle_forward(std::vector<std::int64_t>& numbers, std::mt19937& engine) {
  for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
    std::swap(numbers[i], numbers[i + engine() % (numbers.size() - i)]);
  }
}

// Each number goes to a random place among those before it, and what was there takes its own.
void shuffle_inside_out(std::vector<std::int64_t>& numbers, std::mt19937& engine) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint64_t high = engine();
    const std::uint64_t random = high << 32 | engine();
    std::swap(numbers[i], numbers[random % (i + 1)]);
  }
}

}  // namespace

std::vector<std::int64_t> random_permutation(std::int64_t n, std::uint64_t seed) {
  if (n < 0 || n > kMaxNumbers) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "random_permutation: {} numbers asked for; 0 to {} can be had", n, kMaxNumbers));
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});

  std::mt19937 engine(static_cast<std::uint32_t>(seed));
  if (numbers.size() < kFirstWide) {
    shuffle_forward(numbers, engine);
  } else {
    shuffle_inside_out(numbers, engine);
  }
  return numbers;
}

}  // namespace unisono::data
