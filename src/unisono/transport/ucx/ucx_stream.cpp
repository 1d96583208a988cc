#include "unisono/transport/ucx/ucx_stream.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/transport/ucx/context.h"

namespace unisono::ucx {
namespace {

constexpr std::size_t kChunkBytes = 256 << 10;

// Limit from the peer's end until all data has arrived.
constexpr std::chrono::seconds kRestTimeout{5};

constexpr std::chrono::seconds kFlushTimeout{1};

constexpr std::chrono::microseconds kBetweenLooks{100};

int error_number_of(ucs_status_t status) {
  return status == UCS_ERR_ENDPOINT_TIMEOUT || status == UCS_ERR_TIMED_OUT ? ETIMEDOUT : ECONNRESET;
}

net::IoResult error(int error_number) {
  return {.status = net::IoStatus::kError, .error_number = error_number};
}

constexpr net::IoResult kLater{.status = net::IoStatus::kWouldBlock};

}  // namespace

UcxStream::UcxStream(Fd socket) : peer_(std::move(socket)) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  check(library().worker_create(context(), &params, &worker_), "a worker");
  try {
    check(library().worker_get_efd(worker_, &event_fd_), "an event descriptor");
    ucp_address_t* address = nullptr;
    std::size_t n_bytes = 0;
    check(library().worker_get_address(worker_, &address, &n_bytes), "an address");
    peer_.set_address({reinterpret_cast<const std::byte*>(address), n_bytes});
    library().worker_release_address(worker_, address);
    ProgressThread::instance().add(*this);
  } catch (...) {
    library().worker_destroy(worker_);
    throw;
  }
}

UcxStream::~UcxStream() {
  end_writing();
  flush(Deadline::after(kFlushTimeout));
  ProgressThread::instance().remove(*this);
  const MutexLock lock(mutex_);
  close_endpoint();
  library().worker_destroy(worker_);
}

// Waits until the peer's UCX has received all data.
void UcxStream::flush(Deadline deadline) noexcept {
  void* flushing = nullptr;
  {
    const MutexLock lock(mutex_);
    if (endpoint_ == nullptr || n_written_ == 0 || error_number_ != 0) {
      return;
    }
    constexpr ucp_request_param_t kParam{};
    flushing = library().ep_flush(endpoint_, &kParam);
  }
  while (true) {
    {
      const MutexLock lock(mutex_);
      (void)library().worker_progress(worker_);
      if ((is_done(flushing) && are_chunks_done()) || error_number_ != 0) {
        break;
      }
    }
    if (deadline.has_passed()) {
      break;
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
  if (flushing != nullptr) {
    library().request_free(flushing);
  }
}

void UcxStream::close_endpoint() noexcept {
  if (endpoint_ == nullptr) {
    return;
  }
  release_data();
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* closing = library().ep_close(endpoint_, &param);
  const Deadline deadline = Deadline::after(kFlushTimeout);
  while (!(is_done(closing) && are_chunks_done()) && !deadline.has_passed()) {
    (void)library().worker_progress(worker_);
  }
}

bool UcxStream::is_done(void*& request) noexcept {
  if (request == nullptr) {
    return true;
  }
  if (UCS_PTR_IS_ERR(request)) {
    error_number_ = error_number_of(UCS_PTR_STATUS(request));
    request = nullptr;
    return true;
  }
  const ucs_status_t status = library().request_status(request);
  if (status == UCS_INPROGRESS) {
    return false;
  }
  library().request_free(request);
  request = nullptr;
  if (status != UCS_OK && error_number_ == 0) {
    error_number_ = error_number_of(status);
  }
  return true;
}

void UcxStream::note_error(void* stream, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  auto* const self = static_cast<UcxStream*>(stream);
  if (self->error_number_ == 0) {
    self->error_number_ = error_number_of(status);
  }
}

std::optional<net::IoResult> UcxStream::advance() noexcept {
  (void)work();
  if (is_plain_) {
    return error(EPROTO);
  }
  if (endpoint_ == nullptr) {
    return error_number_ == 0  ? kLater
           : peer_.has_ended() ? net::IoResult{net::IoStatus::kClosed}
                               : error(error_number_);
  }
  return std::nullopt;
}

bool UcxStream::work() noexcept {
  if (endpoint_ == nullptr) {
    if (is_plain_ || error_number_ != 0) {
      return false;
    }
    try {
      greet();
    } catch (const std::exception&) {
      error_number_ = ENOMEM;
    }
    return endpoint_ != nullptr || is_plain_ || error_number_ != 0;
  }
  bool has_worked = library().worker_progress(worker_) != 0;
  if (peer_.hear_end()) {
    rest_by_ = Deadline::after(kRestTimeout);
    has_worked = true;
  }
  take_rest();
  return has_worked;
}

void UcxStream::greet() {
  const net::IoResult result = peer_.exchange_addresses();
  if (result.status == net::IoStatus::kDone) {
    connect();
  } else if (result.status == net::IoStatus::kError && result.error_number == EPROTO) {
    is_plain_ = true;
  } else if (result.status != net::IoStatus::kWouldBlock) {
    error_number_ = result.status == net::IoStatus::kClosed ? ECONNRESET : result.error_number;
  }
}

void UcxStream::connect() {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer_.peers_address().data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = note_error, .arg = this};
  const ucs_status_t status = library().ep_create(worker_, &params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
    // A peer that has ended meanwhile is also unreachable.
    (void)peer_.hear_end();
    error_number_ = peer_.has_ended() ? ECONNRESET : EHOSTUNREACH;
  }
  ProgressThread::instance().wake();
}

UcxStream::Chunk* UcxStream::find_free_chunk() noexcept {
  for (Chunk& chunk : chunks_) {
    if (is_done(chunk.request)) {
      return &chunk;
    }
  }
  return nullptr;
}

net::IoResult UcxStream::write_some(std::span<const std::byte> head,
                                    std::span<const std::byte> rest) noexcept {
  const MutexLock lock(mutex_);
  if (const std::optional<net::IoResult> end = advance()) {
    return *end;
  }
  Chunk* const chunk = find_free_chunk();
  if (error_number_ != 0) {
    return error(error_number_);
  }
  if (chunk == nullptr) {
    return kLater;
  }
  const std::size_t n_head = std::min(head.size(), kChunkBytes);
  const std::size_t n_rest = std::min(rest.size(), kChunkBytes - n_head);
  try {
    chunk->bytes.assign(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(n_head));
    chunk->bytes.insert(
        chunk->bytes.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(n_rest));
  } catch (const std::exception&) {
    return error(ENOMEM);
  }
  constexpr ucp_request_param_t kParam{};
  chunk->request =
      library().stream_send(endpoint_, chunk->bytes.data(), chunk->bytes.size(), &kParam);
  n_written_ += n_head + n_rest;
  return {.status = net::IoStatus::kDone, .n_bytes = n_head + n_rest};
}

bool UcxStream::are_chunks_done() noexcept {
  bool are_done = true;
  for (Chunk& chunk : chunks_) {
    are_done = is_done(chunk.request) && are_done;
  }
  return are_done;
}

bool UcxStream::progress(std::vector<pollfd>& polls) {
  const MutexLock lock(mutex_);
  if (work()) {
    bell_.wake();  // A sleeping thread would not see the change at event_fd_ or on the socket.
    return false;
  }
  if (endpoint_ != nullptr) {
    if (library().worker_arm(worker_) != UCS_OK) {
      return false;
    }
    polls.push_back({.fd = event_fd_, .events = POLLIN, .revents = 0});
  }
  add_socket(polls);
  return true;
}

bool UcxStream::find_data() noexcept {
  if (!data_.empty()) {
    return true;
  }
  release_data();
  if (endpoint_ == nullptr) {
    return false;
  }
  std::size_t n_bytes = 0;
  void* const data = library().stream_receive(endpoint_, &n_bytes);
  if (UCS_PTR_IS_ERR(data)) {
    error_number_ = error_number_ == 0 ? error_number_of(UCS_PTR_STATUS(data)) : error_number_;
    return false;
  }
  data_begin_ = data;
  data_ = {static_cast<const std::byte*>(data), data == nullptr ? 0 : n_bytes};
  return !data_.empty();
}

void UcxStream::release_data() noexcept {
  if (data_begin_ != nullptr) {
    library().stream_release(endpoint_, data_begin_);
    data_begin_ = nullptr;
  }
}

// After the peer has ended, copies the rest out of UCX, which drops received data when the peer's
// endpoint is closed.
void UcxStream::take_rest() noexcept {
  const std::optional<std::uint64_t> n_bytes = peer_.n_peer_wrote();
  if (!n_bytes || has_all_) {
    return;
  }
  try {
    std::vector<std::byte> rest(data_.begin(), data_.end());
    data_ = {};
    while (n_read_ + rest.size() < *n_bytes && find_data()) {
      rest.insert(rest.end(), data_.begin(), data_.end());
      data_ = {};
    }
    rest_ = std::move(rest);
    data_ = rest_;
  } catch (const std::exception&) {
    error_number_ = ENOMEM;
  }
  has_all_ = n_read_ + data_.size() >= *n_bytes;
}

net::IoResult UcxStream::read_some(std::span<std::byte> bytes) noexcept {
  const MutexLock lock(mutex_);
  const std::optional<net::IoResult> end = advance();
  if (is_plain_) {
    // After a failure of its group, a rank rejects a connection with an abort frame, without a UCX
    // address.
    return peer_.read_plain(bytes);
  }
  if (end) {
    return *end;
  }
  std::size_t n_bytes = 0;
  while (n_bytes < bytes.size() && find_data()) {
    const std::size_t n = std::min(data_.size(), bytes.size() - n_bytes);
    std::memcpy(bytes.data() + n_bytes, data_.data(), n);
    data_ = data_.subspan(n);
    n_bytes += n;
  }
  n_read_ += n_bytes;
  return n_bytes > 0 ? net::IoResult{.status = net::IoStatus::kDone, .n_bytes = n_bytes}
                     : find_end();
}

// Returns the state of a stream without readable data: closed, failed or still open.
net::IoResult UcxStream::find_end() noexcept {
  const bool has_died = peer_.is_peer_gone() && !peer_.n_peer_wrote();
  if (has_all_ || (has_died && peer_.error_number() == 0)) {
    return {.status = net::IoStatus::kClosed};
  }
  if (has_died) {
    return error(peer_.error_number());
  }
  if (error_number_ != 0) {
    return error(error_number_);
  }
  return rest_by_.has_passed() ? error(ECONNRESET) : kLater;
}

void UcxStream::add_polls(std::vector<pollfd>& polls, bool reads, bool writes) {
  const MutexLock lock(mutex_);
  bell_.clear();
  const bool has_worked = work();
  const bool can_go_on = has_worked || error_number_ != 0 ||
                         (reads && (find_data() || peer_.has_ended())) ||
                         (endpoint_ != nullptr && writes && find_free_chunk() != nullptr);
  if (can_go_on || (endpoint_ != nullptr && library().worker_arm(worker_) != UCS_OK)) {
    bell_.wake();
  }
  polls.push_back({.fd = bell_.fd(), .events = POLLIN, .revents = 0});
  if (endpoint_ != nullptr) {
    polls.push_back({.fd = event_fd_, .events = POLLIN, .revents = 0});
  }
  add_socket(polls);
}

void UcxStream::add_socket(std::vector<pollfd>& polls) const {
  if (!peer_.has_ended()) {
    const int events = POLLIN | (peer_.is_greeting_sent() ? 0 : POLLOUT);
    polls.push_back({.fd = peer_.fd(), .events = static_cast<short>(events), .revents = 0});
  }
}

void UcxStream::end_writing() noexcept {
  const MutexLock lock(mutex_);
  if (std::exchange(has_ended_, true)) {
    return;
  }
  peer_.end(endpoint_ == nullptr ? std::nullopt : std::optional(n_written_));
}

std::string UcxStream::describe(int error_number) const {
  if (error_number == EPROTO) {
    return "it does not use UCX: UNISONO_TRANSPORT has to be the same on all ranks";
  }
  if (error_number == EHOSTUNREACH) {
    return "UCX finds no network that both have, with IPv4 or InfiniBand (UCX_NET_DEVICES, "
           "UCX_TLS; "
           "`ucx_info -d` lists them)";
  }
  return std::generic_category().message(error_number);
}

transport::MakeStream prepare_streams() {
  (void)context();
  return [](Fd socket) { return std::make_unique<UcxStream>(std::move(socket)); };
}

}  // namespace unisono::ucx
