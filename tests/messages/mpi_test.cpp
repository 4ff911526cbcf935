// MPI, a process for each rank: what holds for every transport, and what is MPI's own. mpirun
// starts this program; every process runs every test as its rank.

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <ration/error.hpp>

#include "comm/mpi/mpi.hpp"
#include "messages/transport_tests.hpp"
#include "support/deadline.hpp"

namespace ration::test {
namespace {

constexpr int kRanks = 4;

std::shared_ptr<MpiSession> session;
std::shared_ptr<Messages> world;

struct Mpi {
  static constexpr int kRanks = test::kRanks;
  static void run(const std::function<void(Messages&, int rank)>& body) {
    body(*world, session->rank());
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, Transports, Mpi);

/// Another session over all ranks, for one test.
class Adopted {
 public:
  explicit Adopted(MPI_Comm comm = MPI_COMM_WORLD, std::size_t piece = kMpiPiece)
      : session_(adopt_mpi_session(MPI_Comm_c2f(comm))), messages_(make_mpi(session_, piece)) {}
  ~Adopted() {
    messages_.reset();
    session_->finish();
  }
  Adopted(const Adopted&) = delete;
  Adopted& operator=(const Adopted&) = delete;
  MpiSession& session() { return *session_; }
  Messages& messages() { return *messages_; }

 private:
  std::shared_ptr<MpiSession> session_;
  std::shared_ptr<Messages> messages_;
};

TEST(MpiMessage, IsCutIntoPiecesThatArriveInOrder) {
  const std::size_t piece = 1000;
  Adopted own(MPI_COMM_WORLD, piece);
  const int peer = own.session().rank() ^ 1;
  constexpr std::size_t kSizes[] = {999, 1000, 1001, 0, 2000, 1'234'567};
  std::vector<Data> out;
  std::vector<Data> in;
  std::vector<std::unique_ptr<Message>> all;
  for (const std::size_t size : kSizes) {
    out.push_back(pattern(size, own.session().rank()));
    in.emplace_back(size);
    all.push_back(own.messages().send(peer, 3, out.back().data(), size));
    all.push_back(own.messages().receive(peer, 3, in.back().data(), size));
  }
  for (const auto& message : all) ASSERT_TRUE(message->wait(soon()));
  for (std::size_t i = 0; i < std::size(kSizes); ++i) ASSERT_EQ(in[i], pattern(kSizes[i], peer));
}

TEST(MpiMessage, OfAnotherSizeIsAnErrorThatSaysBoth) {
  const int rank = session->rank();
  const int peer = rank ^ 1;
  Data memory(100);
  const auto send = world->send(peer, 50, memory.data(), rank % 2 == 0 ? 60 : 100);
  const auto receive = world->receive(peer, 50, memory.data(), rank % 2 == 0 ? 60 : 100);
  try {
    receive->wait(soon());
    ADD_FAILURE() << "nothing was thrown";
  } catch (const CommunicationError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("rank " + std::to_string(rank) + ": MPI, receiving from rank " +
                        std::to_string(peer) + ", tag 50: "),
              std::string::npos)
        << text;
    if (rank % 2 == 1) {
      EXPECT_THAT(text, testing::HasSubstr("60 bytes came instead of 100"));
    }
  }
  EXPECT_TRUE(send->wait(soon()));
  exchange(*world, peer, 51);
}

TEST(MpiSession, AdoptsAPartOfTheWorld) {
  const int rank = session->rank();
  MPI_Comm half = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Comm_split(MPI_COMM_WORLD, rank / 2, -rank, &half), MPI_SUCCESS);
  Adopted own(half);
  MPI_Comm_free(&half);  // a copy is used
  EXPECT_EQ(own.session().size(), 2);
  EXPECT_EQ(own.session().rank(), 1 - rank % 2);
  for (std::uint32_t tag = 0; tag < 5; ++tag)
    exchange(own.messages(), 1 - own.session().rank(), tag);
}

TEST(MpiSession, BroadcastsBeforeMessagesFlow) {
  const auto own = adopt_mpi_session(MPI_Comm_c2f(MPI_COMM_WORLD));
  Bytes bytes;
  if (own->rank() == 2) bytes.assign(1000, std::byte{9});
  own->broadcast(bytes, 2);
  EXPECT_EQ(bytes, Bytes(1000, std::byte{9}));
  bytes.clear();
  own->broadcast(bytes, 0);
  EXPECT_TRUE(bytes.empty());
  const auto messages = make_mpi(own);
  EXPECT_THROW(own->broadcast(bytes, 0), InvalidArgument);
  EXPECT_THROW(make_mpi(own), InvalidArgument);
  own->finish();
}

TEST(MpiSession, ARankThatNeverComesIsATimeout) {
  const auto own = adopt_mpi_session(MPI_Comm_c2f(MPI_COMM_WORLD));
  if (own->rank() != 0) {
    const WithTimeout timeout(std::chrono::milliseconds(200));
    Bytes bytes;
    EXPECT_THROW(own->broadcast(bytes, 0), Timeout);
  }
  own->give_up();
}

TEST(MpiSession, RefusesWhatIsNoCommunicator) {
  EXPECT_THROW(adopt_mpi_session(MPI_Comm_c2f(MPI_COMM_NULL)), InvalidArgument);
}

TEST(MpiSession, GivingUpFreesAllMemoryAtOnce) {
  const auto own = adopt_mpi_session(MPI_Comm_c2f(MPI_COMM_WORLD));
  const auto messages = make_mpi(own);
  const int peer = own->rank() ^ 1;
  Data memory(10 << 20);
  auto send = messages->send(peer, 1, memory.data(), memory.size());  // that nobody receives
  auto receive = messages->receive(peer, 2, memory.data(), memory.size());
  EXPECT_FALSE(receive->wait(kPast));
  const auto start = Clock::now();
  own->give_up();
  EXPECT_THROW(send->wait(soon()), ConnectionLost);
  EXPECT_THROW(receive->wait(soon()), ConnectionLost);
  send.reset();
  receive.reset();
  EXPECT_THROW(messages->send(peer, 3, memory.data(), 1)->wait(soon()), ConnectionLost);
  own->finish();  // does nothing
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

TEST(MpiMessage, ASendThatIsGivenUpFreesItsMemory) {
  const auto own = adopt_mpi_session(MPI_Comm_c2f(MPI_COMM_WORLD));
  const auto messages = make_mpi(own);
  Data memory(10 << 20);
  const auto start = Clock::now();
  messages->send(own->rank() ^ 1, 1, memory.data(), memory.size());  // that nobody receives
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  EXPECT_THROW(messages->send(own->rank() ^ 1, 2, memory.data(), 1)->wait(soon()), ConnectionLost);
}

TEST(MpiSession, AHundredCanBeOpenedOneAfterTheOther) {
  for (int i = 0; i < 100; ++i) {
    Adopted own;
    exchange(own.messages(), own.session().rank() ^ 1, 1);
  }
}

}  // namespace

int run_all() {
  session = open_mpi_session();
  if (session->size() != kRanks) {
    std::fprintf(stderr, "started with %d ranks; start it by mpirun -n %d\n", session->size(),
                 kRanks);
    return 2;
  }
  world = make_mpi(session);
  const int failed = RUN_ALL_TESTS();
  world.reset();
  session->finish();
  int ended = 0;
  MPI_Finalized(&ended);
  return failed != 0 || ended == 0 ? 1 : 0;
}

}  // namespace ration::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return ration::test::run_all();
}
