#pragma once
// The ring in which a recording keeps the last operations of a rank.

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/decorators/decorators.hpp"

namespace ration {

/// The rank's own thread begins operations, its streams' threads end them, a thread that saves may
/// fold: all under one mutex, for some ten nanoseconds each.
class FlightLog final : public Recording, public std::enable_shared_from_this<FlightLog> {
 public:
  FlightLog();

  /// One group's numbering; ends when the group's communicator does.
  class Group {
   public:
    ~Group();
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;
    [[nodiscard]] const std::string& name() const { return name_; }

   private:
    friend class FlightLog;
    struct Channel {
      std::string name;
      Sequence next = 0;
    };
    Group(std::shared_ptr<FlightLog> log, std::string name, int size, std::size_t place)
        : log_(std::move(log)), name_(std::move(name)), size_(size), place_(place) {}

    const std::shared_ptr<FlightLog> log_;
    const std::string name_;
    const int size_;
    const std::size_t place_;
    Sequence next(const Operation& operation, bool matched);

    Sequence matched_ = 0;
    Sequence alone_ = 0;
    std::vector<Sequence> sent_;      // to each peer; empty until one is sent to
    std::vector<Sequence> received_;  // from each peer
    std::uint64_t history_ = 1;
    std::vector<Channel> channels_;
  };
  std::unique_ptr<Group> add_group(std::string name, int rank, int size);

  /// An operation under way: failed, unless it is said to be done before this ends.
  class Pending {
   public:
    Pending(std::shared_ptr<FlightLog> log, std::uint64_t number)
        : log_(std::move(log)), number_(number) {}
    Pending(Pending&&) = default;
    Pending& operator=(Pending&&) = delete;
    ~Pending() {
      if (log_) log_->end(number_, OperationState::failed);
    }
    void done() {
      log_->end(number_, OperationState::done);
      log_.reset();
    }

   private:
    std::shared_ptr<FlightLog> log_;
    std::uint64_t number_;
  };
  Pending begin(Group& group, const Operation& operation);
  Pending begin_fold(Group& group, std::string_view channel, std::size_t bytes,
                     std::string_view what);

  [[nodiscard]] std::vector<RecordedOperation> last() const override;
  [[nodiscard]] std::vector<RecordedGroup> groups() const override;
  [[nodiscard]] std::uint64_t bytes(OperationKind kind) const override;
  [[nodiscard]] std::uint64_t operations(OperationKind kind) const override;
  [[nodiscard]] std::chrono::system_clock::time_point began() const override { return began_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint64_t kKept = 1024;
  static constexpr std::size_t kKinds = static_cast<std::size_t>(OperationKind::barrier) + 1;

  /// Plain data; texts are cut to fit.
  struct Entry {
    std::size_t group = 0;
    Sequence sequence = 0;
    std::uint64_t history = 0;
    std::uint64_t count = 0;
    std::uint64_t sent_bytes = 0;
    Clock::time_point submitted{};
    Clock::time_point ended{};
    int peer = -1;
    OperationKind kind{};
    DType type{};
    OperationState state = OperationState::submitted;
    bool fold = false;
    bool matched = true;
    std::array<char, 16> channel{};
    std::array<char, 64> tag{};
  };
  struct GroupInfo {
    RecordedGroup group;
    bool open = false;
    std::uint64_t used = 0;  ///< the number after its last operation's
  };

  Entry& add(Group& group);  // under the mutex
  void end(std::uint64_t number, OperationState state);
  [[nodiscard]] RecordedOperation readable(const Entry& entry) const;

  const std::chrono::system_clock::time_point began_ = std::chrono::system_clock::now();
  const Clock::time_point start_ = Clock::now();
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // by number, modulo kKept
  std::uint64_t count_ = 0;
  std::vector<GroupInfo> groups_;
  std::array<std::uint64_t, kKinds> bytes_{};
  std::array<std::uint64_t, kKinds> operations_{};
};

}  // namespace ration
