#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "unisono/net/event_loop.h"

namespace unisono::launch {

/// Destination of the ranks' stdout or stderr. Text that cannot be written yet is buffered. Used on
/// the loop's thread only; errors go to a callback of the implementation.
class Sink {
 public:
  Sink() = default;
  virtual ~Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  Sink(Sink&&) = delete;
  Sink& operator=(Sink&&) = delete;

  /// Buffers text.
  virtual void append(std::string_view text) = 0;

  /// Writes as much as possible without blocking; the loop writes the rest later.
  virtual void flush() = 0;

  /// Returns the number of buffered bytes.
  [[nodiscard]] virtual std::size_t backlog() const = 0;

  /// Returns true if the text goes directly to a terminal.
  [[nodiscard]] virtual bool is_terminal() const = 0;

  /// Returns device and inode of the destination, as stat(2) reports them; empty if unknown.
  [[nodiscard]] virtual std::string place() const { return ""; }

  /// Returns true if text may have colours.
  [[nodiscard]] virtual bool has_colour() const = 0;
};

/// The two streams of a launcher.
struct Sinks {
  std::unique_ptr<Sink> out;
  std::unique_ptr<Sink> err;
};

/// Writes to stdout or stderr without blocking, so that a pager that stops reading does not keep
/// the agent from handling Ctrl-C. The flags of the descriptor do not change, because other
/// processes share the descriptor.
class FdSink final : public Sink {
 public:
  /// Receives errno of the write that failed, once; later text is dropped.
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

  /// Returns true on a colour terminal, unless NO_COLOR is set.
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

/// Returns sinks for stdout and stderr of this process. `on_error` receives the name of a stream
/// that cannot be written, and errno.
[[nodiscard]] Sinks standard_sinks(
    net::EventLoop& loop, std::function<void(const std::string& what, int error_number)> on_error);

}  // namespace unisono::launch
