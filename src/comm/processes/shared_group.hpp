#pragma once
// A group of processes: slots and memory of the near ones in an arena that they share.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/collectives/rank_group.hpp"
#include "comm/processes/arena.hpp"
#include "comm/processes/index_pool.hpp"
#include "control/control.hpp"

namespace ration {

/// Of a rank, in a list of all.
inline std::size_t index_of(int rank) {
  return static_cast<std::size_t>(rank);
}

class SharedGroup final : public RankGroup {
 public:
  struct Seat {
    int rank = 0;
    std::vector<int> names;
    std::vector<int> near;  ///< ranks that could share memory with this one, and itself
    std::uint32_t index = 0;
  };

  /// Collective, by `control` of the group. Where a host's processes cannot open each other's
  /// memory (said once) they become far from each other. `parent`'s memory can be read in its parts
  /// too.
  static std::shared_ptr<SharedGroup> make(const Seat& seat, Control& control,
                                           StreamMode stream_mode, std::shared_ptr<Alarm> alarm,
                                           std::shared_ptr<Messages> messages,
                                           std::shared_ptr<IndexPool> indices,
                                           const SharedGroup* parent);
  ~SharedGroup() override;

  Pair& pair(int sender, int receiver) override;
  [[nodiscard]] Place place(const void* data, std::size_t bytes) const override;
  [[nodiscard]] const void* find(const Place& place) const override;

  /// Memory that near peers can read, until the last of them has left the group.
  std::unique_ptr<Memory> allocate(std::size_t bytes);

  [[nodiscard]] const std::shared_ptr<Messages>& shared_messages() const { return messages_; }
  [[nodiscard]] const std::shared_ptr<IndexPool>& indices() const { return indices_; }

 private:
  SharedGroup(const Seat& seat, StreamMode stream_mode, std::shared_ptr<Alarm> alarm,
              std::shared_ptr<Messages> messages, std::shared_ptr<IndexPool> indices,
              const SharedGroup* parent);

  [[nodiscard]] static std::size_t reserved_bytes(std::size_t near);
  /// True where this host's processes have opened one arena.
  bool open_arena(const Seat& seat, Control& control);
  void use_arena(const std::vector<int>& near, int rank);
  void use_own_slots(int rank);

  const std::shared_ptr<Messages> messages_;
  const std::shared_ptr<IndexPool> indices_;
  const std::uint32_t index_;
  std::vector<std::shared_ptr<Arena>> arenas_;  // the ancestors' first
  std::vector<std::size_t> near_index_;         // by rank
  std::unique_ptr<Member> alone_;
};

}  // namespace ration
