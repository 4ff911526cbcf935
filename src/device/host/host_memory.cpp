#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "core/align.hpp"
#include "device/memory.hpp"

namespace ration {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kPage = 4096;

class HostMemory final : public Memory {
 public:
  HostMemory(std::byte* data, std::size_t size, void* mapping, std::size_t mapped)
      : Memory(data, size), mapping_(mapping), mapped_(mapped) {}
  ~HostMemory() override {
    if (mapped_) munmap(mapping_, mapped_);
  }

 private:
  void* mapping_;
  std::size_t mapped_;
};

}  // namespace

std::unique_ptr<Memory> allocate_host(std::size_t bytes) {
  if (bytes == 0) return std::make_unique<HostMemory>(nullptr, 0, nullptr, 0);
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kPage;
  const std::size_t length = round_up(bytes, kPage);
  const std::size_t mapped = length + (alignment > kPage ? alignment : 0);
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    throw OutOfMemory(fmt::format(
        "{} bytes of host memory could not be had: {}; use a higher stage or more ranks", bytes,
        std::strerror(errno)));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  auto* data = reinterpret_cast<std::byte*>(round_up<std::uintptr_t>(address, alignment));
  if (alignment == kHugePage)
    madvise(data, length, MADV_HUGEPAGE);  // a wish: the system may say no
  return std::make_unique<HostMemory>(data, bytes, mapping, mapped);
}

}  // namespace ration
