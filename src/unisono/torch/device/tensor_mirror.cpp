#include "unisono/torch/device/tensor_mirror.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include "unisono/base/error.h"
#include "unisono/torch/device/device_stream.h"

namespace unisono {
namespace {

// Calls `action`; errors of LibTorch become an Error(kSystem) that begins with `step`.
template <class Action>
auto on_device(const char* step, const Action& action) {
  try {
    return action();
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kSystem,
                std::string(step) + " failed: " + error.what_without_backtrace());
  }
}

at::Tensor allocate_host(const at::Tensor& like) {
  try {
    return at::empty(like.sizes(),
                     like.options().device(at::kCPU).requires_grad(false).pinned_memory(true));
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kSystem,
                "an operation on a tensor of " + like.device().str() + " needs " +
                    std::to_string(like.nbytes()) +
                    " bytes of page-locked host memory, which can't be had; smaller tensors (for "
                    "DistributedDataParallel, a smaller bucket_cap_mb) need less: " +
                    error.what_without_backtrace());
  }
}

/// Mirror of a tensor on a device, for one operation.
class TensorMirror final : public DeviceMirror {
 public:
  TensorMirror(const at::Tensor& tensor, TensorAccess access)
      : tensor_(tensor.detach()),
        access_(access),
        to_device_(tensor.device(), DeviceStream::Direction::kToDevice),
        host_(allocate_host(tensor)),
        ready_(on_device("recording an event", [&] { return record_current(tensor.device()); })) {
    if (access_ != TensorAccess::kWrite) {
      on_device("copying a tensor to the host", [this] { begin_fetch(); });
    }
  }

  [[nodiscard]] void* data() const { return host_.mutable_data_ptr(); }

  void fetch(Deadline deadline) override {
    if (fetched_) {
      await_event(*fetched_, deadline);
    }
  }

  void write_back() override {
    if (access_ == TensorAccess::kRead) {
      return;
    }
    on_device("copying a tensor to the device", [this] {
      to_device_.follow(ready_);
      copy(tensor_, host_, to_device_);
      written_.emplace(to_device_.record());
    });
  }

  void follow() override {
    if (written_) {
      on_device("waiting on a stream", [this] { make_current_wait(tensor_.device(), *written_); });
    }
  }

  void synchronize(Deadline deadline) override {
    if (written_) {
      await_event(*written_, deadline);
    }
  }

 private:
  void begin_fetch() {
    const DeviceStream to_host(tensor_.device(), DeviceStream::Direction::kToHost);
    to_host.follow(ready_);
    copy(host_, tensor_, to_host);
    fetched_.emplace(to_host.record());
  }

  // Copies below autograd: the caller has counted the change of the tensor's version, and gradients
  // do not flow through an operation.
  void copy(const at::Tensor& to, const at::Tensor& from, const DeviceStream& stream) const {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::StreamGuard on_stream(stream.get());
    to.copy_(from, /*non_blocking=*/true);
    stream.keep(tensor_);
  }

  const at::Tensor tensor_;
  const TensorAccess access_;
  const DeviceStream to_device_;
  const at::Tensor host_;
  const c10::Event ready_;  // The program's work on the tensor before the operation is complete.
  std::optional<c10::Event> fetched_;
  std::optional<c10::Event> written_;
};

}  // namespace

Buffer mirror_tensor(const at::Tensor& tensor, DType dtype, TensorAccess access) {
  const auto mirror = std::make_shared<TensorMirror>(tensor, access);
  return {.data = mirror->data(),
          .count = tensor.numel(),
          .dtype = dtype,
          .owner = mirror,
          .mirror = mirror};
}

}  // namespace unisono
