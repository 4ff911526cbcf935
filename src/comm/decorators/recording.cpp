// Remembers what was asked, for tests of traffic and for whoever looks into a timeout.

#include <array>
#include <mutex>

#include <nlohmann/json.hpp>

#include "comm/decorators/decorator.hpp"
#include "comm/decorators/decorators.hpp"

namespace ration {
namespace {

constexpr std::size_t kKept = 1024;
constexpr std::size_t kKinds = static_cast<std::size_t>(OperationKind::barrier) + 1;

// One thread submits; any may ask.
class Log final : public Recording {
 public:
  void add(const Operation& operation, int size) {
    const std::uint64_t bytes = sent_by(operation, size);
    const auto kind = static_cast<std::size_t>(operation.kind);
    const std::lock_guard lock(mutex_);
    bytes_[kind] += bytes;
    ++operations_[kind];
    if (kept_.size() < kKept) kept_.emplace_back();
    RecordedOperation& record = kept_[count_ % kKept];
    record.sequence = count_++;
    record.kind = operation.kind;
    record.type = operation.type;
    record.count = operation.count;
    record.tag = operation.tag;
    record.sent_bytes = bytes;
  }

  [[nodiscard]] std::vector<RecordedOperation> last() const override {
    const std::lock_guard lock(mutex_);
    std::vector<RecordedOperation> result;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      result.push_back(kept_[(count_ + i) % kept_.size()]);
    }
    return result;
  }

  [[nodiscard]] std::uint64_t bytes(OperationKind kind) const override {
    const std::lock_guard lock(mutex_);
    return bytes_[static_cast<std::size_t>(kind)];
  }

  [[nodiscard]] std::uint64_t operations(OperationKind kind) const override {
    const std::lock_guard lock(mutex_);
    return operations_[static_cast<std::size_t>(kind)];
  }

  [[nodiscard]] std::string json() const override {
    auto list = nlohmann::json::array();
    for (const RecordedOperation& record : last()) {
      list.push_back({{"sequence", record.sequence},
                      {"kind", name_of(record.kind)},
                      {"type", name_of(record.type)},
                      {"count", record.count},
                      {"tag", record.tag},
                      {"sent_bytes", record.sent_bytes}});
    }
    return list.dump();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<RecordedOperation> kept_;
  std::uint64_t count_ = 0;
  std::array<std::uint64_t, kKinds> bytes_{};
  std::array<std::uint64_t, kKinds> operations_{};
};

class RecordingDecorator final : public Decorator {
 public:
  RecordingDecorator(std::shared_ptr<Communicator> inner, std::shared_ptr<Log> log)
      : Decorator(std::move(inner)), log_(std::move(log)) {}

  Sequence submit(Stream& stream, const Operation& operation) override {
    log_->add(operation, size());
    return Decorator::submit(stream, operation);
  }

  // A part writes into the same recording: what this rank sends is what is asked for.
  std::shared_ptr<Communicator> split(int color, int key) override {
    return std::make_shared<RecordingDecorator>(inner()->split(color, key), log_);
  }

 private:
  const std::shared_ptr<Log> log_;
};

}  // namespace

RecordingCommunicator make_recording(std::shared_ptr<Communicator> inner) {
  auto log = std::make_shared<Log>();
  return {std::make_shared<RecordingDecorator>(std::move(inner), log), log};
}

}  // namespace ration
