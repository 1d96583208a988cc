#include "unisono/torch/parallel/pipeline/transfers.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/pipeline/message.h"
#include "unisono/torch/parallel/pipeline/inbox.h"
#include "unisono/torch/parallel/pipeline/with_label.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

// Those below are left to whoever else sends messages in the group.
constexpr int kFirstTag = 1 << 30;

int tag_of(const MessageLabel& label) {
  return kFirstTag + static_cast<int>(label.place);
}

using Bytes = std::vector<std::byte>;

Buffer buffer_of(const std::shared_ptr<Bytes>& bytes, std::size_t begin, std::size_t end) {
  return {.data = bytes->data() + begin,
          .count = static_cast<std::int64_t>(end - begin),
          .dtype = DType::kUInt8,
          .owner = bytes};
}

// A message on its way in: the first part of its description, the rest of it, its tensors. Each
// step is begun by the thread that has completed the one before, so none waits for the rank's
// computation.
class Receive : public std::enable_shared_from_this<Receive> {
 public:
  Receive(ProcessGroup& group,
          std::shared_ptr<Inbox> inbox,
          int from,
          MessageLabel label,
          std::optional<std::chrono::milliseconds> timeout)
      : group_(group),
        inbox_(std::move(inbox)),
        from_(from),
        label_(std::move(label)),
        timeout_(timeout),
        description_(std::make_shared<Bytes>(pipeline::kFirstPart)),
        debug_info_(c10::ThreadLocalDebugInfo::current()) {}

  void begin() {
    begin_part(buffer_of(description_, 0, description_->size()), &Receive::read_first_part);
  }

 private:
  using Next = void (Receive::*)();

  // `next` follows, on whatever thread; what it throws ends up in the inbox.
  void begin_part(const Buffer& buffer, Next next) {
    const Work work = with_label("recv", label_.text, [&] {
      return group_.recv_async(
          buffer, from_, {.tag = tag_of(label_), .timeout = timeout_, .label = label_.text});
    });
    inbox_->expect(label_.place, work);
    work.on_completion([self = shared_from_this(), next](const std::exception_ptr& error) {
      if (error != nullptr) {
        self->inbox_->fail(labelled_error("recv", self->label_.text, error));
        return;
      }
      try {
        (self.get()->*next)();
      } catch (const std::exception&) {
        self->inbox_->fail(std::current_exception());
      }
    });
  }

  void read_first_part() {
    const std::optional<std::size_t> size = pipeline::description_size(*description_);
    if (!size) {
      reject();
    }
    if (*size == description_->size()) {
      read_description();
      return;
    }
    const std::size_t n_read = description_->size();
    description_->resize(*size);
    begin_part(buffer_of(description_, n_read, *size), &Receive::read_description);
  }

  void read_description() {
    const auto info = pipeline::decode(*description_);
    if (!info) {
      reject();
    }
    delivery_.has_chunk = info->has_chunk;
    // Whichever thread this is, the memory counts as that of who receives, and frees it.
    const c10::DebugInfoGuard of_receiver(debug_info_);
    for (const pipeline::SentTensor& tensor : info->tensors) {
      delivery_.needs_gradient.push_back(tensor.needs_gradient);
      delivery_.tensors.push_back(
          tensor.is_defined ? at::empty(tensor.sizes, scalar_type_of(tensor.dtype)) : at::Tensor());
    }
    // One more, so that the last of them isn't taken for the end while others are to begin.
    n_left_ = 1;
    for (const at::Tensor& tensor : delivery_.tensors) {
      if (tensor.defined() && tensor.numel() > 0) {
        ++n_left_;
        begin_part(as_buffer(tensor), &Receive::count_down);
      }
    }
    count_down();
  }

  void count_down() {
    // Pairs with itself: who gets to zero sees all that the others have received.
    if (n_left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      inbox_->put(label_.place, std::move(delivery_));
    }
  }

  [[noreturn]] void reject() const {
    throw Error(ErrorCode::kCorruptData,
                "Pipeline: " + label_.text + " from rank " + std::to_string(from_) +
                    " is no message of a pipeline; nobody else may use tags from 2^30 on in "
                    "its group");
  }

  ProcessGroup& group_;
  std::shared_ptr<Inbox> inbox_;
  int from_;
  MessageLabel label_;
  std::optional<std::chrono::milliseconds> timeout_;
  std::shared_ptr<Bytes> description_;
  std::shared_ptr<c10::ThreadLocalDebugInfo> debug_info_;
  Delivery delivery_;
  std::atomic<int> n_left_{0};
};

pipeline::MessageInfo info_of(const Delivery& delivery) {
  pipeline::MessageInfo info{.has_chunk = delivery.has_chunk};
  for (std::size_t i = 0; i < delivery.tensors.size(); ++i) {
    const at::Tensor& tensor = delivery.tensors[i];
    if (tensor.defined()) {
      info.tensors.push_back({.needs_gradient = delivery.needs_gradient[i],
                              .dtype = dtype_of(tensor.scalar_type()),
                              .sizes = tensor.sizes().vec()});
    } else {
      info.tensors.push_back({.is_defined = false});
    }
  }
  return info;
}

}  // namespace

void Transfers::receive(int from, const MessageLabel& label) {
  std::make_shared<Receive>(*group_, inbox_, from, label, timeout_)->begin();
}

void Transfers::send(int to, const MessageLabel& label, const Delivery& delivery) {
  const SendOptions options{.tag = tag_of(label), .timeout = timeout_, .label = label.text};
  const auto description = std::make_shared<Bytes>(encode(info_of(delivery)));
  const auto begin = [&](const Buffer& part, std::shared_ptr<at::Tensor> tensor) {
    const Work work =
        with_label("send", label.text, [&] { return group_->send_async(part, to, options); });
    sends_.push_back({.text = label.text, .work = work, .tensor = std::move(tensor)});
    work.on_completion([inbox = inbox_, text = label.text](const std::exception_ptr& error) {
      if (error != nullptr) {
        inbox->fail(labelled_error("send", text, error));
      }
    });
  };
  begin(buffer_of(description, 0, pipeline::kFirstPart), nullptr);
  if (description->size() > pipeline::kFirstPart) {
    begin(buffer_of(description, pipeline::kFirstPart, description->size()), nullptr);
  }
  for (const at::Tensor& tensor : delivery.tensors) {
    if (tensor.defined() && tensor.numel() > 0) {
      const auto held =
          std::make_shared<at::Tensor>(tensor.resolve_conj().resolve_neg().contiguous());
      Buffer part = as_buffer(*held);
      part.owner = held;
      begin(part, held);
    }
  }
}

Delivery Transfers::await(std::size_t place) {
  while (!inbox_->has(place)) {
    inbox_->wait(std::span(&place, 1));
  }
  return inbox_->take(place);
}

// Who has completed the send may hold it for a moment longer, but no longer the tensor.
void Transfers::let_go_of_first() {
  if (sends_.front().tensor != nullptr) {
    sends_.front().tensor->reset();
  }
  sends_.pop_front();
}

void Transfers::let_go_of_sent() {
  while (!sends_.empty() && sends_.front().work.is_completed()) {
    let_go_of_first();
  }
}

void Transfers::finish() {
  while (!sends_.empty()) {
    const Send& sent = sends_.front();
    with_label("send", sent.text, [&] { sent.work.wait(); });
    let_go_of_first();
  }
}

}  // namespace unisono::parallel
