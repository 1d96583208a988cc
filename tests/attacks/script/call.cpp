#include "attacks/script/call.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"

#include "attacks/script/pattern.h"

namespace unisono::attacks {
namespace {

// A larger wrong count has no memory behind the buffer.
constexpr std::int64_t kMostWrongElements = 1 << 20;

DType dtype_named(const std::string& name) {
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    if (name == to_string(static_cast<DType>(dtype))) {
      return static_cast<DType>(dtype);
    }
  }
  return DType::kFloat32;
}

ReduceOp reduction_named(const std::string& name) {
  for (const ReduceOp& op : {kMin, kMax}) {
    if (name == to_string(op.kind)) {
      return op;
    }
  }
  return kSum;
}

}  // namespace

// Makes one call. If the line has "in_count", "out_count" or "in_null", the call passes a buffer
// with that count or without memory in place of the right buffer.
class CallMaker {
 public:
  CallMaker(Call& call, const Line& line, ProcessGroup& group)
      : call_(call),
        line_(line),
        group_(group),
        world_size_(group.world_size()),
        rank_(group.rank()),
        count_(line.number("count")),
        root_(static_cast<int>(line.number("root"))),
        is_async_(line.number("async") != 0),
        op_(reduction_named(line.text("op"))) {
    const std::vector<std::int64_t> counts = line.numbers("counts");
    counts_ = counts;
    blocks_ = counts.empty() ? std::vector(static_cast<std::size_t>(world_size_), count_) : counts;
  }

  void all_reduce() {
    const Buffer in = given("in", count_, mine());
    const Buffer out = line_.has("in_place") ? in : taken("out", count_);
    expect("the sum", out, combined());
    const AllReduceOptions options{.op = op_, .timeout = line_.timeout()};
    run([&] { return group_.all_reduce_async(in, out, options); },
        [&] { group_.all_reduce(in, out, options); });
  }

  void all_reduce_coalesced() {
    std::vector<Buffer> buffers;
    for (const std::int64_t count : counts_) {
      buffers.push_back(taken("in", count));
      if (!is_wrong("in")) {
        fill(buffers.back(), mine());
      }
      expect("a sum", buffers.back(), combined());
    }
    const AllReduceOptions options{.op = op_, .timeout = line_.timeout()};
    run([&] { return group_.all_reduce_coalesced_async(buffers, options); },
        [&] { group_.all_reduce_coalesced(buffers, options); });
  }

  void reduce() {
    const Buffer in = given("in", count_, mine());
    Buffer out;
    if (is_root()) {
      out = taken("out", count_);
      expect("the result", out, combined());
    }
    const ReduceOptions options{.root = root_, .op = op_, .timeout = line_.timeout()};
    run([&] { return group_.reduce_async(in, out, options); },
        [&] { group_.reduce(in, out, options); });
  }

  void reduce_scatter() {
    const Buffer in = given("in", total(), mine());
    const Buffer out = taken("out", own_block());
    expect("the block", out, combined(), first_of_block(rank_));
    const ReduceScatterOptions options{.op = op_, .counts = counts_, .timeout = line_.timeout()};
    run([&] { return group_.reduce_scatter_async(in, out, options); },
        [&] { group_.reduce_scatter(in, out, options); });
  }

  void broadcast() {
    const Buffer buffer = taken("in", count_);
    if (is_root() && !is_wrong("in")) {
      fill(buffer, mine());
    }
    expect("the root's elements", buffer, pattern_of(line_.step(), root_));
    const BroadcastOptions options{.root = root_, .timeout = line_.timeout()};
    run([&] { return group_.broadcast_async(buffer, options); },
        [&] { group_.broadcast(buffer, options); });
  }

  void all_gather() {
    const Buffer in = given("in", own_block(), mine());
    const Buffer out = taken("out", total());
    expect_blocks(out);
    const AllGatherOptions options{.counts = counts_, .timeout = line_.timeout()};
    run([&] { return group_.all_gather_async(in, out, options); },
        [&] { group_.all_gather(in, out, options); });
  }

  void gather() {
    const Buffer in = given("in", own_block(), mine());
    Buffer out;
    if (is_root()) {
      out = taken("out", total());
      expect_blocks(out);
    }
    const GatherOptions options{.root = root_, .counts = counts_, .timeout = line_.timeout()};
    run([&] { return group_.gather_async(in, out, options); },
        [&] { group_.gather(in, out, options); });
  }

  void scatter() {
    const Buffer in = is_root() ? given("in", total(), mine()) : Buffer();
    const Buffer out = taken("out", own_block());
    expect("the root's block", out, pattern_of(line_.step(), root_), first_of_block(rank_));
    const ScatterOptions options{.root = root_, .counts = counts_, .timeout = line_.timeout()};
    run([&] { return group_.scatter_async(in, out, options); },
        [&] { group_.scatter(in, out, options); });
  }

  void all_to_all() {
    const AllToAllOptions options{.in_counts = line_.numbers("in_counts"),
                                  .out_counts = line_.numbers("out_counts"),
                                  .timeout = line_.timeout()};
    const auto& ins = options.in_counts.empty() ? blocks_ : options.in_counts;
    const auto& outs = options.out_counts.empty() ? blocks_ : options.out_counts;
    const Buffer in = taken("in", total(ins));
    const Buffer out = taken("out", total(outs));
    for (int other = 0; other < world_size_; ++other) {
      if (!is_wrong("in")) {
        fill(block_of(in, ins, other), pattern_of(line_.step(), rank_, other));
      }
      expect("the block of rank " + std::to_string(other),
             block_of(out, outs, other),
             pattern_of(line_.step(), other, rank_));
    }
    run([&] { return group_.all_to_all_async(in, out, options); },
        [&] { group_.all_to_all(in, out, options); });
  }

  void barrier() {
    const BarrierOptions options{.timeout = line_.timeout()};
    run([&] { return group_.barrier_async(options); }, [&] { group_.barrier(options); });
  }

  void monitored_barrier() {
    const BarrierOptions options{.timeout = line_.timeout()};
    run([&] { return group_.monitored_barrier_async(options); },
        [&] { group_.monitored_barrier(options); });
  }

  void send() {
    const Buffer buffer = given("in", count_, mine());
    const SendOptions options{.tag = tag(), .timeout = line_.timeout()};
    run([&] { return group_.send_async(buffer, peer(), options); },
        [&] { group_.send(buffer, peer(), options); });
  }

  void recv() {
    const Buffer buffer = taken("in", count_);
    // With any source, a script has only one message with this tag.
    const auto from = static_cast<int>(line_.number("source", peer()));
    expect("the message", buffer, pattern_of(line_.step(), from));
    const RecvOptions options{.tag = tag(), .timeout = line_.timeout()};
    run([&] { return group_.recv_async(buffer, peer(), options); },
        [&] { (void)group_.recv(buffer, peer(), options); });
  }

 private:
  [[nodiscard]] bool is_root() const { return rank_ == root_; }

  [[nodiscard]] int peer() const { return static_cast<int>(line_.number("peer")); }

  [[nodiscard]] int tag() const { return static_cast<int>(line_.number("tag")); }

  [[nodiscard]] Pattern mine() const { return pattern_of(line_.step(), rank_); }

  [[nodiscard]] Pattern combined() const {
    return combined_pattern(line_.step(), world_size_, op_.kind);
  }

  [[nodiscard]] std::int64_t own_block() const {
    return blocks_.at(static_cast<std::size_t>(rank_));
  }

  [[nodiscard]] std::int64_t first_of_block(int rank) const {
    return total(std::span(blocks_).first(static_cast<std::size_t>(rank)));
  }

  [[nodiscard]] std::int64_t total() const { return total(blocks_); }

  [[nodiscard]] static std::int64_t total(std::span<const std::int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }

  [[nodiscard]] static Buffer block_of(const Buffer& whole,
                                       std::span<const std::int64_t> counts,
                                       int rank) {
    const auto index = static_cast<std::size_t>(rank);
    return part_of(whole, total(counts.first(index)), counts[index]);
  }

  // Allocates memory that the operation may write.
  Buffer taken(const std::string& name, std::int64_t count) {
    const std::int64_t passed = line_.number(name + "_count", count);
    const std::int64_t n_elements =
        std::max({std::int64_t{0}, count, passed > kMostWrongElements ? 0 : passed});
    ProcessGroup* const symmetric = line_.text("memory") == "symmetric" ? &group_ : nullptr;
    Buffer buffer =
        call_.memory_.emplace_back(n_elements, dtype_named(line_.text("dtype")), symmetric)
            .buffer();
    buffer.count = passed;
    if (line_.has(name + "_null")) {
      buffer.data = nullptr;
    }
    return buffer;
  }

  [[nodiscard]] bool is_wrong(const std::string& name) const {
    return line_.has(name + "_count") || line_.has(name + "_null");
  }

  // Allocates memory with the pattern, which must be unchanged after the operation.
  Buffer given(const std::string& name, std::int64_t count, const Pattern& pattern) {
    const Buffer buffer = taken(name, count);
    if (!is_wrong(name) && count > 0) {
      fill(buffer, pattern);
    }
    if (!line_.has("in_place")) {
      expect("the input, as it was", buffer, pattern);
    }
    return buffer;
  }

  void expect(const std::string& what,
              const Buffer& buffer,
              const Pattern& pattern,
              std::int64_t first = 0) {
    call_.expectations_.push_back({what, [=] { return holds(buffer, pattern, first); }});
  }

  // Expects the block of each rank.
  void expect_blocks(const Buffer& out) {
    for (int rank = 0; rank < world_size_; ++rank) {
      expect("the block of rank " + std::to_string(rank),
             block_of(out, blocks_, rank),
             pattern_of(line_.step(), rank));
    }
  }

  template <class Begin, class CarryOut>
  void run(const Begin& begin, const CarryOut& carry_out) {
    if (is_async_) {
      call_.work_ = begin();
    } else {
      carry_out();
    }
  }

  Call& call_;
  const Line& line_;
  ProcessGroup& group_;
  int world_size_;
  int rank_;
  std::int64_t count_;
  int root_;
  bool is_async_;
  ReduceOp op_;
  std::vector<std::int64_t> counts_;  // The counts as the options take these.
  std::vector<std::int64_t> blocks_;
};

namespace {

const std::map<std::string, void (CallMaker::*)()>& makers() {
  static const std::map<std::string, void (CallMaker::*)()> kMakers{
      {"all_reduce", &CallMaker::all_reduce},
      {"all_reduce_coalesced", &CallMaker::all_reduce_coalesced},
      {"reduce", &CallMaker::reduce},
      {"reduce_scatter", &CallMaker::reduce_scatter},
      {"broadcast", &CallMaker::broadcast},
      {"all_gather", &CallMaker::all_gather},
      {"gather", &CallMaker::gather},
      {"scatter", &CallMaker::scatter},
      {"all_to_all", &CallMaker::all_to_all},
      {"barrier", &CallMaker::barrier},
      {"monitored_barrier", &CallMaker::monitored_barrier},
      {"send", &CallMaker::send},
      {"recv", &CallMaker::recv}};
  return kMakers;
}

}  // namespace

void Call::start(const Line& line, ProcessGroup& group) {
  CallMaker maker(*this, line, group);
  (maker.*makers().at(line.verb()))();
}

std::string Call::find_wrong_values() const {
  for (const Expectation& expectation : expectations_) {
    if (!expectation.is_met()) {
      return "the memory does not hold " + expectation.what;
    }
  }
  return "";
}

std::string Call::find_wrong_guards() const {
  const bool are_intact = std::ranges::all_of(memory_, &GuardedMemory::is_intact);
  return are_intact ? "" : "bytes around a buffer were written";
}

}  // namespace unisono::attacks
