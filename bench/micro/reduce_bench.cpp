// Bandwidth of the reduction kernels, compared with memcpy. bytes_per_second counts every byte that
// is read or written once.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include <benchmark/benchmark.h>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/kernels/reduce.h"

namespace unisono::kernels {
namespace {

constexpr std::int64_t kSmallest = 4 << 10;
constexpr std::int64_t kLargest = 64 << 20;

class Block {
 public:
  explicit Block(std::size_t size)
      : memory_(static_cast<std::byte*>(::operator new(size, kAlignment))) {
    std::memset(memory_.get(), 0, size);
  }

  [[nodiscard]] std::byte* data() const { return memory_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{4096};

  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
  };

  std::unique_ptr<std::byte, Free> memory_;
};

// Returns the canonical tree for a number of inputs that is a power of two: neighbours are paired
// level by level.
std::vector<ReduceStep> paired_steps(int n_inputs) {
  std::vector<ReduceStep> steps;
  for (int i = 0; i + 1 < n_inputs; ++i) {
    steps.push_back({.lhs = 2 * i, .rhs = 2 * i + 1});
  }
  return steps;
}

// A typical user reduction.
const UserReduction plain_sum{
    .combine = [](const void* lhs, const void* rhs, void* result, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        static_cast<float*>(result)[i] =
            static_cast<const float*>(lhs)[i] + static_cast<const float*>(rhs)[i];
      }
    }};

// Outputs use separate memory if `is_in_place` is not set or if their index is beyond the number of
// inputs.
void run_reduce(benchmark::State& state,
                DType dtype,
                bool is_in_place,
                ReduceKind kind = ReduceKind::kSum) {
  const auto n_inputs = static_cast<int>(state.range(0));
  const auto n_outputs = static_cast<int>(state.range(1));
  const auto n_bytes = static_cast<std::size_t>(state.range(3));
  std::vector<Block> blocks;
  std::vector<ReduceInput> inputs;
  std::vector<void*> outputs;
  for (int i = 0; i < n_inputs; ++i) {
    inputs.push_back({.data = blocks.emplace_back(n_bytes).data(), .is_partial = false});
  }
  for (int i = 0; i < n_outputs; ++i) {
    const bool is_shared = is_in_place && i < n_inputs;
    outputs.push_back(is_shared ? blocks[static_cast<std::size_t>(i)].data()
                                : blocks.emplace_back(n_bytes).data());
  }
  const std::vector<ReduceStep> steps = paired_steps(n_inputs);
  const ReduceTask task{.dtype = dtype,
                        .kind = kind,
                        .inputs = inputs,
                        .steps = steps,
                        .outputs = outputs,
                        .factor = 0.1,
                        .user = &plain_sum,
                        .is_streaming = state.range(2) != 0};
  const auto count = static_cast<std::int64_t>(n_bytes / size_of(dtype));
  for (auto _ : state) {
    reduce(task, count);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(3) * (n_inputs + n_outputs));
}

void reduce_f32(benchmark::State& state) {
  run_reduce(state, DType::kFloat32, false);
}

void reduce_f32_in_place(benchmark::State& state) {
  run_reduce(state, DType::kFloat32, true);
}

void reduce_bf16(benchmark::State& state) {
  run_reduce(state, DType::kBFloat16, false);
}

void reduce_f16(benchmark::State& state) {
  run_reduce(state, DType::kFloat16, false);
}

void reduce_f32_premul(benchmark::State& state) {
  run_reduce(state, DType::kFloat32, false, ReduceKind::kPremulSum);
}

void reduce_f32_user(benchmark::State& state) {
  run_reduce(state, DType::kFloat32, false, ReduceKind::kUser);
}

void reduce_bf16_premul(benchmark::State& state) {
  run_reduce(state, DType::kBFloat16, false, ReduceKind::kPremulSum);
}

// copy_streaming has the parameters of memcpy, except for the signedness of the count.
template <class Copy>
void run_copy(benchmark::State& state, Copy copy) {
  const auto n_bytes = static_cast<std::size_t>(state.range(0));
  const Block from(n_bytes);
  const Block to(n_bytes);
  for (auto _ : state) {
    copy(to.data(), from.data(), state.range(0));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 2);
}

void copy_memcpy(benchmark::State& state) {
  run_copy(state, [](void* to, const void* from, std::int64_t n_bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(n_bytes));
  });
}

void copy_streamed(benchmark::State& state) {
  run_copy(state, copy_streaming);
}

void all_sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("bytes")->RangeMultiplier(16)->Range(kSmallest, kLargest);
}

void both_stores(benchmark::internal::Benchmark* bench, const std::vector<std::int64_t>& n_inputs) {
  bench->ArgNames({"in", "out", "streaming", "bytes"});
  bench->ArgsProduct({n_inputs, {1, 2}, {0, 1}, benchmark::CreateRange(kSmallest, kLargest, 16)});
}

void two_and_more(benchmark::internal::Benchmark* bench) {
  both_stores(bench, {2, 4, 8, 16});
}

void two_and_four(benchmark::internal::Benchmark* bench) {
  both_stores(bench, {2, 4});
}

// Cost of an operation of a few bytes.
void smallest(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"in", "out", "streaming", "bytes"})
      ->ArgsProduct({{2, 4, 16}, {1}, {0}, {8, 60}});
}

BENCHMARK(copy_memcpy)->Apply(all_sizes);
BENCHMARK(copy_streamed)->Apply(all_sizes);
BENCHMARK(reduce_f32)->Apply(smallest)->Apply(two_and_more);
BENCHMARK(reduce_f32_in_place)->Apply(two_and_four);
BENCHMARK(reduce_bf16)->Apply(two_and_four);
BENCHMARK(reduce_f16)->Apply(two_and_four);
BENCHMARK(reduce_f32_premul)->Apply(smallest)->Apply(two_and_more);
BENCHMARK(reduce_f32_user)->Apply(two_and_four);
BENCHMARK(reduce_bf16_premul)->Apply(two_and_four);

}  // namespace
}  // namespace unisono::kernels
