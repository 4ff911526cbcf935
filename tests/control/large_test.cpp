// A job of 1,024 ranks, of which all but rank 0 are connections that speak a rank's frames.

#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "control/bytes.hpp"
#include "control/raw_peer.hpp"
#include "control/stars.hpp"

namespace ration {
namespace {

TEST(LargeJob, FoldsTheRecordsOfAThousandRanks) {
  constexpr int kRanks = 1024;
  constexpr std::size_t kRecord = 200;
  constexpr std::uint64_t kFolds = 5;
  auto listener = std::make_unique<Listener>(std::vector<std::uint16_t>{0});
  const std::uint16_t port = listener->port();
  const std::string token = any_token();

  std::thread others([&] {
    std::vector<RawPeer> peers;
    for (int rank = 1; rank < kRanks; ++rank) {
      peers.emplace_back(port);
      peers.back().join(rank, kRanks, token);
    }
    for (RawPeer& peer : peers) {
      const auto met = peer.hear();
      ASSERT_TRUE(met);
      ASSERT_EQ(met->kind, tcp::FrameKind::met);
    }
    for (std::uint64_t number = 0; number < kFolds; ++number) {
      for (int rank = 1; rank < kRanks; ++rank) {
        tcp::Record record;
        record.key.channel = "step";
        record.key.number = number;
        record.member = rank;
        record.size = kRanks;
        record.what = "a step";
        record.bytes = Bytes(kRecord, static_cast<std::byte>(rank));
        peers[static_cast<std::size_t>(rank - 1)].say(tcp::encode(std::move(record)));
      }
      for (RawPeer& peer : peers) {
        const auto frame = peer.hear();
        ASSERT_TRUE(frame);
        EXPECT_EQ(tcp::decode<tcp::Result>(*frame).bytes.size(), sizeof(std::uint64_t));
      }
    }
    for (RawPeer& peer : peers) peer.say(tcp::encode(tcp::Departing{}));
  });

  {
    const auto star = Star::meet({0, kRanks, {}, {}, token}, std::make_shared<Alarm>(kRanks),
                                 std::move(listener));
    const auto control = star->control(0, whole(kRanks), 0);
    const auto sum = [](std::span<const Bytes> records, Bytes& result) {
      std::uint64_t total = 0;
      for (std::size_t rank = 0; rank < records.size(); ++rank) {
        EXPECT_EQ(records[rank], Bytes(kRecord, static_cast<std::byte>(rank)));
        total += records[rank].size();
      }
      result.resize(sizeof total);
      std::memcpy(result.data(), &total, sizeof total);
    };
    const std::uint64_t before = star->sent_bytes();
    for (std::uint64_t number = 0; number < kFolds; ++number) {
      Bytes result;
      control->fold("step", Bytes(kRecord), sum, result, "a step");
      std::uint64_t total = 0;
      ASSERT_EQ(result.size(), sizeof total);
      std::memcpy(&total, result.data(), sizeof total);
      EXPECT_EQ(total, kRanks * kRecord);
    }
    // A result to each, and a heartbeat now and then; not every record to everyone.
    EXPECT_LT(star->sent_bytes() - before, kFolds * kRanks * 128);
  }
  others.join();
}

}  // namespace
}  // namespace ration
