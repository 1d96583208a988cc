#include "unisono/transport/ucx/ucx_stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/net/io.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/ucx/library.h"
#include "unisono/transport/ucx/progress_thread.h"
#include "unisono/transport/ucx/ucx_streams.h"

namespace unisono::ucx {
namespace {

constexpr std::size_t kChunkBytes = 256 << 10;

// "unisoUCX", and behind it the bytes of the address, in the order of the machine that wrote them.
constexpr std::uint64_t kMagic = 0x584355'6f73696e75;
constexpr std::size_t kGreetingHead = 2 * sizeof(std::uint64_t);
constexpr std::uint64_t kMaxAddressBytes = 1 << 16;

// From the end of the peer's socket until all that it wrote has come.
constexpr std::chrono::seconds kRestTimeout{5};

constexpr std::chrono::seconds kFlushTimeout{1};

constexpr std::chrono::microseconds kBetweenLooks{100};

// For a peer that reads what was written last, before this side's endpoint is gone.
constexpr std::chrono::milliseconds kReadTimeout{100};

int error_number_of(ucs_status_t status) {
  return status == UCS_ERR_ENDPOINT_TIMEOUT || status == UCS_ERR_TIMED_OUT ? ETIMEDOUT : ECONNRESET;
}

net::IoResult error(int error_number) {
  return {.status = net::IoStatus::kError, .error_number = error_number};
}

constexpr net::IoResult kLater{.status = net::IoStatus::kWouldBlock};

}  // namespace

UcxStream::UcxStream(Fd socket) : socket_(std::move(socket)) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  check(library().worker_create(context(), &params, &worker_), "a worker");
  try {
    check(library().worker_get_efd(worker_, &event_fd_), "an event descriptor");
    ucp_address_t* address = nullptr;
    std::size_t n_bytes = 0;
    check(library().worker_get_address(worker_, &address, &n_bytes), "an address");
    const std::array<std::uint64_t, 2> head{kMagic, n_bytes};
    greeting_.resize(sizeof head + n_bytes);
    std::memcpy(greeting_.data(), head.data(), sizeof head);
    std::memcpy(greeting_.data() + sizeof head, address, n_bytes);
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
  if (n_written_ > 0 && !is_peer_gone_) {
    transport::discard_until_closed(*this, Deadline::after(kReadTimeout));
  }
  ProgressThread::instance().remove(*this);
  const MutexLock lock(mutex_);
  close_endpoint();
  library().worker_destroy(worker_);
}

// Until the peer's side has it: as far as UCX knows.
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
  if (data_begin_ != nullptr) {
    library().stream_release(endpoint_, data_begin_);
  }
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
  if (is_plain_) {
    return error(EPROTO);
  }
  if (endpoint_ == nullptr && error_number_ == 0) {
    try {
      greet();
    } catch (const std::exception&) {
      error_number_ = ENOMEM;
    }
  }
  if (endpoint_ == nullptr) {
    return error_number_ == 0 ? kLater
           : is_peer_gone_    ? net::IoResult{net::IoStatus::kClosed}
                              : error(error_number_);
  }
  (void)library().worker_progress(worker_);
  return std::nullopt;
}

void UcxStream::greet() {
  if (!greeting_.empty()) {
    const net::IoResult sent = net::write_some(socket_.get(), greeting_);
    greeting_.erase(greeting_.begin(),
                    greeting_.begin() + static_cast<std::ptrdiff_t>(sent.n_bytes));
  }
  if (!fill_greeting(kGreetingHead)) {
    return;
  }
  std::array<std::uint64_t, 2> head{};
  std::memcpy(head.data(), peers_greeting_.data(), sizeof head);
  if (head[0] != kMagic || head[1] > kMaxAddressBytes) {
    is_plain_ = true;
  } else if (fill_greeting(kGreetingHead + head[1]) && greeting_.empty()) {
    connect();
  }
}

bool UcxStream::fill_greeting(std::size_t n_bytes) {
  while (peers_greeting_.size() < n_bytes) {
    std::array<std::byte, 4096> buffer{};
    const std::size_t n_wanted = std::min(buffer.size(), n_bytes - peers_greeting_.size());
    const net::IoResult result = net::read_some(socket_.get(), std::span(buffer).first(n_wanted));
    if (result.status != net::IoStatus::kDone) {
      is_peer_gone_ = result.status == net::IoStatus::kClosed;
      error_number_ = is_peer_gone_ ? ECONNRESET : result.error_number;
      return false;
    }
    peers_greeting_.insert(peers_greeting_.end(), buffer.begin(), buffer.begin() + result.n_bytes);
  }
  return true;
}

void UcxStream::connect() {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peers_greeting_.data() + kGreetingHead);
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = note_error, .arg = this};
  const ucs_status_t status = library().ep_create(worker_, &params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
    error_number_ = EHOSTUNREACH;
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

std::optional<int> UcxStream::progress() noexcept {
  const MutexLock lock(mutex_);
  if (endpoint_ == nullptr) {
    return -1;
  }
  if (library().worker_progress(worker_) != 0) {
    bell_.wake();  // Who sleeps would not see it at event_fd_.
    return std::nullopt;
  }
  return library().worker_arm(worker_) == UCS_OK ? std::optional(event_fd_) : std::nullopt;
}

bool UcxStream::find_data() noexcept {
  if (!data_.empty()) {
    return true;
  }
  if (data_begin_ != nullptr) {
    library().stream_release(endpoint_, data_begin_);
    data_begin_ = nullptr;
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

net::IoResult UcxStream::read_some(std::span<std::byte> bytes) noexcept {
  const MutexLock lock(mutex_);
  const std::optional<net::IoResult> end = advance();
  if (is_plain_) {
    return read_plain(bytes);
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

// A rank whose group has failed turns others away without more ado, with the reason.
net::IoResult UcxStream::read_plain(std::span<std::byte> bytes) noexcept {
  const std::size_t n_bytes = std::min(bytes.size(), peers_greeting_.size());
  if (n_bytes == 0) {
    return net::read_some(socket_.get(), bytes);
  }
  std::copy_n(peers_greeting_.begin(), n_bytes, bytes.begin());
  peers_greeting_.erase(peers_greeting_.begin(),
                        peers_greeting_.begin() + static_cast<std::ptrdiff_t>(n_bytes));
  return {.status = net::IoStatus::kDone, .n_bytes = n_bytes};
}

// Nothing is there to be read. The peer's last word on the socket says how much it has written.
net::IoResult UcxStream::find_end() noexcept {
  while (!is_peer_gone_) {
    std::array<std::byte, sizeof n_written_> word{};
    const std::size_t n_left = word.size() - trailer_.size();
    const net::IoResult result =
        net::read_some(socket_.get(), std::span(word).first(std::max<std::size_t>(n_left, 1)));
    if (result.status == net::IoStatus::kWouldBlock) {
      return error_number_ == 0 ? kLater : error(error_number_);
    }
    if (result.status == net::IoStatus::kError) {
      return result;
    }
    is_peer_gone_ = result.status == net::IoStatus::kClosed || n_left == 0;
    rest_by_ = Deadline::after(kRestTimeout);
    trailer_.insert(trailer_.end(), word.begin(), word.begin() + result.n_bytes);
  }
  std::uint64_t n_peer_wrote = 0;
  if (trailer_.size() == sizeof n_peer_wrote) {
    std::memcpy(&n_peer_wrote, trailer_.data(), sizeof n_peer_wrote);
  }
  if (n_read_ >= n_peer_wrote) {
    return {.status = net::IoStatus::kClosed};
  }
  return error_number_ != 0 || rest_by_.has_passed() ? error(ECONNRESET) : kLater;
}

void UcxStream::add_polls(std::vector<pollfd>& polls, bool reads, bool writes) {
  const MutexLock lock(mutex_);
  if (endpoint_ == nullptr) {
    const int events = POLLIN | (greeting_.empty() ? 0 : POLLOUT);
    polls.push_back({.fd = socket_.get(), .events = static_cast<short>(events), .revents = 0});
    return;
  }
  bell_.clear();
  const bool has_progressed = library().worker_progress(worker_) != 0;
  if (has_progressed || error_number_ != 0 || (reads && find_data()) ||
      (writes && find_free_chunk() != nullptr) || library().worker_arm(worker_) != UCS_OK) {
    bell_.wake();
  }
  polls.push_back({.fd = bell_.fd(), .events = POLLIN, .revents = 0});
  polls.push_back({.fd = event_fd_, .events = POLLIN, .revents = 0});
  polls.push_back({.fd = socket_.get(), .events = POLLIN, .revents = 0});
}

void UcxStream::end_writing() noexcept {
  const MutexLock lock(mutex_);
  if (!std::exchange(has_ended_, true)) {
    if (endpoint_ != nullptr) {
      (void)net::write_some(socket_.get(), std::as_bytes(std::span(&n_written_, 1)));
    }
    ::shutdown(socket_.get(), SHUT_WR);
  }
}

std::string UcxStream::describe(int error_number) const {
  if (error_number == EPROTO) {
    return "it does not speak UCX: UNISONO_TRANSPORT has to be the same on all ranks";
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
