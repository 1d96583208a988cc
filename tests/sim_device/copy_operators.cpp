#include <array>
#include <cstring>
#include <utility>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <torch/library.h>

#include "sim_device/machine.h"
#include "sim_device/place.h"
#include "sim_device/torch_device.h"

namespace sim {
namespace {

constexpr const char* kCopy = "aten::copy_";

void count(std::atomic<std::uint64_t>& counter) {
  counter.fetch_add(1, std::memory_order_relaxed);
}

// A task that copies between places.
auto copy_task(Place from, Place to) {
  return [from = std::move(from), to = std::move(to)] {
    const BelowAutograd below;
    to.open().copy_(from.open());
  };
}

// The allocator keeps pinned memory until the stream has passed this point.
void keep_for(const Stream& stream, const at::Tensor& pinned) {
  machine().blocks.record_stream(pinned.const_data_ptr(), {stream.device(), stream.id()});
}

// As CUDA: both current streams are ordered before and after the copy.
void copy_on_devices(const at::Tensor& from, const at::Tensor& to) {
  count(machine().n_device_to_device);
  Stream& source = current_stream(from.device());
  Stream& target = current_stream(to.device());
  if (&source != &target) {
    source.wait(target.record());
  }
  source.launch(copy_task(place_of(from), place_of(to)),
                std::array{read_of(from, kCopy), write_of(to, kCopy)});
  if (&source != &target) {
    target.wait(source.record());
  }
}

void copy_to_device(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  count(machine().n_host_to_device);
  Stream& stream = current_stream(to.device());
  if (non_blocking && machine().blocks.is_pinned(from.const_data_ptr())) {
    // The stream reads the pinned memory late.
    stream.launch(copy_task(host_place_of(from), place_of(to)),
                  std::array{read_of(from, kCopy), write_of(to, kCopy)});
    keep_for(stream, from);
    return;
  }
  // Pageable memory is staged at the call, as by CUDA.
  stream.launch(
      [staged = from.clone(), place = place_of(to)] {
        const BelowAutograd below;
        place.open().copy_(staged);
      },
      std::array{write_of(to, kCopy)});
  if (!non_blocking) {
    wait_for(stream);
  }
}

// Shows a read of the host that comes too early.
void poison_target(const at::Tensor& to) {
  if (machine().context.options.poison && to.is_contiguous() &&
      machine().context.checker.host_has_waited(to.const_data_ptr())) {
    std::memset(to.data_ptr(), 0xff, to.nbytes());
  }
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  count(machine().n_device_to_host);
  Stream& stream = current_stream(from.device());
  if (!non_blocking) {
    stream.launch(copy_task(place_of(from), host_place_of(to)), std::array{read_of(from, kCopy)});
    wait_for(stream);
    return;
  }
  if (machine().blocks.is_pinned(to.const_data_ptr())) {
    poison_target(to);
    stream.launch(copy_task(place_of(from), host_place_of(to)),
                  std::array{read_of(from, kCopy), write_of(to, kCopy)});
    keep_for(stream, to);
    return;
  }
  // Stricter than CUDA, which returns from a copy to pageable memory when it is done. The task
  // keeps the memory.
  stream.launch(
      [place = place_of(from), to] {
        const BelowAutograd below;
        to.copy_(place.open());
      },
      std::array{read_of(from, kCopy)});
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  machine().context.errors.rethrow();
  if (target.numel() == 0) {
    return target;
  }
  const BelowAutograd below;
  const at::Tensor from = source.sizes() == target.sizes() ? source : source.expand(target.sizes());
  if (from.is_cpu()) {
    copy_to_device(from, target, non_blocking);
  } else if (target.is_cpu()) {
    copy_to_host(from, target, non_blocking);
  } else {
    copy_on_devices(from, target);
  }
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  target.resize_(source.sizes());
  return copy_from(source, target, false);
}

at::Scalar read_scalar(const at::Tensor& self) {
  count(machine().n_device_to_host);
  Stream& stream = current_stream(self.device());
  at::Scalar result;
  stream.launch(
      [&result, place = place_of(self)] {
        const BelowAutograd below;
        result = place.open().item();
      },
      std::array{read_of(self, "aten::item")});
  wait_for(stream);
  return result;
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  machine().blocks.record_stream(self.storage().data(), {stream.device_index(), stream.id()});
}

}  // namespace

void add_copy_operators(torch::Library& aten, torch::Library& conjugate, torch::Library& negative) {
  aten.impl("_copy_from", copy_from);
  aten.impl("_copy_from_and_resize", copy_from_and_resize);
  aten.impl("_local_scalar_dense", read_scalar);
  aten.impl("record_stream", record_stream);
  // Places carry both bits. Without the fallthrough conj().clone() and copy_() call each other for
  // ever.
  conjugate.impl("_copy_from", torch::CppFunction::makeFallthrough());
  negative.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace sim
