#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <ATen/Functions.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/checkpoint/latest.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/device/host_copies.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {
namespace {

using checkpoint::Box;
using checkpoint::ElementType;
using checkpoint::TensorInfo;

// Torch's types that a group's operations cannot compute with, and their names in files.
constexpr std::array<std::pair<at::ScalarType, std::string_view>, 6> kStoredTypes{{
    {at::ScalarType::Float8_e4m3fn, "F8_E4M3"},
    {at::ScalarType::Float8_e5m2, "F8_E5M2"},
    {at::ScalarType::Float8_e4m3fnuz, "F8_E4M3FNUZ"},
    {at::ScalarType::Float8_e5m2fnuz, "F8_E5M2FNUZ"},
    {at::ScalarType::Float8_e8m0fnu, "F8_E8M0"},
    {at::ScalarType::Float4_e2m1fn_x2, "F4"},
}};

// An element of this torch type holds two elements of the file, which are adjacent along the last
// axis.
constexpr at::ScalarType kPairType = at::ScalarType::Float4_e2m1fn_x2;

std::optional<ElementType> stored_type_of(at::ScalarType scalar) {
  const auto row =
      std::ranges::find(kStoredTypes, scalar, &std::pair<at::ScalarType, std::string_view>::first);
  return row == kStoredTypes.end() ? std::nullopt : ElementType::named(row->second);
}

TensorInfo info_of(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || !has_elements(tensor.device())) {
    throw Error(ErrorCode::kInvalidArgument,
                "checkpoint: tensor \"" + name +
                    "\" must be dense and have elements; pass tensor.to_dense(), or a tensor on "
                    "another device than \"meta\"");
  }
  TensorInfo info{.name = name, .dtype = {}, .shape = tensor.sizes().vec()};
  if (const std::optional<ElementType> type = stored_type_of(tensor.scalar_type())) {
    info.dtype = *type;
    if (tensor.scalar_type() == kPairType) {
      if (info.shape.empty()) {
        throw Error(ErrorCode::kInvalidArgument,
                    "checkpoint: tensor \"" + name +
                        "\" has no axis for its pair of elements; pass tensor.reshape({1})");
      }
      info.shape.back() *= 2;
    }
    return info;
  }
  try {
    info.dtype = dtype_of(tensor.scalar_type());
    return info;
  } catch (const Error& error) {
    throw Error(error.code(), "checkpoint: tensor \"" + name + "\": " + error.what());
  }
}

// Returns the tensor as contiguous rows, as stored in files, on its device. Types that exist only
// in files are copied as bytes.
at::Tensor packed(const at::Tensor& tensor) {
  if (stored_type_of(tensor.scalar_type())) {
    return tensor.detach().view(at::kByte).contiguous();
  }
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

at::Tensor empty_tensor(const TensorInfo& info, std::vector<std::int64_t> shape) {
  if (const std::optional<DType> dtype = info.dtype.dtype()) {
    return at::empty(shape, at::TensorOptions(scalar_type_of(*dtype)));
  }
  const auto row = std::ranges::find(
      kStoredTypes, info.dtype.name(), &std::pair<at::ScalarType, std::string_view>::second);
  if (row == kStoredTypes.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                "checkpoint: tensor \"" + info.name + "\" is of type " + to_string(info.dtype) +
                    ", which torch lacks; read its bytes by checkpoint::Reader::read(), or leave "
                    "it out by `unisono checkpoint export` with --prefix");
  }
  if (row->first == kPairType) {
    if (shape.empty() || shape.back() % 2 != 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "checkpoint: tensor \"" + info.name +
                      "\": " + checkpoint::describe(info.dtype, shape) +
                      " does not have pairs of elements, as torch has them");
    }
    shape.back() /= 2;
  }
  return at::empty(shape, at::TensorOptions(row->first));
}

const at::Tensor& single(const TensorState& state, const std::string& name, at::ScalarType type) {
  const auto found = state.find(name);
  if (found == state.end() || found->second.dim() != 0 || found->second.scalar_type() != type) {
    throw Error(ErrorCode::kInvalidArgument,
                "checkpoint: \"" + name + "\" " +
                    (found == state.end() ? "is not there"
                                          : "is " + describe(found->second) + ", no single " +
                                                to_string(dtype_of(type))));
  }
  return found->second;
}

StateParts parts_of_rank(const TensorState& common,
                         const TensorState& own,
                         int rank,
                         int world_size) {
  StateParts state;
  for (const auto& [name, tensor] : common) {
    state.common.push_back(info_of(name, tensor));
  }
  const std::vector<std::optional<Box>> boxes =
      checkpoint::divide_evenly(state.common, rank, world_size);
  HostCopies copies;
  const auto add = [&](const TensorInfo& info, const at::Tensor& tensor, const Box& box) {
    const bool is_cut = box.sizes != info.shape && tensor.size(0) == info.shape[0];
    at::Tensor rows =
        copies.add(packed(is_cut ? tensor.narrow(0, box.offsets[0], box.sizes[0]) : tensor));
    std::span<std::byte> bytes = bytes_of(rows);
    if (box.sizes != info.shape && !is_cut) {
      const std::size_t row_bytes = bytes.size() / static_cast<std::size_t>(info.shape[0]);
      bytes = bytes.subspan(static_cast<std::size_t>(box.offsets[0]) * row_bytes,
                            static_cast<std::size_t>(box.sizes[0]) * row_bytes);
    }
    state.parts.push_back({.tensor = info, .box = box, .bytes = bytes});
    if (!tensor.is_cpu()) {
      state.parts.back().snapshot = std::make_shared<at::Tensor>(rows);
    }
    state.tensors.push_back(std::move(rows));
  };
  std::size_t index = 0;
  for (const auto& [name, tensor] : common) {
    if (const std::optional<Box>& box = boxes[index]) {
      add(state.common[index], tensor, *box);
    }
    ++index;
  }
  for (const auto& [name, tensor] : own) {
    const TensorInfo info = info_of(name, tensor);
    add(info, tensor, checkpoint::whole_box(info.shape));
  }
  copies.wait();
  return state;
}

}  // namespace

void add_state(TensorState& into, const std::string& prefix, const TensorState& from) {
  for (const auto& [name, tensor] : from) {
    if (!into.emplace(prefix + name, tensor).second) {
      throw Error(ErrorCode::kInvalidArgument,
                  "checkpoint: two tensors have the name \"" + prefix + name + "\"");
    }
  }
}

TensorState state_below(const TensorState& state, const std::string& prefix) {
  TensorState below;
  for (auto found = state.lower_bound(prefix);
       found != state.end() && found->first.starts_with(prefix);
       ++found) {
    below.emplace(found->first.substr(prefix.size()), found->second);
  }
  return below;
}

bool is_bit_equal(const at::Tensor& one, const at::Tensor& other) {
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.contiguous().flatten().view(at::kByte);
  };
  return at::equal(bytes(one), bytes(other.to(one.device())));
}

at::Tensor number_tensor(std::int64_t number) {
  return at::full({}, number, at::TensorOptions(at::kLong));
}

at::Tensor number_tensor(double number) {
  return at::full({}, number, at::TensorOptions(at::kDouble));
}

std::int64_t integer_in(const TensorState& state, const std::string& name) {
  return single(state, name, at::kLong).item<std::int64_t>();
}

double real_in(const TensorState& state, const std::string& name) {
  return single(state, name, at::kDouble).item<double>();
}

void save_state(const std::string& path, const TensorState& state) {
  std::vector<at::Tensor> kept;
  std::vector<checkpoint::TensorBytes> tensors;
  HostCopies copies;
  for (const auto& [name, tensor] : state) {
    const TensorInfo info = info_of(name, tensor);
    kept.push_back(copies.add(packed(tensor)));
    tensors.push_back({.info = info, .bytes = bytes_of(kept.back())});
  }
  copies.wait();
  checkpoint::write_safetensors(path, tensors, {{"format", "pt"}});
}

TensorState load_state(const std::string& path) {
  checkpoint::Reader reader(checkpoint::resolve(path));
  return load_state(reader);
}

TensorState load_state(checkpoint::Reader& reader) {
  TensorState state;
  for (const auto& [name, tensor] : reader.tensors()) {
    state.emplace(name, read_part(reader, name, checkpoint::whole_box(tensor.info.shape)));
  }
  return state;
}

TensorState load_state(ProcessGroup& group, const std::string& path) {
  // Rank 0 resolves the path for all ranks: another checkpoint may become the latest in the
  // meantime.
  const std::string found = checkpoint::resolve(group, path);
  TensorState state;
  (void)checkpoint::do_on_all(group, std::nullopt, [&] {
    checkpoint::Reader reader(found);
    state = load_state(reader);
    return std::string();
  });
  return state;
}

at::Tensor read_part(checkpoint::Reader& reader, const std::string& name, const Box& box) {
  const auto found = reader.tensors().find(name);
  // The reader throws the error before memory is allocated.
  if (found == reader.tensors().end() || !checkpoint::is_within(box, found->second.info.shape)) {
    reader.read(name, box, {});
  }
  at::Tensor tensor = empty_tensor(found->second.info, box.sizes);
  reader.read(name, box, bytes_of(tensor));
  return tensor;
}

StateParts parts_to_save(ProcessGroup& group, const TensorState& common, const TensorState& own) {
  StateParts state;
  (void)checkpoint::do_on_all(group, std::nullopt, [&] {
    state = parts_of_rank(common, own, group.rank(), group.world_size());
    return std::string();
  });
  return state;
}

}  // namespace unisono
