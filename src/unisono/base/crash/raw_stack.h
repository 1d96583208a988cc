#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace unisono::crash {

/// The addresses of a stack's frames, innermost first. Of a deep stack both ends are kept.
class RawStack {
 public:
  static constexpr std::size_t kInner = 48;
  static constexpr std::size_t kOuter = 16;

  /// Adds the next frame: an address within its code's last instruction that ran.
  void add(std::uintptr_t address) {
    (n_frames_ < kInner ? inner_[n_frames_] : outer_[n_frames_ % kOuter]) = address;
    ++n_frames_;
  }

  void clear() { n_frames_ = 0; }

  [[nodiscard]] std::size_t n_frames() const { return n_frames_; }

  /// Frames kInner, kInner + 1, ... that were not kept.
  [[nodiscard]] std::size_t n_left_out() const {
    return n_frames_ > kInner + kOuter ? n_frames_ - kInner - kOuter : 0;
  }

  /// Of a frame that was kept.
  [[nodiscard]] std::uintptr_t address(std::size_t frame) const {
    return frame < kInner ? inner_[frame] : outer_[frame % kOuter];
  }

  /// The frame that is shown after this one.
  [[nodiscard]] std::size_t next(std::size_t frame) const {
    return frame + 1 == kInner ? kInner + n_left_out() : frame + 1;
  }

 private:
  std::array<std::uintptr_t, kInner> inner_{};
  std::array<std::uintptr_t, kOuter> outer_{};
  std::size_t n_frames_ = 0;
};

/// Loads what take_stack() needs, which a handler must not.
void prepare_to_take_stacks();

/// In a signal handler: the stack that the signal has interrupted, without the handler. `context`
/// is the handler's third argument. Where the thread has jumped to what is no code, the frames of
/// who called that follow.
void take_stack(void* context, RawStack& stack);

}  // namespace unisono::crash
