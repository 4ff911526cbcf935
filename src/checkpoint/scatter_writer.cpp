#include "checkpoint/scatter_writer.hpp"

#include <algorithm>

#include "core/align.hpp"

namespace ration::checkpoint {

namespace {

// The first place from `used` on where an element may be cast to, and where memory lies as the file
// does, so that whole pages go around the page cache.
std::size_t place_for(std::uint64_t offset, std::size_t used, std::size_t element) {
  constexpr std::size_t kPage = io::kDirectAlignment;
  if (offset % element != 0) return round_up<std::size_t>(used, 64);
  return used + (offset % kPage + kPage - used % kPage) % kPage;
}

}  // namespace

ScatterWriter::ScatterWriter(std::vector<const io::BlockFile*> files)
    : files_(std::move(files)), thread_([this] { write_all(); }) {}

ScatterWriter::~ScatterWriter() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::span<std::byte> ScatterWriter::claim(std::size_t file, std::uint64_t offset, std::size_t bytes,
                                          std::size_t element) {
  Buffer* buffer = &buffers_[filled_ % kBuffers];  // ours alone: only we change `filled_`
  const auto continues = [&] {
    if (buffer->extents.empty()) return false;
    const Extent& last = buffer->extents.back();
    return last.file == file && last.offset + last.length == offset && buffer->used % element == 0;
  };
  const std::size_t begin = continues() ? buffer->used : place_for(offset, buffer->used, element);
  if (begin + element > kBufferBytes) {
    hand_over();
    return claim(file, offset, bytes, element);
  }
  const std::size_t room = std::min(bytes, (kBufferBytes - begin) / element * element);
  if (continues()) {
    buffer->extents.back().length += room;
  } else {
    buffer->extents.push_back({file, offset, begin, room});
  }
  buffer->used = begin + room;
  return {memory_.at(filled_ % kBuffers) + begin, room};
}

void ScatterWriter::hand_over() {
  std::unique_lock lock(mutex_);
  ++filled_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return failed_ || filled_ - written_ < kBuffers; });
  if (failed_) std::rethrow_exception(failed_);
}

void ScatterWriter::finish() {
  hand_over();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failed_ || filled_ == written_; });
  if (failed_) std::rethrow_exception(failed_);
}

void ScatterWriter::write(const Extent& extent, const std::byte* from) const {
  const io::BlockFile& file = *files_[extent.file];
  const std::size_t head = std::min<std::size_t>(
      (io::kDirectAlignment - extent.offset % io::kDirectAlignment) % io::kDirectAlignment,
      extent.length);
  const bool paged = reinterpret_cast<std::uintptr_t>(from + head) % io::kDirectAlignment == 0;
  if (!paged) {
    file.buffered().write(extent.offset, {from, extent.length});
    return;
  }
  if (head > 0) file.buffered().write(extent.offset, {from, head});
  if (head < extent.length)
    file.write({.offset = extent.offset + head, .bytes = extent.length - head}, from + head);
}

void ScatterWriter::write_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return end_ || filled_ > written_; });
    if (end_) return;
    Buffer& buffer = buffers_[written_ % kBuffers];
    lock.unlock();
    std::exception_ptr failed;
    try {
      for (const Extent& extent : buffer.extents) {
        write(extent, memory_.at(written_ % kBuffers) + extent.begin);
      }
    } catch (...) {
      failed = std::current_exception();
    }
    buffer.extents.clear();
    buffer.used = 0;
    lock.lock();
    ++written_;
    failed_ = failed;
    changed_.notify_all();
    if (failed_) return;
  }
}

}  // namespace ration::checkpoint
