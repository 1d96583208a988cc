#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

namespace unisono {

/// Says which samples an epoch has, and in which order.
template <class T>
concept Sampler = requires(T& sampler) {
  { sampler.indices() } -> std::convertible_to<std::vector<std::int64_t>>;
};

/// Says which samples make which batch of an epoch.
template <class T>
concept SamplerOfBatches = requires(T& sampler) {
  { sampler.batches() } -> std::convertible_to<std::vector<std::vector<std::int64_t>>>;
};

/// What a sampler asks of a process group.
template <class T>
concept RankOfWorld = requires(const T& group) {
  { group.rank() } -> std::convertible_to<int>;
  { group.world_size() } -> std::convertible_to<int>;
};

}  // namespace unisono
