// What a launcher cannot have meant is refused, in words from which it can be mended.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ration/error.hpp>

#include "launchers.hpp"

namespace ration::test {
namespace {

using testing::HasSubstr;

std::string refusal(const Set& set) {
  try {
    read(set);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

struct Refused {
  std::string name;
  Set set;
  std::vector<std::string> says;
};

class Contradiction : public testing::TestWithParam<Refused> {};

TEST_P(Contradiction, NamesTheVariablesAndTheirValues) {
  const std::string text = refusal(GetParam().set);
  for (const std::string& part : GetParam().says) EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, testing::Not(HasSubstr("\n")));
}

INSTANTIATE_TEST_SUITE_P(
    Environment, Contradiction,
    testing::Values(
        Refused{"RankAboveSize",
                kByHand + Set{{"RANK", "4"}},
                {"RANK=\"4\" and WORLD_SIZE=\"4\": ranks go from 0 to 3"}},
        Refused{"NegativeRank",
                kByHand + Set{{"RANK", "-1"}},
                {"RANK=\"-1\": expected a whole number, 0 or more"}},
        Refused{"RankInWords", kByHand + Set{{"RANK", "two"}}, {"RANK=\"two\""}},
        Refused{"RankWithSpace", kByHand + Set{{"RANK", "1 "}}, {"RANK=\"1 \""}},
        Refused{"HugeRank", kByHand + Set{{"RANK", "99999999999"}}, {"RANK=\"99999999999\""}},
        Refused{"NoWorld",
                kByHand + Set{{"WORLD_SIZE", "0"}},
                {"WORLD_SIZE=\"0\": expected a whole number, 1 or more"}},
        Refused{"RankAlone",
                without(kByHand, "WORLD_SIZE"),
                {"RANK=\"2\" without WORLD_SIZE: set both, or neither"}},
        Refused{
            "RankAloneBelowSrun", kSrun + Set{{"RANK", "2"}}, {"RANK=\"2\" without WORLD_SIZE"}},
        Refused{"SizeAlone", without(kByHand, "RANK"), {"WORLD_SIZE=\"4\" without RANK"}},
        Refused{"HalfAnOverride",
                kByHand + Set{{"RATION_RANK", "1"}},
                {"RATION_RANK=\"1\" without RATION_WORLD_SIZE"}},
        Refused{"HalfAnMpi",
                without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"),
                {"OMPI_COMM_WORLD_RANK=\"1\" without OMPI_COMM_WORLD_SIZE"}},
        Refused{"LocalRankAboveSize",
                kTorchrun + Set{{"LOCAL_RANK", "2"}},
                {"LOCAL_RANK=\"2\" and LOCAL_WORLD_SIZE=\"2\""}},
        Refused{"LocalSizeAboveWorld",
                kTorchrun + Set{{"LOCAL_WORLD_SIZE", "5"}},
                {"LOCAL_WORLD_SIZE=\"5\" and WORLD_SIZE=\"4\""}},
        Refused{"ByHandAgainstMpisRank",
                kOpenMpi + Set{{"RANK", "0"}, {"WORLD_SIZE", "2"}},
                {"RANK=\"0\" and OMPI_COMM_WORLD_RANK=\"1\"", "RATION_RANK"}},
        Refused{"ByHandAgainstMpisSize",
                kOpenMpi + Set{{"RANK", "1"}, {"WORLD_SIZE", "4"}},
                {"WORLD_SIZE=\"4\" and OMPI_COMM_WORLD_SIZE=\"2\""}},
        Refused{"WorldSizeAgainstSlurm",
                kSrun + Set{{"WORLD_SIZE", "8"}},
                {"WORLD_SIZE=\"8\" and SLURM_STEP_NUM_TASKS=\"4\"", "srun"}},
        Refused{"PmixAgainstSlurm",
                kSrun + Set{{"PMIX_RANK", "1"}},
                {"PMIX_RANK=\"1\" and SLURM_PROCID=\"3\""}},
        Refused{"PmixAlone", {{"PMIX_RANK", "1"}}, {"PMIX_RANK=\"1\" without a number of ranks"}},
        Refused{"NoMaster",
                without(kByHand, "MASTER_ADDR"),
                {"WORLD_SIZE=\"4\" without MASTER_ADDR: set it on every rank"}},
        Refused{"NoMasterForTheOverride",
                {{"RATION_RANK", "0"}, {"RATION_WORLD_SIZE", "2"}},
                {"RATION_WORLD_SIZE=\"2\" without MASTER_ADDR"}},
        Refused{"MasterPort",
                kByHand + Set{{"MASTER_PORT", "65536"}},
                {"MASTER_PORT=\"65536\": expected a whole number, from 1 to 65535"}},
        Refused{"MasterPortZero", kTorchrun + Set{{"MASTER_PORT", "0"}}, {"MASTER_PORT=\"0\""}},
        Refused{"Port", kByHand + Set{{"RATION_PORT", "http"}}, {"RATION_PORT=\"http\""}},
        Refused{"PortOfTheAgent",
                kTorchrun + Set{{"RATION_PORT", "29500"}},
                {"RATION_PORT=\"29500\" and MASTER_PORT=\"29500\": torchrun's agent"}},
        Refused{"SlurmTasksNodelist",
                kSrun + Set{{"SLURM_STEP_NODELIST", "rn[1-"}},
                {"SLURM_STEP_NODELIST=\"rn[1-\""}},
        Refused{"SlurmNodeBeyondTheStep",
                kSrun + Set{{"SLURM_NODEID", "2"}},
                {"SLURM_NODEID=\"2\" and SLURM_STEP_TASKS_PER_NODE=\"3,1\""}},
        Refused{"SlurmLocalRank",
                kSrun + Set{{"SLURM_LOCALID", "1"}},
                {"SLURM_LOCALID=\"1\" and SLURM_STEP_TASKS_PER_NODE=\"3,1\""}},
        Refused{"SlurmWithoutAnAddress",
                without(without(without(kSrun, "SLURM_STEP_NODELIST"), "SLURM_JOB_NODELIST"),
                        "SLURM_LAUNCH_NODE_IPADDR"),
                {"SLURM_STEP_ID=\"0\" without SLURM_STEP_NODELIST: set MASTER_ADDR"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ration::test
