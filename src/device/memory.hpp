#pragma once
// Memory of a device behind one interface: allocated in large pieces, owned, counted.

#include <cstddef>
#include <memory>

namespace ration {

/// Owned memory, aligned to 2 MiB when it is at least that large and to 4 KiB otherwise, zeroed, on
/// huge pages where the system gives them.
class Memory {
 public:
  virtual ~Memory() = default;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 protected:
  Memory(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_;
  std::size_t size_;
};

/// Throws OutOfMemory saying how much was asked.
std::unique_ptr<Memory> allocate_host(std::size_t bytes);

}  // namespace ration
