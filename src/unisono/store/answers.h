#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/store/protocol.h"
#include "unisono/store/replies.h"
#include "unisono/store/watch.h"

namespace unisono::store {

/// The bytes of length and text.
[[nodiscard]] std::size_t n_text_bytes(std::string_view text);

/// What a session answers: replies, within the limit of what its client has not read, and for a
/// client that asks for them the reasons of refusals and of the end.
class Answers {
 public:
  explicit Answers(std::size_t max_unread_bytes) : max_unread_bytes_(max_unread_bytes) {}

  /// From here on a ReplyKind stands before each reply.
  void start_explaining() { explains_ = true; }

  /// To be called before a reply of so many bytes, all of which are put if it returns true.
  [[nodiscard]] bool begin(std::size_t n_bytes);

  /// Of T's size on the wire.
  template <class T>
  void reply_number(T number) {
    if (begin(sizeof(number))) {
      replies_.put(number);
    }
  }

  void reply_text(const std::string& text);
  void reply_keys(const std::vector<std::string>& keys);
  void tell(const KeyChange& change);

  /// There is no answer to the request; a client that can't be told why loses its connection.
  void refuse(const std::string& reason);

  /// Nothing is answered any more.
  void end(const std::string& problem);

  /// Why it has ended; empty while it has not.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  [[nodiscard]] Replies& replies() { return replies_; }

  [[nodiscard]] const Replies& replies() const { return replies_; }

 private:
  void explain(ReplyKind kind, const std::string& reason);

  std::size_t max_unread_bytes_;
  bool explains_ = false;
  Replies replies_;
  std::string problem_;
};

}  // namespace unisono::store
