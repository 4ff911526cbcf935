// How a job's ranks find each other, and who is not let in.

#include <chrono>
#include <filesystem>
#include <random>
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
using testing::AllOf;
using testing::HasSubstr;

/// A job whose ranks come when the test wants them to.
class Job {
 public:
  explicit Job(int ranks)
      : ranks_(ranks),
        listener_(std::make_unique<Listener>(std::vector<std::uint16_t>{0})),
        port_(listener_->port()),
        stars_(static_cast<std::size_t>(ranks)),
        errors_(static_cast<std::size_t>(ranks)) {}
  ~Job() { end(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] const std::string& token() const { return token_; }
  [[nodiscard]] Meeting meeting(int rank) const {
    return {rank, ranks_, {"127.0.0.1"}, {port_}, token_};
  }
  void start(int rank) { start(rank, meeting(rank)); }
  void start(int rank, Meeting meeting) {
    threads_.emplace_back([this, rank, meeting = std::move(meeting)] {
      const auto r = static_cast<std::size_t>(rank);
      try {
        stars_[r] = Star::meet(meeting, std::make_shared<Alarm>(ranks_),
                               rank == 0 ? std::move(listener_) : nullptr);
      } catch (const Error& e) {
        errors_[r] = e.what();
      }
    });
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  /// Rank 0's star waits for the others, so it goes last.
  void end() {
    join();
    while (!stars_.empty()) stars_.pop_back();
  }
  [[nodiscard]] const std::string& error(int rank) const {
    return errors_[static_cast<std::size_t>(rank)];
  }
  /// All have met, and control works.
  void expect_sound() {
    join();
    for (const std::string& error : errors_) EXPECT_EQ(error, "");
    if (testing::Test::HasFailure()) return;
    run_ranks(ranks_, [&](int rank) {
      const auto control = stars_[static_cast<std::size_t>(rank)]->control(0, whole(ranks_), rank);
      EXPECT_EQ(fold(*control, "step", "x").size(), static_cast<std::size_t>(ranks_));
    });
  }

 private:
  const int ranks_;
  const std::string token_ = any_token();
  std::unique_ptr<Listener> listener_;
  const std::uint16_t port_;
  std::vector<std::shared_ptr<Star>> stars_;
  std::vector<std::string> errors_;
  std::vector<std::thread> threads_;
};

tcp::Hello hello(const Job& job, int rank, int size) {
  return {.token = tcp::TokenHash::of(job.token()),
          .rank = rank,
          .size = size,
          .process = tcp::Process::self()};
}

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

TEST(Meeting, AllGetTheSameVerdictOnWhoIsMissing) {
  Job job(4);
  const WithTimeout timeout(500ms);
  job.start(0);
  job.start(2);
  job.join();
  EXPECT_EQ(
      job.error(0),
      "rank 0: the meeting of the job's 4 ranks: timed out after 0.5 s waiting for ranks 1, 3");
  EXPECT_EQ(job.error(2), job.error(0));
}

TEST(Meeting, WithoutARankZeroSaysWhereItWasSoughtAndWhatWasAnswered) {
  const WithTimeout timeout(300ms);
  Listener listener({0});
  const std::uint16_t port = listener.port();
  ::close(listener.release());
  try {
    Star::meet({1, 2, {"127.0.0.1"}, {port}, "token"}, std::make_shared<Alarm>(2));
    FAIL() << "did not throw";
  } catch (const Timeout& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("rank 1: rank 0 was not found within 0.3 s"),
                                HasSubstr(fmt::format("127.0.0.1:{}: Connection refused", port))));
  }
}

TEST(Meeting, RankZeroMayComeLater) {
  Job job(3);
  // Until rank 0 comes, somebody else answers at its port: who hears that tries again.
  Listener other({0});
  const std::uint16_t port = other.port();
  const int socket = other.release();
  Meeting meeting = job.meeting(1);
  meeting.ports = {port};
  job.start(1, meeting);
  meeting.rank = 2;
  job.start(2, meeting);
  for (int i = 0; i < 2; ++i) ::close(::accept(socket, nullptr, nullptr));
  ::close(socket);
  meeting.rank = 0;
  std::shared_ptr<Star> star;
  // The others' closed connections may keep the port for a moment.
  EXPECT_TRUE(eventually([&] {
    try {
      auto listener = std::make_unique<Listener>(std::vector<std::uint16_t>{port});
      star = Star::meet(meeting, std::make_shared<Alarm>(3), std::move(listener));
      return true;
    } catch (const IoError&) {
      return false;
    }
  }));
  job.join();
  EXPECT_EQ(job.error(1), "");
  EXPECT_EQ(job.error(2), "");
  std::thread zero([star = std::exchange(star, nullptr)]() mutable { star.reset(); });
  job.end();
  zero.join();
}

TEST(Meeting, EveryHostAndPortIsTriedInTurn) {
  Job job(3);
  Listener silent({0});  // a stranger's, who listens and says nothing
  job.start(0);
  for (int rank = 1; rank < 3; ++rank) {
    Meeting meeting = job.meeting(rank);
    meeting.hosts = {"no.such.host.invalid", "127.0.0.1"};
    meeting.ports = {silent.port(), job.port()};
    job.start(rank, meeting);
  }
  job.expect_sound();
}

TEST(Meeting, IsReachedByIPv6WhereThereIsOne) {
  Job job(2);
  job.start(0);
  Meeting meeting = job.meeting(1);
  meeting.hosts = {"::1", "127.0.0.1"};
  job.start(1, meeting);
  job.expect_sound();
}

TEST(Meeting, ListensOnTheFirstPortThatIsFree) {
  const Listener first({0});
  Listener second({0});
  const std::uint16_t free = second.port();
  ::close(second.release());
  const Listener third({first.port(), free});
  EXPECT_EQ(third.port(), free);
  try {
    const Listener fourth({first.port(), free});
    FAIL() << "did not throw";
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr(fmt::format("cannot listen on ports {}, {}: Address already "
                                                "in use",
                                                first.port(), free)));
  }
}

TEST(Meeting, KeepsAnotherJobsRanksOut) {
  Job job(2);
  job.start(0);
  RawPeer first(job.port());
  tcp::Hello another = hello(job, 1, 2);
  another.token.low += 1;
  first.say(tcp::encode(another));
  EXPECT_TRUE(first.hear());  // so rank 0 is there, and has its deadline
  {
    const WithTimeout timeout(300ms);
    Meeting stranger = job.meeting(1);
    stranger.token = "another";
    try {
      Star::meet(stranger, std::make_shared<Alarm>(2));
      FAIL() << "did not throw";
    } catch (const Timeout& e) {
      EXPECT_THAT(e.what(), HasSubstr("the last answer was 127.0.0.1:"));
      EXPECT_THAT(e.what(), HasSubstr("another job"));
    }
  }
  job.start(1);
  job.expect_sound();
}

TEST(Meeting, RanksOfDifferentSizesAreToldOnBothSides) {
  Job job(3);
  job.start(0);
  RawPeer first(job.port());
  first.join(1, 3, job.token());
  Meeting meeting = job.meeting(2);
  meeting.size = 5;
  job.start(2, meeting);
  job.join();
  EXPECT_THAT(job.error(2), AllOf(HasSubstr("rank 2 (host "), HasSubstr("for a job of 5 ranks"),
                                  HasSubstr("for one of 3")));
  EXPECT_EQ(job.error(0), job.error(2));
  const auto told = first.hear();
  ASSERT_TRUE(told);
  EXPECT_EQ(tcp::decode<tcp::JobFailure>(*told).failure.text, job.error(2));
}

TEST(Meeting, ARankThatIsThereAlreadyIsRefused) {
  Job job(3);
  job.start(0);
  RawPeer first(job.port());
  first.join(1, 3, job.token());
  EXPECT_TRUE(eventually([&] { return seat_is_taken(job.port(), job.token(), 1, 3); }));
  try {
    Star::meet(job.meeting(1), std::make_shared<Alarm>(3));
    FAIL() << "did not throw";
  } catch (const InvalidArgument& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("rank 1 is there already (host "),
                                HasSubstr("two processes were given the same rank")));
  }
  job.start(2);
  job.join();
  EXPECT_EQ(job.error(0), "");
  EXPECT_EQ(job.error(2), "");
}

TEST(Meeting, StrangersChangeNothing) {
  Job job(3);
  job.start(0);
  job.start(1);
  std::vector<RawPeer> strangers;
  std::mt19937 random(7);
  const auto stranger = [&](const Bytes& bytes) {
    strangers.emplace_back(job.port());
    strangers.back().say(bytes);
  };
  const Bytes right = *tcp::encode(hello(job, 2, 3));
  stranger({right.begin(), right.begin() + static_cast<std::ptrdiff_t>(right.size() / 2)});
  tcp::Hello wrong = hello(job, 2, 3);
  wrong.magic += 1;
  stranger(*tcp::encode(wrong));
  wrong = hello(job, 2, 3);
  wrong.version += 1;
  stranger(*tcp::encode(wrong));
  for (const int rank : {-1, 0, 3, 1 << 30}) stranger(*tcp::encode(hello(job, rank, 3)));
  stranger(*tcp::encode(tcp::Seated{}));
  stranger(*tcp::encode(tcp::JobFailure{{Failure::Kind::error, "a stranger's"}}));
  stranger(bytes_of("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  stranger(Bytes(5, std::byte{0xff}));                  // the longest frame that can be announced
  stranger(Bytes(std::size_t{1} << 20, std::byte{0}));  // a megabyte
  for (int i = 0; i < 200; ++i) {
    Bytes garbage(random() % 500);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    stranger(garbage);
  }
  job.start(2);
  job.expect_sound();
}

TEST(Meeting, ThoseWhoAreRefusedAreToldWhy) {
  Job job(3);
  job.start(0);
  const auto answer = [&](const tcp::Hello& hello) {
    RawPeer peer(job.port());
    peer.say(tcp::encode(hello));
    const auto frame = peer.hear();
    return frame ? tcp::decode<tcp::Refusal>(*frame).text : "nothing";
  };
  tcp::Hello wrong = hello(job, 2, 3);
  wrong.version = 2;
  EXPECT_THAT(answer(wrong), HasSubstr("another version"));
  wrong = hello(job, 2, 3);
  wrong.token.high += 1;
  EXPECT_EQ(answer(wrong), "another job");
  EXPECT_THAT(answer(hello(job, 3, 3)), HasSubstr("the ranks of this job are 0 to 2"));
  job.start(1);
  job.start(2);
  job.expect_sound();
}

TEST(Meeting, TenThousandWhoSayNothingChangeNothing) {
  Job job(3);
  job.start(0);
  job.start(1);
  std::vector<RawPeer> silent;
  for (int i = 0; i < 10'000; ++i) silent.emplace_back(job.port());
  EXPECT_TRUE(silent.back().connected());
  // Whoever is answered is behind all those.
  EXPECT_FALSE(seat_is_taken(job.port(), job.token(), 2, 3));
  EXPECT_LT(open_files(), silent.size() + 600);
  job.start(2);
  job.expect_sound();
  EXPECT_LT(open_files(), silent.size() + 100);  // and nothing is kept of them
}

TEST(Meeting, TheDoorIsClosedWhenAllAreIn) {
  const Stars stars(2);
  const auto controls = stars.controls(0, whole(2));
  run_ranks(2, [&](int rank) {
    EXPECT_EQ(fold(*controls[static_cast<std::size_t>(rank)], "step", "x"), "xx");
  });
  EXPECT_FALSE(RawPeer(stars.port).connected());
}

TEST(Meeting, RefusesWhatIsNoPlaceInAJob) {
  const auto alarm = std::make_shared<Alarm>(2);
  EXPECT_THROW(Star::meet({2, 2, {"localhost"}, {1}, ""}, alarm), InvalidArgument);
  EXPECT_THROW(Star::meet({-1, 2, {"localhost"}, {1}, ""}, alarm), InvalidArgument);
  EXPECT_THROW(Star::meet({1, 2, {}, {1}, ""}, alarm), InvalidArgument);
  EXPECT_THROW(Star::meet({1, 2, {"localhost"}, {}, ""}, alarm), InvalidArgument);
  EXPECT_THROW(Star::meet({0, 2, {}, {}, ""}, alarm), InvalidArgument);
}

}  // namespace
}  // namespace ration
