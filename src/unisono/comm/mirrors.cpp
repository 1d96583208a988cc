#include "unisono/comm/mirrors.h"

#include <algorithm>

namespace unisono::comm {

Mirrors::Mirrors(const engine::Operation& operation) {
  add(operation.in);
  add(operation.out);
  for (const Buffer& buffer : operation.ins) {
    add(buffer);
  }
  for (const Buffer& buffer : operation.outs) {
    add(buffer);
  }
}

void Mirrors::insert(const std::shared_ptr<DeviceMirror>& mirror) {
  if (std::ranges::find(mirrors_, mirror) == mirrors_.end()) {
    mirrors_.push_back(mirror);
  }
}

void Mirrors::fetch(Deadline deadline) const {
  for (const auto& mirror : mirrors_) {
    mirror->fetch(deadline);
  }
}

void Mirrors::write_back() const {
  for (const auto& mirror : mirrors_) {
    mirror->write_back();
  }
}

void Mirrors::follow() const {
  for (const auto& mirror : mirrors_) {
    mirror->follow();
  }
}

void Mirrors::synchronize(Deadline deadline) const {
  for (const auto& mirror : mirrors_) {
    mirror->synchronize(deadline);
  }
}

}  // namespace unisono::comm
