// Prints, as one line of JSON, what its launcher said: `null` where there was none.

#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launch/environment.hpp"

int main() {
  try {
    nlohmann::json json;
    if (const auto job = ration::read_environment()) {
      json = {{"launcher", job->launcher},
              {"rank", job->rank},
              {"size", job->size},
              {"local_rank", job->local_rank.value_or(-1)},
              {"local_size", job->local_size.value_or(-1)},
              {"hosts", job->hosts},
              {"ports", job->ports},
              {"token", job->token},
              {"mpi", job->mpi}};
    }
    // In one write: launchers mix what their ranks print.
    const std::string line = json.dump() + "\n";
    std::fwrite(line.data(), 1, line.size(), stdout);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
