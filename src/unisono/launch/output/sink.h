#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "unisono/net/event_loop.h"

namespace unisono::launch {

/// Where the ranks' stdout or stderr ends. What can't be written now waits.
class Sink {
 public:
  Sink() = default;
  virtual ~Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  Sink(Sink&&) = delete;
  Sink& operator=(Sink&&) = delete;

  virtual void append(std::string_view text) = 0;

  /// Writes what can be written now; the loop writes the rest when the reader takes it.
  virtual void flush() = 0;

  /// Bytes that the reader has not taken yet.
  [[nodiscard]] virtual std::size_t backlog() const = 0;

  /// Whether this process writes to a terminal there.
  [[nodiscard]] virtual bool is_terminal() const = 0;

  /// The file, pipe or terminal where text ends, as stat(2) has it; empty where that is not known.
  [[nodiscard]] virtual std::string place() const { return ""; }

  /// Whether text may have colours.
  [[nodiscard]] virtual bool has_colour() const = 0;
};

/// Both of a launcher.
struct Sinks {
  std::unique_ptr<Sink> out;
  std::unique_ptr<Sink> err;
};

/// Writes to stdout or stderr without ever waiting for its reader: a pager that nobody scrolls must
/// not keep the agent from hearing Ctrl-C. The descriptor's flags are not touched, others share it.
class FdSink final : public Sink {
 public:
  /// Gets errno of the write that failed, once; what comes later is dropped.
  using OnError = std::function<void(int error_number)>;

  FdSink(int fd, net::EventLoop& loop, OnError on_error);
  ~FdSink() override;
  FdSink(const FdSink&) = delete;
  FdSink& operator=(const FdSink&) = delete;
  FdSink(FdSink&&) = delete;
  FdSink& operator=(FdSink&&) = delete;

  void append(std::string_view text) override;
  void flush() override;

  [[nodiscard]] std::size_t backlog() const override { return buffer_.size() - written_; }

  [[nodiscard]] bool is_terminal() const override { return is_terminal_; }

  [[nodiscard]] std::string place() const override;

  /// On a terminal that has some, unless NO_COLOR is set.
  [[nodiscard]] bool has_colour() const override { return has_colour_; }

 private:
  [[nodiscard]] bool is_ready() const;
  void watch();
  void unwatch();
  void fail(int error_number);

  int fd_;
  net::EventLoop& loop_;
  OnError on_error_;
  bool is_terminal_;
  bool has_colour_;
  bool is_watched_ = false;
  bool failed_ = false;
  std::string buffer_;
  std::size_t written_ = 0;
};

/// stdout and stderr of this process. `on_error` gets which of them can't be written to.
[[nodiscard]] Sinks standard_sinks(
    net::EventLoop& loop, std::function<void(const std::string& what, int error_number)> on_error);

}  // namespace unisono::launch
