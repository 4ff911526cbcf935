// A rank 0 or another rank that does not behave as ours do.

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "control/bytes.hpp"
#include "control/raw_peer.hpp"
#include "control/stars.hpp"
#include "support/deadline.hpp"

namespace ration {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

constexpr auto kToken = "token";

/// Rank 0 of two as `behave` has it, once the other is seated and told that all have met.
template <class Behave>
std::thread rank_zero(Listener& listener, const Behave& behave) {
  return std::thread([&listener, behave] {
    RawPeer one = RawPeer::accept(listener);
    ASSERT_TRUE(one.hear());  // hello
    tcp::Welcome welcome;
    welcome.token = tcp::TokenHash::of(kToken);
    welcome.process = {"elsewhere", 1};
    one.say(tcp::encode(welcome));
    ASSERT_TRUE(one.hear());  // seated
    one.say(tcp::encode(tcp::Met{}));
    behave(one);
  });
}

std::shared_ptr<Star> meet_as_rank_one(const Listener& listener) {
  return Star::meet({1, 2, {"127.0.0.1"}, {listener.port()}, kToken}, std::make_shared<Alarm>(2));
}

TEST(ForeignRankZero, ThatLivesButDoesNotAnswerIsNamedAfterTheDeadline) {
  Listener listener({0});
  std::atomic<bool> over{false};
  std::thread zero = rank_zero(listener, [&over](RawPeer& one) {
    // Alive as far as one can tell.
    EXPECT_TRUE(eventually([&] {
      one.say(tcp::encode(tcp::Heartbeat{}));
      return over.load();
    }));
  });
  {
    const auto star = meet_as_rank_one(listener);
    const auto control = star->control(0, whole(2), 1);
    const WithTimeout timeout(300ms);
    try {
      fold(*control, "step", "x");
      ADD_FAILURE() << "did not throw";
    } catch (const Timeout& e) {
      EXPECT_STREQ(
          e.what(),
          "rank 1: a fold (step #0): timed out after 0.3 s, and rank 0, which knows who is "
          "missing, does not answer: it is stopped, or its host cannot be reached");
    }
  }
  over.store(true);
  zero.join();
}

TEST(ForeignRankZero, ThatSaysGarbageEndsTheJob) {
  for (const Bytes& garbage :
       {bytes_of("certainly no frame of ours"), *tcp::encode(tcp::Seated{})}) {
    Listener listener({0});
    std::thread zero = rank_zero(listener, [&garbage](RawPeer& one) {
      one.say(garbage);
      while (one.hear()) {
      }
    });
    {
      const auto star = meet_as_rank_one(listener);
      const auto control = star->control(0, whole(2), 1);
      try {
        fold(*control, "step", "x");
        ADD_FAILURE() << "did not throw";
      } catch (const CommunicationError& e) {
        EXPECT_THAT(e.what(), StartsWith("rank 0 (host elsewhere, pid 1) has sent what cannot be "
                                         "read: "));
      }
    }
    zero.join();
  }
}

TEST(ForeignRank, ThatSaysGarbageEndsTheJob) {
  tcp::Record misfit;
  misfit.key.channel = "step";
  misfit.member = 1;
  misfit.size = 1 << 30;
  for (const auto& [garbage, text] :
       {std::pair{bytes_of("certainly no frame of ours"), "has sent what cannot be read"},
        std::pair{*tcp::encode(tcp::Met{}), "says what only rank 0 says"},
        std::pair{*tcp::encode(misfit), "rank 1 is no member 1 of 1073741824"}}) {
    auto listener = std::make_unique<Listener>(std::vector<std::uint16_t>{0});
    RawPeer one(listener->port());
    std::thread joining([&] { one.join(1, 2, kToken); });
    const auto star =
        Star::meet({0, 2, {}, {}, kToken}, std::make_shared<Alarm>(2), std::move(listener));
    joining.join();
    one.say(garbage);
    const auto control = star->control(0, whole(2), 0);
    try {
      fold(*control, "step", "x");
      ADD_FAILURE() << "did not throw";
    } catch (const CommunicationError& e) {
      EXPECT_THAT(e.what(), HasSubstr(text));
    }
    one.say(tcp::encode(tcp::Departing{}));
  }
}

TEST(OpenFiles, AreAllowedAsManyAsTheSystemDoes) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit limit = before;
  limit.rlim_cur = before.rlim_max / 2;
  setrlimit(RLIMIT_NOFILE, &limit);
  {
    const Stars stars(2);
    getrlimit(RLIMIT_NOFILE, &limit);
    EXPECT_EQ(limit.rlim_cur, before.rlim_max);
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(OpenFiles, ThatAreTooFewAreSaidBeforeAnybodyComes) {
  constexpr int kRanks = 1 << 21;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max > kRanks)
    GTEST_SKIP() << "SKIPPED: more files may be opened than can be asked for";
  try {
    Star::meet({0, kRanks, {}, {0}, ""}, std::make_shared<Alarm>(1));
    FAIL() << "did not throw";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr(fmt::format("the limit is {}; raise it", limit.rlim_max)));
  }
}

}  // namespace
}  // namespace ration
