#include "support/starvation.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string_view>

namespace {

std::atomic<const char*> starved_thread = nullptr;
std::atomic<int> n_before_failing = 0;
std::atomic<int> n_to_fail = 0;
std::atomic<bool> has_failed = false;

bool is_starved() {
  const char* const name = starved_thread;
  if (name == nullptr) {
    return false;
  }
  std::array<char, 16> own{};
  ::pthread_getname_np(::pthread_self(), own.data(), own.size());
  if (std::string_view(own.data()) != name || n_before_failing-- > 0 || n_to_fail-- <= 0) {
    return false;
  }
  has_failed = true;
  return true;
}

}  // namespace

// These operators replace the library's operators in the whole test program.
void* operator new(std::size_t n_bytes) {
  void* const memory = is_starved() ? nullptr : std::malloc(n_bytes == 0 ? 1 : n_bytes);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

void* operator new(std::size_t n_bytes, const std::nothrow_t& /*tag*/) noexcept {
  return is_starved() ? nullptr : std::malloc(n_bytes == 0 ? 1 : n_bytes);
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t /*n_bytes*/) noexcept {
  std::free(memory);
}

namespace unisono::test {

Starvation::Starvation(const char* thread_name, int n_before, int n_failing) {
  n_before_failing = n_before;
  n_to_fail = n_failing;
  has_failed = false;
  starved_thread = thread_name;
}

Starvation::~Starvation() {
  starved_thread = nullptr;
}

bool Starvation::has_struck() const {
  return has_failed;
}

}  // namespace unisono::test
