#pragma once
// Memory for direct transfers.

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "io/file.hpp"

namespace ration::test {

/// Zeros, aligned.
class Aligned {
 public:
  explicit Aligned(std::size_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(
            io::kDirectAlignment,
            (bytes + io::kDirectAlignment) / io::kDirectAlignment * io::kDirectAlignment))) {
    if (!data_) throw std::bad_alloc();
    for (std::size_t i = 0; i < bytes; ++i) data_.get()[i] = std::byte{0};
  }
  [[nodiscard]] std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace ration::test
