#include "unisono/store/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "unisono/store/refusals.h"

namespace unisono::store {

Session::Session(ClientId id,
                 StoreMap& map,
                 std::string secret,
                 const Limits& limits,
                 AdmitsPlain admits_plain,
                 std::string job)
    : id_(id),
      map_(map),
      secret_(std::move(secret)),
      job_(std::move(job)),
      admits_plain_(std::move(admits_plain)),
      limits_(limits),
      parser_(limits),
      answers_(limits.max_unread_bytes) {}

Session::~Session() {
  if (!last_word_.empty()) {
    (void)map_.compare_set(last_word_key_, "", last_word_);
  }
  map_.forget(id_);
}

void Session::feed(std::span<const std::byte> bytes) {
  while (!bytes.empty() && problem().empty()) {
    switch (state_) {
      case State::kNew:
        choose_state(bytes.front());
        break;
      case State::kHello:
        bytes = bytes.subspan(feed_hello(bytes));
        break;
      case State::kValidating:
      case State::kServing:
        bytes = bytes.subspan(feed_request(bytes));
        break;
    }
  }
}

void Session::wake() {
  end_wait(WaitReply::kStopWaiting);
}

void Session::notify(const KeyChange& change) {
  answers_.tell(change);
}

void Session::choose_state(std::byte first) {
  if (first == net::kHelloByte) {
    hello_ = std::make_unique<net::Hello>(
        net::Hello::Side::kServer, secret_, net::HelloInfo{.job = job_, .purpose = kHelloPurpose});
    state_ = State::kHello;
  } else if (first != static_cast<std::byte>(Opcode::kValidate)) {
    answers_.end("it does not use a store's protocol");
  } else if (!secret_.empty() && !(admits_plain_ && admits_plain_())) {
    answers_.end(
        "it is a plain client, and this store requires the job's secret; --allow-plain-clients "
        "admits clients of the store's user that connect over loopback");
  } else {
    state_ = State::kValidating;
  }
}

std::size_t Session::feed_hello(std::span<const std::byte> bytes) {
  const std::size_t n_taken = hello_->feed(bytes);
  answers_.replies().put_raw(hello_->take_output());
  if (hello_->state() == net::Hello::State::kFailed) {
    answers_.end(hello_->error().what());
  } else if (hello_->state() == net::Hello::State::kDone) {
    if (hello_->theirs().purpose != kHelloPurpose) {
      answers_.end("it wants \"" + hello_->theirs().purpose + "\", and this is a store");
    }
    state_ = State::kServing;
    hello_.reset();
  }
  return n_taken;
}

std::size_t Session::feed_request(std::span<const std::byte> bytes) {
  const std::size_t n_taken = parser_.feed(bytes);
  if (!parser_.problem().empty()) {
    answers_.end(parser_.problem());
  } else if (std::optional<Request> request = parser_.take()) {
    handle(std::move(*request));
  }
  return n_taken;
}

void Session::handle(Request request) {
  if (!turned_away_because_.empty()) {
    hear_out(request);
    return;
  }
  if (request.opcode == Opcode::kCancelWait) {
    cancel_wait();
    return;
  }
  if (!is_waiting_) {
    execute(request);
    return;
  }
  constexpr std::size_t kMaxDeferred = 64;
  n_deferred_bytes_ += request.n_bytes;
  if (deferred_.size() == kMaxDeferred || n_deferred_bytes_ > limits_.max_request_bytes) {
    answers_.end("it sends too many requests while it waits");
    return;
  }
  deferred_.push_back(std::move(request));
}

void Session::hear_out(const Request& request) {
  if (request.opcode != Opcode::kValidate) {
    if (request.opcode == Opcode::kExplain) {
      answers_.start_explaining();
    }
    answers_.end(turned_away_because_);
  }
}

void Session::execute(Request& request) {
  if (state_ == State::kValidating && request.opcode != Opcode::kValidate) {
    answers_.end("its first request is not that of a store's client");
    return;
  }
  // Only received bytes can be added, so the size of the request is an upper bound.
  if (map_.n_bytes() + request.n_bytes > limits_.max_store_bytes && may_grow_store(request)) {
    const std::string reason =
        fmt::format("{}: the store is full: it holds {} bytes, and {} are allowed; delete keys",
                    name_of(request.opcode),
                    map_.n_bytes(),
                    limits_.max_store_bytes);
    // The other requests that may grow the store have no reply that could carry the reason.
    if (request.opcode == Opcode::kAdd || request.opcode == Opcode::kCompareSet ||
        request.opcode == Opcode::kBarrier) {
      answers_.refuse(reason);
    } else {
      answers_.end(reason);
    }
    return;
  }
  switch (request.opcode) {
    case Opcode::kValidate:
      if (static_cast<std::uint32_t>(request.number) != kValidateMagic) {
        answers_.end("its first request is not that of a store's client");
        return;
      }
      state_ = State::kServing;
      break;
    case Opcode::kPing:
      answers_.reply_number(static_cast<std::uint32_t>(request.number));
      break;
    case Opcode::kVersion:
      if (answers_.begin(sizeof(std::uint32_t) + n_text_bytes(job_))) {
        answers_.replies().put(std::uint32_t{net::kProtocolVersion});
        answers_.replies().put_string(job_);
      }
      break;
    case Opcode::kExplain:
      answers_.start_explaining();
      break;
    case Opcode::kWatch:
    case Opcode::kUnwatch:
      execute_watch(request);
      break;
    case Opcode::kSetAtEnd:
      keep_last_word(request);
      break;
    case Opcode::kWait:
      wait_for(request.keys);
      break;
    case Opcode::kBarrier:
      barrier(request.keys[0], request.number);
      break;
    case Opcode::kQueuePush:
    case Opcode::kQueuePop:
    case Opcode::kQueueLen:
      execute_queue(request);
      break;
    default:
      execute_map(request);
      break;
  }
}

void Session::keep_last_word(Request& request) {
  if (request.values[0].size() > kMaxLastWordBytes) {
    answers_.end(fmt::format("set_at_end: a value of {} bytes for {}; {} are allowed",
                             request.values[0].size(),
                             shown_key(request.keys[0]),
                             kMaxLastWordBytes));
    return;
  }
  last_word_key_ = std::move(request.keys[0]);
  last_word_ = std::move(request.values[0]);
}

// In a full store, existing counters continue to count.
bool Session::may_grow_store(const Request& request) const {
  const bool is_count = request.opcode == Opcode::kAdd || request.opcode == Opcode::kBarrier;
  return !request.values.empty() || (is_count && map_.find(request.keys[0]) == nullptr);
}

void Session::execute_map(Request& request) {
  switch (request.opcode) {
    case Opcode::kSet:
      map_.set(request.keys[0], std::move(request.values[0]));
      break;
    case Opcode::kCompareSet:
      answers_.reply_text(map_.compare_set(request.keys[0], request.values[0], request.values[1]));
      break;
    case Opcode::kGet:
    case Opcode::kMultiGet:
      get(request.keys);
      break;
    case Opcode::kAdd:
      add(request.keys[0], request.number);
      break;
    case Opcode::kCheck:
      check(request.keys);
      break;
    case Opcode::kNumKeys:
      answers_.reply_number(static_cast<std::int64_t>(map_.n_keys()));
      break;
    case Opcode::kDeleteKey:
      answers_.reply_number(std::int64_t{map_.erase(request.keys[0]) ? 1 : 0});
      break;
    case Opcode::kAppend:
      append(request.keys[0], request.values[0]);
      break;
    case Opcode::kMultiSet:
      for (std::size_t i = 0; i < request.keys.size(); ++i) {
        map_.set(request.keys[i], std::move(request.values[i]));
      }
      break;
    case Opcode::kListKeys:
      answers_.reply_keys(map_.keys());
      break;
    default:
      break;
  }
}

void Session::execute_queue(Request& request) {
  const std::string& key = request.keys[0];
  if (request.opcode == Opcode::kQueuePush) {
    map_.push(key, std::move(request.values[0]));
    return;
  }
  if (request.opcode == Opcode::kQueuePop) {
    pop(key);
  } else {
    answers_.reply_number(static_cast<std::int64_t>(map_.queue_length(key)));
  }
}

void Session::pop(const std::string& key) {
  const auto length = static_cast<std::int64_t>(map_.queue_length(key));
  const std::string* const front = map_.front(key);
  if (!answers_.begin(sizeof(length) + (front == nullptr ? 0 : n_text_bytes(*front)))) {
    return;
  }
  answers_.replies().put(length);
  if (const std::optional<std::string> value = map_.pop(key)) {
    answers_.replies().put_string(*value);
  }
}

void Session::execute_watch(const Request& request) {
  const std::string& key = request.keys[0];
  if (request.opcode == Opcode::kUnwatch) {
    map_.unwatch(id_, key);
    return;
  }
  map_.watch(id_, key);
  if (map_.n_watched(id_) > limits_.max_watches) {
    map_.unwatch(id_, key);
    answers_.refuse(
        fmt::format("watch: {} besides the {} keys that this client watches; no more are allowed",
                    shown_key(key),
                    limits_.max_watches));
    return;
  }
  if (answers_.begin(1 + n_text_bytes(key))) {
    answers_.replies().put(static_cast<std::uint8_t>(WatchNotice::kWatching));
    answers_.replies().put_string(key);
  }
}

void Session::wait_for(const std::vector<std::string>& keys) {
  is_waiting_ = !map_.wait(id_, keys);
  if (!is_waiting_) {
    reply_wait(WaitReply::kStopWaiting);
  }
}

void Session::cancel_wait() {
  map_.cancel(id_);
  end_wait(WaitReply::kWaitCanceled);
}

void Session::end_wait(WaitReply result) {
  is_waiting_ = false;
  reply_wait(result);
  while (!is_waiting_ && !deferred_.empty() && problem().empty()) {
    Request request = std::move(deferred_.front());
    deferred_.pop_front();
    n_deferred_bytes_ -= request.n_bytes;
    execute(request);
  }
}

void Session::check(const std::vector<std::string>& keys) {
  const bool is_ready = std::all_of(
      keys.begin(), keys.end(), [this](const std::string& key) { return map_.has(key); });
  answers_.reply_number(
      static_cast<std::uint8_t>(is_ready ? CheckReply::kReady : CheckReply::kNotReady));
}

void Session::add(const std::string& key, std::int64_t delta) {
  const std::optional<std::int64_t> sum = map_.add(key, delta);
  if (!sum) {
    answers_.refuse(no_sum("add", key, *map_.find(key), delta));
    return;
  }
  answers_.reply_number(*sum);
}

void Session::append(const std::string& key, const std::string& value) {
  const std::string* current = map_.find(key);
  if (current != nullptr && current->size() + value.size() > limits_.max_value_bytes) {
    answers_.end(fmt::format("append: {} has {} bytes and would get {} more; {} are allowed",
                             shown_key(key),
                             current->size(),
                             value.size(),
                             limits_.max_value_bytes));
    return;
  }
  map_.append(key, value);
}

void Session::get(const std::vector<std::string>& keys) {
  std::size_t n_bytes = 0;
  for (const std::string& key : keys) {
    const std::string* const value = map_.find(key);
    n_bytes += n_text_bytes(value == nullptr ? "" : std::string_view(*value));
  }
  if (!answers_.begin(n_bytes)) {
    return;
  }
  for (const std::string& key : keys) {
    if (const std::shared_ptr<const std::string> value = map_.share(key)) {
      answers_.replies().put_string(value);
    } else {
      answers_.replies().put_string("");
    }
  }
}

void Session::barrier(const std::string& key, std::int64_t world_size) {
  const std::optional<bool> is_complete = map_.barrier(id_, key, world_size);
  if (!is_complete) {
    answers_.refuse(no_sum("barrier", key, *map_.find(key), 1));
  } else if (*is_complete) {
    reply_wait(WaitReply::kStopWaiting);
  } else {
    is_waiting_ = true;
  }
}

void Session::reply_wait(WaitReply reply) {
  answers_.reply_number(static_cast<std::uint8_t>(reply));
}

}  // namespace unisono::store
