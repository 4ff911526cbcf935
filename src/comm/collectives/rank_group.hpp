#pragma once
// What the collectives need to know of a group: who is in it, whose memory can be read, and how to
// reach the others. Threads are one group object for all ranks; between processes each has its own.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/collectives/slot.hpp"
#include "comm/collectives/staging.hpp"
#include "comm/messages.hpp"
#include "control/alarm.hpp"
#include "core/signal.hpp"

namespace ration {

/// Who does the work of streams.
enum class StreamMode {
  direct,  ///< the rank's own thread, when it polls or waits; shards are one-sided where possible
  streams  ///< a thread per stream; every gather is matched
};

/// What the environment variable says; nothing where it is not set. Throws InvalidArgument for what
/// is neither.
std::optional<StreamMode> stream_mode_from(const char* variable);

/// The most ranks whose memory one rank can read.
inline constexpr int kMostNear = 256;

class RankGroup {
 public:
  virtual ~RankGroup() = default;

  [[nodiscard]] int size() const { return static_cast<int>(names_.size()); }
  /// A rank's number in the whole job, by which messages name it.
  [[nodiscard]] int name(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const std::vector<int>& names() const { return names_; }
  [[nodiscard]] StreamMode stream_mode() const { return stream_mode_; }
  [[nodiscard]] Alarm& alarm() const { return *alarm_; }
  [[nodiscard]] const std::shared_ptr<Alarm>& shared_alarm() const { return alarm_; }

  /// Ranks that see each other's slots, in order, the asking one among them.
  [[nodiscard]] const std::vector<int>& near() const { return near_; }
  /// The others: postings and data go to them by messages.
  [[nodiscard]] const std::vector<int>& far() const { return far_; }
  /// A far rank's place in `far()`.
  [[nodiscard]] std::size_t far_index(int rank) const {
    return far_index_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] bool is_near(int rank) const {
    return members_[static_cast<std::size_t>(rank)] != nullptr;
  }

  /// Of a near rank.
  [[nodiscard]] Slot& slot(int rank, std::uint64_t number) const {
    return members_[static_cast<std::size_t>(rank)]->ring[number % kSlots];
  }
  /// Of a near rank: notified whenever it posts or is done.
  [[nodiscard]] Signal& signal(int rank) const {
    return members_[static_cast<std::size_t>(rank)]->signal;
  }
  /// The slots from one near rank to another.
  virtual Pair& pair(int sender, int receiver) = 0;

  /// Where near peers find this memory of ours; `readable` is false where they cannot.
  [[nodiscard]] virtual Place place(const void* data, std::size_t bytes) const = 0;
  /// What a near peer's place is here. Throws OutOfMemory if it cannot be mapped.
  [[nodiscard]] virtual const void* find(const Place& place) const = 0;

  /// Where what came by messages waits to be summed.
  [[nodiscard]] StagingPool& staging() { return staging_; }

  /// To all ranks but oneself; null where every rank is near and all its memory readable.
  [[nodiscard]] Messages* messages() const { return messages_; }
  /// Of messages of this group: an operation's, in `part` 0 to 3.
  [[nodiscard]] std::uint32_t message_tag(std::uint64_t number, unsigned part) const {
    return (index_ * static_cast<std::uint32_t>(kSlots) +
            static_cast<std::uint32_t>(number % kSlots)) *
               4 +
           part;
  }

 protected:
  /// What near ranks see of one.
  struct Member {
    explicit Member(bool between_processes) : signal(between_processes) {}
    Signal signal;
    Slot ring[kSlots];
  };

  RankGroup(std::vector<int> names, StreamMode stream_mode, std::shared_ptr<Alarm> alarm)
      : names_(std::move(names)), stream_mode_(stream_mode), alarm_(std::move(alarm)) {}

  /// `members` by rank, null for far ones.
  void set_members(std::vector<Member*> members);
  void set_messages(Messages* messages, std::uint32_t index) {
    messages_ = messages;
    index_ = index;
  }

 private:
  const std::vector<int> names_;
  const StreamMode stream_mode_;
  const std::shared_ptr<Alarm> alarm_;
  std::vector<Member*> members_;
  std::vector<int> near_;
  std::vector<int> far_;
  std::vector<std::size_t> far_index_;
  StagingPool staging_;
  Messages* messages_ = nullptr;
  std::uint32_t index_ = 0;
};

}  // namespace ration
