#include "unisono/torch/parallel/pipeline/transfers.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "unisono/base/buffer.h"
#include "unisono/base/thread.h"
#include "unisono/comm/options.h"
#include "unisono/pipeline/message.h"
#include "unisono/torch/device/host_copies.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {

std::vector<Route> routes_of(int n_stages, const std::vector<SkipConnection>& skips) {
  std::vector<Route> routes;
  for (int stage = 0; stage + 1 < n_stages; ++stage) {
    routes.push_back({.from = stage, .to = stage + 1});
  }
  for (const SkipConnection& skip : skips) {
    if (skip.from < 0 || skip.to <= skip.from || skip.to >= n_stages || skip.output < 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "Pipeline: a skip connection from output " + std::to_string(skip.output) +
                      " of stage " + std::to_string(skip.from) + " to stage " +
                      std::to_string(skip.to) + "; it has to go forward, within stages 0 to " +
                      std::to_string(n_stages - 1));
    }
    const bool is_second = std::ranges::any_of(routes, [&](const Route& other) {
      return other.from == skip.from && other.output == skip.output;
    });
    if (is_second) {
      throw Error(ErrorCode::kInvalidArgument,
                  "Pipeline: output " + std::to_string(skip.output) + " of stage " +
                      std::to_string(skip.from) +
                      " has two skip connections; return the tensor once for each");
    }
    routes.push_back({.from = skip.from, .to = skip.to, .output = skip.output});
  }
  return routes;
}

std::vector<int> routes_into(int stage, const std::vector<Route>& routes) {
  std::vector<int> indices;
  for (std::size_t index = 0; index < routes.size(); ++index) {
    if (routes[index].to == stage) {
      indices.push_back(static_cast<int>(index));
    }
  }
  return indices;
}

std::vector<int> routes_out_of(int stage, const std::vector<Route>& routes) {
  std::vector<int> indices;
  for (std::size_t index = 0; index < routes.size(); ++index) {
    if (routes[index].from == stage) {
      indices.push_back(static_cast<int>(index));
    }
  }
  return indices;
}

std::vector<int> outputs_on(const Route& route, const std::vector<Route>& routes, int n_outputs) {
  if (route.output) {
    if (*route.output >= n_outputs) {
      throw Error(ErrorCode::kInvalidArgument,
                  "returned " + std::to_string(n_outputs) + " tensors, but output " +
                      std::to_string(*route.output) + " is to skip to stage " +
                      std::to_string(route.to));
    }
    return {*route.output};
  }
  std::vector<int> outputs;
  for (int output = 0; output < n_outputs; ++output) {
    const bool has_own_route = std::ranges::any_of(routes, [&](const Route& other) {
      return other.from == route.from && other.output == output;
    });
    if (!has_own_route) {
      outputs.push_back(output);
    }
  }
  return outputs;
}

std::exception_ptr labelled_error(const std::string& call,
                                  const std::string& label,
                                  const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    const std::string what = known.what();
    if (what.find(label) == std::string::npos) {
      return std::make_exception_ptr(Error(known.code(), call + " of " + label + ": " + what));
    }
  } catch (const std::exception&) {
    return error;  // The error does not come from a group.
  }
  return error;
}

namespace {

// Shorter waits do not appear in reports and are not marked.
constexpr std::chrono::milliseconds kShort{100};

}  // namespace

void Mailbox::expect(std::size_t slot, const Work& part) {
  const MutexLock lock(mutex_);
  in_flight_[slot].push_back(part);
  if (is_long_) {
    changed_.notify_one();
  }
}

void Mailbox::put(std::size_t slot, StageMessage message) {
  {
    const MutexLock lock(mutex_);
    slots_[slot] = std::move(message);
    in_flight_[slot].clear();
    ++n_arrived_;
  }
  changed_.notify_one();
}

void Mailbox::fail(std::exception_ptr error) {
  {
    const MutexLock lock(mutex_);
    if (error_ == nullptr) {
      error_ = std::move(error);
    }
  }
  changed_.notify_one();
}

bool Mailbox::has(std::size_t slot) {
  const MutexLock lock(mutex_);
  return slots_[slot].has_value();
}

StageMessage Mailbox::take(std::size_t slot) {
  StageMessage message;
  {
    const MutexLock lock(mutex_);
    UNISONO_CHECK(slots_[slot].has_value(), "a message is taken before it has arrived");
    message = std::move(*slots_[slot]);
    slots_[slot].reset();
  }
  for (const Work& received : std::exchange(message.received, {})) {
    received.wait();
  }
  return message;
}

void Mailbox::wait(std::span<const std::size_t> slots) {
  WaitMark mark;
  const Deadline long_from = Deadline::after(kShort);
  while (!sleep(long_from, slots, mark)) {
    check_interruption();
  }
  throw_if_failed();
}

// Returns true if a message or an error has arrived, and false if an interruption check is due.
bool Mailbox::sleep(Deadline long_from, std::span<const std::size_t> slots, WaitMark& mark) {
  const Deadline next_look = next_interruption_check();
  const MutexLock lock(mutex_);
  while (n_arrived_ == n_seen_ && error_ == nullptr && !next_look.has_passed()) {
    is_long_ = long_from.has_passed();
    if (is_long_) {
      for (const std::size_t slot : slots) {
        std::ranges::for_each(in_flight_[slot], [&](const Work& part) { mark.add(part); });
      }
    }
    const Deadline next = is_long_ ? next_look : earlier(next_look, long_from);
    if (next.is_never()) {
      changed_.wait(mutex_);
    } else {
      (void)changed_.wait_until(mutex_, next.time());
    }
  }
  is_long_ = false;
  const bool has_arrived = n_arrived_ != n_seen_ || error_ != nullptr;
  n_seen_ = n_arrived_;
  return has_arrived;
}

void Mailbox::throw_if_failed() {
  std::exception_ptr error;
  {
    const MutexLock lock(mutex_);
    error = error_;
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
}

namespace {
// Lower tags remain free for other messages in the group.
constexpr int kFirstTag = 1 << 30;

int tag_of(const MessageLabel& label) {
  return kFirstTag + static_cast<int>(label.slot);
}

using Bytes = std::vector<std::byte>;

Buffer buffer_of(const std::shared_ptr<Bytes>& bytes, std::size_t begin, std::size_t end) {
  return {.data = bytes->data() + begin,
          .count = static_cast<std::int64_t>(end - begin),
          .dtype = DType::kUInt8,
          .owner = bytes};
}

// Receives a message in order: the first part of the description, the rest of the description, the
// tensors. The thread that completes a receive posts the next, so no receive waits for the rank's
// computation. Kept alive by the callbacks of the operations.
class Receive : public std::enable_shared_from_this<Receive> {
 public:
  Receive(ProcessGroup& group,
          std::shared_ptr<Mailbox> mailbox,
          int from,
          MessageLabel label,
          std::optional<std::chrono::milliseconds> timeout,
          at::Device device)
      : group_(group),
        mailbox_(std::move(mailbox)),
        from_(from),
        label_(std::move(label)),
        timeout_(timeout),
        device_(device),
        stream_(device.is_cpu() ? std::nullopt : std::optional(current_stream(device))),
        description_(std::make_shared<Bytes>(pipeline::kFirstPart)),
        debug_info_(c10::ThreadLocalDebugInfo::current()) {}

  void begin() {
    begin_part(buffer_of(description_, 0, description_->size()), &Receive::read_first_part);
  }

 private:
  using Next = void (Receive::*)();

  // Calls `next` on the thread that completes the receive. An exception of `next` is stored in the
  // mailbox.
  void begin_part(const Buffer& buffer, Next next) {
    begin_work([&] { return group_.recv_async(buffer, from_, options()); }, next);
  }

  void begin_tensor(const at::Tensor& tensor, Next next) {
    if (tensor.is_cpu()) {
      begin_part(as_buffer(tensor), next);
      return;
    }
    begin_work(
        [&] {
          message_.received.push_back(recv_async(group_, tensor, from_, options()));
          return message_.received.back();
        },
        next);
  }

  [[nodiscard]] RecvOptions options() const {
    return {.tag = tag_of(label_), .timeout = timeout_, .label = label_.text};
  }

  template <class Start>
  void begin_work(const Start& start, Next next) {
    const Work work = with_label("recv", label_.text, start);
    mailbox_->expect(label_.slot, work);
    work.on_completion([self = shared_from_this(), next](const std::exception_ptr& error) {
      if (error != nullptr) {
        self->mailbox_->fail(labelled_error("recv", self->label_.text, error));
        return;
      }
      try {
        (self.get()->*next)();
      } catch (const std::exception&) {
        self->mailbox_->fail(std::current_exception());
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
    message_.has_chunk = info->has_chunk;
    // Attributes the allocations on this thread to the receiver, which frees the memory.
    const c10::DebugInfoGuard of_receiver(debug_info_);
    const c10::OptionalStreamGuard on_stream(stream_);
    for (const pipeline::SentTensor& tensor : info->tensors) {
      message_.needs_gradient.push_back(tensor.needs_gradient);
      message_.tensors.push_back(
          tensor.is_defined
              ? at::empty(tensor.sizes,
                          at::TensorOptions(scalar_type_of(tensor.dtype)).device(device_))
              : at::Tensor());
    }
    // The extra count keeps the message incomplete until all its receives have started.
    n_left_ = 1;
    for (const at::Tensor& tensor : message_.tensors) {
      if (tensor.defined() && tensor.numel() > 0) {
        ++n_left_;
        begin_tensor(tensor, &Receive::count_down);
      }
    }
    count_down();
  }

  void count_down() {
    // The decrements form an acquire-release chain: the thread that reaches zero sees all received
    // data.
    if (n_left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      mailbox_->put(label_.slot, std::move(message_));
    }
  }

  [[noreturn]] void reject() const {
    throw Error(ErrorCode::kCorruptData,
                "Pipeline: " + label_.text + " from rank " + std::to_string(from_) +
                    " is not a message of a pipeline; tags from 2^30 on are reserved for the "
                    "pipeline in its group");
  }

  ProcessGroup& group_;
  std::shared_ptr<Mailbox> mailbox_;
  int from_;
  MessageLabel label_;
  std::optional<std::chrono::milliseconds> timeout_;
  at::Device device_;
  std::optional<c10::Stream> stream_;  // Of the thread that takes the message, on the device.
  std::shared_ptr<Bytes> description_;
  std::shared_ptr<c10::ThreadLocalDebugInfo> debug_info_;
  StageMessage message_;
  std::atomic<int> n_left_{0};
};

pipeline::MessageInfo info_of(const StageMessage& message) {
  pipeline::MessageInfo info{.has_chunk = message.has_chunk};
  for (std::size_t i = 0; i < message.tensors.size(); ++i) {
    const at::Tensor& tensor = message.tensors[i];
    if (tensor.defined()) {
      info.tensors.push_back({.needs_gradient = message.needs_gradient[i],
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
  std::make_shared<Receive>(*group_, mailbox_, from, label, timeout_, device_)->begin();
}

void Transfers::send(int to, const MessageLabel& label, const StageMessage& message) {
  const SendOptions options{.tag = tag_of(label), .timeout = timeout_, .label = label.text};
  const auto description = std::make_shared<Bytes>(encode(info_of(message)));
  const auto begin = [&](const Buffer& part, std::shared_ptr<at::Tensor> tensor) {
    const Work work = with_label("send", label.text, [&] {
      return tensor == nullptr || tensor->is_cpu() ? group_->send_async(part, to, options)
                                                   : send_async(*group_, *tensor, to, options);
    });
    sends_.push_back({.text = label.text, .work = work, .tensor = std::move(tensor)});
    work.on_completion([mailbox = mailbox_, text = label.text](const std::exception_ptr& error) {
      if (error != nullptr) {
        mailbox->fail(labelled_error("send", text, error));
      }
    });
  };
  begin(buffer_of(description, 0, pipeline::kFirstPart), nullptr);
  if (description->size() > pipeline::kFirstPart) {
    begin(buffer_of(description, pipeline::kFirstPart, description->size()), nullptr);
  }
  for (const at::Tensor& tensor : message.tensors) {
    if (tensor.defined() && tensor.numel() > 0) {
      const auto held =
          std::make_shared<at::Tensor>(tensor.resolve_conj().resolve_neg().contiguous());
      Buffer part;
      if (held->is_cpu()) {
        part = as_buffer(*held);
        part.owner = held;
      }
      begin(part, held);
    }
  }
}

StageMessage Transfers::await(std::size_t slot) {
  while (!mailbox_->has(slot)) {
    mailbox_->wait(std::span(&slot, 1));
  }
  return mailbox_->take(slot);
}

// The completing thread may still hold the Work for a moment, so the tensor is freed explicitly.
void Transfers::release_first() {
  if (sends_.front().tensor != nullptr) {
    sends_.front().tensor->reset();
  }
  sends_.pop_front();
}

void Transfers::release_sent() {
  while (!sends_.empty() && sends_.front().work.is_completed()) {
    release_first();
  }
}

void Transfers::finish() {
  while (!sends_.empty()) {
    const Send& sent = sends_.front();
    with_label("send", sent.text, [&] { sent.work.wait(); });
    release_first();
  }
}

}  // namespace unisono::parallel
