#pragma once
// The middle of the star: matches the records of all ranks to folds. It knows nothing of
// connections; what it has to say goes out through an Outlet.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/tcp/protocol.hpp"

namespace ration::tcp {

class Outlet {
 public:
  virtual ~Outlet() = default;
  virtual void combine(int leader, Combine&& combine) = 0;
  /// To all members but the leader, who made it.
  virtual void result(std::span<const int> members, Result&& result) = 0;
};

/// Any thread. What a call returns is a failure that ends the job, for the caller to raise.
class Hub {
 public:
  using Verdict = std::optional<Failure>;
  /// What is known of a missing rank, as " (...)", or nothing.
  using Remark = std::function<std::string(int name)>;

  Hub(int ranks, Outlet& outlet);

  Verdict open(int from, Opening&& opening);
  Verdict record(int from, Record&& record);
  Verdict result(int from, Result&& result);
  /// None: all have come to that fold.
  Verdict late(int from, const Late& late, const Remark& remark);
  Verdict leave(int from, const Leaving& leaving);
  Verdict depart(int name);

  [[nodiscard]] std::size_t groups() const;

 private:
  // The fold that the members of a group are in, or will be in next: nobody comes to the next one
  // before this one has its result.
  struct Channel {
    std::uint64_t number = 0;
    std::vector<Bytes> records;  // by rank in the group, as all below
    std::vector<char> present;
    int arrived = 0;
    int first = -1;  // the rank that came first
    std::string what;
  };
  struct Group {
    int leader = 0;
    int size = 0;
    std::vector<int> names;  // empty until the leader has opened it
    std::map<std::string, Channel, std::less<>> channels;
    int left = 0;
  };

  Group& group(std::uint64_t number, int leader, int size);
  [[nodiscard]] bool valid(int from, int leader, int member, int size) const;
  [[nodiscard]] Verdict hopeless(const Group& group, const std::string& name,
                                 const Channel& channel) const;
  [[nodiscard]] Verdict hopeless(const Group& group) const;

  const int ranks_;
  Outlet& outlet_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Group> groups_;
  std::vector<char> departed_;
  bool any_departed_ = false;
};

}  // namespace ration::tcp
