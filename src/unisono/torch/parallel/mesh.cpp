#include "unisono/torch/parallel/mesh.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/store/hash_store.h"

namespace unisono::parallel {
namespace {

[[noreturn]] void reject_mesh(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "Mesh: " + problem);
}

// Returns a text such as "data 2 x pipe 3".
std::string describe_dimensions(const std::vector<MeshDimension>& dimensions) {
  std::string text;
  for (const MeshDimension& dimension : dimensions) {
    text += (text.empty() ? "" : " x ") + dimension.name + " " + std::to_string(dimension.size);
  }
  return text;
}

void check(const std::vector<MeshDimension>& dimensions, int world_size) {
  if (dimensions.empty()) {
    reject_mesh("there are no dimensions");
  }
  std::int64_t n_places = 1;
  for (const MeshDimension& dimension : dimensions) {
    if (dimension.name.empty()) {
      reject_mesh("a dimension of " + describe_dimensions(dimensions) + " has no name");
    }
    const auto has_name = [&](const MeshDimension& other) { return other.name == dimension.name; };
    if (std::ranges::count_if(dimensions, has_name) > 1) {
      reject_mesh("there are two dimensions \"" + dimension.name + "\"");
    }
    if (dimension.size < 1) {
      reject_mesh("dimension \"" + dimension.name + "\" has size " +
                  std::to_string(dimension.size) + "; the least is 1");
    }
    // Saturates, so that the product cannot overflow.
    n_places = std::min<std::int64_t>(n_places * dimension.size, std::int64_t{1} << 31);
  }
  if (n_places != world_size) {
    reject_mesh(describe_dimensions(dimensions) + " has " + std::to_string(n_places) +
                " places, but the group has " + std::to_string(world_size) + " ranks");
  }
}

std::vector<int> coordinates_of(int rank, const std::vector<MeshDimension>& dimensions) {
  std::vector<int> coordinates(dimensions.size());
  for (std::size_t i = dimensions.size(); i-- > 0;) {
    coordinates[i] = rank % dimensions[i].size;
    rank /= dimensions[i].size;
  }
  return coordinates;
}

// Returns the difference between neighbouring ranks of a line.
int stride_of(std::size_t place, const std::vector<MeshDimension>& dimensions) {
  int stride = 1;
  for (std::size_t i = place + 1; i < dimensions.size(); ++i) {
    stride *= dimensions[i].size;
  }
  return stride;
}

}  // namespace

Mesh::Mesh(std::shared_ptr<ProcessGroup> group,
           std::vector<MeshDimension> dimensions,
           const GroupOptions& options)
    : world_(std::move(group)), dimensions_(std::move(dimensions)) {
  if (world_ == nullptr) {
    reject_mesh("the process group is null");
  }
  check(dimensions_, world_->world_size());
  coordinates_ = coordinates_of(world_->rank(), dimensions_);
  std::vector<std::vector<int>> lists;
  for (std::size_t place = 0; place < dimensions_.size(); ++place) {
    const int stride = stride_of(place, dimensions_);
    for (int first = 0; first < world_->world_size(); ++first) {
      if (coordinates_of(first, dimensions_)[place] != 0) {
        continue;
      }
      std::vector<int>& list = lists.emplace_back();
      for (int i = 0; i < dimensions_[place].size; ++i) {
        list.push_back(first + i * stride);
      }
    }
  }
  // new_groups() returns the lines in the order of the lists, which is the order of the dimensions.
  // A rank is in one list of each dimension.
  for (std::shared_ptr<ProcessGroup>& line : world_->new_groups(lists, options)) {
    if (line != nullptr) {
      lines_.push_back(std::move(line));
    }
  }
  UNISONO_CHECK(lines_.size() == dimensions_.size(), "a rank is in one line of each dimension");
}

std::size_t Mesh::find(const std::string& dimension) const {
  std::string names;
  for (std::size_t place = 0; place < dimensions_.size(); ++place) {
    if (dimensions_[place].name == dimension) {
      return place;
    }
    names += (names.empty() ? "" : ", ") + dimensions_[place].name;
  }
  reject_mesh("there is no dimension \"" + dimension + "\"; there are " + names);
}

const std::shared_ptr<ProcessGroup>& Mesh::group(const std::string& dimension) const {
  return lines_[find(dimension)];
}

int Mesh::size(const std::string& dimension) const {
  return dimensions_[find(dimension)].size;
}

int Mesh::coordinate(const std::string& dimension) const {
  return coordinates_[find(dimension)];
}

int Mesh::rank_at(const std::vector<int>& coordinates) const {
  if (coordinates.size() != dimensions_.size()) {
    reject_mesh(std::to_string(coordinates.size()) + " coordinates in " +
                std::to_string(dimensions_.size()) + " dimensions");
  }
  int rank = 0;
  for (std::size_t place = 0; place < dimensions_.size(); ++place) {
    const MeshDimension& dimension = dimensions_[place];
    if (coordinates[place] < 0 || coordinates[place] >= dimension.size) {
      reject_mesh("coordinate " + std::to_string(coordinates[place]) + " in dimension \"" +
                  dimension.name + "\", which has size " + std::to_string(dimension.size));
    }
    rank = rank * dimension.size + coordinates[place];
  }
  return rank;
}

namespace {

// The first error of several threads. Later errors are consequences of the first.
class FirstError {
 public:
  void set(std::exception_ptr error) UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (error_ == nullptr) {
      error_ = std::move(error);
    }
  }

  void rethrow() UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
  }

 private:
  Mutex mutex_;
  std::exception_ptr error_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace

void run_in_threads(int n_ranks,
                    const std::function<void(const std::shared_ptr<ProcessGroup>& group)>& body) {
  if (n_ranks < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "run_in_threads: " + std::to_string(n_ranks) + " ranks; the least is 1");
  }
  const auto store = std::make_shared<store::HashStore>();
  const int n_compute_threads = std::max(1, at::get_num_threads() / n_ranks);
  FirstError first;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < n_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::shared_ptr<ProcessGroup> group;
      try {
        at::set_num_threads(n_compute_threads);
        group = create_process_group({.store = store, .rank = rank, .world_size = n_ranks});
        body(group);
        group->destroy();
      } catch (const std::exception& error) {
        first.set(std::current_exception());
        if (group != nullptr) {
          group->abort(error_text(error));
        }
      } catch (...) {
        first.set(std::current_exception());
        if (group != nullptr) {
          group->abort("the rank's function threw an object that is no std::exception");
        }
      }
    });
  }
  threads.clear();  // Joins the threads.
  first.rethrow();
}

}  // namespace unisono::parallel
