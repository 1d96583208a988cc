#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/collectives/collectives.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/remote/exchange.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {
namespace {

using collective::ChunkRange;
using collective::Passing;
using collective::Step;
using collective::StepPlan;

constexpr std::array kOneStep{kernels::ReduceStep{.lhs = 0, .rhs = 1}};

// A part of the buffer that fits into the staging buffers. A rank's staging buffers contain the
// data for the other ranks of the node: combined data (in `in`), and the result (in `out`). Whole
// contributions that are passed on alternate between the halves of `out`, and the result is then
// not staged.
class StepWindow {
 public:
  StepWindow(OperationContext& context,
             const StepPlan& plan,
             std::int64_t index,
             collective::ElementRange range)
      : context_(context), plan_(plan), index_(index), range_(range) {}

  void run() {
    take_own();
    for (std::size_t step = 0; step < plan_.combining.size(); ++step) {
      context_.sync();
      combine(plan_.combining[step], step);
    }
    finish();
    for (const Step& step : plan_.spreading) {
      context_.sync();
      spread(step);
    }
    if (plan_.passing == Passing::kCombined) {
      std::copy_n(context_.control_block.staging_out(context_.self(), index_),
                  range_.count() * context_.element_bytes(),
                  output());
    }
  }

 private:
  [[nodiscard]] collective::ElementRange elements(ChunkRange chunks) const {
    const std::int64_t grain = context_.elements_per_line();
    const collective::ElementRange window{.begin = 0, .end = range_.count()};
    const auto bound = [&](int chunk) {
      return collective::chunk_of(window, plan_.n_chunks, chunk, grain).begin;
    };
    return {.begin = bound(chunks.begin), .end = bound(chunks.end)};
  }

  [[nodiscard]] std::byte* combined(int peer) const {
    return context_.control_block.staging_in(peer, index_);
  }

  // Returns the data that the ranks of a node read from `peer` in a step, if whole contributions
  // are passed on.
  [[nodiscard]] std::byte* passed_on(int peer, std::size_t step) const {
    return context_.control_block.staging_out(peer, index_) +
           static_cast<std::int64_t>(step % 2) * (shm::kStagingBytes / 2);
  }

  [[nodiscard]] std::byte* output() const {
    return context_.out_bytes() + range_.begin * context_.element_bytes();
  }

  [[nodiscard]] kernels::ReduceTask partial_task(std::span<const kernels::ReduceInput> inputs,
                                                 kernels::ReduceSteps steps,
                                                 std::span<void* const> outputs) const {
    kernels::ReduceTask task = context_.reduce_task(inputs, steps, outputs);
    task.output_is_partial = true;
    return task;
  }

  void take_own() const {
    const kernels::ReduceInput input{
        .data = context_.in_bytes() + range_.begin * context_.element_bytes(), .is_partial = false};
    std::vector<void*> outputs{combined(context_.self())};
    if (plan_.passing == Passing::kArrived) {
      outputs.push_back(passed_on(context_.self(), 0));
    }
    kernels::reduce(partial_task(std::span(&input, 1), {}, outputs), range_.count());
  }

  // Executes the transfers of a step. Data for this rank's peers lies at `from(peer)`, with `size`
  // bytes for each element. Calls `take(receive, data)` for each receive.
  template <class From, class Take>
  void transfer(const Step& step, std::int64_t size, From from, Take take) const {
    const auto span_of = [&](auto* base, ChunkRange chunks) {
      const collective::ElementRange range = elements(chunks);
      return std::span(base + range.begin * size, static_cast<std::size_t>(range.count() * size));
    };
    const auto is_local = [&](int rank) {
      return context_.topology.node_of(rank) == context_.topology.node();
    };
    std::vector<tcp::Outgoing> sends;
    for (const collective::StepSend& send : step.sends) {
      if (!is_local(send.to)) {
        sends.push_back({.rank = send.to, .data = span_of(from(context_.self()), send.chunks)});
      }
    }
    std::size_t n_scratch = 0;
    for (const collective::StepReceive& receive : step.receives) {
      n_scratch += static_cast<std::size_t>(elements(receive.chunks).count() * size);
    }
    if (context_.topology.n_nodes() > 1 && context_.scratch.size() < n_scratch) {
      context_.scratch.resize(n_scratch);
    }
    std::vector<tcp::Incoming> receives;
    std::vector<const std::byte*> arrivals;
    std::size_t begin = 0;
    for (const collective::StepReceive& receive : step.receives) {
      if (is_local(receive.from)) {
        const int peer = context_.topology.local_rank_of(receive.from);
        arrivals.push_back(span_of(from(peer), receive.chunks).data());
        continue;
      }
      const auto n_bytes = static_cast<std::size_t>(elements(receive.chunks).count() * size);
      receives.push_back(
          {.rank = receive.from, .data = std::span(context_.scratch).subspan(begin, n_bytes)});
      arrivals.push_back(receives.back().data.data());
      begin += n_bytes;
    }
    context_.exchange.run(sends, receives);
    for (std::size_t index = 0; index < arrivals.size(); ++index) {
      take(step.receives[index], arrivals[index]);
    }
  }

  void combine(const Step& step, std::size_t number) const {
    const bool passes_on = plan_.passing == Passing::kArrived;
    const auto from = [&](int peer) {
      return passes_on ? passed_on(peer, number) : combined(peer);
    };
    transfer(step,
             context_.partial_bytes(),
             from,
             [&](const collective::StepReceive& receive, const std::byte* data) {
               const collective::ElementRange range = elements(receive.chunks);
               if (passes_on) {
                 std::copy_n(data,
                             range.count() * context_.partial_bytes(),
                             passed_on(context_.self(), number + 1));
               }
               std::byte* const mine =
                   combined(context_.self()) + range.begin * context_.partial_bytes();
               const std::array<kernels::ReduceInput, 2> inputs{
                   {{.data = receive.is_left ? data : mine, .is_partial = true},
                    {.data = receive.is_left ? mine : data, .is_partial = true}}};
               void* const output = mine;
               kernels::reduce(partial_task(inputs, kOneStep, std::span(&output, 1)),
                               range.count());
             });
  }

  void finish() const {
    const collective::ElementRange range = elements(plan_.finished);
    const kernels::ReduceInput input{
        .data = combined(context_.self()) + range.begin * context_.partial_bytes(),
        .is_partial = true};
    std::byte* const results = plan_.passing == Passing::kArrived
                                   ? output()
                                   : context_.control_block.staging_out(context_.self(), index_);
    void* const result = results + range.begin * context_.element_bytes();
    kernels::ReduceTask last = partial_task(std::span(&input, 1), {}, std::span(&result, 1));
    last.output_is_partial = false;
    kernels::reduce(last, range.count());
  }

  void spread(const Step& step) const {
    const auto from = [&](int peer) { return context_.control_block.staging_out(peer, index_); };
    transfer(step,
             context_.element_bytes(),
             from,
             [&](const collective::StepReceive& receive, const std::byte* data) {
               const collective::ElementRange range = elements(receive.chunks);
               std::copy_n(data,
                           range.count() * context_.element_bytes(),
                           from(context_.self()) + range.begin * context_.element_bytes());
             });
  }

  OperationContext& context_;
  const StepPlan& plan_;
  std::int64_t index_;
  collective::ElementRange range_;
};

}  // namespace

void reduce_in_steps(OperationContext& context, const StepPlan& plan) {
  context.enter();
  // Contributions that are passed on have half a staging buffer each.
  const std::int64_t n_halves = plan.passing == Passing::kArrived ? 2 : 1;
  const std::int64_t capacity = shm::kStagingBytes / n_halves / context.partial_bytes();
  std::int64_t index = 0;
  for (std::int64_t begin = 0; index == 0 || begin < context.count(); begin += capacity) {
    const std::int64_t end = std::min(begin + capacity, context.count());
    StepWindow(context, plan, index, {.begin = begin, .end = end}).run();
    ++index;
  }
  context.sync();
}

}  // namespace unisono::engine
