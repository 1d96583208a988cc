#include "sim_device/stream.h"

#include <pthread.h>

#include <cstring>
#include <utility>

namespace sim {
namespace {

std::atomic<bool> forked{false};

void watch_forks() {
  static const int installed =
      pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  static_cast<void>(installed);
}

std::string stream_name(int device, std::int64_t id) {
  return "sim:" + std::to_string(device) + " stream " + std::to_string(id);
}

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception of an unknown type";
  }
}

}  // namespace

bool is_forked_child() {
  return forked.load(std::memory_order_relaxed);
}

void TaskErrors::add(std::exception_ptr error) {
  const unisono::MutexLock lock(mutex_);
  errors_.push_back(std::move(error));
}

void TaskErrors::rethrow() {
  std::exception_ptr error;
  {
    const unisono::MutexLock lock(mutex_);
    if (errors_.empty()) {
      return;
    }
    error = std::move(errors_.front());
    errors_.pop_front();
  }
  std::rethrow_exception(error);
}

std::vector<std::string> TaskErrors::take() {
  std::deque<std::exception_ptr> errors;
  {
    const unisono::MutexLock lock(mutex_);
    errors.swap(errors_);
  }
  std::vector<std::string> texts;
  for (const std::exception_ptr& error : errors) {
    texts.push_back(text_of(error));
  }
  return texts;
}

void Event::complete() {
  const unisono::MutexLock lock(mutex_);
  is_done_ = true;
  time_ms_ = now_ms();
  done_condition_.notify_all();
}

bool Event::is_done() const {
  const unisono::MutexLock lock(mutex_);
  return is_done_;
}

void Event::wait(std::chrono::seconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const unisono::MutexLock lock(mutex_);
  while (!is_done_) {
    if (!done_condition_.wait_until(mutex_, deadline) && !is_done_) {
      throw Error("sim: an event did not complete within " + std::to_string(limit.count()) +
                  " s: a task of its stream hangs (SIM_WAIT_S sets the limit)");
    }
  }
}

double Event::time_ms() const {
  const unisono::MutexLock lock(mutex_);
  return time_ms_;
}

Stream::Stream(int device, std::int64_t id, StreamContext& context)
    : device_(device),
      id_(id),
      context_(context),
      name_(stream_name(device, id)),
      number_(context.checker.add_stream(name_)),
      random_(context.options.seed * 1000003 + number_ * 7919) {
  watch_forks();
  thread_ = std::thread([this] { run_tasks(); });
}

Stream::~Stream() {
  {
    const unisono::MutexLock lock(mutex_);
    stopping_ = true;
    pushed_condition_.notify_one();
  }
  thread_.join();
}

void Stream::push(Task task) {
  if (is_forked_child()) {
    throw Error("sim: a child of fork() cannot use the devices of its parent: use spawn");
  }
  const unisono::MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  ++pushed_;
  pushed_condition_.notify_one();
}

void Stream::run_tasks() {
  if (context_.on_thread_start) {
    context_.on_thread_start();
  }
  for (;;) {
    Task task{};
    {
      const unisono::MutexLock lock(mutex_);
      running_ = nullptr;
      while (tasks_.empty() && !stopping_) {
        pushed_condition_.wait(mutex_);
      }
      if (tasks_.empty()) {
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
      running_ = task.operation;
    }
    delay();
    run(task);
    task.run = nullptr;  // Its captures end before the task counts as done.
    const unisono::MutexLock lock(mutex_);
    ++done_;
    done_condition_.notify_all();
  }
}

void Stream::run(const Task& task) {
  try {
    task.run();
  } catch (...) {
    context_.errors.add(std::current_exception());
  }
}

void Stream::delay() {
  const Options& options = context_.options;
  std::uniform_real_distribution<double> uniform;
  // The numbers are drawn even without delays, so that the switch does not shift later delays.
  const bool is_late = uniform(random_) < options.delay_probability;
  const double share = uniform(random_);
  if (is_late && context_.delays_enabled.load(std::memory_order_relaxed)) {
    std::this_thread::sleep_for(options.max_delay * share);
  }
}

void Stream::launch(std::function<void()> task, std::span<const Access> accesses) {
  context_.tasks.fetch_add(1, std::memory_order_relaxed);
  if (context_.options.check_races) {
    context_.checker.launch(number_, accesses);
  }
  push({std::move(task), accesses.empty() ? "a task" : accesses.back().operation});
}

EventPtr Stream::record() {
  auto event = std::make_shared<Event>(context_.checker.record(number_));
  push({[event] { event->complete(); }, "an event"});
  return event;
}

void Stream::wait(EventPtr event) {
  context_.checker.wait(number_, event->clock());
  push({[event = std::move(event), limit = context_.options.wait_limit] { event->wait(limit); },
        "the wait for an event"});
}

void Stream::release(std::uintptr_t begin, std::size_t size, void* bytes) {
  if (context_.options.check_races) {
    context_.checker.release_block(begin, number_);
  }
  if (context_.options.poison) {
    push({[bytes, size] { std::memset(bytes, 0xff, size); }, "the release of memory"});
  }
}

void Stream::synchronize() {
  if (is_forked_child()) {
    throw Error("sim: a child of fork() cannot wait for the devices of its parent: use spawn");
  }
  const Clock reached = context_.checker.record(number_);
  const auto limit = context_.options.wait_limit;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  {
    const unisono::MutexLock lock(mutex_);
    const std::uint64_t target = pushed_;
    while (done_ < target) {
      if (!done_condition_.wait_until(mutex_, deadline) && done_ < target) {
        throw Error("sim: " + name_ + " did not finish its " + std::to_string(target - done_) +
                    " tasks within " + std::to_string(limit.count()) + " s; it runs " +
                    (running_ == nullptr ? "no task" : running_) + " (SIM_WAIT_S sets the limit)");
      }
    }
  }
  context_.checker.host_waited(reached);
}

bool Stream::is_idle() {
  const Clock reached = context_.checker.record(number_);
  {
    const unisono::MutexLock lock(mutex_);
    if (done_ != pushed_) {
      return false;
    }
  }
  context_.checker.host_waited(reached);
  return true;
}

}  // namespace sim
