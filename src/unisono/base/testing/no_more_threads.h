#pragma once

#include <pthread.h>

#include <cstddef>

#include <gtest/gtest.h>

namespace unisono::testing {

/// During the object's lifetime no thread of the process can be started: new threads request a
/// stack larger than any address space.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    ::pthread_getattr_default_np(&usual_);
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    constexpr std::size_t kImpossible = std::size_t{1} << 60;
    EXPECT_EQ(::pthread_attr_setstacksize(&attributes, kImpossible), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&attributes), 0);
    ::pthread_attr_destroy(&attributes);
  }

  ~NoMoreThreads() {
    ::pthread_setattr_default_np(&usual_);
    ::pthread_attr_destroy(&usual_);
  }

  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;
  NoMoreThreads(NoMoreThreads&&) = delete;
  NoMoreThreads& operator=(NoMoreThreads&&) = delete;

 private:
  pthread_attr_t usual_{};
};

}  // namespace unisono::testing
