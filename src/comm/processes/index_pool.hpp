#pragma once
// Small numbers for the groups that a process is in: a group's messages bear it in their tags.

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace ration {

class IndexPool {
 public:
  static constexpr std::size_t kIndices = 1024;
  using Set = std::bitset<kIndices>;

  [[nodiscard]] Set used() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  void take(std::uint32_t index) {
    const std::lock_guard lock(mutex_);
    used_.set(index);
  }
  void give_back(std::uint32_t index) {
    const std::lock_guard lock(mutex_);
    used_.reset(index);
  }

 private:
  mutable std::mutex mutex_;
  Set used_;
};

}  // namespace ration
