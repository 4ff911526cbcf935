#include "comm/processes/arena.hpp"

#include <cerrno>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include <ration/error.hpp>

#include "core/align.hpp"

namespace ration {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// The file is as long as it could ever be: what nobody touches takes no memory.
constexpr off_t kLength = off_t{1} << 45;

// At the file's beginning; the next free byte after it.
struct Head {
  std::atomic<std::uint64_t> next;
};
constexpr std::size_t kHead = 64;
static_assert(sizeof(Head) <= kHead && std::atomic<std::uint64_t>::is_always_lock_free);

[[noreturn]] void fail(std::uint64_t bytes) {
  throw OutOfMemory(fmt::format("{} bytes of memory shared between processes could not be had: {}",
                                bytes, std::strerror(errno)));
}

std::size_t alignment_of(std::uint64_t bytes) {
  return bytes >= kHugePage ? kHugePage : kPage;
}

}  // namespace

Arena::Arena(int file, std::size_t reserved)
    : file_(file), reserved_length_(round_up(reserved + kHead, kPage)) {}

Arena::~Arena() {
  if (reserved_) munmap(reserved_, reserved_length_);
  for (const auto& [begin, segment] : mapped_) munmap(segment.data, segment.length);
  close(file_);
}

std::shared_ptr<Arena> Arena::create(std::size_t reserved) {
  const int file = memfd_create("ration", MFD_CLOEXEC);
  if (file < 0) fail(reserved);
  std::shared_ptr<Arena> arena(new Arena(file, reserved));
  if (ftruncate(file, kLength) != 0) fail(reserved);
  arena->reserved_ = arena->map_file(0, arena->reserved_length_);
  auto* head = new (arena->reserved_) Head;
  head->next.store(round_up(arena->reserved_length_, kHugePage), std::memory_order_release);
  return arena;
}

Arena::Address Arena::address() const {
  return {.pid = getpid(), .descriptor = file_};
}

std::shared_ptr<Arena> Arena::open(Address address, std::size_t reserved) {
  const std::string path = fmt::format("/proc/{}/fd/{}", address.pid, address.descriptor);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw IoError(fmt::format("{}: {}", path, std::strerror(errno)));
  std::shared_ptr<Arena> arena(new Arena(file, reserved));
  arena->reserved_ = arena->map_file(0, arena->reserved_length_);
  return arena;
}

std::byte* Arena::reserved() const {
  return reserved_ + kHead;
}

std::byte* Arena::map_file(std::uint64_t begin, std::uint64_t length) const {
  // Aligned for huge pages, where the system gives them to shared memory.
  const std::size_t alignment = alignment_of(length);
  const std::size_t space = length + (alignment > kPage ? alignment : 0);
  void* hole = mmap(nullptr, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (hole == MAP_FAILED) fail(length);
  auto* first = static_cast<std::byte*>(hole);
  auto* data = reinterpret_cast<std::byte*>(
      round_up<std::uintptr_t>(reinterpret_cast<std::uintptr_t>(hole), alignment));
  if (mmap(data, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_,
           static_cast<off_t>(begin)) == MAP_FAILED) {
    munmap(hole, space);
    fail(length);
  }
  if (data > first) munmap(first, static_cast<std::size_t>(data - first));
  if (data + length < first + space) {
    munmap(data + length, static_cast<std::size_t>(first + space - (data + length)));
  }
  if (alignment == kHugePage) madvise(data, length, MADV_HUGEPAGE);  // a wish
  return data;
}

Arena::Segment Arena::allocate(std::size_t bytes) {
  const std::uint64_t length = round_up<std::uint64_t>(bytes, kPage);
  // Segments begin at multiples of what any of them may want.
  auto* head = reinterpret_cast<Head*>(reserved_);
  const std::uint64_t taken = round_up<std::uint64_t>(length, alignment_of(length));
  std::uint64_t begin = head->next.load(std::memory_order_relaxed);
  std::uint64_t aligned = 0;
  do {
    aligned = round_up<std::uint64_t>(begin, alignment_of(length));
    if (aligned + taken > static_cast<std::uint64_t>(kLength)) {
      errno = ENOSPC;
      fail(bytes);
    }
  } while (!head->next.compare_exchange_weak(begin, aligned + taken, std::memory_order_acq_rel));
  Segment segment{aligned, length, map_file(aligned, length)};
  const std::lock_guard lock(mutex_);
  mapped_[segment.begin] = segment;
  own_[segment.data + segment.length] = segment;
  return segment;
}

std::byte* Arena::map(std::uint64_t begin, std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  auto& segment = mapped_[begin];
  if (!segment.data) segment = {begin, length, map_file(begin, length)};
  return segment.data;
}

const Arena::Segment* Arena::find(const std::byte* data, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = own_.upper_bound(data);
  if (found == own_.end()) return nullptr;
  const Segment& segment = found->second;
  const bool inside = data >= segment.data && data + bytes <= segment.data + segment.length;
  return inside ? &segment : nullptr;
}

}  // namespace ration
