// What launchers say, as it was found in the environment of processes they started.

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launchers.hpp"

namespace ration::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Ge;
using testing::IsEmpty;
using testing::Le;

TEST(Environment, WithoutALauncherRanksAreThreads) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"MASTER_ADDR", "n1"}, {"LOCAL_RANK", "x"}, {"RATION_RANKS", "4"}}));
}

TEST(Environment, ByHand) {
  const auto job = read(kByHand);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->launcher, "by hand");
  EXPECT_EQ(job->rank, 2);
  EXPECT_EQ(job->size, 4);
  EXPECT_EQ(job->local_rank, std::nullopt);
  EXPECT_EQ(job->local_size, std::nullopt);
  EXPECT_THAT(job->hosts, ElementsAre("n1"));
  EXPECT_EQ(job->restarts, 0);
  EXPECT_FALSE(job->mpi);
}

TEST(Environment, Torchrun) {
  const auto job = read(kTorchrun + Set{{"TORCHELASTIC_RESTART_COUNT", "3"}});
  ASSERT_TRUE(job);
  EXPECT_EQ(job->launcher, "torchrun");
  EXPECT_EQ(job->rank, 2);
  EXPECT_EQ(job->size, 4);
  EXPECT_EQ(job->local_rank, 0);
  EXPECT_EQ(job->local_size, 2);
  EXPECT_EQ(job->restarts, 3);
  EXPECT_FALSE(job->mpi);
}

TEST(Environment, OpenMpi) {
  const auto job = read(kOpenMpi);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->launcher, "mpirun (Open MPI)");
  EXPECT_EQ(job->rank, 1);
  EXPECT_EQ(job->size, 2);
  EXPECT_EQ(job->local_rank, 1);
  EXPECT_EQ(job->local_size, 2);
  EXPECT_TRUE(job->mpi);
  EXPECT_THAT(job->hosts, ElementsAre("127.0.0.1"));  // all on this host
  EXPECT_THAT(read(kOpenMpi + Set{{"OMPI_COMM_WORLD_SIZE", "4"}})->hosts, IsEmpty());
  EXPECT_THAT(read(kOpenMpi + Set{{"MASTER_ADDR", "n7"}})->hosts, ElementsAre("n7"));
}

TEST(Environment, OtherMpis) {
  const auto hydra = read({{"PMI_RANK", "1"},
                           {"PMI_SIZE", "3"},
                           {"MPI_LOCALRANKID", "0"},
                           {"MPI_LOCALNRANKS", "1"},
                           {"PMI_FD", "11"}});
  ASSERT_TRUE(hydra);
  EXPECT_EQ(hydra->launcher, "mpiexec (MPICH, Intel MPI)");
  EXPECT_EQ(hydra->size, 3);
  EXPECT_EQ(hydra->local_size, 1);
  EXPECT_TRUE(hydra->mpi);
  const auto mvapich = read({{"MV2_COMM_WORLD_RANK", "1"},
                             {"MV2_COMM_WORLD_SIZE", "3"},
                             {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
                             {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}});
  ASSERT_TRUE(mvapich);
  EXPECT_EQ(mvapich->launcher, "mpirun (MVAPICH)");
  EXPECT_EQ(mvapich->rank, 1);
  EXPECT_EQ(mvapich->local_rank, 0);
  EXPECT_TRUE(mvapich->mpi);
}

TEST(Environment, Srun) {
  const auto job = read(kSrun + Set{{"SLURM_RESTART_COUNT", "2"}});
  ASSERT_TRUE(job);
  EXPECT_EQ(job->launcher, "srun");
  EXPECT_EQ(job->rank, 3);
  EXPECT_EQ(job->size, 4);
  EXPECT_EQ(job->local_rank, 0);
  EXPECT_EQ(job->local_size, 1);
  EXPECT_EQ(job->restarts, 2);
  EXPECT_FALSE(job->mpi);
  EXPECT_THAT(job->hosts, ElementsAre("rn1", "10.0.0.9"));
  EXPECT_EQ(read(kSrun + Set{{"SLURM_NODEID", "0"}, {"SLURM_LOCALID", "2"}})->local_size, 3);
}

TEST(Environment, SrunOnOneNodeMeetsOnTheLoopback) {
  const auto job = read(kSrun + Set{{"SLURM_STEP_NODELIST", "rn2"},
                                    {"SLURM_NODEID", "0"},
                                    {"SLURM_STEP_TASKS_PER_NODE", "4"}});
  ASSERT_TRUE(job);
  EXPECT_THAT(job->hosts, ElementsAre("127.0.0.1", "rn2", "10.0.0.9"));
}

TEST(Environment, SrunBelowABatchScriptThatNamesTheMaster) {
  const auto job = read(kSrun + Set{{"MASTER_ADDR", "rn2"}, {"WORLD_SIZE", "4"}});
  ASSERT_TRUE(job);
  EXPECT_EQ(job->launcher, "srun");
  EXPECT_THAT(job->hosts, ElementsAre("rn2"));
}

TEST(Environment, SrunWithAnMpiPlugin) {
  const auto pmix = read(kSrun + Set{{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "slurm.pmix.1.0"}});
  ASSERT_TRUE(pmix);
  EXPECT_EQ(pmix->launcher, "srun (PMIx)");
  EXPECT_EQ(pmix->size, 4);
  EXPECT_TRUE(pmix->mpi);
  EXPECT_THAT(pmix->hosts, ElementsAre("rn1", "10.0.0.9"));
  const auto pmi2 = read(kSrun + Set{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}});
  ASSERT_TRUE(pmi2);
  EXPECT_EQ(pmi2->launcher, "srun (PMI-2)");
  EXPECT_EQ(pmi2->local_size, 1);
  EXPECT_TRUE(pmi2->mpi);
}

// A program started in a batch script or below salloc without srun would wait for tasks that
// nobody starts.
TEST(Environment, ASlurmShellIsNoRank) {
  EXPECT_FALSE(read(kBatchShell));
  EXPECT_FALSE(read(without(without(kBatchShell, "SLURM_PROCID"), "SLURM_NODEID")));  // salloc
  for (const char* special : {"4294967290", "4294967291"}) {  // interactive step, batch script
    EXPECT_FALSE(
        read(kBatchShell + Set{{"SLURM_STEP_ID", special}, {"SLURM_STEP_NUM_TASKS", "1"}}));
  }
}

TEST(Environment, AWorldOfOneIsAnOrdinaryJob) {
  for (const Set& set :
       {Set{{"RANK", "0"}, {"WORLD_SIZE", "1"}},
        Set{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
        Set{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}}) {
    const auto job = read(set);
    ASSERT_TRUE(job);
    EXPECT_EQ(job->size, 1);
    EXPECT_THAT(job->hosts, ElementsAre("127.0.0.1"));
  }
}

TEST(Precedence, TheOverrideWinsOverAll) {
  const Set all = kTorchrun + kOpenMpi + kSrun;
  const auto job = read(all + Set{{"RATION_RANK", "6"}, {"RATION_WORLD_SIZE", "7"}});
  ASSERT_TRUE(job);
  EXPECT_EQ(job->launcher, "by hand");
  EXPECT_EQ(job->rank, 6);
  EXPECT_EQ(job->size, 7);
  EXPECT_FALSE(job->mpi);
}

TEST(Precedence, TorchrunBelowMpirunOrSrunWins) {
  for (const Set& outer : {kOpenMpi, kSrun, kOpenMpi + kSrun}) {
    const auto job = read(outer + kTorchrun);
    ASSERT_TRUE(job);
    EXPECT_EQ(job->launcher, "torchrun");
    EXPECT_EQ(job->rank, 2);
    EXPECT_FALSE(job->mpi);
  }
}

// Inside a Slurm job Open MPI starts its helpers by srun: their tasks are not ours.
TEST(Precedence, MpiWinsOverSlurm) {
  const auto job = read(kSrun + kOpenMpi);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->launcher, "mpirun (Open MPI)");
  EXPECT_EQ(job->rank, 1);
  for (const Set& own :
       {Set{{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}}, Set{{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}}) {
    const auto hydra = read(kSrun + own);
    ASSERT_TRUE(hydra);
    EXPECT_EQ(hydra->launcher, "mpiexec (MPICH, Intel MPI)");
    EXPECT_EQ(std::to_string(hydra->rank), own.at("PMI_RANK"));
  }
}

TEST(Precedence, ByHandBelowMpirunIsMpisWhereTheyAgree) {
  const auto job = read(kOpenMpi + Set{{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  ASSERT_TRUE(job);
  EXPECT_TRUE(job->mpi);
  EXPECT_EQ(job->rank, 1);
}

TEST(Precedence, AnEmptyVariableIsNotSet) {
  EXPECT_FALSE(read({{"RANK", ""}, {"WORLD_SIZE", ""}, {"RATION_RANK", ""}}));
  EXPECT_EQ(read(kSrun + Set{{"RANK", ""}, {"MASTER_ADDR", ""}})->launcher, "srun");
}

TEST(Ports, AreEightBelowTheEphemeralOnesAndTheSameOnAllRanks) {
  const auto one = read(kTorchrun)->ports;
  EXPECT_EQ(one.size(), 8u);
  EXPECT_THAT(one, testing::Each(AllOf(Ge(15000), Le(31999))));
  EXPECT_EQ(std::set(one.begin(), one.end()).size(), 8u);
  EXPECT_EQ(read(kTorchrun + Set{{"RANK", "0"}, {"LOCAL_RANK", "1"}, {"GROUP_RANK", "0"}})->ports,
            one);
  EXPECT_EQ(read(kSrun + Set{{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}})->ports,
            read(kSrun)->ports);
}

TEST(Ports, AreOthersForAnotherJob) {
  const auto torchrun = read(kTorchrun)->ports;
  EXPECT_NE(read(kTorchrun + Set{{"TORCHELASTIC_RUN_ID", "6a45"}})->ports, torchrun);
  EXPECT_NE(read(kTorchrun + Set{{"TORCHELASTIC_RESTART_COUNT", "1"}})->ports, torchrun);
  EXPECT_NE(read(kTorchrun + Set{{"MASTER_PORT", "29501"}})->ports, torchrun);
  EXPECT_NE(read(kSrun + Set{{"SLURM_STEP_ID", "1"}})->ports, read(kSrun)->ports);
  EXPECT_NE(read(kSrun + Set{{"SLURM_RESTART_COUNT", "1"}})->ports, read(kSrun)->ports);
}

TEST(Ports, RationPortIsTheOnlyOne) {
  EXPECT_THAT(read(kTorchrun + Set{{"RATION_PORT", "20000"}})->ports, ElementsAre(20000));
  // By hand nobody else listens at MASTER_PORT.
  EXPECT_THAT(read(kByHand + Set{{"RATION_PORT", "29500"}})->ports, ElementsAre(29500));
}

// Some of these would be among their own candidates: the candidates depend on MASTER_PORT.
TEST(Ports, NeverMasterPort) {
  for (int port = 15000; port < 32000; ++port) {
    const auto ports = read(kTorchrun + Set{{"MASTER_PORT", std::to_string(port)}})->ports;
    ASSERT_THAT(ports, testing::Not(testing::Contains(port)));
  }
}

TEST(Token, IsTheJobsOrTheOneThatIsSet) {
  const std::string token = read(kSrun)->token;
  EXPECT_EQ(read(kSrun + Set{{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}})->token, token);
  EXPECT_NE(read(kSrun + Set{{"SLURM_JOB_ID", "2"}})->token, token);
  EXPECT_NE(read(kByHand + Set{{"WORLD_SIZE", "5"}})->token, read(kByHand)->token);
  EXPECT_NE(read(kByHand + Set{{"MASTER_ADDR", "n2"}})->token, read(kByHand)->token);
  EXPECT_EQ(read(kSrun + Set{{"RATION_JOB_TOKEN", "secret"}})->token, "secret");
  // What is secret is in no port number, nor in a file.
  EXPECT_EQ(read(kSrun + Set{{"RATION_JOB_TOKEN", "secret"}})->job, read(kSrun)->job);
  EXPECT_EQ(read(kSrun)->job.size(), 16u);
  EXPECT_NE(read(kSrun + Set{{"SLURM_STEP_ID", "1"}})->job, read(kSrun)->job);
  EXPECT_EQ(read(kSrun + Set{{"RATION_JOB_TOKEN", "secret"}})->ports, read(kSrun)->ports);
}

}  // namespace
}  // namespace ration::test
