// The suite with MPI's ranks: mpirun starts this program on 8 ranks or more, each of which runs all
// tests, as its own rank in each.

#include <cstdlib>
#include <optional>

#include <gtest/gtest.h>

#include <ration/mpi.hpp>

#include "backends.hpp"

namespace ration {
namespace {

/// The first `ranks` of all processes; a rank's end is made of a ProcessGroup of its own, checked
/// as a job's is. `memory`: as RATION_SHARED_MEMORY.
Backend by_mpi(const std::string& name, const char* memory, bool bounce) {
  return {name, [memory, bounce](int ranks) {
            setenv("RATION_SHARED_MEMORY", memory, 1);
            MPI_Comm part = MPI_COMM_NULL;
            MPI_Comm_split(MPI_COMM_WORLD, only_rank < ranks ? 0 : MPI_UNDEFINED, only_rank, &part);
            Ranks result(static_cast<std::size_t>(ranks));
            if (part == MPI_COMM_NULL) return result;
            std::shared_ptr<Communicator> own = mpi::adopt(part).communicator();
            MPI_Comm_free(&part);
            if (bounce) own = std::make_shared<Bounce>(own);
            result[static_cast<std::size_t>(only_rank)] = own;
            return result;
          }};
}

}  // namespace
}  // namespace ration

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &ration::only_rank);
  ration::other_backends = {ration::by_mpi("mpi_shared", "on", true),
                            ration::by_mpi("mpi_messages", "off", false)};
  testing::InitGoogleTest(&argc, argv);
  if (ration::only_rank != 0) {  // one report is enough
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  const int status = RUN_ALL_TESTS();
  MPI_Finalize();
  return status;
}
