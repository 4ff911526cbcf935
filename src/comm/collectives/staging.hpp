#pragma once
// Memory for pieces of messages, kept from one operation to the next.

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/memory.hpp"

namespace ration {

class StagingPool {
 public:
  /// Given back on destruction.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(StagingPool* pool, std::unique_ptr<Memory> memory)
        : pool_(pool), memory_(std::move(memory)) {}
    Buffer(Buffer&&) noexcept = default;
    Buffer& operator=(Buffer&&) noexcept = default;
    ~Buffer() {
      if (memory_) pool_->give_back(std::move(memory_));
    }
    [[nodiscard]] std::byte* data() const { return memory_->data(); }

   private:
    StagingPool* pool_ = nullptr;
    std::unique_ptr<Memory> memory_;
  };

  Buffer take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (auto& memory : free_) {
      if (memory->size() < bytes) continue;
      Buffer buffer(this, std::move(memory));
      std::swap(memory, free_.back());
      free_.pop_back();
      return buffer;
    }
    if (!free_.empty()) free_.pop_back();  // too small once is too small again
    return {this, allocate_host(bytes)};
  }

 private:
  void give_back(std::unique_ptr<Memory> memory) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(memory));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Memory>> free_;
};

}  // namespace ration
