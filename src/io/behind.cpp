#include "io/behind.hpp"

#include <cstdlib>
#include <new>
#include <utility>

#include <sys/mman.h>

namespace ration::io {
namespace {

// One in transfer, one in use, one ready: more gain nothing where both sides go steadily.
constexpr std::size_t kBuffers = 3;

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

BlockFile::BlockFile(const std::filesystem::path& path, Access access)
    : direct_(path, access, Cache::direct), buffered_(path, access) {}

std::size_t BlockFile::direct_part(const Block& block) const {
  if (!direct_.direct() || block.offset % kDirectAlignment != 0) return 0;
  return block.bytes / kDirectAlignment * kDirectAlignment;
}

void BlockFile::read(const Block& block, std::byte* memory) const {
  const std::size_t direct = direct_part(block);
  if (direct > 0) direct_.read(block.offset, {memory, direct});
  if (direct < block.bytes)
    buffered_.read(block.offset + direct, {memory + direct, block.bytes - direct});
}

void BlockFile::write(const Block& block, const std::byte* memory) const {
  const std::size_t direct = direct_part(block);
  if (direct > 0) direct_.write(block.offset, {memory, direct});
  if (direct < block.bytes)
    buffered_.write(block.offset + direct, {memory + direct, block.bytes - direct});
}

void Buffers::Free::operator()(std::byte* data) const {
  std::free(data);
}

Buffers::Buffers(std::size_t count, std::size_t bytes)
    : count_(count), bytes_((bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment) {
  // A direct transfer is made of the pages of its memory: huge ones make it up to twice as fast.
  const bool large = bytes_ >= kHugePage;
  const std::size_t alignment = large ? kHugePage : kDirectAlignment;
  const std::size_t all = (count_ * bytes_ + alignment - 1) / alignment * alignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, all)));
  if (!data_) throw std::bad_alloc();
  if (large) madvise(data_.get(), all, MADV_HUGEPAGE);
}

WriteBehind::WriteBehind(const BlockFile& file, std::size_t bytes)
    : file_(file), buffers_(kBuffers, bytes), thread_([this] { run(); }) {}

WriteBehind::~WriteBehind() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WriteBehind::throw_failure() const {
  if (failure_) std::rethrow_exception(failure_);
}

std::byte* WriteBehind::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || queue_.size() < buffers_.count(); });
  throw_failure();
  return buffers_.at(submitted_ % buffers_.count());
}

void WriteBehind::submit(const Block& block) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(block);
    ++submitted_;
  }
  changed_.notify_all();
}

void WriteBehind::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || queue_.empty(); });
  throw_failure();
}

void WriteBehind::run() {
  std::unique_lock lock(mutex_);
  for (std::size_t written = 0;; ++written) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const Block block = queue_.front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      file_.write(block, buffers_.at(written % buffers_.count()));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    if (!failure) queue_.pop_front();
    changed_.notify_all();
    if (failure) return;
  }
}

ReadAhead::ReadAhead(const BlockFile& file, std::vector<Block> blocks, std::size_t bytes)
    : file_(file),
      blocks_(std::move(blocks)),
      buffers_(kBuffers, bytes),
      thread_([this] { run(); }) {}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::span<const std::byte> ReadAhead::next() {
  std::unique_lock lock(mutex_);
  ++taken_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return failure_ || read_ >= taken_; });
  if (read_ < taken_) std::rethrow_exception(failure_);
  return {buffers_.at((taken_ - 1) % buffers_.count()), blocks_[taken_ - 1].bytes};
}

void ReadAhead::run() {
  std::unique_lock lock(mutex_);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    // The block in use is number taken_ - 1; its buffer and those behind it are not free.
    changed_.wait(
        lock, [&] { return stop_ || i < buffers_.count() || i + 1 < taken_ + buffers_.count(); });
    if (stop_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      file_.read(blocks_[i], buffers_.at(i % buffers_.count()));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    if (!failure) ++read_;
    changed_.notify_all();
    if (failure) return;
  }
}

}  // namespace ration::io
