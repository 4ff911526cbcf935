#pragma once
// A rank's control in a group: waits for what the hub says of its folds.

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "control/control.hpp"
#include "control/tcp/place.hpp"
#include "control/tcp/star.hpp"

namespace ration::tcp {

class StarControl final : public Control {
 public:
  StarControl(std::shared_ptr<Star> star, Place& place, std::uint64_t group, std::vector<int> names,
              int rank);
  ~StarControl() override;
  StarControl(const StarControl&) = delete;
  StarControl& operator=(const StarControl&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(names_.size()); }
  void fold(std::string_view channel, const Bytes& record, const Combine& combine, Bytes& result,
            std::string_view what) override;
  void abort(std::string_view reason) override;
  [[nodiscard]] std::optional<std::string> aborted() const override;

  // What the hub says, on the star's thread or, on rank 0, on any.
  void take(tcp::Combine&& combine);
  void take(Result&& result);
  void take(const Patience& patience);

 private:
  // One fold at a time. What has been taken is written before `taken`, read after it.
  struct Channel {
    std::uint64_t next = 0;             // touched by who folds only
    std::atomic<std::uint64_t> due{0};  // the number of the fold that is waited in, + 1
    std::atomic<std::uint64_t> taken{0};
    std::atomic<std::uint64_t> patience{0};
    bool combining = false;  // what has been taken are records to combine
    std::vector<Bytes> records;
    Result result;
    Signal signal;
  };

  Channel& channel(std::string_view name);
  Channel* expecting(const FoldKey& key);
  void await(Channel& channel, const FoldKey& key, std::string_view what);
  static void run(Channel& channel, const Combine& combine);

  const std::shared_ptr<Star> star_;
  Place& place_;
  const std::uint64_t group_;
  const std::vector<int> names_;
  const int rank_;
  std::mutex mutex_;
  std::map<std::string, Channel, std::less<>> channels_;
};

}  // namespace ration::tcp
