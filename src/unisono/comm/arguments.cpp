#include "unisono/comm/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>

#include "unisono/base/bytes.h"
#include "unisono/comm/call.h"
#include "unisono/comm/job.h"
#include "unisono/engine/backends.h"
#include "unisono/transport/describe.h"

namespace unisono::comm {
namespace {

// Bytes of an input or output, for a sweep over all buffers by address.
struct Extent {
  const std::byte* begin;
  const std::byte* end;
  bool is_output;
  bool is_own;
  ArgumentName name;
};

Extent extent_of(const Buffer& buffer, bool is_output, bool is_own, ArgumentName name) {
  const auto* const begin = static_cast<const std::byte*>(buffer.data);
  return {.begin = begin,
          .end = begin + buffer.n_bytes(),
          .is_output = is_output,
          .is_own = is_own,
          .name = name};
}

// Returns whether the extents share a byte. std::less gives a total order for pointers of different
// objects.
bool overlap(const Extent& a, const Extent& b) {
  const std::less<> before;
  return before(a.begin, b.end) && before(b.begin, a.end);
}

// Up to this number of buffers, each pair is compared, without allocating memory.
constexpr std::size_t kMostPairwise = 16;

bool have_bytes_in_common(const Buffer& a, const Buffer& b) {
  return a.count > 0 && b.count > 0 &&
         overlap(extent_of(a, false, false, ""), extent_of(b, false, false, ""));
}

bool are_pairwise_apart(std::span<const Buffer> ins,
                        std::span<const Buffer> outs,
                        int own_in,
                        int own_out) {
  for (std::size_t to = 0; to < outs.size(); ++to) {
    const Buffer& out = outs[to];
    for (std::size_t from = 0; from < ins.size(); ++from) {
      const Buffer& in = ins[from];
      const bool are_own = static_cast<int>(from) == own_in && static_cast<int>(to) == own_out;
      const bool is_in_place = are_own && in.data == out.data && in.count == out.count;
      if (!is_in_place && have_bytes_in_common(in, out)) {
        return false;
      }
    }
    for (const Buffer& other : outs.subspan(to + 1)) {
      if (have_bytes_in_common(out, other)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

std::string ArgumentName::text() const {
  return index == kWhole ? name : fmt::format("{}[{}]", name, index);
}

Arguments::Arguments(GroupState& state, const char* operation, const std::string& label)
    : state_(state),
      operation_(operation),
      label_(label),
      rank_(state.topology().rank()),
      world_size_(state.topology().world_size()) {}

RefusedCall Arguments::invalid(const std::string& problem) const {
  return state_.refuse(label_.empty() ? operation_ : fmt::format("{} of {}", operation_, label_),
                       problem);
}

std::string Arguments::name_of(int rank) const {
  return transport::describe_rank(rank, state_.job_ranks());
}

void Arguments::check_operation(const engine::Operation& operation) const {
  const engine::Backend& backend = state_.job().backend();
  try {
    const DeviceType device = engine::is_on_gpu(operation) ? DeviceType::kCuda : DeviceType::kCpu;
    engine::check_capabilities(backend.capabilities_on(device), backend.name, operation);
    state_.engine().check(operation);
  } catch (const Error& error) {
    throw invalid(error.what());
  }
}

void Arguments::check_buffer(const Buffer& buffer, ArgumentName name) const {
  if (buffer.count < 0) {
    throw invalid(fmt::format("{}'s count is {}", name.text(), buffer.count));
  }
  if (buffer.data == nullptr && buffer.count > 0) {
    throw invalid(fmt::format("{}'s data is null", name.text()));
  }
  if (static_cast<int>(buffer.dtype) >= kDTypeCount) {
    throw invalid(fmt::format("{} has no dtype", name.text()));
  }
  std::int64_t n_bytes = 0;
  if (__builtin_mul_overflow(
          buffer.count, static_cast<std::int64_t>(size_of(buffer.dtype)), &n_bytes)) {
    throw invalid(fmt::format(
        "{}'s count is {}, more than any memory has room for", name.text(), buffer.count));
  }
  if (const engine::Backend& backend = state_.job().backend();
      !backend.capabilities.devices.has(buffer.device.type)) {
    throw invalid(
        fmt::format("{} is on a {} device, which backend {} can't reach; copy it to the {} first",
                    name.text(),
                    buffer.device.type == DeviceType::kCuda ? "CUDA" : "CPU",
                    backend.name,
                    buffer.device.type == DeviceType::kCuda ? "CPU" : "GPU"));
  }
}

void Arguments::check_dtype(const Buffer& buffer, ArgumentName name, DType dtype) const {
  check_buffer(buffer, name);
  if (buffer.dtype != dtype) {
    throw invalid(fmt::format("{} is of {}, where {} is expected",
                              name.text(),
                              to_string(buffer.dtype),
                              to_string(dtype)));
  }
}

void Arguments::check_count(const Buffer& buffer, ArgumentName name, std::int64_t count) const {
  if (buffer.count != count) {
    throw invalid(
        fmt::format("{} has {} elements, where {} are expected", name.text(), buffer.count, count));
  }
}

void Arguments::check_root(int root) const {
  if (root < 0 || root >= world_size_) {
    throw invalid(fmt::format("root {} is outside a world of {}", root, world_size_));
  }
}

void Arguments::check_list(std::span<const Buffer> list,
                           const char* name,
                           DType dtype,
                           std::span<const std::int64_t> counts) const {
  if (list.size() != static_cast<std::size_t>(world_size_)) {
    throw invalid(fmt::format("{} has {} buffers, where a world of {} needs one per rank",
                              name,
                              list.size(),
                              world_size_));
  }
  for (std::size_t index = 0; index < list.size(); ++index) {
    check_dtype(list[index], {name, index}, dtype);
  }
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    check_count(list[rank], {name, rank}, counts[rank]);
  }
}

void Arguments::check_counts(std::span<const std::int64_t> counts) const {
  if (counts.size() != static_cast<std::size_t>(world_size_)) {
    throw invalid(fmt::format(
        "there are {} counts, where a world of {} needs one per rank", counts.size(), world_size_));
  }
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] < 0) {
      throw invalid(
          fmt::format("the count of rank {} is {}", name_of(static_cast<int>(rank)), counts[rank]));
    }
  }
}

void Arguments::check_absent(const Blocks& blocks, const char* name) const {
  if (blocks.is_list() ? !blocks.list.empty() : blocks.whole->count != 0) {
    throw invalid(fmt::format("{} is for the root alone; pass {} on rank {}",
                              name,
                              blocks.is_list() ? "an empty list" : "Buffer()",
                              name_of(rank_)));
  }
}

std::vector<Buffer> Arguments::blocks_of(const Blocks& given,
                                         const char* name,
                                         DType dtype,
                                         std::span<const std::int64_t> counts) const {
  if (!counts.empty()) {
    check_counts(counts);
  }
  if (!given.is_list()) {
    check_dtype(*given.whole, name, dtype);
    return parts_of(kept(given, *given.whole), name, counts);
  }
  check_list(given.list, name, dtype, counts);
  std::vector<Buffer> blocks;
  blocks.reserve(given.list.size());
  for (const Buffer& block : given.list) {
    blocks.push_back(kept(given, block));
  }
  return blocks;
}

std::vector<Buffer> Arguments::parts_of(const Buffer& whole,
                                        const char* name,
                                        std::span<const std::int64_t> counts) const {
  const auto world_size = static_cast<std::size_t>(world_size_);
  if (counts.empty() && whole.count % world_size_ != 0) {
    throw invalid(
        fmt::format("{} has {} elements, which can't be divided equally among a world of {}",
                    name,
                    whole.count,
                    world_size_));
  }
  std::vector<Buffer> blocks(world_size, whole);
  std::int64_t begin = 0;
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    const std::int64_t count = counts.empty() ? whole.count / world_size_ : counts[rank];
    if (count > whole.count - begin) {
      throw invalid(fmt::format("{} has {} elements, and the count of rank {} is {}",
                                name,
                                whole.count,
                                name_of(static_cast<int>(rank)),
                                count));
    }
    blocks[rank].data = static_cast<std::byte*>(whole.data) +
                        begin * static_cast<std::int64_t>(size_of(whole.dtype));
    blocks[rank].count = count;
    begin += count;
  }
  if (begin != whole.count) {
    throw invalid(
        fmt::format("{} has {} elements, and the counts make {}", name, whole.count, begin));
  }
  return blocks;
}

void Arguments::check_same_or_apart(const Buffer& in, const Buffer& out) const {
  if (in.data != out.data && have_bytes_in_common(in, out)) {
    throw invalid(
        "in and out overlap, but are not the same memory; pass one for both, or two apart");
  }
}

void Arguments::check_apart(std::span<const Buffer> ins,
                            std::span<const Buffer> outs,
                            int own_in,
                            int own_out) const {
  if (ins.size() + outs.size() <= kMostPairwise && are_pairwise_apart(ins, outs, own_in, own_out)) {
    return;
  }
  std::vector<Extent> extents;
  extents.reserve(ins.size() + outs.size());
  const auto add = [&](std::span<const Buffer> buffers, const char* name, bool is_output, int own) {
    for (int index = 0; index < static_cast<int>(buffers.size()); ++index) {
      const Buffer& buffer = buffers[static_cast<std::size_t>(index)];
      if (buffer.count > 0) {
        const ArgumentName full_name =
            buffers.size() == 1 ? name : ArgumentName(name, static_cast<std::size_t>(index));
        extents.push_back(extent_of(buffer, is_output, index == own, full_name));
      }
    }
  };
  add(ins, "in", false, own_in);
  add(outs, "out", true, own_out);
  const auto begins_before = [](const Extent& a, const Extent& b) {
    return std::less<>()(a.begin, b.begin);
  };
  std::sort(extents.begin(), extents.end(), begins_before);
  // Output and input that extend furthest among all buffers with a lower begin.
  std::optional<Extent> furthest_output;
  std::optional<Extent> furthest_input;
  for (const Extent& extent : extents) {
    const bool is_in_place = extent.is_own;
    const auto check = [&](const std::optional<Extent>& other) {
      if (!other || !overlap(extent, *other)) {
        return;
      }
      const bool is_same = extent.begin == other->begin && extent.end == other->end &&
                           is_in_place && other->is_own && extent.is_output != other->is_output;
      if (!is_same) {
        throw invalid(fmt::format("{} and {} overlap; give each memory of its own",
                                  other->name.text(),
                                  extent.name.text()));
      }
    };
    check(furthest_output);
    if (extent.is_output) {
      check(furthest_input);
    }
    std::optional<Extent>& furthest = extent.is_output ? furthest_output : furthest_input;
    if (!furthest || std::less<>()(furthest->end, extent.end)) {
      furthest = extent;
    }
  }
}

std::chrono::milliseconds Arguments::timeout(
    std::optional<std::chrono::milliseconds> timeout) const {
  if (timeout && *timeout <= std::chrono::milliseconds::zero()) {
    throw invalid(fmt::format("the timeout is {} ms", timeout->count()));
  }
  return timeout.value_or(state_.timeout());
}

namespace {

// Returns a hash with the low bit set, so that it is never 0.
template <class Values>
std::uint64_t hash_of(const Values& values) {
  std::uint64_t hash = kFnvStart;
  for (const auto value : values) {
    hash = fnv_step(hash, static_cast<std::uint64_t>(value));
  }
  return hash | 1U;
}

// A descriptor has room for 32 bits of a fingerprint.
std::uint32_t upper_half(std::uint64_t hash) {
  return static_cast<std::uint32_t>(hash >> 32U);
}

std::int64_t total_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Returns the hint that describe() shows: the first of several sizes, clamped to the range of the
// hint.
std::uint32_t hint_of(std::span<const std::int64_t> counts) {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::min(counts.front(), kMost - 1) + 1);
}

}  // namespace

BlockSizes sizes_of(std::span<const std::int64_t> counts) {
  const bool is_even = std::all_of(
      counts.begin(), counts.end(), [&](std::int64_t count) { return count == counts.front(); });
  BlockSizes sizes{.total = total_of(counts)};
  if (!is_even) {
    sizes.detail = {.fingerprint = upper_half(hash_of(counts)), .hint = hint_of(counts)};
  }
  return sizes;
}

BlockSizes sizes_of(std::span<const Buffer> blocks) {
  const std::int64_t count = blocks.front().count;
  const bool is_even = std::all_of(
      blocks.begin(), blocks.end(), [&](const Buffer& block) { return block.count == count; });
  if (is_even) {
    return {.total = count * static_cast<std::int64_t>(blocks.size())};
  }
  return sizes_of(transport::counts_of(blocks));
}

BlockSizes sizes_of_coalesced(std::span<const Buffer> buffers) {
  const std::vector<std::int64_t> counts = transport::counts_of(buffers);
  return {.total = total_of(counts),
          .detail = {.fingerprint = upper_half(hash_of(counts)),
                     .hint = static_cast<std::uint32_t>(counts.size())}};
}

std::uint64_t fingerprint_of(const ReduceOp& op) {
  switch (op.kind) {
    case ReduceKind::kPremulSum:
      return std::bit_cast<std::uint64_t>(op.factor);
    case ReduceKind::kUser:
      return op.user == nullptr ? 0 : hash_of(op.user->name);
    default:
      return 0;
  }
}

void set_reduction(engine::Operation& operation, const ReduceOp& op, Algorithm algorithm) {
  transport::Descriptor& descriptor = operation.descriptor;
  descriptor.reduce = op.kind;
  descriptor.algorithm = algorithm;
  operation.factor = op.factor;
  operation.user = op.user;
  const std::uint64_t fingerprint = fingerprint_of(op);
  if (!transport::has_blocks(descriptor.kind)) {
    descriptor.detail = fingerprint;
  } else if (fingerprint != 0) {
    auto detail = transport::BlockDetail::unpack(descriptor.detail);
    detail.fingerprint ^=
        upper_half(hash_of(std::array{fingerprint & 0xFFFFFFFF, fingerprint >> 32U}));
    descriptor.detail = detail.pack();
  }
}

}  // namespace unisono::comm
