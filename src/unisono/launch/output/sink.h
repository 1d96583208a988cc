#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "unisono/net/event_loop.h"

namespace unisono::launch {

/// Writes to stdout or stderr without ever waiting for its reader: a pager that nobody scrolls must
/// not keep the agent from hearing Ctrl-C. The descriptor's flags are not touched, others share it.
class Sink {
 public:
  /// Gets errno of the write that failed, once; what comes later is dropped.
  using OnError = std::function<void(int error_number)>;

  Sink(int fd, net::EventLoop& loop, OnError on_error);
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  Sink(Sink&&) = delete;
  Sink& operator=(Sink&&) = delete;

  void append(std::string_view text);

  /// Writes what can be written now; the loop writes the rest when the reader takes it.
  void flush();

  /// Bytes that the reader has not taken yet.
  [[nodiscard]] std::size_t backlog() const { return buffer_.size() - written_; }

  [[nodiscard]] bool is_terminal() const { return is_terminal_; }

  [[nodiscard]] int fd() const { return fd_; }

 private:
  [[nodiscard]] bool is_ready() const;
  void watch();
  void unwatch();
  void fail(int error_number);

  int fd_;
  net::EventLoop& loop_;
  OnError on_error_;
  bool is_terminal_;
  bool is_watched_ = false;
  bool failed_ = false;
  std::string buffer_;
  std::size_t written_ = 0;
};

}  // namespace unisono::launch
